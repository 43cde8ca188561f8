import base64
import hashlib
import json
import re
import time

import pytest

from faith_dspy.report.judgment import script_json, write_html
from faith_dspy.schema import Judgment, StatementVerdict, Unscored
from faith_dspy.text.sentences import sentences

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=2><!--<script> & \u2028 {{data}}"


def judged(answer, *found, **fields):
    """A judgment of ``answer`` with these statements; the text of a statement is its sentence's unless given."""
    parts = sentences(answer)
    statements = []
    for f in found:
        i = f.get("sentence_index")
        statements.append(StatementVerdict(**{"text": answer if i is None else parts[i].text, **f}))
    scored = {} if "unscored" in fields else {"score": 0.5, "faithful": False}
    return Judgment(sentences=parts, statements=tuple(statements), **{**scored, **fields})


def quoted(text):
    """Fields of a statement that quotes the beginning of the first chunk."""
    return {"quotes": (text,), "quote_spans": ({"chunk_id": 0, "start": 0, "end": len(text)},)}


def data_of(page):
    """The JSON a browser finds in the page's data element."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def written(tmp_path, *items, **keywords):
    write_html(iter(items), tmp_path / "page.html", **keywords)
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def item_of(tmp_path, *given):
    """What the page knows of one answer."""
    return data_of(written(tmp_path, given if len(given) > 1 else given[0]))["items"][0]


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
        "supporting_chunk_ids": (0,),
        "quotes": ("July 20, 1969",),
        "quote_spans": ({"chunk_id": 0, "start": 13, "end": 26},),
    },
    {
        "text": "The crew stayed for five hours.",
        "sentence_index": 1,
        "verdict": "contradictory",
        "supporting_chunk_ids": (1,),
        "quotes": ("for two hours",),
        "quote_spans": ({"chunk_id": 1, "start": 12, "end": 25},),
        "reason": "Two, not five.",
        "confidence": 0.04,
    },
    {"text": "There was a crew.", "sentence_index": 1, "verdict": "partially_supported"},
)


def test_page_needs_nothing_but_itself(tmp_path):
    page = written(tmp_path, (APOLLO, APOLLO_JUDGED))
    assert not re.search(r"https?:|url\(|@import|\bsrc=", page)
    assert re.findall("<link.*?>", page) == ['<link rel="icon" href="data:,">']
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert "innerHTML" not in page


def test_hostile_text_stays_data(tmp_path):
    """Markup in question, answer, chunk, source, reason, id and title cannot leave the data, and parses back."""
    record = {"id": HOSTILE, "question": HOSTILE, "context": [{"text": HOSTILE, "source": HOSTILE}], "answer": HOSTILE}
    page = written(
        tmp_path, (record, judged(HOSTILE, {"verdict": "no_evidence", "reason": HOSTILE})), title=f"T{HOSTILE}"
    )
    assert len(re.findall("<script", page)) == 2
    assert "<img" not in page
    assert "\u2028" not in page.partition('id="data"')[2]
    found = data_of(page)["items"][0]
    assert found["question"] == found["id"] == found["statements"][0]["grounds"] == HOSTILE
    assert found["chunks"][0]["source"] == HOSTILE
    assert "".join(p[0] for p in found["parts"]) == HOSTILE


@pytest.mark.parametrize("text", [HOSTILE, "\ud800 alone", "\x00\x1b", "𝒳 🚀 ملح", "]]>", "\\u003c/script>"])
def test_script_json_parses_back(text):
    """What stands in the script element is the value again, half a surrogate pair included."""
    encoded = script_json({"text": text})
    assert json.loads(encoded) == {"text": text}
    encoded.encode()
    assert not re.search("[<>&\u2028\u2029]", encoded)


@pytest.mark.parametrize("worse", ["contradictory", "not_supported", "no_evidence", "partially_supported", None])
def test_anything_is_worse_than_supported(tmp_path, worse):
    found = item_of(
        tmp_path,
        {"answer": "A is B."},
        judged("A is B.", *({"sentence_index": 0, "verdict": v} for v in ("fully_supported", worse))),
    )
    assert found["parts"] == [["A is B.", worse or "unjudged", [0, 1]]]


def test_bare_judgment_shows_its_sentences(tmp_path):
    found = item_of(tmp_path, APOLLO_JUDGED)
    assert "".join(p[0] for p in found["parts"]) == APOLLO["answer"]
    assert (found["bare"], found["question"], found["chunks"]) == (True, None, [])
    APOLLO_JUDGED.to_html(tmp_path / "bare.html")
    assert data_of((tmp_path / "bare.html").read_text(encoding="utf-8"))["items"] == [found]


def test_wrong_answer_is_not_coloured(tmp_path):
    """Verdicts are never laid over an answer they do not belong to."""
    found = item_of(tmp_path, {**APOLLO, "answer": "Something else."}, APOLLO_JUDGED)
    assert "".join(p[0] for p in found["parts"]) == APOLLO["answer"]
    assert "not the one that was judged" in found["notes"][0]


@pytest.mark.parametrize(
    "record",
    [{"context": 3, "answer": "A."}, {"answer": None}, {"conversation": []}, {"context": [{}], "answer": 7}, {}],
)
def test_unreadable_record_does_not_end_the_page(tmp_path, record):
    """A record that could not be judged is shown with the reason."""
    found = item_of(tmp_path, record, Judgment(unscored=Unscored.PARSE_FAILED, detail="the record cannot be read: …"))
    assert found["unscored"] == "parse_failed"
    assert found["detail"] == "the record cannot be read: …"
    assert found["chunks"] == []


def test_quotes_are_marked_where_they_stand(tmp_path):
    record = {"context": ["Der Bericht, 2024!", "Bericht"], "answer": "A."}

    def quoting(*spans, quotes):
        at = [{"chunk_id": c, "start": a, "end": b} for c, a, b in spans]
        ids = {"supporting_chunk_ids": (0,), "quotes": quotes, "quote_spans": at}
        return {"sentence_index": 0, "verdict": "fully_supported", **ids}

    found = item_of(
        tmp_path,
        record,
        judged(
            "A.",
            quoting((0, 4, 17), (1, 0, 7), quotes=("Bericht, 2024", "another")),
            quoting((0, 4, 11), quotes=("Bericht",)),
        ),
    )
    first, second = found["chunks"]
    assert first["parts"] == [["Der "], ["Bericht", [0, 1]], [", 2024", [0]], ["!"]]
    assert second["parts"] == [["Bericht"]]


def test_summary_by_hand(tmp_path):
    """Faithful ones are counted among the scored, and why the others are not; no judgments make a page, too."""
    rows = [
        judged("A.", {"sentence_index": 0, "verdict": "fully_supported"}, score=1, faithful=True),
        judged(
            "A.", {"sentence_index": 0, "verdict": "no_evidence"}, {"verdict": None, "sentence_index": 0}, score=0.25
        ),
        judged("A.", unscored="abstained"),
        judged("A.", unscored="lm_failed"),
        judged("A.", unscored="lm_failed"),
    ]
    top = data_of(written(tmp_path, *rows, total=9))["summary"]
    assert top == {
        "n": 5,
        "total": 9,
        "scored": 2,
        "faithful": 1,
        "unscored": {"lm_failed": 2, "abstained": 1},
        "verdicts": {"fully_supported": 1, "no_evidence": 1, "unjudged": 1},
    }
    write_html([], tmp_path / "new" / "page.html")  # in a folder that is made for it
    assert data_of((tmp_path / "new" / "page.html").read_text())["items"] == []


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
    record = {"id": HOSTILE, "question": HOSTILE, "context": [{"text": HOSTILE, "source": HOSTILE}], "answer": HOSTILE}
    found = {"verdict": "no_evidence", "text": HOSTILE + "!", "reason": HOSTILE, "supporting_chunk_ids": (0,)}
    page = show((record, judged(HOSTILE, {**found, **quoted(HOSTILE), "error": HOSTILE})))
    page.wait("document.readyState === 'complete'")
    assert page.js("document.querySelectorAll('img, .card script').length") == 0
    assert page.js("window.hit === undefined")
    for selector in ("h2", ".panel .text", ".panel .reason", ".panel blockquote", ".chunk .words", ".chunk .where"):
        assert "<img src=x onerror=window.hit=2>" in page.texts(selector)[0], selector
    requests = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert [u for u in requests if not u.startswith(("file:", "data:"))] == []
    assert [e for e in page.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")] == []


def test_keyboard_goes_everywhere(show):
    """Arrows go from sentence to sentence and answer to answer, Enter holds, Escape lets go, chips lead to chunks."""
    page = show((APOLLO, APOLLO_JUDGED), (APOLLO, judged(APOLLO["answer"])), (APOLLO, APOLLO_JUDGED))
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
    assert page.js("document.activeElement.closest('.card') === document.querySelectorAll('.card')[2]")
    page.key("ArrowUp")
    assert page.js("document.activeElement.closest('.card') === document.querySelectorAll('.card')[0]")


def test_closest_chunks_where_there_is_no_evidence(show):
    found = {"sentence_index": 0, "verdict": "no_evidence", "closest_chunk_ids": (1,)}
    one = {**APOLLO, "context": APOLLO["context"][:1]}
    page = show(*((record, judged(APOLLO["answer"], found)) for record in (APOLLO, one)))
    assert [text.split() for text in page.texts(".panel .chips")] == [["closest", "[1]"]]


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
    def record(key):
        return {"id": key, "question": f"About {key}", "context": [f"Chunk of {key.upper()}."], "answer": "A is B."}

    def verdict(v):
        return {"sentence_index": 0, "verdict": v, "reason": f"because {v}"}

    page = show(
        (record("half"), judged("A is B.", verdict("partially_supported"), score=0.5, probability=0.2)),
        (record("none"), judged("A is B.", unscored="too_long")),
        (record("full"), judged("A is B.", verdict("fully_supported"), score=1, faithful=True, probability=0.9)),
        (record("zero"), judged("A is B.", verdict("contradictory"), score=0, probability=0.3)),
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
