import re

from faith_dspy.optimize.report.pages import flips, write_learned
from faith_dspy.optimize.results import word_diff
from faith_dspy.schema import Chunk, StatementVerdict, Verdict
from tests.support.results import judge, rows
from tests.support.results import study as made

EVIL = "<script>alert('x')</script> & \"quoted\" \ud83d"
"""A text that would break a page that does not escape it."""
STATEMENT = StatementVerdict(text=EVIL, verdict=Verdict.NO_EVIDENCE, confidence=0.3)
CONTEXT = (Chunk(id=0, text=f"A chunk. {EVIL}"),)
TEXTS = {
    "question": f"Why? {EVIL}",
    "context": CONTEXT,
    "statements": (STATEMENT,),
    "tags": {"x": EVIL},
}
# Of four answers the first and third are faithful. Untuned: wrong about the first two. Champion: right about the first
# and third, unscored, wrong about the last.
BEFORE, AFTER = (
    rows([0.4, 0.6, 0.9, 0.1], **TEXTS),
    rows([0.8, None, 0.7, 0.95], **TEXTS),
)


def page(champion=AFTER):
    """The champion's prompt has two words and a demo more than it had before compiling."""
    demos = [{"statement": EVIL}]
    tuned = judge(
        "tuned",
        AFTER,
        params={"optimizer": "labelled"},
        prompts={
            "verify": {"instructions": "Is it so? Say Yes or No.", "demos": demos}
        },
        seed_prompts={"verify": {"instructions": "Is it so? Say Yes.", "demos": []}},
    )
    return write_learned(made(champion, BEFORE, variants=(tuned,), champion="tuned"))


def test_flips_are_counted_against_the_untuned_judge():
    """Right to right: the third. To right: the first. To wrong: the last. Wrong before, unscored now: both wrong."""
    found = flips(BEFORE, AFTER)
    ids = {name: [new.id for _, new in pairs] for name, pairs in found.items()}
    assert ids == {
        "both right": ["a2"],
        "now right": ["a0"],
        "now wrong": ["a3"],
        "both wrong": ["a1"],
    }
    assert [(old.predicted, new.predicted) for old, new in found["now wrong"]] == [
        (False, True)
    ]


def test_a_diff_joins_to_either_text():
    """Nothing of the two prompts is lost, spaces and line breaks included."""
    before, after = (
        "Use only\n the context. Yes or No?",
        "Use the context,  nothing else.\nYes or No?",
    )
    pieces = word_diff(before, after)
    assert "".join(text for kind, text in pieces if kind != "new") == before
    assert "".join(text for kind, text in pieces if kind != "gone") == after
    assert word_diff("same", "same") == [("same", "same")]


def test_the_page_shows_prompts_flips_and_mistakes():
    """Each is there with its figures, the prompt as a diff, and what is still wrong with its context, worst first. No
    text can become markup, the policy lets no script run, and nothing is asked of any network."""
    text = page()
    for shown in (
        "<del>Yes.</del>",
        "<ins>Yes or No.</ins>",
        "Demo 1 of 1",
        "both right 1, now right 1, now wrong 1, both wrong 1.",
        "Now wrong: 1",
        "Now right: 1",
        "Mistakes: 2",
        "A chunk.",
        "unscored: parse failed",
        "&lt;script&gt;alert(",
    ):
        assert shown in text
    assert text.index("Answer 3.") < text.rindex("Answer 1.")
    for never in ("<script", "http://", "https://", 'style="', "script-src"):
        assert never not in text
    text.encode("utf-8")
    assert re.search(
        r"""http-equiv="Content-Security-Policy" content="default-src 'none'""", text
    )


def test_long_contexts_are_cut_and_say_so():
    """A page of long documents stays readable; the rest is in the labels file."""
    texts = ("word " * 399 + "and that is never shown", *["chunk"] * 9, "never shown")
    long = TEXTS | {
        "context": tuple(Chunk(id=i, text=text) for i, text in enumerate(texts))
    }
    text = page(rows([0.8, None, 0.7, 0.95], **long))
    assert "The other chunks are left out here" in text
    assert "never shown" not in text


def test_pictures_are_in_the_page():
    """Four charts with captions; the page fetches none of them."""
    text = page(rows([0.8, 0.4, 0.7, 0.95]))
    assert text.count('<img src="data:image/png;base64,') == 4
    assert text.count("<figcaption>") == 4
