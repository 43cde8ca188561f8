from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from faith_dspy.optimize.results import Comparison, Row
from faith_dspy.optimize.select import comparison


class Side(NamedTuple):
    """What one judge found."""

    predictions: Sequence[bool | None]
    scores: Sequence[float | None]


def compare(labels: Sequence[bool], a: Side, b: Side, sources: Sequence[str] | None = None, **more: Any) -> Comparison:
    """The judges' rows compared; without sources every answer is its own."""
    sources = sources or [str(i) for i in range(len(labels))]

    def rows(side: Side) -> list[Row]:
        found = zip(sources, labels, side.predictions, side.scores, strict=True)
        return [Row(id="", source=s, label=y, predicted=p, probability=score) for s, y, p, score in found]

    return comparison.compare(rows(a), rows(b), **more)


# Eight answers, four faithful. A is right on seven, B on four.
LABELS = [True] * 4 + [False] * 4
VERDICTS = [True, True, True, True, False, False, False, True]
SCORES = [0.9, 0.8, 0.7, 0.6, 0.1, 0.2, 0.3, 0.65]
A = Side(VERDICTS, SCORES)
B = Side([True, True, False, False, False, False, True, True], [0.9, 0.8, 0.2, 0.1, 0.3, 0.4, 0.7, 0.6])


def judge(rng: np.random.Generator, labels: list[bool], right: float) -> Side:
    """A judge that is right on this share of the answers."""
    p = [y if rng.random() < right else not y for y in labels]
    return Side(p, [0.5 + (0.3 if v else -0.3) + 0.1 * rng.standard_normal() for v in p])


def sides(n: int, right_a: float, right_b: float) -> tuple[list[bool], Side, Side]:
    """`n` labels, every other one faithful, and two judges."""
    rng = np.random.default_rng(4)
    labels = [i % 2 == 0 for i in range(n)]
    return labels, judge(rng, labels, right_a), judge(rng, labels, right_b)


def repeated(side: Side, times: int) -> Side:
    """The same answers several times."""
    return Side([*side.predictions] * times, [*side.scores] * times)


def test_difference_worked_by_hand() -> None:
    """The value is one judge's metric minus the other's."""
    c = compare(LABELS, A, B)
    assert c.balanced_accuracy.value == pytest.approx((4 / 4 + 3 / 4) / 2 - (2 / 4 + 2 / 4) / 2)
    # AUROC of A: .65 beats .6 only: 15 of 16. B: .9 .8 win 8, .2 .1 win none: 8 of 16.
    assert c.auroc.value == pytest.approx(15 / 16 - 8 / 16)


def test_standard_error_worked_by_hand() -> None:
    """Three sources of one answer of each label, A right on all, B wrong in the third: left out once each, the
    differences are 1/2, 1/2 and 0, so that SE² = 2/3 · (1/36 + 1/36 + 4/36) = 1/9; t(2) = 4.30."""
    labels = [True, False] * 3
    right, wrong = Side(labels, [None] * 6), Side([True, False, True, False, False, True], [None] * 6)
    d = compare(labels, right, wrong, ["a", "a", "b", "b", "c", "c"]).balanced_accuracy
    assert (d.value, d.standard_error) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert d.high == pytest.approx(1 / 3 + 4.30 / 3, rel=0.01)


def test_unscored_counts_as_wrong_for_the_judge_that_left_it() -> None:
    """Skipping an answer costs what a wrong verdict and the worst rank cost."""
    c = compare(LABELS, Side([None, *VERDICTS[1:]], SCORES), B)
    assert c.balanced_accuracy.value == pytest.approx((3 / 4 + 3 / 4) / 2 - 0.5)
    # The faithful .9 now loses its four pairs: 11 of 16.
    assert c.auroc.value == pytest.approx(11 / 16 - 8 / 16)
    nothing = Side([None] * 8, [None] * 8)
    assert compare(LABELS, nothing, B).balanced_accuracy.value == pytest.approx(0 - 0.5)


def test_a_judge_against_itself_does_not_differ() -> None:
    """Identical verdicts give 0, an interval of 0, and no number of labels."""
    c = compare(LABELS * 2, repeated(A, 2), repeated(A, 2))
    assert (c.balanced_accuracy.value, c.balanced_accuracy.low) == (0.0, 0.0)
    assert (c.verdict, c.more_labels) == ("not shown better", None)
    assert "no number of labels" in c.sentence


def test_swapping_the_judges_turns_everything_round() -> None:
    """The difference changes its sign, and better becomes worse; the sentence names both judges."""
    labels, a, b = sides(300, 0.85, 0.65)
    ab, ba = compare(labels, a, b, names=("the champion", "the lexical baseline")), compare(labels, b, a)
    assert (ab.verdict, ba.verdict, ab.more_labels) == ("better", "worse", None)
    assert ab.balanced_accuracy.low == pytest.approx(-ba.balanced_accuracy.high)  # type: ignore[operator]
    assert ab.sentence.startswith("the champion is better than the lexical baseline: balanced accuracy +")
    assert ab.sentence.endswith(") on 300 answers over 300 sources.")


def test_labels_needed_follow_from_the_interval() -> None:
    """It shrinks with the root of the labels: with the same answers so often, A is shown better."""
    labels, a, b = sides(100, 0.78, 0.78)
    c = compare(labels, a, b)
    assert (c.verdict, c.more_labels is not None) == ("not shown better", True)
    assert "more answers to test on have an even chance to tell" in c.sentence
    times = math.ceil((100 + c.more_labels) / 100) + 1
    assert compare(labels * times, repeated(a, times), repeated(b, times)).verdict == "better"


def test_answers_of_one_source_widen_the_interval() -> None:
    """Ten answers over each context are worth fewer than as many contexts."""
    labels, a, b = sides(40, 0.9, 0.7)
    labels, a, b = labels * 10, repeated(a, 10), repeated(b, 10)
    alone = compare(labels, a, b).balanced_accuracy
    grouped = compare(labels, a, b, [str(i % 40) for i in range(400)]).balanced_accuracy
    assert grouped.standard_error > 2 * alone.standard_error  # type: ignore[operator]


def test_few_sources_show_nothing() -> None:
    """A judge that is right on all against one that is wrong on all: not shown over nine sources, better over ten."""
    for sources, verdict in ((9, "not shown better"), (10, "better")):
        labels = [True, False] * sources
        right, wrong = Side(labels, labels), Side([not y for y in labels], [not y for y in labels])
        c = compare(labels, right, wrong, [str(i // 2) for i in range(2 * sources)])
        assert (c.sources, c.verdict) == (sources, verdict)
        assert ("it takes a test part of 10 sources to show one" in c.sentence) is (sources == 9)


@pytest.mark.parametrize(("sources", "answers"), [(10, 4), (20, 4), (50, 3)])
def test_no_effect_is_rarely_shown(sources: int, answers: int) -> None:
    """Labels and judges by chance, answers of one source alike: few are called better, and intervals hold 0.

    300 draws, where 5 % is 15 and 95 % lies within 2.5 points; tests/benchmarks/SHOWN.md has thousands.
    """
    rng, better, covers = np.random.default_rng(0), 0, 0
    source = np.repeat(np.arange(sources), answers)
    for _ in range(300):
        labels = (rng.random(len(source)) < 0.5).tolist()
        scores = (rng.beta(2, 2, size=(2, sources))[:, source] - rng.random((2, len(source)))).tolist()
        c = compare(labels, *(Side([s > 0 for s in one], one) for one in scores), [str(s) for s in source])
        d = c.balanced_accuracy
        better += c.verdict == "better"
        covers += d.low is None or d.low <= 0 <= d.high
    assert better <= 15
    assert 0.925 <= covers / 300 <= 0.975


def test_what_was_chosen_on_these_answers_shows_nothing() -> None:
    """Cross-fitted on the answers that variants were chosen by, a difference is a figure."""
    labels, a, b = sides(300, 0.85, 0.65)
    c = compare(labels, a, b, tested=False)
    assert (c.verdict, c.more_labels) == ("not shown better", None)
    assert "it takes a test part" in c.sentence


def test_what_cannot_be_compared_gives_a_reason() -> None:
    """One class, one source or no scores: None with the reason, and never a verdict."""
    one_class = compare([True] * 8, A, B)
    assert (one_class.balanced_accuracy.value, one_class.verdict) == (None, "not shown better")
    assert "all answers have the same label" in one_class.sentence
    no_scores = compare(LABELS, A, Side(B.predictions, [None] * 8))
    assert no_scores.auroc.why == "B gives no scores"
    assert no_scores.balanced_accuracy.value is not None
    one_source = compare(LABELS, A, B, ["one"] * 8)
    assert one_source.balanced_accuracy.value == pytest.approx(0.375)
    assert (one_source.balanced_accuracy.low, one_source.verdict) == (None, "not shown better")
