import base64
import hashlib
import json
import re

import pytest

from faith_dspy import Judge
from faith_dspy.report.judgment import write_html
from faith_dspy.schema import Citations, Judgment
from tests.support.judgments import judged

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=2><!--<script> & \u2028 {{data}}"

KETTLE = "The kettle is blue."


SUPPORTED, NONE = {"verdict": "fully_supported"}, {"verdict": "no_evidence"}
FAITHFUL = {"score": 1, "faithful": True}


def quoting(*spans, quotes):
    """Fields of a statement that quotes chunk 0, and what was found where: (chunk, start, end)."""
    at = tuple({"chunk_id": c, "start": a, "end": b} for c, a, b in spans)
    return {"supporting_chunk_ids": (0,), "quotes": quotes, "quote_spans": at}


def data_of(page):
    """The JSON a browser finds in the page's data element."""
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])


@pytest.fixture
def written(tmp_path):
    """Writes a page in a folder that is made for it: its text."""
    path = tmp_path / "new" / "page.html"

    def write(*items, **keywords):
        write_html(iter(items), path, **keywords)
        return path.read_text(encoding="utf-8")

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
    SUPPORTED | quoting((0, 13, 26), quotes=("July 20, 1969",)),
    {
        "text": "The crew stayed for five hours.",
        "sentence_index": 1,
        "verdict": "contradictory",
        **quoting((1, 12, 25), quotes=("for two hours",)),
        "supporting_chunk_ids": (1,),
    },
    {"sentence_index": 1, "verdict": "partially_supported"},
)
HOSTILE_RECORD = dict.fromkeys(("id", "question", "answer"), HOSTILE)
HOSTILE_RECORD |= {"context": [{"text": HOSTILE, "source": HOSTILE}]}


def test_page_needs_nothing_but_itself_and_hostile_text_stays_data(written):
    """Nothing is fetched and no other script runs; markup in question, answer, chunk, source, reason, id and title
    cannot leave the data, and parses back."""
    found = judged(HOSTILE, NONE | {"sentence_index": None, "reason": HOSTILE})
    half = HOSTILE_RECORD | {"id": f"{HOSTILE}\ud800"}
    page = written((half, found), title=f"T{HOSTILE}")
    code = re.sub(r'id="data">.*?</script>', "", page)
    assert not re.search(r"https?:|url\(|@import|<[^>]*\bsrc=|innerHTML", code)
    assert re.findall("<link.*?>", page) == ['<link rel="icon" href="data:,">']
    for tag, text in re.findall("<(style|script)>(.*?)</", page, re.S):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page
    assert len(re.findall("<script", page)) == 2
    assert "<img" not in page
    assert "\u2028" not in page.partition('id="data"')[2]
    (item,) = data_of(page)["items"]
    assert item["id"] == half["id"]
    said = [item["question"], item["statements"][0]["grounds"]]
    said += [item["chunks"][0]["source"], "".join(part[0] for part in item["parts"])]
    assert said == [HOSTILE] * 4


def test_nothing_in_a_page_turns_its_letters_round(written):
    """What shows letters in another order, and C1 controls, are signs of the same length."""
    text = "The \u202ekettle\u2066 is\x9b\x85 blue."
    page = written(judged(text), title=text, judge=text)
    assert not re.search("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert "The \ufffdkettle\ufffd is\ufffd\ufffd blue." in page


def test_what_was_not_judged_is_worse_than_supported(written):
    (item,) = data_of(written(judged("A is B.", SUPPORTED, {})))["items"]
    assert item["parts"] == [["A is B.", "unjudged", [0, 1]]]


def test_a_judgment_shows_its_own_sentences(written, tmp_path):
    """Without its record, too; verdicts are never laid over an answer they do not belong to."""
    other = APOLLO | {"answer": "Something else."}
    page = written(APOLLO_JUDGED, (other, APOLLO_JUDGED))
    bare, other = data_of(page)["items"]
    for item in (bare, other):
        assert "".join(p[0] for p in item["parts"]) == APOLLO["answer"]
        verdicts = [p[1:] for p in item["parts"] if len(p) > 1]
        assert verdicts == [["fully_supported", [0]], ["contradictory", [1, 2]]]
    assert (bare["bare"], bare["question"], bare["chunks"]) == (True, None, [])
    own = {"question": "Which?", "context": [KETTLE], "answer": "It is blue."}
    Judge("none")(**own).to_html(tmp_path / "own.html")
    (item,) = data_of((tmp_path / "own.html").read_text(encoding="utf-8"))["items"]
    assert item["chunks"][0]["parts"][0][0] == KETTLE


def test_unreadable_record_does_not_end_the_page(written):
    """A record that could not be judged is shown with the reason."""
    why = Judgment(unscored="parse_failed", detail="the record cannot be read: …")
    records = ({"context": 3, "answer": "A."}, {"conversation": []}, {})
    items = data_of(written(*((record, why) for record in records)))["items"]
    assert [(i["detail"], i["chunks"]) for i in items] == [(why.detail, [])] * 3


def test_quotes_are_marked_where_they_stand(written):
    record = {"context": ["Der Bericht, 2024!", "Bericht"], "answer": "A."}
    both = quoting((0, 4, 17), (1, 0, 7), quotes=("Bericht, 2024", "another"))
    one = quoting((0, 4, 11), quotes=("Bericht",))
    found = judged("A.", SUPPORTED | both, SUPPORTED | one)
    first, second = data_of(written((record, found)))["items"][0]["chunks"]
    assert first["parts"] == [["Der "], ["Bericht", [0, 1]], [", 2024", [0]], ["!"]]
    assert second["parts"] == [["Bericht"]]


# In Chromium


@pytest.fixture
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def show(page, tmp_path):
    """Write items as a page and open it."""

    def show(*items, **how):
        write_html(items, tmp_path / "page.html", **how)
        page.goto((tmp_path / "page.html").as_uri())

    return show


def texts(page, selector):
    """What the elements of a kind show."""
    return page.locator(selector).all_inner_texts()


def test_hostile_text_is_text_in_a_browser(page, show):
    """Markup in records is shown as written; nothing of it runs, nothing is fetched, no error is logged."""
    found = NONE | dict.fromkeys(("text", "reason", "error"), HOSTILE)
    found |= quoting((0, 0, len(HOSTILE)), quotes=(HOSTILE,))
    urls, faults = [], []
    page.on("request", lambda request: urls.append(request.url))
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(error))
    show((HOSTILE_RECORD, judged(HOSTILE, found)))
    assert page.locator("img, .card script").count() == 0
    assert page.evaluate("window.hit === undefined")
    for part in ("h2", ".text", ".reason", "blockquote", ".words", ".where"):
        assert "<img src=x onerror=window.hit=2>" in texts(page, part)[0], part
    assert [u for u in urls if not u.startswith(("file:", "data:"))] == []
    assert faults == []


def test_keyboard_goes_everywhere(page, show):
    """Arrows go from sentence to sentence and answer to answer, Enter holds, Escape lets go, chips lead to chunks."""
    show(
        (APOLLO, APOLLO_JUDGED),
        (APOLLO, judged(APOLLO["answer"])),
        (APOLLO, APOLLO_JUDGED),
    )
    page.locator("#verdicts input").last.focus()
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.s')"):
            break
    assert "five hours" in page.evaluate("document.activeElement.innerText")
    page.keyboard.press("ArrowLeft")
    assert texts(page, ".card:first-child .chunk.lit .where b") == ["[0]"]
    page.keyboard.press("Enter")
    assert (
        page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    )
    page.keyboard.press("Escape")
    assert (
        page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "false"
    )
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "[1]"
    page.keyboard.press("Enter")
    assert "They stayed for two hours." in page.evaluate(
        "document.activeElement.innerText"
    )
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("!!document.activeElement.closest('.card:nth-child(3)')")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("!!document.activeElement.closest('.card:nth-child(1)')")


def test_closest_chunks_where_there_is_no_evidence(page, show):
    """None where the context has one chunk alone."""
    found = judged(APOLLO["answer"], NONE | {"closest_chunk_ids": (1,)})
    one = APOLLO | {"context": APOLLO["context"][:1]}
    show((APOLLO, found), (one, found))
    (chips,) = texts(page, ".panel .chips")
    assert chips.split() == ["closest", "[1]"]


def test_summary_by_hand(page, show):
    """Faithful ones are counted among the scored, and why the others are not; no judgments make a page, too."""
    rows = [judged("A.", SUPPORTED, **FAITHFUL), judged("A.", NONE, {})]
    reasons = "abstained", "lm_failed", "lm_failed"
    rows += [judged("A.", unscored=reason) for reason in reasons]
    for items, tiles in (
        (
            rows,
            [
                "first answers of 9",
                "faithful: 1 of 2 scored",
                "coverage; not scored: 2\xa0LM failed, 1\xa0abstained",
                "3 statements",
            ],
        ),
        ([], ["first answers of 9", "faithful: 0 of 0 scored", "coverage"]),
    ):
        show(*items, total=9)
        assert texts(page, ".tile p") == tiles
    assert texts(page, ".empty") == ["There are no answers."]


def choose(page, field, value):
    """Set a filter; the ids then shown."""
    element = page.locator(field)
    if field.startswith("input"):
        element.dispatch_event("click")
    elif field == "#search":
        element.fill(value)
    else:
        element.select_option(value)
    page.wait_for_timeout(300)
    return " ".join(text.partition(" · ")[2] for text in texts(page, ".id"))


def test_filter_search_and_sort(page, show):
    def item(key, *verdicts, **fields):
        found = [{"verdict": v, "reason": f"because {v}"} for v in verdicts]
        context = [f"Chunk of {key.upper()}."]
        record = {"id": key, "context": context, "answer": "A is B."}
        return record, judged("A is B.", *found, **fields)

    show(
        item("half", "partially_supported", probability=0.2),
        item("none", unscored="too_long"),
        item("full", "fully_supported", probability=0.9, **FAITHFUL),
        item("zero", "contradictory", probability=0.3),
    )
    for field, value, ids in (
        ("#sort", "up", "half zero full none"),
        ("#sort", "", "half none full zero"),
        ("#outcome", "unscored:too_long", "none"),
        ("#outcome", "", "half none full zero"),
        ("input[value=contradictory]", "", "zero"),
        ("input[value=fully_supported]", "", "full zero"),
        ("#search", "because contra", "zero"),
        ("#search", "chunk of FULL", "full"),
    ):
        assert choose(page, field, value) == ids
    assert texts(page, "#count") == ["1 of 4 shown"]
    assert choose(page, "#search", "nowhere") == ""
    assert texts(page, ".empty") == ["No answer matches."]


def test_answers_that_people_judged_otherwise(page, show):
    """The list names where judge and people differ, whatever word the label is, and where a citation is wrong."""
    wrong = SUPPORTED | {"cited_chunk_ids": (1,), "citations_support": False}
    record = {"context": ["It is.", "B."], "answer": "A is B [1]."}
    passed = judged(record["answer"], SUPPORTED, **FAITHFUL)
    cites = Citations(precision=0)
    miscited = judged(record["answer"], wrong, citations=cites, **FAITHFUL)
    labels = {"same": "yes", "differs": "no", "nobody": "perhaps", "miscites": True}
    records = [record | {"id": id, "faithful": said} for id, said in labels.items()]
    show(*zip(records, [passed] * 3 + [miscited], strict=True))
    options = texts(page, "#outcome option")
    assert "label differs (1)" in options
    assert "citations that do not support (1)" in options
    assert "agrees with the labels on 2 of 3" in texts(page, ".tile p")
    assert choose(page, "#outcome", "disagree") == "differs"
    assert choose(page, "#outcome", "miscited") == "miscites"
    assert texts(page, ".s .miscites") == ["\u2060≠"]
    assert texts(page, ".chunk.by .cited") == ["cited"]
    assert texts(page, ".note") == ["citations: precision 0.00."]


def test_200_answers_a_page(page, show):
    """The buttons turn pages; a filter begins at the first again."""
    show(*[judged("A is B.")] * 250)
    assert texts(page, "#where") == ["1–200 of 250"]
    assert page.evaluate("earlier.disabled && !later.disabled")
    page.click("#later")
    page.get_by_text("201–250 of 250").wait_for()
    assert page.evaluate("!earlier.disabled && later.disabled")
    choose(page, "#sort", "up")
    assert texts(page, "#where") == ["1–200 of 250"]
