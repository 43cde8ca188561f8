import time

import pytest

from faith_dspy import Judge
from faith_dspy.report.judgment import citation_faults
from faith_dspy.scoring.citations import citations_by_sentence
from faith_dspy.text.sentences import split_answer

CITED = {
    # By number, from 1 where nothing says 0.
    "[1]": [0], "[1, 2]": [0, 1], "[1-3]": [0, 1, 2], "[^2]": [1], "【4†source】": [3], "<sup>1</sup>": [0], "³": [2],
    "⁽²⁾": [1], "<cite>1</cite>": [0], "[citation:2]": [1], "[Passage 4]": [3], "[ref 2]": [1], "[ID:3]": [2],
    "[2, p. 14]": [1], "[Document 3: The cord, its care]": [2], "[oaicite:2]": [1],
    ":contentReference[oaicite:1]{index=1}": [0], "[4](https://y.org)": [3],
    # By source: whole, by file name, or without its ending.
    "[[4]](https://x.org/a)": [0], "【1:0†a.pdf】": [1], "[doc_1]": [3], "[a.pdf, p. 3]": [1],
    "(Source: cord.pdf)": [2], "(Source: doc 3)": [2],
    # None. A number in the name of a source is no chunk's.
    "[9]": "9", "[source: zzz.pdf]": "source: zzz.pdf", "(Source: EU Directive 3)": "source: eu directive 3",
    "[Smith et al., 2020]": "smith et al., 2020", "(Smith, 2020)": "smith, 2020",
}  # fmt: skip
"""What a citation stands for: ids of chunks, or the name of what is none."""


@pytest.mark.parametrize("marker", CITED)
def test_what_a_citation_stands_for(marker):
    judgment = Judge("none")(context=FACTS, answer=f"{BLUE} {marker}.")
    expected = CITED[marker]
    ids, unknown = ([], [expected]) if isinstance(expected, str) else (expected, [])
    assert [*judgment.statements[0].cited_chunk_ids] == ids
    assert [*judgment.citations.unknown] == unknown


@pytest.mark.parametrize(
    ("first", "options"), [("[0]", {}), ("[1]", {"citations_from": 0})]
)
def test_where_numbers_begin(first, options):
    """At 0 where the answer cites [0], or as the user says; then [4] of four chunks does not exist."""
    judgment = Judge("none", **options)(
        context=FACTS, answer=f"{BLUE} {first}. {GRAMS} [1][4]."
    )
    assert judgment.statements[1].cited_chunk_ids == (1,)
    assert judgment.citations.unknown == ("4",)


def test_an_answers_citations_are_shown():
    judgment = Judge("none")(context=FACTS, answer=f"{BLUE} [1]. {GRAMS} [1][7].")
    assert [s.citations_support for s in judgment.statements] == [True, False]
    shown = judgment.pretty()
    assert "citations: precision 0.33, recall 0.50; not in the context: [7]." in shown
    assert "cites [0], which does not support it alone" in shown
    bare = Judge("none")(context=FACTS, answer=f"{BLUE}.")
    assert (bare.citations, bare.statements[0].citations_support) == (None, None)


FACTS = [
    {"text": "The kettle is blue and holds two litres.", "source": "https://x.org/a"},
    {"text": "The kettle weighs 900 grams without its base.", "source": "a.pdf"},
    {"text": "The cord of the kettle is one metre long.", "source": "manuals/cord.pdf"},
    {"text": "The warranty lasts two years and covers the heating element.", "source": "docs/doc_1.md"},
]  # fmt: skip
BLUE, GRAMS = "The kettle is blue", "The kettle weighs 900 grams"
CORD = "The cord of the kettle is one metre long"
BY_HAND = [  # answer; citations that support, citations; statements supported by theirs, statements
    (f"{BLUE} [1][2].", (1, 2), (1, 1)),  # [2] alone does not support it, and is not needed
    (f"{BLUE} [1]. {GRAMS}.", (1, 1), (1, 2)),
    (f"{BLUE} [2]. {GRAMS} [1].", (0, 2), (0, 2)),
    ("The blue kettle weighs 900 grams [1, 2].", (2, 2), (1, 1)),  # it takes both
    ("The blue kettle weighs 900 grams [1].", (0, 1), (0, 1)),
    (f"{BLUE}.[1] {GRAMS}.[2]", (2, 2), (2, 2)),
    (f"{BLUE}. [1][3] {GRAMS}. [2]", (2, 3), (2, 2)),  # behind a sentence
    (f"[1] {BLUE}. [2] {GRAMS}.", (2, 2), (2, 2)),  # each before its sentence, as the first is
    (f"{BLUE}.¹ The warranty lasts two years.⁴", (2, 2), (2, 2)),
    ("The kettle is not blue [1].", (0, 1), (0, 1)),
    (f"{BLUE}【1†source】. Can I help you with anything else? {CORD}【2†source】.", (1, 2), (1, 2)),
]  # fmt: skip
"""Answers over `FACTS`, counted by hand as ALCE counts: a citation is right where what its statement cites supports it
together, and it supports it alone or cannot be left out."""


@pytest.mark.parametrize(("answer", "right", "supported"), BY_HAND)
def test_precision_and_recall_are_those_of_a_hand_count(answer, right, supported):
    citations = Judge("none")(context=FACTS, answer=answer).citations
    assert citations.cited == right[1]
    shares = [part / whole for part, whole in (right, supported)]
    assert [citations.precision, citations.recall] == pytest.approx(shares)


def test_an_lm_is_asked_again_only_where_cited_and_supporting_chunks_differ(judge_at):
    """One verdict more, on the cited chunk alone; none for a statement whose citation is what supports it."""
    judge, server = judge_at()
    right = judge(context=FACTS[:2], answer="The kettle is blue [1].")
    assert (len(server.requests), right.citations.recall) == (1, 1.0)
    wrong = judge(context=FACTS[:2], answer="The kettle is blue [2].")
    assert len(server.requests) == 3
    last = str(server.requests[-1])
    assert "900 grams" in last
    assert "two litres" not in last
    assert wrong.citations is not None


@pytest.mark.parametrize("size", [20_000, 80_000])
@pytest.mark.parametrize("unit", ["[1]", "¹,", "(source: a kettle) ", "Is it, "])
def test_citations_without_end_are_read_in_linear_time(unit, size):
    """20,000 characters of ``[1]`` took 15 s, 80,000 of ``¹,`` 12 s."""
    answer = f"It is blue {unit * (size // len(unit))}?"
    started = time.process_time()
    parts = split_answer(answer).sentences
    citations_by_sentence(parts)
    assert time.process_time() - started < 2


def test_a_check_that_fails_says_nothing_about_the_citation(judge_at):
    """One citation is right, one is not, and the check of the third fails: precision and recall 1/2 over the first two.
    The answer's verdict stays."""

    def says(asked):
        if "[1] " in asked["messages"][-1]["content"]:  # with all chunks
            return "Yes"
        is_checked = server.statement(asked).startswith(GRAMS)
        return "No" if is_checked else {"status": 400, "text": "no"}

    judge, server = judge_at(says=says)
    answer = f"{BLUE} [1]. {GRAMS} [1]. {CORD} [1]."
    judgment = judge(context=FACTS, answer=answer)
    assert [s.citations_support for s in judgment.statements] == [True, False, None]
    citations = judgment.citations
    assert (citations.precision, citations.recall) == (0.5, 0.5)
    assert (citations.unchecked, judgment.faithful) == (1, True)
    assert "recall 0.50, 1 statement not checked." in judgment.pretty()
    assert f"cites [0], not checked: {CORD} [1]." in citation_faults(judgment)
