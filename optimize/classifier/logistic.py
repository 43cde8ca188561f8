"""Logistic regression with signs, over single statements or over bags of them, and a cut that does not wobble."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import minimize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PRIOR_WEIGHT = 0.1
"""What a signal with a direction is presumed to weigh before any label is seen, in log-odds per standard deviation."""
PRIOR_WIDTHS = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Standard deviations of the normal prior on each weight. The prior weighs less the more labels there are."""


class Fit(NamedTuple):
    """A fitted logistic regression on raw features."""

    means: Floats
    scales: Floats
    weights: Floats
    intercept: float

    def logits(self, x: Floats) -> Floats:
        """Log-odds of each row, missing values (NaN) at the mean."""
        z = np.nan_to_num((x - self.means) / self.scales)
        return np.asarray(z @ self.weights + self.intercept, dtype=np.float64)


def fit(x: Floats, y: Floats, directions: Sequence[float], width: float, bags: NDArray[np.int64] | None = None) -> Fit:
    """Fit by L-BFGS-B with classes balanced; weights keep their direction.

    Their prior is normal, of ``width`` around ``directions`` times `PRIOR_WEIGHT`: few labels leave every signal a say,
    and 3 in place of 1 the say of three. 0 is a signal that may speak for either side.
    ``y`` is per row, or per bag where ``bags`` gives each row's bag number (0 … n−1, none empty): a bag's log-odds are
    the soft minimum ``−log mean exp(−z)`` of its rows'.
    """
    there = ~np.isnan(x)
    means = np.where(there, x, 0).sum(axis=0) / np.maximum(1, there.sum(axis=0))
    filled = np.where(there, x, means)
    scales = filled.std(axis=0)
    scales[scales < 1e-9] = 1.0
    z = (filled - means) / scales
    n = len(y)
    sample = balanced(y)
    target = 2 * y - 1
    prior = PRIOR_WEIGHT * np.array(directions, dtype=np.float64)

    def loss(theta: Floats) -> tuple[float, Floats]:
        row = z @ theta[:-1] + theta[-1]
        answer, share = soft_minimum(row, bags) if bags is not None else (row, None)
        penalty = 0.5 * float(np.sum((theta[:-1] - prior) ** 2)) / width**2
        value = float(np.sum(sample * np.logaddexp(0, -target * answer))) + penalty
        slope = -sample * target / (1 + np.exp(np.clip(target * answer, -500, 500)))
        per_row = slope[bags] * share if bags is not None else slope
        gradient = np.append(z.T @ per_row + (theta[:-1] - prior) / width**2, per_row.sum())
        return value / n, gradient / n

    bounds = [(0.0 if d > 0 else None, 0.0 if d < 0 else None) for d in directions] + [(None, None)]
    found = minimize(loss, np.append(prior, 0.0), jac=True, method="L-BFGS-B", bounds=bounds,
                     options={"maxiter": 500})  # fmt: skip
    return Fit(means, scales, found.x[:-1], float(found.x[-1]))


def soft_minimum(rows: Floats, bags: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """``−log mean exp(−z)`` of each bag, and by how much it follows each of its rows (shares that sum to 1)."""
    floor = np.full(int(bags.max()) + 1, np.inf)
    np.minimum.at(floor, bags, rows)
    soft = np.exp(floor[bags] - rows)
    total = np.bincount(bags, weights=soft)
    return floor - np.log(total / np.bincount(bags)), soft / total[bags]


def best_width(
    splits: Sequence[NDArray[np.int64]],
    loss: Callable[[NDArray[np.int64], NDArray[np.int64], float], Floats],
    n: int,
) -> float:
    """The narrowest of `PRIOR_WIDTHS` whose held-out loss is within one standard error of the best.

    ``loss(train, held, width)`` gives the losses of the held-out labels after fitting on the others.
    """
    everyone = np.arange(n)
    losses = {
        width: np.concatenate([loss(np.setdiff1d(everyone, held), held, width) for held in splits])
        for width in PRIOR_WIDTHS
    }
    best = min(PRIOR_WIDTHS, key=lambda w: losses[w].mean())
    for width in PRIOR_WIDTHS:
        worse = losses[width] - losses[best]
        if worse.mean() <= worse.std() / np.sqrt(len(worse)):
            return width
    return best


def balanced(y: Floats) -> Floats:
    """A weight per label such that both classes weigh the same and the mean is 1."""
    positive = float(y.mean()) if len(y) else 0.0
    if positive in (0.0, 1.0):
        return np.ones(len(y))
    return np.where(y == 1, 0.5 / positive, 0.5 / (1 - positive))


def log_losses(logits: Floats, y: Floats) -> Floats:
    """Log loss of each label."""
    return np.logaddexp(0, -(2 * y - 1) * logits)


def recalibrate(logits: Floats, y: Floats) -> tuple[float, float]:
    """Slope in [0.25, 4] and shift that turn held-out balanced log-odds into chances at the labels' own base rate.

    Platt's scaling with his smoothed targets, and a prior that keeps the slope near 1 while labels are few.
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


def stable_threshold(probabilities: Floats, y: Floats, cost: float | None = None) -> float:
    """The cut of best balanced accuracy, each cut counted with its neighbours (a tenth of the labels to either side).

    With ``cost`` the cut of least cost instead, where a 0 above it costs ``cost`` and a 1 below it costs 1. A single
    lucky cut loses to a plateau. 0.5 when one class is missing.
    """
    if y.min(initial=1) == y.max(initial=0):
        return 0.5
    order = np.argsort(probabilities, kind="stable")
    p, sorted_y = probabilities[order], y[order]
    n1 = float(sorted_y.sum())
    gain0, gain1 = (1 / (len(p) - n1), 1 / n1) if cost is None else (cost, 1.0)
    below0, below1 = (np.concatenate([[0.0], np.cumsum(x)]) for x in (1 - sorted_y, sorted_y))
    reach = max(1, len(p) // 10)
    padded = np.pad(gain0 * below0 - gain1 * below1, reach, mode="edge")
    kernel = np.concatenate([np.arange(1, reach + 2), np.arange(reach, 0, -1)]).astype(np.float64)
    smooth = np.convolve(padded, kernel / kernel.sum(), mode="valid")
    cuts = np.concatenate([[p[0]], (p[1:] + p[:-1]) / 2, [p[-1]]])
    allowed = np.concatenate([[True], p[1:] > p[:-1], [True]])
    smooth[~allowed] = -np.inf
    best = np.flatnonzero(smooth >= smooth.max() - 1e-12)
    return float(cuts[best[len(best) // 2]])
