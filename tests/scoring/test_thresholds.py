from __future__ import annotations

import math

import pytest

from faith_dspy.errors import InputError
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.thresholds import balanced_threshold, threshold_for_recall


def test_threshold_sits_in_the_middle_of_the_best_gap() -> None:
    """Between the highest unfaithful and the lowest faithful score when they are apart."""
    assert balanced_threshold([False, False, True, True], [0.1, 0.2, 0.6, 0.9]) == pytest.approx(0.4)


def test_threshold_prefers_the_widest_plateau_then_the_one_near_a_half() -> None:
    """Among equally good cuts the one that moves least with the sample is taken."""
    # U .1, F .2, U .6, F .9. Cuts in (.1, .2] and (.6, .9] both give .75; the second is wider.
    assert balanced_threshold([False, True, False, True], [0.1, 0.2, 0.6, 0.9]) == pytest.approx(0.75)
    # The same with gaps of equal width, (.1, .3] and (.7, .9], at the same distance from a half; then one nearer.
    assert balanced_threshold([False, True, False, True], [0.1, 0.3, 0.5, 0.7]) == pytest.approx(0.6)


def test_threshold_joins_neighbouring_gaps_of_equal_worth() -> None:
    """A score at which both classes gain alike does not end the plateau."""
    # U .1, then F and U tied at .4, then F .8: cuts in (.1, .4] and (.4, .8] both give .75; the middle of both is .45.
    assert balanced_threshold([False, True, False, True], [0.1, 0.4, 0.4, 0.8]) == pytest.approx(0.45)


@pytest.mark.parametrize(
    "scores", [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.5, 0.5, 0.5], [0.9, 1.0, 0.0], [3.0, -1.0, 7.0]]
)
def test_threshold_is_never_worse_than_any_other(scores: list[float]) -> None:
    """Also for constant, extreme and backward scores; probabilities give a threshold in [0, 1]."""
    labels = [True, False, False]
    t = balanced_threshold(labels, scores)

    def value(cut: float) -> float:
        return measure(labels, [s >= cut for s in scores], scores, n_resamples=2).balanced_accuracy.value or 0.0

    assert value(t) == max(value(c) for c in [-9.0, 9.0, *scores, *(s + 1e-9 for s in scores)])
    if max(scores) <= 1:
        assert 0 <= t <= 1


def test_threshold_for_recall_is_the_lowest_that_finds_enough() -> None:
    """It fails the asked share of unfaithful answers, and passes as many faithful ones as that allows."""
    labels = [False, False, False, False, True, True, True]
    scores = [0.1, 0.2, 0.3, 0.6, 0.25, 0.7, 0.9]
    assert threshold_for_recall(labels, scores, 0.75) == pytest.approx(0.45)  # three of four: between .3 and .6
    assert threshold_for_recall(labels, scores, 0.5) == pytest.approx(0.225)  # two: between .2 and .25
    assert threshold_for_recall(labels, scores, 1.0) == pytest.approx(0.65)


def test_thresholds_that_cannot_be_fitted_say_why() -> None:
    """One class, a share that is none, and unfaithful answers at the very top are refused."""
    with pytest.raises(InputError, match="2 faithful and 0 unfaithful"):
        balanced_threshold([True, True], [0.1, 0.2])
    with pytest.raises(InputError, match="score nan"):
        balanced_threshold([True, False], [0.1, math.nan])
    with pytest.raises(InputError, match=r"recall_unfaithful=1\.5"):
        threshold_for_recall([True, False], [0.1, 0.2], 1.5)
    with pytest.raises(InputError, match="no threshold fails 100%"):
        threshold_for_recall([True, False], [0.1, 1.0], 1.0)
