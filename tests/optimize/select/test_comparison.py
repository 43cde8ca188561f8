import pytest

from faith_dspy.optimize.results import COLUMN, Measured, Row
from faith_dspy.optimize.select import comparison


def compare(labels, a, b, sources=None, **more):
    """Two judges' verdicts compared; without sources every answer is its own."""
    sources = sources or [str(i) for i in range(len(labels))]

    def rows(verdicts):
        return [
            Row(id="", source=source, label=y, predicted=verdict, probability=None)
            for source, y, verdict in zip(sources, labels, verdicts, strict=True)
        ]

    return comparison.compare(rows(a), rows(b), **more)


# Eight answers, four faithful. A is right on seven, B on four.
LABELS = [True] * 4 + [False] * 4
A = [True, True, True, True, False, False, False, True]
B = [True, True, False, False, False, False, True, True]


@pytest.mark.parametrize(
    ("a", "more", "expected"),
    [
        (A, {}, (4 / 4 + 3 / 4) / 2 - (2 / 4 + 2 / 4) / 2),
        # Skipping an answer costs what a wrong verdict costs.
        ([None, *A[1:]], {}, (3 / 4 + 3 / 4) / 2 - 1 / 2),
        ([None] * 8, {}, 0 - 1 / 2),
        # Passing an unfaithful answer costs 3, failing a faithful one 1: of 4 + 4 · 3 = 16 A loses 3 and B 2 + 2 · 3.
        (A, {"cost": 3}, (16 - 3) / 16 - (16 - 8) / 16),
    ],
)
def test_differences_worked_by_hand(a, more, expected):
    c = compare(LABELS, a, B, **more)
    assert c.balanced_accuracy.value == pytest.approx(expected)
    assert f"{100 * expected:+.1f} points" in c.sentence
    assert ("accuracy at cost=3 +" in c.sentence) is bool(more)


def test_standard_error_worked_by_hand():
    """Three sources of one answer of each label, A right on all, B wrong in the third: left out once each, the
    differences are 1/2, 1/2 and 0, so that SE² = 2/3 · (1/36 + 1/36 + 4/36) = 1/9; t(2) = 4.30."""
    labels = [True, False] * 3
    wrong = [True, False, True, False, False, True]
    d = compare(labels, labels, wrong, "aabbcc").balanced_accuracy
    assert d.value == d.standard_error == pytest.approx(1 / 3)
    assert d.high == pytest.approx(1 / 3 + 4.30 / 3, rel=0.01)


@pytest.mark.parametrize(("sources", "verdict"), [(9, "inconclusive"), (10, "better")])
@pytest.mark.parametrize("faithful", [1, 3])
def test_few_sources_of_the_rarer_label_show_nothing(sources, verdict, faithful):
    """Not even of a judge that is right on all against one that is wrong on all."""
    labels = [False] * sources + [True] * sources * faithful
    c = compare(labels, labels, [not y for y in labels])
    assert c.verdict == verdict
    needs = "it takes 10 sources of either label to decide" in c.sentence
    assert needs is (sources == 9)


def test_what_cannot_be_compared_gives_a_reason():
    """One class or one source: no value or no interval, and never a verdict."""
    one_class = compare([True] * 8, A, B)
    assert one_class.balanced_accuracy.value is None
    assert "all answers have the same label" in one_class.sentence
    one_source = compare(LABELS, A, B, ["one"] * 8)
    assert one_source.balanced_accuracy.low is None
    assert one_class.verdict == one_source.verdict == "inconclusive"


def test_comparisons_of_an_earlier_export_load():
    """One has a field that nobody reads, and its judge another name."""
    fields = compare(LABELS, A, B).model_dump()
    earlier = {"column-baseline": fields | {"auroc": {"value": 0.4, "why": "–"}}}
    assert Measured(judges=(), comparisons=earlier).comparisons[COLUMN].n == 8
