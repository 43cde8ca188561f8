"""Logistic regression with signed weights, over single statements or over bags of them; and its calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from threadpoolctl import ThreadpoolController

from faith_dspy.scoring.classifier import LOGIT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRIOR_WEIGHT = 0.1
"""Prior mean of a weight with a direction, in log-odds per standard deviation of its feature (`optimize/LOG.md`)."""
WIDTH = 0.2
"""Standard deviation of the normal prior on a weight (`optimize/LOG.md`). More labels outweigh the prior."""

_FREE = (None, None)
_BOUNDS = {1: (0.0, None), -1: (None, 0.0), 0: _FREE}
"""Of a weight, by the sign of its direction."""
_BLAS = ThreadpoolController()
"""Keeps fits on one thread: for matrices this small, several take ten times as long."""


class Regression(NamedTuple):
    """A fitted logistic regression on raw features; arrays of shape (features,)."""

    means: Floats
    scales: Floats
    weights: Floats
    intercept: float

    def logits(self, x: Floats) -> Floats:
        """Log-odds of each row of ``x``, shape (rows, features); missing values (NaN) count as the mean."""
        z = np.nan_to_num((x - self.means) / self.scales)
        return np.asarray(z @ self.weights + self.intercept, dtype=np.float64)

    def rescaled(self, slope: float, shift: float) -> Regression:
        """Return the regression whose log-odds are ``slope · logits + shift``."""
        return self._replace(
            weights=self.weights * slope, intercept=self.intercept * slope + shift
        )


def fit_logistic(
    x: Floats,
    y: Floats,
    directions: Sequence[float],
    bags: Ints | None = None,
    *,
    width: float | Floats = WIDTH,
    weights: Floats | None = None,
    prior: Floats | None = None,
) -> Regression:
    """Fit by L-BFGS-B, with each weight keeping its direction.

    Args:
        x: features, shape (rows, features); NaN where missing.
        y: labels, 1 or 0; one per row, or one per bag where ``bags`` is given.
        directions: per feature. A weight's sign is bound to its direction's; 0 leaves it free. The prior on a weight is
            normal around ``direction · PRIOR_WEIGHT``, so that with few labels every feature has a say.
        bags: each row's bag, 0 … n−1, none empty; without them each row is its own. A bag's log-odds are the soft
            minimum of its rows'.
        width: standard deviation of that prior, one or one per feature.
        weights: of each label, 1 on average; by default both classes weigh the same.
        prior: what was fitted to other labels, log-odds per unit of each feature: where that is known (not NaN), it is
            the prior's mean.
    """
    means, scales, z = standardized(x)
    expected = PRIOR_WEIGHT * np.array(directions, dtype=np.float64)
    if prior is not None:
        expected = np.where(np.isnan(prior), expected, prior * scales)
    sample_weights = class_weights(y) if weights is None else weights
    target = 2 * y - 1
    bag = np.arange(len(y)) if bags is None else bags

    def loss(theta: Floats) -> tuple[float, Floats]:
        beta, intercept = theta[:-1], theta[-1]
        logits, shares = soft_minimum(z @ beta + intercept, bag)
        off = (beta - expected) / width
        log_loss = np.sum(sample_weights * np.logaddexp(0, -target * logits))
        penalty = 0.5 * np.sum(off**2)
        slope = -sample_weights * target * expit(-target * logits)
        per_row = slope[bag] * shares
        by_beta = z.T @ per_row + off / width
        gradient = np.append(by_beta, per_row.sum())
        return (log_loss + penalty) / len(y), gradient / len(y)

    bounds = [_BOUNDS[np.sign(d)] for d in directions]
    theta = _lowest(loss, np.append(expected, 0.0), [*bounds, _FREE])
    return Regression(means, scales, theta[:-1], float(theta[-1]))


def _lowest(
    loss: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    bounds: Sequence[tuple[float | None, float | None]],
) -> Floats:
    """Return where a loss, which comes with its gradient, is lowest."""
    with _BLAS.limit(limits=1, user_api="blas"):
        minimum = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
        )
    return np.asarray(minimum.x)


def standardized(x: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean and scale of each column, and the columns made standard; missing values are the mean, a scale is above 0."""
    present = ~np.isnan(x)
    totals = np.where(present, x, 0).sum(axis=0)
    means = totals / np.maximum(1, present.sum(axis=0))
    filled = np.where(present, x, means)
    scales = filled.std(axis=0)
    scales[scales < 1e-9] = 1.0
    return means, scales, (filled - means) / scales


def soft_minimum(rows: Floats, bags: Ints) -> tuple[Floats, Floats]:
    """``−log mean exp(−z)`` of each bag's rows, and its derivative by each row (shares that sum to 1 per bag)."""
    lowest = np.full(int(bags.max()) + 1, np.inf)
    np.minimum.at(lowest, bags, rows)
    soft = np.exp(lowest[bags] - rows)
    total = np.bincount(bags, weights=soft)
    mean = total / np.bincount(bags)
    return lowest - np.log(mean), soft / total[bags]


def class_weights(y: Floats) -> Floats:
    """Return a weight per label such that both classes weigh the same and the mean is 1; ones where there is one
    class."""
    positive = float(y.mean()) if len(y) else 0.0
    if positive in (0.0, 1.0):
        return np.ones(len(y))
    return np.where(y == 1, 0.5 / positive, 0.5 / (1 - positive))


def platt_scaling(logits: Floats, y: Floats) -> tuple[float, float]:
    """Slope in [0.25, 4] and shift that turn class-balanced log-odds into chances at the labels' own base rate.

    With Platt's smoothed targets (1999), and a prior that keeps the slope near 1 while labels are few.
    """
    n1 = float(y.sum())
    n0 = float((1 - y).sum())
    high = (n1 + 1) / (n1 + 2)
    low = 1 / (n0 + 2)
    target = np.where(y == 1, high, low)

    def loss(theta: Floats) -> tuple[float, Floats]:
        log_slope, shift = theta
        slope = np.exp(log_slope)
        z = slope * logits + shift
        log_loss = np.sum(np.logaddexp(0, z) - target * z)
        rest = expit(z) - target
        by_slope = np.sum(rest * logits) * slope + 4 * log_slope
        gradient = np.array([by_slope, rest.sum()])
        return log_loss + 2 * log_slope**2, gradient

    reach = np.log(4)
    log_slope, shift = _lowest(loss, np.zeros(2), [(-reach, reach), _FREE])
    return float(np.exp(log_slope)), float(shift)


def probabilities_of(logits: Floats) -> Floats:
    """Log-odds as probabilities, clipped as a classifier clips them."""
    return np.asarray(
        expit(np.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT)), dtype=np.float64
    )
