"""The review range: probabilities so close to the threshold that a person should look at the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faith_dspy.optimize.checks import ReviewRangeCheck
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.statistics import Estimate, check_labels, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.scoring.statistics import Bools, Floats


SURE = 0.9
"""How often the judge should be right on either side of the review range."""


def review_range_for(
    probabilities: Sequence[float | None], labels: Sequence[bool], threshold: float
) -> tuple[float, float]:
    """The narrowest range (low, high) around ``threshold`` outside of which the share `SURE` of verdicts is right.

    Each side is chosen by itself: of the answers with at least ``high``, the share `SURE` is faithful; of those below
    ``low``, unfaithful. Where no bound reaches that share, the one that comes closest is taken. At least 5 answers, and
    a twentieth of all, stay outside on each side; a side with fewer answers is all inside (its bound is 0 or 1).
    Answers whose probability is None are left out.
    """
    check_labels(labels, probabilities=probabilities)
    known = [(p, y) for p, y in zip(probabilities, labels, strict=True) if p is not None]
    p, y = np.array([p for p, _ in known]), np.array([y for _, y in known], dtype=bool)
    passed, least = p >= threshold, max(5, len(p) // 20)
    above = _distance_to_be_sure(p[passed] - threshold, y[passed], least)
    below = _distance_to_be_sure(threshold - p[~passed], ~y[~passed], least)
    return (
        0.0 if below is None else max(0.0, threshold - below),
        1.0 if above is None else min(1.0, threshold + above),
    )


def _distance_to_be_sure(beyond: Floats, right: Bools, least: int) -> float | None:
    """The least distance from the threshold from which on the share `SURE` of the verdicts is right, or the best one.

    ``beyond``: distances from the threshold; ``right``: whether the verdict was. None with fewer than ``least``.
    """
    order = np.argsort(beyond, kind="stable")
    distance, ok = beyond[order], right[order]
    n = len(distance)
    if n < least:
        return None
    share = np.cumsum(ok[::-1])[::-1] / np.arange(n, 0, -1)
    starts = [i for i in range(n - least + 1) if i == 0 or distance[i] > distance[i - 1]]
    i = next((i for i in starts if share[i] >= SURE - 1e-9), None)
    if i is None:
        i = max(starts, key=lambda j: (share[j], -j))
    return 0.0 if i == 0 else float(distance[i - 1] + distance[i]) / 2


def measure_review_range(
    review_range: tuple[float, float],
    threshold: float,
    probabilities: Sequence[float | None],
    labels: Sequence[bool],
    *,
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> ReviewRangeCheck:
    """The share of answers inside a review range, and how good the judge is on the others.

    Answers whose probability is None are left out.
    """
    check_labels(labels, probabilities=probabilities, groups=groups)
    at = [i for i, p in enumerate(probabilities) if p is not None]
    p = np.array([probabilities[i] for i in at], dtype=np.float64)
    y = np.array([bool(labels[i]) for i in at], dtype=bool)
    inside = (p >= review_range[0]) & (p < review_range[1])
    rest = np.flatnonzero(~inside)
    balanced = Estimate(why="every answer goes to a person")
    if len(rest):
        kept = [str(at[i]) if groups is None else groups[at[i]] for i in rest]
        verdicts = (p[rest] >= threshold).tolist()
        balanced = measure(y[rest].tolist(), verdicts, [None] * len(rest), groups=kept, seed=seed).balanced_accuracy
    share_inside = float(inside.mean()) if len(p) else 0.0
    sides = (y[~inside & (p >= threshold)], ~y[~inside & (p < threshold)])
    passed_right, stopped_right = (wilson(int(right.sum()), len(right)) for right in sides)
    return ReviewRangeCheck(
        low=review_range[0],
        high=review_range[1],
        sure=SURE,
        inside=share_inside,
        passed_right=passed_right,
        stopped_right=stopped_right,
        balanced_accuracy=balanced,
        sentence=_sentence(review_range, share_inside, passed_right, stopped_right),
    )


def _sentence(review_range: tuple[float, float], inside: float, passed_right: Estimate, stopped_right: Estimate) -> str:
    def percent(e: Estimate) -> str:
        return f"{e.value:.0%}" + (f" [{e.low:.0%}, {e.high:.0%}]" if e.low is not None and e.high is not None else "")

    sides = (("passed", "faithful", passed_right), ("stopped", "unfaithful", stopped_right))
    between = f"{inside:.0%} of the answers, those between {review_range[0]:.2f} and {review_range[1]:.2f}"
    right = [f"{percent(e)} of the {verdict} are {label}" for verdict, label, e in sides if e.value is not None]
    none = [f"none is {verdict}" for verdict, _, e in sides if e.value is None]
    return f"{between}. Of the others {' and '.join([*right, *none])}." if right else f"{between}: no other is left."
