from __future__ import annotations

import math

import numpy as np
import pytest

from faith_dspy.errors import InputError
from faith_dspy.scoring.thresholds import stable_threshold, threshold_for_recall


def test_threshold_prefers_a_plateau() -> None:
    """The threshold lies in the middle between the two classes; with one class it is 0.5."""
    probabilities = np.concatenate([np.linspace(0.0, 0.4, 50), np.linspace(0.6, 1.0, 50)])
    labels = np.array([0.0] * 50 + [1.0] * 50)
    assert stable_threshold(probabilities, labels) == pytest.approx(0.5)
    assert stable_threshold(probabilities, np.ones(100)) == 0.5


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
        threshold_for_recall([True, True], [0.1, 0.2], 0.5)
    with pytest.raises(InputError, match="score nan"):
        threshold_for_recall([True, False], [0.1, math.nan], 0.5)
    with pytest.raises(InputError, match=r"recall_unfaithful=1\.5"):
        threshold_for_recall([True, False], [0.1, 0.2], 1.5)
    with pytest.raises(InputError, match="no threshold fails 100%"):
        threshold_for_recall([True, False], [0.1, 1.0], 1.0)
