"""Thresholds fitted on labels: the one with the best balanced accuracy, or with a wanted recall."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from faith_dspy.errors import InputError
from faith_dspy.scoring.statistics import check_labels, check_scores, need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.scoring.statistics import Floats, Ints


def balanced_threshold(labels: Sequence[bool], scores: Sequence[float | None]) -> float:
    """The threshold t with the highest balanced accuracy on these labels, where ``score >= t`` passes.

    Returns the middle of the best plateau: balanced accuracy does not change between neighbouring scores, and the
    middle moves least with the sample. Ties go to the widest plateau, then to the one closest to 0.5. Unscored answers
    (None) are left out. Scores in [0, 1] give a threshold in [0, 1]. `InputError` without scored answers of both kinds.
    """
    edges, passed, failed = _counts(labels, scores)
    gain = passed * int(failed[-1]) + failed * int(passed[0])  # proportional to balanced accuracy, in whole numbers
    usable = [k for k in range(len(gain)) if k == 0 or edges[k] < edges[k + 1]]
    top = gain[usable].max()
    best = {k for k in usable if gain[k] == top}
    starts, ends = sorted(k for k in best if k - 1 not in best), sorted(k + 1 for k in best if k + 1 not in best)
    plateaus = [(float(edges[a]), float(edges[b])) for a, b in zip(starts, ends, strict=True)]
    low, high = max(plateaus, key=lambda e: (round(e[1] - e[0], 12), -abs((e[0] + e[1]) / 2 - 0.5)))
    return _middle(low, high)


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
