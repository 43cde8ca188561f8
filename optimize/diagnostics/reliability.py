"""How far probabilities are chances: bins for a reliability diagram, and calibration error before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.optimize.checks import Bin, CalibrationCheck
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.statistics import check_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

_BINS = 10


def bins(probabilities: Sequence[float], labels: Sequence[bool]) -> list[Bin]:
    """Equally full bins by rank, those of `Agreement.ece`; equal probabilities share one. Empty without answers."""
    known = sorted(zip(probabilities, labels, strict=True))
    first: dict[float, int] = {}
    for i, (p, _) in enumerate(known):
        first.setdefault(p, i)
    members: dict[int, list[tuple[float, bool]]] = {}
    for p, label in known:
        members.setdefault(first[p] * _BINS // len(known), []).append((p, label))
    found = []
    for inside in members.values():
        n = len(inside)
        share = sum(label for _, label in inside) / n
        low, high = _wilson(share, n)
        found.append(Bin(mean=sum(p for p, _ in inside) / n, share=share, low=low, high=high, n=n))
    return found


def calibration_check(
    before: Sequence[float | None],
    after: Sequence[float | None],
    labels: Sequence[bool],
    *,
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> CalibrationCheck | None:
    """ECE and bins of two probabilities per answer, where both are known; None where they never are.

    ``after`` has to be cross-fitted, or of answers the classifier never saw.
    """
    check_labels(labels, before=before, after=after, groups=groups)
    at = [i for i, (b, a) in enumerate(zip(before, after, strict=True)) if b is not None and a is not None]
    if not at:
        return None
    y = [bool(labels[i]) for i in at]
    kept = None if groups is None else [groups[i] for i in at]
    sides = [[float(side[i] or 0) for i in at] for side in (before, after)]
    errors = [measure(y, [p >= 0.5 for p in side], side, groups=kept, seed=seed).ece for side in sides]
    return CalibrationCheck(
        n=len(at),
        before=errors[0],
        after=errors[1],
        bins_before=tuple(bins(sides[0], y)),
        bins_after=tuple(bins(sides[1], y)),
    )


def _wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval (Wilson 1927, JASA 22)."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)
