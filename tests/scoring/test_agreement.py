import pytest

from faith_dspy.io.labels import parse_example
from faith_dspy.schema import Judgment, StatementVerdict, Unscored
from faith_dspy.scoring.agreement import Agreement, measure, measure_agreement
from faith_dspy.scoring.statistics import CONFUSION, Estimate

METRICS = [
    name
    for name, field in Agreement.model_fields.items()
    if field.annotation is Estimate
]
# Ten answers, six faithful. Passed: five of the faithful, one of the unfaithful.
LABELS = [True] * 6 + [False] * 4
PREDICTIONS = [True] * 5 + [False] + [True] + [False] * 3
SCORES = [0.9, 0.9, 0.8, 0.7, 0.6, 0.4, 0.7, 0.3, 0.2, 0.1]


def test_every_metric_worked_by_hand():
    """Each metric has the value of its textbook formula."""
    a = measure(LABELS, PREDICTIONS, SCORES)
    assert [*a.confusion.items()] == [*zip(CONFUSION, (5, 1, 1, 3), strict=True)]
    assert (a.n, a.scored, a.coverage) == (10, 10, 1.0)
    assert {name: getattr(a, name).value for name in METRICS} == pytest.approx({
        "recall_faithful": 5 / 6,
        "recall_unfaithful": 3 / 4,
        "balanced_accuracy": (5 / 6 + 3 / 4) / 2,
        "precision_unfaithful": 3 / 4,
        "f1_unfaithful": 3 / 4,  # 2*3 / (2*3 + 1 + 1)
        "cohen_kappa": 0.28 / 0.48,  # observed .8; by chance .6*.6 + .4*.4 = .52; (.8 - .52) / (1 - .52)
        "mcc": 14 / 24,  # (5*3 - 1*1) / sqrt(6*6*4*4)
        # 24 pairs. The unfaithful .7 loses to .9 .9 .8, ties .7, beats .6 .4: 3.5 won; the other three lose all 18.
        "auroc": 21.5 / 24,
        "brier": 1.30 / 10,  # squared errors .01 .01 .04 .09 .16 .36 | .49 .09 .04 .01
        # Ten answers, ten bins: every distinct score is its own bin, the two .9 and the two .7 share one each.
        # |gaps| summed: .9s .2 | .8 .2 | .7s |.3 - .7| = .4 | .6 .4 | .4 .6 | .3 .3 | .2 .2 | .1 .1
        "ece": 2.4 / 10,
    })  # fmt: skip


def test_scores_that_are_missing_or_no_probabilities():
    """What has no score takes no part in the metrics of scores; scores outside [0, 1] rank, and leave ECE and Brier
    undefined."""
    a = measure(LABELS, PREDICTIONS, [None] * 10)
    assert a.balanced_accuracy.value == pytest.approx((5 / 6 + 3 / 4) / 2)
    assert a.cohen_kappa.low < 0 < a.balanced_accuracy.low  # κ is 0 by chance
    assert {a.auroc, a.ece, a.brier} == {Estimate(why="no scored answer has a score")}
    # Without the third .8: 4 of 5 faithful left are the same pairs minus one won by .8 against each of four.
    some = measure(LABELS, PREDICTIONS, [*SCORES[:2], None, *SCORES[3:]])
    assert some.auroc.value == pytest.approx((21.5 - 4) / 20)
    raw = measure(LABELS, PREDICTIONS, [2 * s for s in SCORES])
    assert (raw.auroc.value, raw.brier.value) == (pytest.approx(21.5 / 24), None)
    assert "not probabilities" in raw.ece.why


def test_nothing_scored_gives_no_numbers():
    """With every answer unscored, each estimate is None with the reason, and coverage is 0."""
    a = measure([True, False], [None, None], [None, None])
    assert (a.scored, a.coverage, sum(a.confusion.values())) == (0, 0.0, 0)
    assert all(getattr(a, m) == Estimate(why="no answer was scored") for m in METRICS)


def test_one_class_leaves_what_needs_two_undefined():
    """With faithful labels alone only the faithful recall and the errors of the scores are numbers."""
    a = measure([True] * 4, [True, True, True, False], [0.9, 0.8, 0.7, 0.2])
    assert (a.recall_faithful.value, a.precision_unfaithful.value) == (0.75, 0.0)
    for e in (a.balanced_accuracy, a.cohen_kappa, a.mcc, a.recall_unfaithful, a.auroc):
        assert (e.value, "label" in e.why) == (None, True)


def test_intervals_depend_on_sources_alone():
    """The same interval in whatever order the answers come; sources that agree within widen it."""
    labels, predictions, scores = LABELS * 8, PREDICTIONS * 8, SCORES * 8
    groups = [f"g{i % 10}" for i in range(80)]  # eight copies of each answer
    a = measure(labels, predictions, scores, groups=groups)
    reverse = [each[::-1] for each in (labels, predictions, scores)]
    backwards = measure(*reverse, groups=groups[::-1])
    assert backwards.auroc.model_dump() == pytest.approx(a.auroc.model_dump())
    alone = measure(labels, predictions, scores).balanced_accuracy
    together = a.balanced_accuracy
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_a_perfect_recall_has_an_interval():
    """Right about all 6 faithful and 4 unfaithful answers: by Wilson from .61 and .51 on; the mean of both from
    1 - √(.39² + .49²) / 2 = .69 on."""
    a = measure(LABELS, LABELS, SCORES)
    lows = (a.recall_faithful.low, a.recall_unfaithful.low, a.balanced_accuracy.low)
    assert lows == pytest.approx((0.610, 0.510, 0.687), abs=0.001)
    assert a.balanced_accuracy.high == 1.0
    groups = [str(i % 10) for i in range(50)]  # sources count, not answers
    together = measure(LABELS * 5, LABELS * 5, SCORES * 5, groups=groups)
    assert together.recall_faithful.low == pytest.approx(0.610, abs=0.001)


# --- a judge: answers, statements, evidence -------------------------------------------------------------------------


NAMES = ("text", "verdict", "supporting_chunk_ids")


def labelled(*statements):
    """A labelled answer made of statements (text, verdict, chunk ids), over a context of its own."""
    rows = [dict(zip(NAMES, statement, strict=True)) for statement in statements]
    answer = " ".join(text for text, *_ in statements)
    context = [f"{answer} {i}" for i in range(3)]
    return parse_example({"context": context, "answer": answer, "statements": rows})


def judged(*statements, **more):
    """A judgment with statements (text, verdict, chunk ids); it passes when all are supported."""
    rows = (dict(zip(NAMES, statement, strict=True)) for statement in statements)
    verdicts = tuple(StatementVerdict(**row) for row in rows)
    passes = all(s.is_supported for s in verdicts)
    scored = more or {"score": float(passes), "faithful": passes}
    return Judgment(statements=verdicts, **scored)


SPLIT = labelled(
    ("The kettle is blue and it holds one litre.", "fully_supported", [0, 1]),
    ("It rains.", "no_evidence", []),
)
MERGED = labelled(
    ("The tram is late.", "fully_supported", [0]),
    ("The bus is red.", "partially_supported", [2]),
)


def test_a_split_statement_by_hand():
    """Both halves have the label of the whole, and their chunks together are held against the whole's."""
    halves = [
        ("The kettle is blue", "fully_supported", (0,)),
        ("it holds one litre.", "not_supported", (2,)),
    ]
    judgment = judged(*halves, ("It rains.", "not_supported", ()))
    found = measure_agreement([SPLIT], [judgment])
    # Labels yes, yes, no against yes, no, no.
    assert [*found.statements.confusion.values()] == [1, 1, 0, 1]
    # {0, 2} against {0, 1}, and nothing against nothing.
    evidence = found.evidence
    assert (evidence.n, evidence.precision.value, evidence.recall.value) == (2, 0.5, 0.5)  # fmt: skip


def test_a_merged_statement_by_hand():
    """It has the lowest of the labels, and its chunks are held against those of both together."""
    merged = judged(("The tram is late. The bus is red.", "fully_supported", (0, 1)))
    found = measure_agreement([MERGED], [merged])
    assert found.statements.confusion["unfaithful_passed"] == found.statements.n == 1
    assert found.evidence.n == 1
    assert found.evidence.f1.value == pytest.approx(2 * 1 / (2 + 2))


def test_a_reworded_statement_by_hand():
    """It matches the statement that shares its words; one that shares none counts as missed."""
    text = "The museum owns clocks in number one hundred forty."
    reworded = judged(("The museum has 140 clocks.", "fully_supported", (1,)))
    other = judged(("It is free.", "fully_supported", (0,)))
    people = labelled((text, "fully_supported", [1]))
    found = measure_agreement([people] * 2, [reworded, other])
    statements, evidence = found.statements, found.evidence
    assert (statements.n, statements.scored) == (2, 1)
    assert statements.recall_faithful.value == 1.0
    # The missed one's chunk is missed, too; the chunk of the unlabelled statement is nobody's.
    assert (evidence.n, evidence.precision.value, evidence.recall.value) == (2, 1.0, 0.5)  # fmt: skip


def test_graded_labels_have_a_weighted_kappa():
    """Labels full, partial, none against verdicts full, none, none: observed distance 1/3, by chance 1."""
    texts = ("The tram is late.", "The bus is red.", "My ship sails.")
    labels = ("fully_supported", "partially_supported", "contradictory")
    verdicts = ("fully_supported", "no_evidence", "not_supported")
    people = labelled(*zip(texts, labels, [None] * 3, strict=True))
    judgment = judged(*zip(texts, verdicts, [()] * 3, strict=True))
    found = measure_agreement([people], [judgment])
    # By chance, verdicts being none 2/3 and full 1/3: a label none is 2/3 away, partial 1, full 4/3: their mean is 1.
    assert found.statements.weighted_kappa.value == pytest.approx(1 - 1 / 3)
    # Full is full; partial was called none; contradictory and not_supported may be the same.
    recalls = found.statements.recall_by_verdict
    assert [recalls[label].value for label in labels] == [1.0, 0.0, 1.0]
    assert found.evidence is None


def test_what_could_be_measured_is_said():
    """Each level with its number of labels, or what it would take."""
    rains = judged(("It rains.", "no_evidence", ()))
    found = measure_agreement([SPLIT], [rains])
    assert found.measured == "Measured on answers (1), statements (2), evidence (2)."
    row = {"context": ["c"], "answer": "It rains.", "faithful": True}
    bare = measure_agreement([parse_example(row)], [rains])
    assert (bare.statements, bare.evidence) == (None, None)
    assert (
        "not on statements (no statement has a label); evidence (no " in bare.measured
    )


def test_an_unscored_answer_counts_in_coverage_alone():
    one = judged(("The tram is late. The bus is red.", "not_supported", ()))
    lost = judged(("The kettle is blue", None, ()), unscored=Unscored.LM_FAILED)
    found = measure_agreement([MERGED, SPLIT], [one, lost])
    assert (found.answers.n, found.answers.scored) == (2, 1)
    # One merged; one half of a split one; one missed.
    assert (found.statements.n, found.statements.scored) == (3, 1)
    assert (found.evidence.n, found.evidence.scored) == (3, 1)
