from typing import NamedTuple

import pytest

from faith_dspy.optimize.results import Row
from faith_dspy.optimize.select import comparison


class Side(NamedTuple):
    """What one judge found."""

    predictions: list[bool | None]
    scores: list[float | None]

    def __mul__(self, times):
        return Side(self.predictions * times, self.scores * times)


def compare(labels, a, b, sources=None, **more):
    """The judges' rows compared; without sources every answer is its own."""
    sources = sources or [str(i) for i in range(len(labels))]

    def rows(side):
        found = zip(sources, labels, side.predictions, side.scores, strict=True)
        return [
            Row(id="", source=s, label=y, predicted=p, probability=score)
            for s, y, p, score in found
        ]

    return comparison.compare(rows(a), rows(b), **more)


# Eight answers, four faithful. A is right on seven, B on four.
LABELS = [True] * 4 + [False] * 4
A = Side(
    [True, True, True, True, False, False, False, True],
    [0.9, 0.8, 0.7, 0.6, 0.1, 0.2, 0.3, 0.65],
)
B = Side(
    [True, True, False, False, False, False, True, True],
    [0.9, 0.8, 0.2, 0.1, 0.3, 0.4, 0.7, 0.6],
)
NOTHING = Side([None] * 8, [None] * 8)


def test_difference_worked_by_hand():
    c = compare(LABELS, A, B)
    assert c.balanced_accuracy.value == pytest.approx(
        (4 / 4 + 3 / 4) / 2 - (2 / 4 + 2 / 4) / 2
    )
    # AUROC of A: .65 beats .6 only: 15 of 16. B: .9 .8 win 8, .2 .1 win none: 8 of 16.
    assert c.auroc.value == pytest.approx(15 / 16 - 8 / 16)


def test_standard_error_worked_by_hand():
    """Three sources of one answer of each label, A right on all, B wrong in the third: left out once each, the
    differences are 1/2, 1/2 and 0, so that SE² = 2/3 · (1/36 + 1/36 + 4/36) = 1/9; t(2) = 4.30."""
    labels = [True, False] * 3
    wrong = Side([True, False, True, False, False, True], [None] * 6)
    d = compare(labels, Side(labels, labels), wrong, "aabbcc").balanced_accuracy
    assert d.value == d.standard_error == pytest.approx(1 / 3)
    assert d.high == pytest.approx(1 / 3 + 4.30 / 3, rel=0.01)


def test_unscored_counts_as_wrong_for_the_judge_that_left_it():
    """Skipping an answer costs what a wrong verdict and the worst rank cost."""
    c = compare(LABELS, A._replace(predictions=[None, *A.predictions[1:]]), B)
    assert c.balanced_accuracy.value == pytest.approx((3 / 4 + 3 / 4) / 2 - 0.5)
    # The faithful .9 now loses its four pairs: 11 of 16.
    assert c.auroc.value == pytest.approx(11 / 16 - 8 / 16)
    assert compare(LABELS, NOTHING, B).balanced_accuracy.value == pytest.approx(0 - 0.5)


def test_swapping_the_judges_turns_everything_round():
    """Better becomes worse; against itself a judge is neither."""
    names = ("the champion", "the lexical baseline")
    ab = compare(LABELS * 20, A * 20, B * 20, names=names)
    ba = compare(LABELS * 20, B * 20, A * 20)
    assert (ab.verdict, ba.verdict) == ("better", "worse")
    assert compare(LABELS * 20, A * 20, A * 20).verdict == "inconclusive"
    assert ab.balanced_accuracy.low == pytest.approx(-ba.balanced_accuracy.high)
    start = "the champion is better than the lexical baseline: balanced accuracy +"
    assert ab.sentence.startswith(start)
    assert ab.sentence.endswith(") on 160 answers over 160 sources.")


def test_at_an_operating_point_judges_are_compared_by_what_they_lose():
    """Passing an unfaithful answer costs 3, failing a faithful one 1: of 4 + 4 · 3 = 16 A loses 3 and B 2 + 2 · 3."""
    c = compare(LABELS, A, B, cost=3)
    assert c.balanced_accuracy.value == pytest.approx((16 - 3) / 16 - (16 - 8) / 16)
    assert "accuracy at cost=3 +31.2 points" in c.sentence


@pytest.mark.parametrize(("sources", "verdict"), [(9, "inconclusive"), (10, "better")])
@pytest.mark.parametrize("faithful", [1, 3])
def test_few_sources_of_the_rarer_label_show_nothing(sources, verdict, faithful):
    """Not even of a judge that is right on all against one that is wrong on all."""
    labels = [False] * sources + [True] * sources * faithful
    wrong = [not y for y in labels]
    c = compare(labels, Side(labels, labels), Side(wrong, wrong))
    assert c.verdict == verdict
    said = "it takes 10 sources of either label to decide" in c.sentence
    assert said is (sources == 9)


def test_what_cannot_be_compared_gives_a_reason():
    """One class, one source or no scores: None with the reason, and never a verdict."""
    one_class = compare([True] * 8, A, B)
    assert one_class.balanced_accuracy.value is None
    assert "all answers have the same label" in one_class.sentence
    no_scores = compare(LABELS, A, B._replace(scores=[None] * 8))
    assert no_scores.auroc.why == "B gives no scores"
    assert no_scores.balanced_accuracy.value == pytest.approx(0.375)
    one_source = compare(LABELS, A, B, ["one"] * 8)
    assert one_source.balanced_accuracy.low is None
    assert one_class.verdict == one_source.verdict == "inconclusive"
