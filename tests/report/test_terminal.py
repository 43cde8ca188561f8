import pytest
from rich.cells import cell_len

from faith_dspy.report.judgment import told_verdicts
from faith_dspy.schema import Judgment, StatementVerdict, Usage, Verdict


def judged(*found, **fields):
    statements = tuple(StatementVerdict(**{"text": "It is blue.", **f}) for f in found)
    scored = {} if "unscored" in fields else {"score": 0.5, "faithful": False}
    return Judgment(statements=statements, **{**scored, **fields})


def test_verdicts_are_told_without_colour(monkeypatch):
    """Each verdict has a mark of one cell, and words where a mark alone could be taken for something else."""
    monkeypatch.setenv("COLUMNS", "100")
    lines = judged(*({"verdict": v} for v in [*Verdict, None])).pretty().splitlines()[2:8]
    assert [(line[3], line[4:-1].split("blue.")[1].strip()) for line in lines] == [
        ("✓", ""),
        ("◐", "partly supported"),
        ("✗", "no evidence"),
        ("!", "contradicted"),
        ("✗", ""),
        ("?", "not judged"),
    ]


@pytest.mark.parametrize("columns", [20, 80, 120])
@pytest.mark.parametrize(
    "text", ["It is blue. " * 20, "这座桥建成于1937年。" * 9, "قرصًا في اليوم. " * 9, "🚀 " * 60, "x" * 300]
)
def test_the_frame_is_straight(monkeypatch, columns, text):
    """In any script all lines are as wide, and no wider than the terminal, 60 to 100 columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    found = {"verdict": "contradictory", "confidence": 0.5, "reason": text, "supporting_chunk_ids": tuple(range(40))}
    view = judged({**found, "text": text}).pretty()
    widths = {cell_len(line) for line in view.splitlines()}
    assert len(widths) == 1
    assert widths.pop() <= min(100, max(60, columns))
    assert "[2] +37" in view
    assert "…" not in view


def test_a_judgment_in_words():
    view = judged(unscored="abstained", detail="the answer only declines to answer").pretty()
    assert "unscored: abstained – the answer only declines to answer" in view
    assert "call" not in view
    view = judged({"error": "no label"}, usage=Usage(calls=1, prompt_tokens=9), detail="1 of 1 could not").pretty()
    for said in (
        "not faithful   0 of 1 statement supported – 1 of 1",
        "no label",
        "1 call · 9 prompt tokens (0 cached)",
    ):
        assert said in view
    assert "None" not in view


def test_markup_is_text():
    """Brackets in an answer are no markup."""
    assert "[bold]x[/bold] [/]" in judged({"text": "[bold]x[/bold] [/]", "reason": "[red]"}).pretty()


def test_an_answer_cannot_steer_the_terminal():
    """Escape sequences, C1 codes and marks that turn the reading direction are left out."""
    statement = StatementVerdict(
        text="It is \x1b[2Jfree\x9b of\u202e charge.", verdict=Verdict.NOT_SUPPORTED, reason="\x1b]0;x\x07No."
    )
    told = Judgment(statements=(statement,), score=0.0, faithful=False, detail="\x1b[31mwhy").pretty()
    assert not any(c in told for c in "\x1b\x9b\x07\u202e")
    assert "of charge." in told


def test_one_judgment_tells_one_story():
    """The verdict stands beside the one number that decided it, each statement beside its reason or chunks; neither the
    score nor a second threshold is shown where a probability decides."""
    view = judged(
        {"verdict": "fully_supported", "confidence": 0.9, "supporting_chunk_ids": (0,)},
        {"verdict": "not_supported", "confidence": 0.57, "missing": ("Shipping", "free")},
        {"verdict": "no_evidence", "missing": ()},
        {"verdict": "fully_supported", "missing": ("azul",)},
        probability=0.38,
        threshold=0.48,
        statement_threshold=0.6,
        level="Not Generally",
        replayed=Usage(calls=1),
    ).pretty()
    for said in (
        "not faithful   probability 0.38 (threshold 0.48)",
        "not in the context: Shipping, free",
        "all its words occur in the context, but not this claim",
        "supported in other words; not in the context: azul",
        "│ 1 reply from the cache ",
    ):
        assert said in view
    for other in ("score", "0.60", "Not Generally", "of 4 statements"):
        assert other not in view
    assert "not faithful   score 0.50 (threshold 0.70)" in judged({}, threshold=0.7).pretty()


def test_no_statement_contradicts_its_answer():
    """A classifier's faithful answer shows a statement below its threshold as in doubt, not as unsupported; an answer
    that is not faithful though all its statements reach theirs, the weakest."""
    yes, no = {"verdict": "fully_supported", "confidence": 0.9}, {"verdict": "not_supported", "confidence": 0.8}
    passed = judged(yes, no, score=0.5, faithful=True, probability=0.91, threshold=0.69, statement_threshold=0.9)
    assert told_verdicts(passed) == ["fully_supported", "in_doubt"]
    assert "✗" not in passed.pretty()
    failed = judged(yes, yes | {"confidence": 0.6}, score=1.0, probability=0.6, threshold=0.69)
    assert told_verdicts(failed) == ["fully_supported", "in_doubt"]
    assert told_verdicts(judged(yes, no, probability=0.2, threshold=0.69)) == ["fully_supported", "not_supported"]
    assert told_verdicts(judged(yes, no, faithful=True, threshold=0.5)) == ["fully_supported", "not_supported"]


@pytest.mark.parametrize(
    ("probability", "said"), [(0.756, "0.756 (threshold 0.764)"), (0.7639, "0.7639 (threshold 0.7640)"), (0.5, "0.50")]
)
def test_a_probability_is_told_from_its_threshold(probability, said):
    """.756 below a threshold of .764 is not shown as .76 below .76."""
    assert f"probability {said}" in judged({}, probability=probability, threshold=0.764).pretty()


def test_a_reply_that_could_not_be_used_as_it_is_is_told(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    told = "2 sentences judged as written: the LM's statements were missing or left something out."
    view = judged({"verdict": "no_evidence"}, stand_ins=2, dropped_quotes=1).pretty().splitlines()
    assert [line.strip("│ ") for line in view[-3:-1]] == [
        told,
        "1 quote the LM named: not in the context, so not shown.",
    ]
    assert "judged as written" not in judged({"verdict": "no_evidence"}).pretty()
