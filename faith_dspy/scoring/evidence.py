"""Agreement on evidence: the chunk ids a judge names against those that people named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError
from faith_dspy.scoring.statistics import Estimate, bootstrap, need

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from faith_dspy.scoring.statistics import Floats


class EvidenceAgreement(BaseModel):
    """How far the chunks a judge names are those that people named; ids are summed over statements (micro average)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int
    """Statements for which people named their chunks, even if none."""
    scored: int
    """Those of a scored answer. A statement that the judge does not have counts as one without chunks."""
    coverage: float
    """``scored / n``."""
    precision: Estimate
    """Share of the judge's ids that people named."""
    recall: Estimate
    """Share of people's ids that the judge named."""
    f1: Estimate
    """``2 · shared ids / (judge's ids + people's ids)``."""


def shared_ids(predicted: Collection[int], gold: Collection[int]) -> tuple[int, int]:
    """``2 |P and G|`` and ``|P| + |G|`` of chunk ids; their quotient is F1."""
    p, g = set(predicted), set(gold)
    return 2 * len(p & g), len(p) + len(g)


def measure_evidence(
    predicted: Sequence[Collection[int] | None],
    gold: Sequence[Collection[int]],
    *,
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> EvidenceAgreement:
    """Micro-averaged precision, recall and F1 of supporting chunk ids, one set of ids per statement.

    ``predicted`` is None where unscored. 95 % intervals resample statements, or ``groups`` of them. `InputError` if the
    lengths differ or there is no statement.
    """
    need("numpy", "Measuring evidence")
    import numpy as np

    if not gold or len(predicted) != len(gold):
        raise InputError(f"got {len(predicted)} predicted and {len(gold)} gold sets, expected one each per statement")
    at = [i for i, p in enumerate(predicted) if p is not None]
    sets = [(set(predicted[i] or ()), set(gold[i])) for i in at]
    counts = np.array([(len(p & g), len(p), len(g)) for p, g in sets], dtype=np.float64).reshape(-1, 3)

    def metrics(w: Floats) -> dict[str, Floats]:
        both, named, wanted = (w @ counts).T
        with np.errstate(invalid="ignore"):
            return {"precision": both / named, "recall": both / wanted, "f1": 2 * both / (named + wanted)}

    why = {
        "precision": "the judge named no chunk",
        "recall": "people named no chunk",
        "f1": "nobody named a supporting chunk",
    }
    found = dict.fromkeys(why, Estimate(why="no statement was scored"))
    if at:
        found = bootstrap(metrics, len(at), None if groups is None else [groups[i] for i in at], why, seed=seed)
    return EvidenceAgreement(n=len(gold), scored=len(at), coverage=len(at) / len(gold), **found)
