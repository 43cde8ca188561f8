from __future__ import annotations

import math

import numpy as np
import pytest

from faith_dspy.optimize.results import Comparison, Difference
from faith_dspy.optimize.select.comparison import Side, compare, differences, holm

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
    accuracy, auroc = differences(LABELS, A, B)
    assert accuracy.value == pytest.approx((4 / 4 + 3 / 4) / 2 - (2 / 4 + 2 / 4) / 2)
    # AUROC of A: .65 beats .6 only: 15 of 16. B: .9 .8 win 8, .2 .1 win none: 8 of 16.
    assert auroc.value == pytest.approx(15 / 16 - 8 / 16)


def test_unscored_counts_as_wrong_for_the_judge_that_left_it() -> None:
    """Skipping an answer costs what a wrong verdict and the worst rank cost."""
    accuracy, auroc = differences(LABELS, Side([None, *VERDICTS[1:]], SCORES), B)
    assert accuracy.value == pytest.approx((3 / 4 + 3 / 4) / 2 - 0.5)
    # The faithful .9 now loses its four pairs: 11 of 16.
    assert auroc.value == pytest.approx(11 / 16 - 8 / 16)
    nothing = Side([None] * 8, [None] * 8)
    assert differences(LABELS, nothing, B)[0].value == pytest.approx(0 - 0.5)


def test_a_judge_against_itself_does_not_differ() -> None:
    """Identical verdicts give 0, an interval of 0, p = 1, and no number of labels."""
    c = compare(LABELS, A, A)
    assert (c.balanced_accuracy.value, c.balanced_accuracy.low, c.balanced_accuracy.p_value) == (0.0, 0.0, 1.0)
    assert (c.verdict, c.more_labels) == ("not shown better", None)
    assert "no number of labels" in c.sentence


def test_swapping_the_judges_turns_everything_round() -> None:
    """The difference changes its sign, better becomes worse, and the p-value stays; the sentence names both judges."""
    labels, a, b = sides(300, 0.85, 0.65)
    ab, ba = compare(labels, a, b, names=("the champion", "the lexical baseline")), compare(labels, b, a)
    assert (ab.verdict, ba.verdict, ab.more_labels) == ("better", "worse", None)
    assert ab.balanced_accuracy.value == pytest.approx(-ba.balanced_accuracy.value)  # type: ignore[operator]
    assert ab.balanced_accuracy.low == pytest.approx(-ba.balanced_accuracy.high)  # type: ignore[operator]
    assert ab.balanced_accuracy.p_value == ba.balanced_accuracy.p_value
    assert ab.sentence.startswith("the champion is better than the lexical baseline: balanced accuracy +")
    assert "95% interval" in ab.sentence
    assert "300 labels" in ab.sentence


def test_labels_needed_follow_from_the_standard_error() -> None:
    """n (z SE / d)² labels put the end of the interval at 0: with the same answers so often, A is shown better."""
    labels, a, b = sides(100, 0.78, 0.78)
    c = compare(labels, a, b)
    d = c.balanced_accuracy
    assert c.verdict == "not shown better"
    assert c.more_labels == math.ceil(100 * (1.959964 * d.standard_error / d.value) ** 2 - 100)
    assert "more answers to test on have an even chance to tell" in c.sentence
    times = math.ceil((100 + c.more_labels) / 100) + 1
    assert compare(labels * times, repeated(a, times), repeated(b, times)).verdict == "better"


def test_groups_that_agree_within_widen_the_interval() -> None:
    """Ten answers over each context are worth fewer than as many contexts."""
    labels, a, b = sides(40, 0.9, 0.7)
    labels, a, b = labels * 10, repeated(a, 10), repeated(b, 10)
    groups = [str(i % 40) for i in range(400)]
    alone, grouped = compare(labels, a, b).balanced_accuracy, compare(labels, a, b, groups).balanced_accuracy
    assert grouped.standard_error > 2 * alone.standard_error  # type: ignore[operator]


def test_no_false_alarms_beyond_the_level() -> None:
    """Two equally good judges are called different in at most a tenth of 100 samples."""
    rng = np.random.default_rng(0)
    labels = [i % 2 == 0 for i in range(100)]
    called = sum(
        compare(labels, judge(rng, labels, 0.75), judge(rng, labels, 0.75), n_resamples=300, seed=i).verdict
        != "not shown better"
        for i in range(100)
    )
    assert called <= 10


def test_what_cannot_be_compared_gives_a_reason() -> None:
    """One class, one group or no scores: None with the reason, and never a verdict."""
    one_class = compare([True] * 8, A, B)
    assert (one_class.balanced_accuracy.value, one_class.verdict) == (None, "not shown better")
    assert "all answers are labelled faithful" in one_class.sentence
    no_scores = compare(LABELS, A, Side(B.predictions, [None] * 8))
    assert no_scores.auroc.why == "judge B gives no scores"
    assert no_scores.balanced_accuracy.value is not None
    one_group = compare(LABELS, A, B, ["one"] * 8)
    assert one_group.balanced_accuracy.value == pytest.approx(0.375)
    assert (one_group.balanced_accuracy.low, one_group.verdict) == (None, "not shown better")
    assert "one group" in one_group.sentence


def against(p: float | None, verdict: str = "better") -> Comparison:
    """A comparison with this p."""
    return Comparison(
        n=100, balanced_accuracy=Difference(value=0.1, low=0.01, high=0.2, p_value=p, standard_error=0.05),
        auroc=Difference(why="not asked"), verdict=verdict, more_labels=None,
        sentence="the champion is better than it: +10 points.",
    )  # fmt: skip


def test_holm_by_hand() -> None:
    """p = .01, .02, .04: times 3, 2, 1, and never less than the one before; the primary comparison is left alone."""
    given = {"untuned": against(0.049), "a": against(0.04), "b": against(0.01), "c": against(0.02)}
    found = holm(given)
    assert {k: c.p_holm for k, c in found.items()} == {
        "untuned": None, "a": pytest.approx(0.04), "b": pytest.approx(0.03), "c": pytest.approx(0.04),
    }  # fmt: skip
    assert found["untuned"] == given["untuned"]
    assert list(found) == list(given)
    assert "Holm: p = 0.03" in found["b"].sentence


def test_a_verdict_that_does_not_hold_among_several_is_withdrawn() -> None:
    """p = .03 twice is .06: not shown better, and the sentence says why."""
    found = holm({"untuned": against(0.01), "a": against(0.03), "b": against(0.03)})
    assert found["a"].verdict == "not shown better"
    assert found["a"].sentence.startswith("the champion is not shown to be better than it")
    assert "Holm: p = 0.06" in found["a"].sentence
    assert found["untuned"].verdict == "better"


def test_comparisons_without_p_are_not_counted() -> None:
    """A baseline that cannot be compared costs the others nothing."""
    found = holm({"untuned": against(0.01), "a": against(0.03), "b": against(None, "not shown better")})
    assert (found["a"].verdict, found["a"].p_holm) == ("better", None)
