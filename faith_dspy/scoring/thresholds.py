"""Thresholds fitted on labels: the one with the best balanced accuracy, or with a wanted recall."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from faith_dspy.errors import InputError
from faith_dspy.scoring.statistics import check_labels, check_scores, need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.scoring.statistics import Floats, Ints


def stable_threshold(probabilities: Floats, y: Floats, cost: float | None = None) -> float:
    """The threshold with the best balanced accuracy, averaged over neighbouring thresholds.

    The average reaches a tenth of the labels to either side, so that a plateau wins over a single lucky threshold.
    With ``cost`` the threshold of least cost instead, where a 0 at or above it costs ``cost`` and a 1 below it costs 1.
    ``probabilities`` and ``y`` (1 or 0) have shape (n,). 0.5 when one class is missing.
    """
    need("numpy", "Fitting a threshold")
    import numpy as np

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
    thresholds = np.concatenate([[p[0]], (p[1:] + p[:-1]) / 2, [p[-1]]])
    allowed = np.concatenate([[True], p[1:] > p[:-1], [True]])
    smooth[~allowed] = -np.inf
    best = np.flatnonzero(smooth >= smooth.max() - 1e-12)
    return float(thresholds[best[len(best) // 2]])


def threshold_for_recall(labels: Sequence[bool], scores: Sequence[float | None], recall_unfaithful: float) -> float:
    """The lowest threshold that fails at least this share of the unfaithful answers; ``score >= t`` passes.

    Returns the middle between the neighbouring scores. `InputError` for a share outside (0, 1], without scored answers
    of both kinds, or when unfaithful answers with the score 1 put the share out of reach.
    """
    if not 0 < recall_unfaithful <= 1:
        raise InputError(f"got recall_unfaithful={recall_unfaithful!r}, expected a share above 0 and at most 1")
    edges, _, failed = _counts(labels, scores)
    wanted = math.ceil(recall_unfaithful * int(failed[-1]) - 1e-9)
    k = int((failed >= wanted).argmax())
    if edges[k] == edges[k + 1]:
        raise InputError(
            f"got unfaithful answers with the score {edges[k]:g}: no threshold fails {recall_unfaithful:.0%} of "
            "the unfaithful answers. Ask for less, or calibrate on more labels"
        )
    return _middle(float(edges[k]), float(edges[k + 1]))


def _counts(labels: Sequence[bool], scores: Sequence[float | None]) -> tuple[Floats, Ints, Ints]:
    """With U different scores: U + 2 edges; and for a threshold in (edge k, edge k + 1], how many faithful answers
    pass and how many unfaithful ones fail (U + 1 each)."""
    need("numpy", "Fitting a threshold")
    import numpy as np

    check_labels(labels, scores=scores)
    check_scores(scores)
    kept = [(bool(y), float(s)) for y, s in zip(labels, scores, strict=True) if s is not None]
    y = np.array([y for y, _ in kept], dtype=bool)
    if not y.any() or y.all():
        raise InputError(f"got {y.sum()} faithful and {(~y).sum()} unfaithful scored answers, expected both kinds")
    levels, at = np.unique([s for _, s in kept], return_inverse=True)
    passed = y.sum() - np.cumsum([0, *np.bincount(at[y], minlength=len(levels))])
    failed = np.cumsum([0, *np.bincount(at[~y], minlength=len(levels))])
    low, high = (0.0, 1.0) if levels[0] >= 0 and levels[-1] <= 1 else (levels[0] - 1, levels[-1] + 1)
    return np.array([low, *levels, high]), passed, failed


def _middle(low: float, high: float) -> float:
    middle = low + (high - low) / 2
    return middle if middle > low else high
