import base64
import hashlib
import json
import re
import time

import pytest

from faith_dspy import Judge
from faith_dspy.report.judgment import script_json, write_html
from faith_dspy.schema import Citations, Judgment, StatementVerdict
from faith_dspy.text.sentences import sentences

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=2><!--<script> & \u2028 {{data}}"

KETTLE = "The kettle is blue."


def judged(answer, *found, **fields):
    """A judgment of ``answer`` with these statements; the text of a statement is its sentence's unless given."""
    parts = sentences(answer)
    texts = (
        {
            "text": answer if (i := f.get("sentence_index")) is None else parts[i].text,
            **f,
        }
        for f in found
    )
    scored = {} if "unscored" in fields else {"score": 0.5, "faithful": False}
    statements = tuple(StatementVerdict(**f) for f in texts)
    return Judgment(sentences=parts, statements=statements, **{**scored, **fields})


def quoting(*spans, quotes):
    """Fields of a statement that quotes chunk 0, and what was found where: (chunk, start, end)."""
    at = tuple({"chunk_id": c, "start": a, "end": b} for c, a, b in spans)
    return {"supporting_chunk_ids": (0,), "quotes": quotes, "quote_spans": at}


def data_of(page):
    """The JSON a browser finds in the page's data element."""
    return json.loads(
        re.search(
            r'<script type="application/json" id="data">(.*?)</script>', page, re.S
        )[1]
    )


@pytest.fixture
def written(tmp_path):
    """Writes a page: its text."""

    def write(*items, **keywords):
        write_html(
            iter(items), tmp_path / "new" / "page.html", **keywords
        )  # in a folder that is made for it
        return (tmp_path / "new" / "page.html").read_text(encoding="utf-8")

    return write


APOLLO = {
    "id": "apollo",
    "question": "When did it land?",
    "context": [
        {"text": "It landed on July 20, 1969.", "source": "log.txt"},
        "They stayed for two hours.",
        "Unrelated.",
    ],
    "answer": "It landed in 1969. 🚀 They stayed for five hours! Shall I go on?",
}
APOLLO_JUDGED = judged(
    APOLLO["answer"],
    {
        "sentence_index": 0,
        "verdict": "fully_supported",
        **quoting((0, 13, 26), quotes=("July 20, 1969",)),
    },
    {
        "text": "The crew stayed for five hours.",
        "sentence_index": 1,
        "verdict": "contradictory",
        **quoting((1, 12, 25), quotes=("for two hours",)),
        "supporting_chunk_ids": (1,),
        "reason": "Two, not five.",
        "confidence": 0.04,
    },
    {
        "text": "There was a crew.",
        "sentence_index": 1,
        "verdict": "partially_supported",
    },
)
HOSTILE_RECORD = {
    **{"id": HOSTILE, "question": HOSTILE, "answer": HOSTILE},
    "context": [{"text": HOSTILE, "source": HOSTILE}],
}


def test_page_needs_nothing_but_itself_and_hostile_text_stays_data(written):
    """Nothing is fetched and no other script runs; markup in question, answer, chunk, source, reason, id and title
    cannot leave the data, and parses back."""
    found = judged(HOSTILE, {"verdict": "no_evidence", "reason": HOSTILE})
    page = written((HOSTILE_RECORD, found), title=f"T{HOSTILE}")
    code = page.replace(HOSTILE, "")
    assert not re.search(
        r"https?:|url\(|@import|<[^>]*\bsrc=|innerHTML",
        re.sub(r'id="data">.*?</script>', "", code),
    )
    assert re.findall("<link.*?>", page) == ['<link rel="icon" href="data:,">']
    for tag, text in re.findall("<(style|script)>(.*?)</", page, re.S):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page
    assert len(re.findall("<script", page)) == 2
    assert "<img" not in page
    assert "\u2028" not in page.partition('id="data"')[2]
    (item,) = data_of(page)["items"]
    assert item["question"] == item["id"] == item["statements"][0]["grounds"] == HOSTILE
    assert (
        item["chunks"][0]["source"] == "".join(p[0] for p in item["parts"]) == HOSTILE
    )


def test_nothing_in_a_page_turns_its_letters_round(written):
    """What shows letters in another order, and C1 controls, are signs of the same length."""
    text = "The \u202ekettle\u2066 is\x9b\x85 blue."
    page = written(judged(text), title=text, judge=text)
    assert not re.search("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert "The \ufffdkettle\ufffd is\ufffd\ufffd blue." in page


@pytest.mark.parametrize(
    "text", [HOSTILE, "\ud800 alone", "\x00\x1b", "𝒳 🚀 ملح", "]]>", "\\u003c/script>"]
)
def test_script_json_parses_back(text):
    """What stands in the script element is the value again, half a surrogate pair included."""
    encoded = script_json({"text": text})
    assert json.loads(encoded) == {"text": text}
    encoded.encode()
    assert not re.search("[<>&\u2028\u2029]", encoded)


@pytest.mark.parametrize("worse", ["contradictory", "partially_supported", None])
def test_anything_is_worse_than_supported(written, worse):
    verdicts = ({"sentence_index": 0, "verdict": v} for v in ("fully_supported", worse))
    page = written(({"answer": "A is B."}, judged("A is B.", *verdicts)))
    (item,) = data_of(page)["items"]
    assert item["parts"] == [["A is B.", worse or "unjudged", [0, 1]]]


def test_a_judgment_shows_its_own_sentences(written, tmp_path):
    """Without its record, too; verdicts are never laid over an answer they do not belong to."""
    page = written(
        APOLLO_JUDGED, ({**APOLLO, "answer": "Something else."}, APOLLO_JUDGED)
    )
    bare, other = data_of(page)["items"]
    for item in (bare, other):
        assert "".join(p[0] for p in item["parts"]) == APOLLO["answer"]
        assert [p[2] for p in item["parts"] if len(p) > 1] == [[0], [1, 2]]
    assert (bare["bare"], bare["question"], bare["chunks"]) == (True, None, [])
    own = {"question": "Which?", "context": [KETTLE], "answer": "It is blue."}
    Judge("none")(**own).to_html(tmp_path / "own.html")
    (item,) = data_of((tmp_path / "own.html").read_text(encoding="utf-8"))["items"]
    assert item["question"] == "Which?"
    assert item["chunks"][0]["parts"][0][0] == KETTLE
    assert item["parts"][0][0] == "It is blue."


def test_unreadable_record_does_not_end_the_page(written):
    """A record that could not be judged is shown with the reason."""
    why = Judgment(unscored="parse_failed", detail="the record cannot be read: …")
    contexts = ({"context": 3, "answer": "A."}, {"context": [{}], "answer": 7})
    records = (*contexts, {"answer": None}, {"conversation": []}, {})
    items = data_of(written(*((record, why) for record in records)))["items"]
    assert [(i["detail"], i["chunks"]) for i in items] == [(why.detail, [])] * 5


def test_quotes_are_marked_where_they_stand(written):
    record = {"context": ["Der Bericht, 2024!", "Bericht"], "answer": "A."}
    both = quoting((0, 4, 17), (1, 0, 7), quotes=("Bericht, 2024", "another"))
    verdict = {"sentence_index": 0, "verdict": "fully_supported"}
    found = judged("A.", verdict | both, verdict | quoting((0, 4, 11), quotes=("Bericht",)))  # fmt: skip
    first, second = data_of(written((record, found)))["items"][0]["chunks"]
    assert first["parts"] == [["Der "], ["Bericht", [0, 1]], [", 2024", [0]], ["!"]]
    assert second["parts"] == [["Bericht"]]


def test_summary_by_hand(written):
    """Faithful ones are counted among the scored, and why the others are not; no judgments make a page, too."""
    supported, none, unjudged = (
        {"sentence_index": 0, "verdict": v}
        for v in ("fully_supported", "no_evidence", None)
    )
    rows = [
        judged("A.", supported, score=1, faithful=True),
        judged("A.", none, unjudged, score=0.25),
        *(
            judged("A.", unscored=why)
            for why in ("abstained", "lm_failed", "lm_failed")
        ),
    ]
    assert data_of(written(*rows, total=9))["summary"] == {
        "n": 5,
        "total": 9,
        "scored": 2,
        "faithful": 1,
        "unscored": {"lm_failed": 2, "abstained": 1},
        "verdicts": {"fully_supported": 1, "no_evidence": 1, "unjudged": 1},
    }
    assert data_of(written())["items"] == []


# In Chromium


@pytest.fixture
def show(browser, tmp_path):
    """Write items as a page and open it."""

    def show(*items, **how):
        write_html(items, tmp_path / "page.html")
        browser.open(tmp_path / "page.html", **how)
        return browser

    return show


def test_hostile_text_is_text_in_a_browser(show):
    """Markup in records is shown as written; nothing of it runs, nothing is fetched, no error is logged."""
    words = dict.fromkeys(("text", "reason", "error"), HOSTILE)
    found = {"verdict": "no_evidence", **words}
    found |= quoting((0, 0, len(HOSTILE)), quotes=(HOSTILE,))
    page = show((HOSTILE_RECORD, judged(HOSTILE, found)))
    page.wait("document.readyState === 'complete'")
    assert page.js("document.querySelectorAll('img, .card script').length") == 0
    assert page.js("window.hit === undefined")
    panel, chunk = (".text", ".reason", "blockquote"), (".words", ".where")
    places = (*(f".panel {part}" for part in panel), *(f".chunk {part}" for part in chunk))  # fmt: skip
    for part in ("h2", *places):
        assert "<img src=x onerror=window.hit=2>" in page.texts(part)[0], part
    requests = (e["params"] for e in page.events if "WillBeSent" in e["method"])
    urls = [params["request"]["url"] for params in requests]
    assert [u for u in urls if not u.startswith(("file:", "data:"))] == []
    faults = {"Runtime.exceptionThrown", "Log.entryAdded"}
    assert faults.isdisjoint(e["method"] for e in page.events)


def test_keyboard_goes_everywhere(show):
    """Arrows go from sentence to sentence and answer to answer, Enter holds, Escape lets go, chips lead to chunks."""
    page = show(
        (APOLLO, APOLLO_JUDGED),
        (APOLLO, judged(APOLLO["answer"])),
        (APOLLO, APOLLO_JUDGED),
    )
    page.js("document.querySelector('#verdicts input:last-of-type').focus()")
    for _ in range(8):
        page.key("Tab")
        if page.js("document.activeElement.matches('.s')"):
            break
    assert "five hours" in page.js("document.activeElement.innerText")
    page.key("ArrowLeft")
    assert page.texts(".card:first-child .chunk.lit .where b") == ["[0]"]
    page.key("Enter")
    assert page.js("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.key("Escape")
    assert page.js("document.activeElement.getAttribute('aria-pressed')") == "false"
    page.key("ArrowRight", "Tab")
    assert page.js("document.activeElement.textContent") == "[1]"
    page.key("Enter")
    assert "They stayed for two hours." in page.js("document.activeElement.innerText")
    page.key("Escape", "ArrowDown")
    assert page.js(
        "document.activeElement.closest('.card') === document.querySelectorAll('.card')[2]"
    )
    page.key("ArrowUp")
    assert page.js(
        "document.activeElement.closest('.card') === document.querySelectorAll('.card')[0]"
    )


def test_closest_chunks_where_there_is_no_evidence(show):
    found = {"sentence_index": 0, "verdict": "no_evidence", "closest_chunk_ids": (1,)}
    one = {**APOLLO, "context": APOLLO["context"][:1]}
    page = show(
        *((record, judged(APOLLO["answer"], found)) for record in (APOLLO, one))
    )
    assert [text.split() for text in page.texts(".panel .chips")] == [
        ["closest", "[1]"]
    ]


def choose(page, field, value):
    """Set a filter; the ids then shown."""
    page.js(
        f"(() => {{ const e = document.querySelector({json.dumps(field)});"
        f"if (e.type === 'checkbox') e.click(); else {{ e.value = {json.dumps(value)};"
        "for (const t of ['input', 'change']) e.dispatchEvent(new Event(t, {bubbles: true})) } })()"
    )
    time.sleep(0.3)
    return [t.split(" · ")[1] for t in page.texts(".id")]


def test_filter_search_and_sort(show):
    answer = "A is B."

    def item(key, verdict=None, **fields):
        found = {"sentence_index": 0, "verdict": verdict, "reason": f"because {verdict}"}  # fmt: skip
        context = [f"Chunk of {key.upper()}."]
        record = {"id": key, "context": context, "answer": answer}
        return record, judged(answer, *[found] * bool(verdict), **fields)

    page = show(
        item("half", "partially_supported", score=0.5, probability=0.2),
        item("none", unscored="too_long"),
        item("full", "fully_supported", score=1, faithful=True, probability=0.9),
        item("zero", "contradictory", score=0, probability=0.3),
    )
    assert choose(page, "#sort", "up") == ["half", "zero", "full", "none"]
    assert choose(page, "#sort", "down") == ["full", "zero", "half", "none"]
    assert choose(page, "#sort", "") == ["half", "none", "full", "zero"]
    assert choose(page, "#outcome", "unfaithful") == ["half", "zero"]
    assert choose(page, "#outcome", "unscored:too_long") == ["none"]
    assert choose(page, "#outcome", "") == ["half", "none", "full", "zero"]
    assert choose(page, "input[value=contradictory]", "") == ["zero"]
    assert choose(page, "input[value=fully_supported]", "") == ["full", "zero"]
    assert choose(page, "#search", "because contra") == ["zero"]
    assert page.texts("#count") == ["1 of 4 shown"]
    assert choose(page, "#search", "chunk of FULL") == ["full"]
    assert choose(page, "#search", "nowhere") == []
    assert page.texts(".empty") == ["No answer matches."]


def test_answers_that_people_judged_otherwise(show):
    """The list names where judge and people differ, whatever word the label is, and where a citation is wrong."""
    supported = {"sentence_index": 0, "verdict": "fully_supported"}
    wrong = {"cited_chunk_ids": (1,), "citations_support": False}

    def item(key, label, statement=supported, **fields):
        record = {"id": key, "context": ["It is.", "B."], "answer": "A is B [1]."}
        scored = {"score": 1, "faithful": True}
        return {**record, "faithful": label}, judged(
            "A is B [1].", statement, **scored, **fields
        )

    page = show(
        item("same", "yes"),
        item("differs", "no"),
        item("nobody", "perhaps"),
        item("miscites", True, supported | wrong, citations=Citations(precision=0)),
    )
    options = page.texts("#outcome option")
    assert "label differs (1)" in options
    assert "citations that do not support (1)" in options
    assert "agrees with the labels on 2 of 3" in page.texts(".tile p")
    assert choose(page, "#outcome", "disagree") == ["differs"]
    assert choose(page, "#outcome", "miscited") == ["miscites"]
    assert page.texts(".s .miscites") == ["\u2060≠"]
    assert page.texts(".chunk.by .cited") == ["cited"]


def test_200_answers_a_page(show):
    """The buttons turn pages; a filter begins at the first again."""
    rows = [
        ({"id": str(i), "answer": "A is B."}, judged("A is B.")) for i in range(450)
    ]
    page = show(*rows)
    assert page.texts("#where") == ["1–200 of 450"]
    assert page.js("earlier.disabled && !later.disabled")
    page.point("#later", click=True)
    page.wait("document.querySelectorAll('.card').length === 200")
    assert page.texts("#where") == ["201–400 of 450"]
    page.point("#later", click=True)
    page.wait("document.querySelectorAll('.card').length === 50")
    assert page.js("document.querySelector('.card:last-child .id').textContent") == (
        "#450 · 449"
    )
    assert page.js("!earlier.disabled && later.disabled")
    page.js(
        "(sort.value = 'up', sort.dispatchEvent(new Event('change', {bubbles: true})))"
    )
    assert page.texts("#where") == ["1–200 of 450"]


def test_citations_are_in_the_page(written):
    """What each statement cites beside what supports it, and the figures of the answer."""
    answer = f"{KETTLE[:-1]} [1]. It weighs 900 grams [1]. The cord is one metre long."
    context = [KETTLE, "It weighs 900 grams.", "The cord is one metre long."]
    record = {"context": context, "answer": answer}
    page = written((record, Judge("none")(**record)))
    (item,) = data_of(page)["items"]
    names = ("cited_chunk_ids", "supporting_chunk_ids", "citations_support")
    shown = [[statement[name] for name in names] for statement in item["statements"]]
    assert shown == [[[0], [0], True], [[0], [1], False], [[], [2], None]]
    assert item["notes"] == ["citations: precision 0.50, recall 0.33."]
