"""What agreement costs: the variants by tokens and seconds an answer, and the cheapest that is not shown worse."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.optimize.compare import Side, compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import VariantResult
    from faith_dspy.rates import Estimate


class Point(NamedTuple):
    """A variant on dev."""

    name: str
    agreement: Estimate
    """Balanced accuracy."""
    tokens: float
    """Computed prompt tokens an answer."""
    seconds: float
    """Wall time an answer."""


def points(variants: Sequence[VariantResult]) -> list[Point]:
    """All that were measured; a floor costs nothing."""
    return [
        Point(
            v.name,
            v.agreement.balanced_accuracy,
            v.usage.computed_tokens / max(1, v.judged),
            v.usage.seconds / max(1, v.judged),
        )
        for v in variants
        if v.agreement is not None
    ]


def cheapest(variants: Sequence[VariantResult], champion: str, seed: int = 0) -> str:
    """Name of the variant with the fewest tokens among those not shown worse than the champion, which may be itself.

    Paired on the answers of dev that both judged, by `compare`: with few answers little is ever shown worse. Floors are
    no variants one could use.
    """
    best = next(v for v in variants if v.name == champion)
    rivals = [v for v in variants if v.kind != "floor" and v.agreement is not None and v.cost < best.cost]
    kept = [v for v in rivals if not _worse(v, best, seed)]
    return min([*kept, best], key=lambda v: v.cost).name


def _worse(one: VariantResult, other: VariantResult, seed: int) -> bool:
    known = {(r.group, r.id): r for r in other.predictions}
    pairs = [(r, known[r.group, r.id]) for r in one.predictions if (r.group, r.id) in known]
    if not pairs:
        return True
    sides = [Side([r.predicted for r in rows], [r.probability for r in rows]) for rows in zip(*pairs, strict=True)]
    labels, groups = [r.label for r, _ in pairs], [r.group for r, _ in pairs]
    return compare(labels, sides[0], sides[1], groups, n_resamples=1000, seed=seed).verdict == "worse"
