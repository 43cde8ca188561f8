"""Calibrate held-out log-odds: Platt scaling, or isotonic regression where there are many labels and it does better."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from faith_dspy.scoring.classifier import LOGIT_LIMIT, interpolate, to_probability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Points = tuple[tuple[float, float], ...]

ENOUGH_FOR_ISOTONIC = 1000
"""Labelled answers from which on isotonic regression is tried; with fewer it overfits, as scikit-learn's guide says."""


class Calibration(NamedTuple):
    """How log-odds become probabilities."""

    slope: float
    shift: float
    isotonic: Points | None
    """Applied to the probabilities that slope and shift give; None: those are the probabilities."""
    probabilities: Floats
    """Of the answers it was fitted on; with isotonic regression, from a fit without their fold."""


def calibrate(logits: Floats, y: Floats, folds: Sequence[Ints], enough: int = ENOUGH_FOR_ISOTONIC) -> Calibration:
    """Calibrate cross-fitted log-odds, shape (n,), on labels ``y`` (1 = faithful).

    ``folds``: held-out positions, no group in two. From ``enough`` answers on, isotonic regression (Zadrozny & Elkan
    2002, KDD) is fitted without each fold, and taken if its log loss there is below that of Platt scaling fitted alike.
    """
    slope, shift = platt_scaling(logits, y)
    platt = probabilities_of(slope * logits + shift)
    if len(y) < enough:
        return Calibration(slope, shift, None, platt)
    everyone = np.arange(len(y))
    held_platt, held_isotonic = np.empty(len(y)), np.empty(len(y))
    for held in folds:
        train = np.setdiff1d(everyone, held)
        a, b = platt_scaling(logits[train], y[train])
        held_platt[held] = probabilities_of(a * logits[held] + b)
        points = isotonic_points(platt[train], y[train])
        held_isotonic[held] = [interpolate(points, p) for p in platt[held].tolist()]
    if _log_loss(held_isotonic, y) >= _log_loss(held_platt, y):
        return Calibration(slope, shift, None, platt)
    return Calibration(slope, shift, isotonic_points(platt, y), held_isotonic)


def platt_scaling(logits: Floats, y: Floats) -> tuple[float, float]:
    """Slope in [0.25, 4] and shift that turn class-balanced log-odds into chances at the labels' own base rate.

    With Platt's smoothed targets (1999), and a prior that keeps the slope near 1 while labels are few.
    """
    n1, n0 = float(y.sum()), float((1 - y).sum())
    target = np.where(y == 1, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))

    def loss(theta: Floats) -> tuple[float, Floats]:
        z = np.exp(theta[0]) * logits + theta[1]
        value = np.sum(np.logaddexp(0, z) - target * z) + 2 * theta[0] ** 2
        rest = 1 / (1 + np.exp(-np.clip(z, -500, 500))) - target
        return float(value), np.array([np.sum(rest * logits) * np.exp(theta[0]) + 4 * theta[0], rest.sum()])

    found = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(-np.log(4), np.log(4)), (None, None)])
    return float(np.exp(found.x[0])), float(found.x[1])


def isotonic_points(probabilities: Floats, y: Floats) -> Points:
    """Corners of the isotonic regression of ``y`` on ``probabilities``; never nearer to 0 or 1 than logits of ±6."""
    edge = to_probability(-LOGIT_LIMIT)
    fitted = IsotonicRegression(y_min=edge, y_max=1 - edge, out_of_bounds="clip").fit(probabilities, y)
    return tuple(zip(fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist(), strict=True))


def probabilities_of(logits: Floats) -> Floats:
    """Log-odds as probabilities, clipped as a classifier clips them."""
    return np.array([to_probability(z) for z in np.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT).tolist()])


def _log_loss(probabilities: Floats, y: Floats) -> float:
    return float(-np.mean(np.log(np.where(y == 1, probabilities, 1 - probabilities))))
