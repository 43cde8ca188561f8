from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from faith_dspy.report.judgment import script_json, write_html
from faith_dspy.schema import Judgment, StatementVerdict, Unscored
from faith_dspy.text.sentences import sentences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chromium import Browser

HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=window.hit=2><!--<script> & \u2028 {{data}}"


def judged(answer: str, *found: dict[str, Any], **fields: Any) -> Judgment:
    """A judgment of ``answer`` with these statements; the text of a statement is its sentence's unless given."""
    parts = sentences(answer)
    statements = []
    for f in found:
        i = f.get("sentence_index")
        statements.append(StatementVerdict(**{"text": answer if i is None else parts[i].text, **f}))
    scored = {} if "unscored" in fields else {"score": 0.5, "faithful": False}
    return Judgment(sentences=parts, statements=tuple(statements), **{**scored, **fields})


def quoted(text: str) -> dict[str, Any]:
    """Fields of a statement that quotes the beginning of the first chunk."""
    return {"quotes": (text,), "quote_spans": ({"chunk_id": 0, "start": 0, "end": len(text)},)}


def data_of(page: str) -> Any:
    """The JSON a browser finds in the page's data element."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def written(tmp_path: Path, *items: Any, **keywords: Any) -> str:
    """The page as text."""
    write_html(iter(items), tmp_path / "page.html", **keywords)
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def item_of(tmp_path: Path, *given: Any) -> Any:
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


def test_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    """Outside its data the page has no address, and its policy allows one script and one style by their hashes."""
    page = written(tmp_path, (APOLLO, APOLLO_JUDGED))
    assert not re.search(r"https?:|url\(|@import|\bsrc=", page)
    assert re.findall("<link.*?>", page) == ['<link rel="icon" href="data:,">']
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page
    assert "innerHTML" not in page


def test_hostile_text_stays_data(tmp_path: Path) -> None:
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
def test_script_json_parses_back(text: str) -> None:
    """What stands in the script element is the value again, half a surrogate pair included."""
    encoded = script_json({"text": text})
    assert json.loads(encoded) == {"text": text}
    encoded.encode()
    assert not re.search("[<>&\u2028\u2029]", encoded)


def test_sentences_take_their_worst_verdict(tmp_path: Path) -> None:
    """The pieces join to the answer, each with its statements; a sentence that carries none is plain."""
    found = item_of(tmp_path, APOLLO, APOLLO_JUDGED)
    assert "".join(p[0] for p in found["parts"]) == APOLLO["answer"]
    assert [p[1:] for p in found["parts"] if len(p) > 1] == [["fully_supported", [0]], ["contradictory", [1, 2]]]
    assert found["parts"][-1] == ["Shall I go on?"]


@pytest.mark.parametrize("worse", ["contradictory", "not_supported", "no_evidence", "partially_supported", None])
def test_anything_is_worse_than_supported(tmp_path: Path, worse: str | None) -> None:
    """A sentence counts as supported only if all of its statements are, and each was judged."""
    found = item_of(
        tmp_path,
        {"answer": "A is B."},
        judged("A is B.", *({"sentence_index": 0, "verdict": v} for v in ("fully_supported", worse))),
    )
    assert found["parts"] == [["A is B.", worse or "unjudged", [0, 1]]]


def test_whole_answer_is_one_piece(tmp_path: Path) -> None:
    """A judge of whole answers colours the whole answer, white space around it left out."""
    found = item_of(
        tmp_path, {"answer": "\nA is B. B is C.\n"}, judged("\nA is B. B is C.\n", {"verdict": "no_evidence"})
    )
    assert found["parts"] == [["\n"], ["A is B. B is C.", "no_evidence", [0]], ["\n"]]


def test_bare_judgment_shows_its_sentences(tmp_path: Path) -> None:
    """Without its record a judgment shows the sentences it holds, and says that the texts are not there."""
    found = item_of(tmp_path, APOLLO_JUDGED)
    assert "".join(p[0] for p in found["parts"]) == APOLLO["answer"]
    assert (found["bare"], found["question"], found["chunks"]) == (True, None, [])
    APOLLO_JUDGED.to_html(tmp_path / "bare.html")
    assert data_of((tmp_path / "bare.html").read_text(encoding="utf-8"))["items"] == [found]


def test_wrong_answer_is_not_coloured(tmp_path: Path) -> None:
    """Verdicts are never laid over an answer they do not belong to."""
    found = item_of(tmp_path, {**APOLLO, "answer": "Something else."}, APOLLO_JUDGED)
    assert "".join(p[0] for p in found["parts"]) == APOLLO["answer"]
    assert "not the one that was judged" in found["notes"][0]


def test_conversation_gives_question_chunks_and_answer(tmp_path: Path) -> None:
    """Of a conversation the earlier turns are the context, with where they came from."""
    turns = [("user", "Hi?"), ("tool", "It is 5."), ("assistant", "Five.")]
    record = {"conversation": [{"role": r, "content": c} for r, c in turns]}
    found = item_of(tmp_path, record, judged("Five.", {"sentence_index": 0, "verdict": "fully_supported"}))
    assert found["question"] == "Hi?"
    assert [(c["id"], c["source"]) for c in found["chunks"]] == [(0, "turn 0: user"), (1, "turn 1: tool")]
    assert found["parts"] == [["Five.", "fully_supported", [0]]]


@pytest.mark.parametrize(
    "record",
    [{"context": 3, "answer": "A."}, {"answer": None}, {"conversation": []}, {"context": [{}], "answer": 7}, {}],
)
def test_unreadable_record_does_not_end_the_page(tmp_path: Path, record: dict[str, Any]) -> None:
    """A record that could not be judged is shown with the reason."""
    found = item_of(tmp_path, record, Judgment(unscored=Unscored.PARSE_FAILED, detail="the record cannot be read: …"))
    assert found["unscored"] == "parse_failed"
    assert found["detail"] == "the record cannot be read: …"
    assert found["chunks"] == []


def test_quotes_are_marked_where_they_stand(tmp_path: Path) -> None:
    """A quote is marked at its offsets, and each part of those that overlap; not where the record has another text."""
    record = {"context": ["Der Bericht, 2024!", "Bericht"], "answer": "A."}

    def quoting(*spans: tuple[int, int, int], quotes: tuple[str, ...]) -> dict[str, Any]:
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


def test_dropped_evidence_is_told(tmp_path: Path) -> None:
    """Chunk ids and quotes that were dropped, and sentences judged as written, are counted on the card."""
    found = item_of(tmp_path, {"answer": "A."}, judged("A.", dropped_chunk_ids=1, dropped_quotes=2, stand_ins=1))
    told = ["1 sentence judged as written: ", "1 chunk id ", "2 quotes "]
    assert [n.split("the ")[0] for n in found["notes"]] == told


def test_summary_by_hand(tmp_path: Path) -> None:
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


def luminance(colour: str) -> float:
    """Relative luminance of a ``#rrggbb`` or ``#rgb`` colour, WCAG 2.2."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * d for d in colour[1:])
    parts = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark", "print"])
def test_text_has_contrast(tmp_path: Path, scheme: int) -> None:
    """Text stands out from each ground it is put on by at least 4.5 to 1."""
    block = re.findall(r":root \{(.*?)\}", written(tmp_path), re.S)[scheme]
    colour = dict(re.findall(r"--([\w-]+): (#\w+);", block + ";"))
    colour = {"focus": "#0b5cad", "lit": "#eef5fd", **colour}
    pairs = [(ink, ground) for ink in ("ink", "soft") for ground in ("page", "card", "quiet", "lit")]
    for verdict in ("good", "part", "none", "bad", "unknown"):
        pairs += [("ink", f"{verdict}-tint"), (verdict, f"{verdict}-tint"), (verdict, "card")]
    for pair in [*pairs, ("focus", "lit"), ("focus", "quiet")]:
        low, high = sorted(luminance(colour[name]) for name in pair)
        assert (high + 0.05) / (low + 0.05) >= 4.5, pair


# In Chromium


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Callable[..., Browser]:
    """Write items as a page and open it."""

    def show(*items: Any, **how: Any) -> Browser:
        write_html(items, tmp_path / "page.html")
        browser.open(tmp_path / "page.html", **how)
        return browser

    return show


def test_hostile_text_is_text_in_a_browser(show: Callable[..., Browser]) -> None:
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


def test_worst_sentence_is_open_at_first(show: Callable[..., Browser]) -> None:
    """A card opens on its worst sentence, with statements, reason and lit evidence."""
    page = show((APOLLO, APOLLO_JUDGED))
    panel = page.texts(".panel")[0]
    for said in ("Contradicted", "The crew stayed for five hours.", "Two, not five.", "for two hours"):
        assert said in panel
    assert page.js("[...document.querySelectorAll('.chunk')].map((c) => c.classList.contains('lit'))") == [0, 1, 0]
    assert page.texts("mark.on") == ["for two hours"]


def test_pointing_at_a_sentence_shows_it(show: Callable[..., Browser]) -> None:
    """The mouse over a sentence shows its statements and lights its chunks; a click holds it, another lets go."""
    page = show((APOLLO, APOLLO_JUDGED))
    page.point(".s:nth-of-type(1)")
    assert "Supported" in page.texts(".panel")[0]
    assert "Two, not five." not in page.texts(".panel")[0]
    assert page.texts(".chunk.lit .where b") == ["[0]"]
    assert page.texts("mark.on") == ["July 20, 1969"]
    page.point(".s:nth-of-type(1)", click=True)
    page.point(".s:nth-of-type(2)")
    assert page.texts(".s[aria-pressed=true]") == page.texts(".s.on")
    assert "Supported" in page.texts(".panel .badge")[0]
    page.point(".s:nth-of-type(1)", click=True)
    page.point(".s:nth-of-type(2)")
    assert "Contradicted" in page.texts(".panel .badge")[0]


def test_keyboard_goes_everywhere(show: Callable[..., Browser]) -> None:
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


def test_screen_readers_are_told_the_verdict(show: Callable[..., Browser]) -> None:
    """A sentence's name begins with its verdict, its description holds the reason; cards are named by the question."""
    page = show((APOLLO, APOLLO_JUDGED))
    named: dict[tuple[str, str], Any] = {}
    page("Accessibility.enable")
    for _ in range(100):  # Chromium builds the tree for screen readers in its own time, and of what it has drawn
        page.picture()
        nodes = [n for n in page("Accessibility.getFullAXTree")["nodes"] if not n["ignored"]]
        named = {(n["role"]["value"], n.get("name", {}).get("value", "")): n for n in nodes}
        if ("button", "Supported: It landed in 1969.") in named:
            break
        time.sleep(0.1)
    page("Accessibility.disable")
    assert ("article", "When did it land?") in named
    assert ("button", "Supported: It landed in 1969.") in named
    worst = next(n for (role, name), n in named.items() if role == "button" and name.startswith("Contradicted: "))
    assert "Two, not five." in worst["description"]["value"]
    for role, name in named:
        assert name or role not in ("button", "checkbox", "combobox", "searchbox", "link", "article", "main")


def test_right_to_left(show: Callable[..., Browser]) -> None:
    """Arabic is set from the right, and the left arrow goes on."""
    answer = "يمكن تناول قرصين. لا تتجاوز ثمانية أقراص."
    found = ({"sentence_index": i, "verdict": "fully_supported"} for i in range(2))
    page = show(({"question": "ما هي الجرعة؟", "context": ["قرصان."], "answer": answer}, judged(answer, *found)))
    for selector in ("h2", ".answer", ".words"):
        assert page.js(f"getComputedStyle(document.querySelector('{selector}')).direction") == "rtl"
    page.js("document.querySelector('.s').focus()")
    page.key("ArrowLeft")
    assert page.js("document.activeElement === document.querySelectorAll('.s')[1]")


def choose(page: Browser, field: str, value: str) -> list[str]:
    """Set a filter; the ids then shown."""
    page.js(
        f"(() => {{ const e = document.querySelector({json.dumps(field)});"
        f"if (e.type === 'checkbox') e.click(); else {{ e.value = {json.dumps(value)};"
        "for (const t of ['input', 'change']) e.dispatchEvent(new Event(t, {bubbles: true})) } })()"
    )
    time.sleep(0.3)
    return [t.split(" · ")[1] for t in page.texts(".id")]


def test_filter_search_and_sort(show: Callable[..., Browser]) -> None:
    """Answers are filtered by outcome, reason and verdict, searched in every text, and sorted with unscored last."""

    def record(key: str) -> dict[str, Any]:
        return {"id": key, "question": f"About {key}", "context": [f"Chunk of {key.upper()}."], "answer": "A is B."}

    def verdict(v: str) -> dict[str, Any]:
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


def test_every_kind_of_card_is_drawn(show: Callable[..., Browser]) -> None:
    """Bare, unscored, empty, whole-answer and unjudged answers all have their card, without an error."""
    page = show(
        APOLLO_JUDGED,
        judged("", unscored="no_statements", detail="there is nothing to judge"),
        ({"answer": "I don't know."}, judged("I don't know.", unscored="abstained")),
        ({"answer": "A.", "context": ["A."]}, judged("A.", {"verdict": "fully_supported"})),
        ({"answer": "A.", "context": ["A."]}, judged("A.", {"sentence_index": 0, "error": "no verdict in the reply"})),
    )
    assert len(page.texts(".card")) == 5
    assert "Contradicted" in page.texts(".card")[0]
    assert "The texts were not given to this page." in page.texts(".card")[0]
    assert "Unscored: no statements" in page.texts(".card")[1]
    assert "no verdict in the reply" in page.texts(".card")[4]
    assert [e for e in page.events if e["method"] == "Runtime.exceptionThrown"] == []


@pytest.mark.parametrize("width", [320, 700, 1200])
def test_no_width_scrolls_sideways(show: Callable[..., Browser], width: int) -> None:
    """Nothing is wider than the page, not even a word of 300 letters."""
    word = "x" * 300
    record = {"id": word, "question": word, "context": [{"text": word, "source": word}], "answer": f"{word}."}
    found = {"sentence_index": 0, "verdict": "fully_supported", "reason": word, "supporting_chunk_ids": (0,)}
    page = show((record, judged(f"{word}.", {**found, **quoted(word)})), width=width)
    assert page.js("document.documentElement.scrollWidth") <= width


def test_dark_is_dark(show: Callable[..., Browser]) -> None:
    """The page follows the reader's colour scheme."""
    grounds = []
    for scheme in ("light", "dark"):
        page = show((APOLLO, APOLLO_JUDGED), prefers_color_scheme=scheme)
        found = page.js("getComputedStyle(document.body).backgroundColor")
        grounds.append(sum(map(int, re.findall(r"\d+", found)[:3])))
    assert grounds[0] > 600
    assert grounds[1] < 150


def test_paper_has_all_statements(show: Callable[..., Browser]) -> None:
    """For printing all answers are drawn, with all their statements; afterwards the page is as before."""
    page = show((APOLLO, APOLLO_JUDGED), (APOLLO, APOLLO_JUDGED))
    page.js(
        "window.seen = [];addEventListener('beforeprint', () => seen.push(document.querySelectorAll('.all li').length))"
    )
    assert base64.b64decode(page("Page.printToPDF")["data"]).startswith(b"%PDF")
    assert page.js("seen") == [6]
    assert page.js("document.querySelectorAll('.all').length") == 0
