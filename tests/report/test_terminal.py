import io
import pickle
from functools import partial

import pytest
from rich.console import Console

from faith_dspy.report.judgment import display_verdicts
from faith_dspy.report.progress import TerminalView
from faith_dspy.schema import Usage, Verdict
from tests.support import judgments
from tests.support.files import run_python

judged = partial(judgments.judged, "It is blue.")


def test_verdicts_are_told_without_colour(monkeypatch):
    """Each verdict has a mark of one cell, and words where a mark alone could be taken for something else."""
    monkeypatch.setenv("COLUMNS", "100")
    statements = ({"verdict": v} for v in [*Verdict, None])
    lines = judged(*statements).pretty().splitlines()[2:8]
    assert [(line[3], line[4:-1].split("blue.")[1].strip()) for line in lines] == [
        ("✓", ""), ("◐", "partly supported"), ("✗", "no evidence"), ("!", "contradicted"), ("✗", ""),
        ("?", "not judged"),
    ]  # fmt: skip


def test_a_line_of_progress_is_no_markup():
    """It may hold what an optimizer wrote."""
    out = io.StringIO()
    view = TerminalView(Console(file=out))
    view.say("Mind [/INST] and [dim]this.")
    with view.task("[a]", None):
        pass
    assert out.getvalue().splitlines() == ["Mind [/INST] and [dim]this.", "  [a]: 0 s"]


def test_an_answer_cannot_steer_the_terminal():
    """Escape sequences, C1 codes and marks that turn the reading direction are left out; brackets are no markup."""
    text = "[bold]It[/bold] is \x1b[2Jfree\x9b of\u202e charge [/]."
    told = judged(
        {"text": text, "reason": "[red]\x1b]0;x\x07No."}, detail="\x1b[31mwhy"
    ).pretty()
    assert not any(c in told for c in "\x1b\x9b\x07\u202e")
    assert "[bold]It[/bold] is [2Jfree of charge [/]." in told
    assert "[red]" in told


NO, NONE = {"verdict": "not_supported"}, {"verdict": "no_evidence"}
SUPPORTED = {"verdict": "fully_supported", "confidence": 0.9}


@pytest.mark.parametrize(
    ("judgment", "lines"),
    [
        (
            judged(unscored="abstained", detail="the answer only declines to answer"),
            ["unscored   abstained – the answer only declines to answer"],
        ),
        (
            judged(
                {"error": "no label"},
                usage=Usage(calls=1, prompt_tokens=9),
                detail="1 of 1 could not",
            ),
            [
                "not faithful   0 of 1 statement supported – 1 of 1",
                "no label",
                "1 call · 9 prompt tokens (0 cached)",
            ],
        ),
        (
            judged(
                SUPPORTED | {"supporting_chunk_ids": (0,)},
                NO | {"missing": ("Shipping", "free")},
                NONE | {"missing": ()},
                SUPPORTED | {"missing": ("azul",)},
                probability=0.38,
                threshold=0.48,
                statement_threshold=0.6,
                replayed=Usage(calls=1),
            ),
            [
                "not faithful   probability 0.38 (threshold 0.48)",
                "not in the context: Shipping, free",
                "all its words occur in the context, but not this claim",
                "supported in other words; not in the context: azul",
                "│ 1 reply from the cache ",
            ],
        ),
        (judged({}, threshold=0.7), ["not faithful   score 0.50 (threshold 0.70)"]),
        # A probability is told from its threshold: .7639 below .764 is not shown as .76 below .76.
        (
            judged({}, probability=0.7639, threshold=0.764),
            ["probability 0.7639 (threshold 0.7640)"],
        ),
        (
            judged(NONE, stand_ins=2, dropped_quotes=1),
            [
                "2 sentences judged as written: the LM's statements were missing or left something out.",
                "1 quote the LM named: not in the context, so not shown.",
            ],
        ),
    ],
)
def test_one_judgment_tells_one_story(monkeypatch, judgment, lines):
    """The verdict stands beside the one number that decided it, each statement beside its reason or chunks; neither the
    score nor a second threshold is shown where a probability decides, and a reply not used as it is is told."""
    monkeypatch.setenv("COLUMNS", "100")
    view = judgment.pretty()
    assert [line for line in lines if line not in view] == []
    if judgment.probability is not None:
        assert view.count("threshold") == 1
        assert "score" not in view


def test_no_statement_contradicts_its_answer():
    """A classifier's faithful answer shows a statement below its threshold as in doubt, not as unsupported; an answer
    that is not faithful though all its statements reach theirs, the weakest."""
    no = NO | {"confidence": 0.8}
    decided = {"probability": 0.91, "threshold": 0.69, "statement_threshold": 0.9}
    passed = judged(SUPPORTED, no, score=0.5, faithful=True, **decided)
    assert display_verdicts(passed) == ["fully_supported", "in_doubt"]
    assert "✗" not in passed.pretty()
    weak = SUPPORTED | {"confidence": 0.6}
    failed = judged(SUPPORTED, weak, score=1.0, probability=0.6, threshold=0.69)
    assert display_verdicts(failed) == ["fully_supported", "in_doubt"]
    plain = judged(SUPPORTED, no, probability=0.2, threshold=0.69)
    assert display_verdicts(plain) == ["fully_supported", "not_supported"]


def test_a_pickled_judgment_is_shown_by_another_process():
    pickled = pickle.dumps(judged({}))
    shown = run_python(f"import pickle; print(pickle.loads({pickled}).pretty())")
    assert "It is blue." in shown
