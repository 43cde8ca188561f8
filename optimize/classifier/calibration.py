"""Held-out log-odds into probabilities: Platt's scaling, or isotonic regression where many labels show it better."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.isotonic import IsotonicRegression

from faith_dspy.optimize.classifier.logistic import recalibrate
from faith_dspy.scoring.classifier import LOGIT_LIMIT, interpolate, to_probability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Points = tuple[tuple[float, float], ...]

ENOUGH_FOR_ISOTONIC = 1000
"""Labelled answers from which on isotonic regression is tried; below it overfits, as scikit-learn's guide says."""


class Calibration(NamedTuple):
    """How log-odds become probabilities."""

    slope: float
    shift: float
    isotonic: Points | None
    """Applied to the probabilities that slope and shift give; None: those are the probabilities."""
    probabilities: Floats
    """Of the answers it was fitted on; with isotonic regression by one that did not see their group."""


def calibrate(logits: Floats, y: Floats, folds: Sequence[Ints], enough: int = ENOUGH_FOR_ISOTONIC) -> Calibration:
    """Calibrate log-odds that no answer's own group was fitted for, shape (n,), on labels ``y`` (1 = faithful).

    ``folds``: held-out indices, no group in two. From ``enough`` answers on isotonic regression (Zadrozny & Elkan 2002,
    KDD) is fitted without each fold and taken when its log loss there is below that of Platt's scaling, fitted alike.
    """
    slope, shift = recalibrate(logits, y)
    platt = probabilities_of(slope * logits + shift)
    if len(y) < enough:
        return Calibration(slope, shift, None, platt)
    everyone = np.arange(len(y))
    held_platt, held_isotonic = np.empty(len(y)), np.empty(len(y))
    for held in folds:
        train = np.setdiff1d(everyone, held)
        a, b = recalibrate(logits[train], y[train])
        held_platt[held] = probabilities_of(a * logits[held] + b)
        held_isotonic[held] = _through(isotonic_points(platt[train], y[train]), platt[held])
    if _log_loss(held_isotonic, y) >= _log_loss(held_platt, y):
        return Calibration(slope, shift, None, platt)
    return Calibration(slope, shift, isotonic_points(platt, y), held_isotonic)


def isotonic_points(probabilities: Floats, y: Floats) -> Points:
    """Corners of the isotonic regression of ``y`` on ``probabilities``; never nearer to 0 or 1 than logits of ±6."""
    edge = to_probability(-LOGIT_LIMIT)
    fitted = IsotonicRegression(y_min=edge, y_max=1 - edge, out_of_bounds="clip").fit(probabilities, y)
    return tuple(zip(fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist(), strict=True))


def probabilities_of(logits: Floats) -> Floats:
    """Log-odds as probabilities, clipped as a classifier clips them."""
    return np.array([to_probability(z) for z in np.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT).tolist()])


def _through(points: Points, probabilities: Floats) -> Floats:
    return np.array([interpolate(points, p) for p in probabilities.tolist()])


def _log_loss(probabilities: Floats, y: Floats) -> float:
    return float(-np.mean(np.log(np.where(y == 1, probabilities, 1 - probabilities))))
