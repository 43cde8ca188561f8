"""The review range: probabilities so close to the threshold that a person should look at the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faith_dspy.report.numbers import percent
from faith_dspy.scoring.statistics import wilson

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


def review_range_sentence(
    review_range: tuple[float, float], probabilities: Sequence[float | None], labels: Sequence[bool]
) -> str:
    """The share of answers inside a review range, and how often the judge is right on the others (Wilson's intervals).

    Answers whose probability is None are left out.
    """
    low, high = review_range
    known = [(p, y) for p, y in zip(probabilities, labels, strict=True) if p is not None]
    inside = sum(low <= p < high for p, _ in known) / max(1, len(known))
    text = f"{inside:.0%} of the answers, those between {low:.2f} and {high:.2f}"
    sides = {
        ("passed", "faithful"): [y for p, y in known if p >= high],
        ("stopped", "unfaithful"): [not y for p, y in known if p < low],
    }
    if not any(sides.values()):
        return f"{text}: no other is left."
    told = [
        f"{percent(wilson(sum(right), len(right)))} of the {verdict} are {label}" if right else f"none is {verdict}"
        for (verdict, label), right in sides.items()
    ]
    return f"{text}. Of the others {' and '.join(told)}."
