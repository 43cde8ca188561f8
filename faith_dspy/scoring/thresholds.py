"""The threshold that fits labels best."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faith_dspy.scoring.statistics import Bools, Floats


def stable_threshold(probabilities: Floats, y: Bools | Floats, cost: float | None = None) -> float:
    """The threshold with the best balanced accuracy, averaged over neighbouring thresholds.

    The average reaches a tenth of the labels to either side, so that a plateau wins over a single lucky threshold.
    With ``cost`` the threshold of least cost instead, where a 0 at or above it costs ``cost`` and a 1 below it costs 1.
    ``probabilities`` and ``y`` (1 or 0) have shape (n,). 0.5 when one class is missing.
    """
    import numpy as np

    if y.all() or not y.any():
        return 0.5
    order = np.argsort(probabilities, kind="stable")
    p, sorted_y = probabilities[order], y[order].astype(np.float64)
    n1 = float(sorted_y.sum())
    gain0, gain1 = (1 / (len(p) - n1), 1 / n1) if cost is None else (cost, 1.0)
    below0, below1 = (np.concatenate([[0.0], np.cumsum(x)]) for x in (1 - sorted_y, sorted_y))
    reach = max(1, len(p) // 10)
    padded = np.pad(gain0 * below0 - gain1 * below1, reach, mode="edge")
    kernel = np.concatenate([np.arange(1, reach + 2), np.arange(reach, 0, -1)]).astype(np.float64)
    smooth = np.convolve(padded, kernel / kernel.sum(), mode="valid")
    thresholds = np.concatenate([[p[0]], (p[1:] + p[:-1]) / 2, [p[-1]]])
    allowed = np.concatenate([[True], p[1:] > p[:-1], [True]])
    smooth[~allowed] = -np.inf
    best = np.flatnonzero(smooth >= smooth.max() - 1e-12)
    return float(thresholds[best[len(best) // 2]])
