import re

from faith_dspy.optimize.report.pages import write_report
from faith_dspy.optimize.results import Prompts
from faith_dspy.schema import Chunk, StatementVerdict, Verdict
from tests.support.results import candidate, rows
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
# Of four answers the first and third are faithful. Champion: right about these, unscored, wrong about the last.
AFTER = rows([0.8, None, 0.7, 0.95], **TEXTS)


def page(champion=AFTER):
    """The champion's prompt has two words and a demo more than it had before compiling."""
    demos = [{"statement": EVIL}]
    prompts = Prompts(
        now={"verify": {"instructions": "Is it so? Say Yes or No.", "demos": demos}},
        seed={"verify": {"instructions": "Is it so? Say Yes.", "demos": []}},
    )
    tuned = candidate("tuned", AFTER, prompts=prompts)
    return write_report(made(champion, candidates=(tuned,), champion="tuned"))


def test_the_page_shows_prompts_and_mistakes():
    """Prompts before and after, and what is still wrong with its context, worst first. No text can become markup, the
    policy lets no script run, and nothing is asked of any network."""
    text = page()
    for shown in (
        "Is it so? Say Yes.\n",
        "Is it so? Say Yes or No.\n\n## Example 1\n\n- statement: ",
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


def test_an_export_names_no_place(recorded):
    """Whatever `--out` was: card, report and study say which folder, not where it is."""
    judge = recorded.folder / "judge"
    for file in judge.iterdir():
        assert str(recorded.folder) not in file.read_text(encoding="utf-8"), file.name
    card = (judge / "CARD.md").read_text(encoding="utf-8")
    assert "faith-dspy judge ANSWERS.jsonl --judge judge" in card
