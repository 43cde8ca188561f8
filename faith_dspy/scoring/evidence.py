"""Agreement on evidence: the chunk ids a judge names against those that people named."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pydantic import BaseModel

from faith_dspy.scoring.matching import match_statements
from faith_dspy.scoring.statistics import Estimate, bootstrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import Judgment, LabelledExample
    from faith_dspy.scoring.statistics import Floats


class EvidenceAgreement(BaseModel, extra="forbid", frozen=True):
    """How far the chunks a judge names are those that people named; ids are summed over statements (micro average)."""

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


def measure_evidence(pairs: Sequence[tuple[LabelledExample, Judgment]], seed: int = 0) -> EvidenceAgreement | None:
    """Micro-averaged precision, recall and F1 of supporting chunk ids; None where no statement's chunks are labelled.

    A labelled statement's chunks are compared with those of all judged statements it matches together; labelled
    statements that match the same ones are compared as one. 95 % intervals resample groups.
    """
    n, sets, groups = 0, [], []
    for example, judgment in pairs:
        labelled = [(s.text, s.supporting_chunk_ids) for s in example.statements if s.supporting_chunk_ids is not None]
        matches = match_statements([text for text, _ in labelled], judgment.statements, example.answer)
        wanted: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        for i, ((_, ids), match) in enumerate(zip(labelled, matches, strict=True)):
            wanted[match or (-1 - i,)].update(ids)  # one that matches nothing stands alone
        n += len(wanted)
        if not judgment.unscored:
            for match, gold in wanted.items():
                named = {c for i in match if i >= 0 for c in judgment.statements[i].supporting_chunk_ids}
                sets.append((len(named & gold), len(named), len(gold)))
                groups.append(example.group_key)
    if not n:
        return None
    import numpy as np

    counts = np.array(sets, dtype=np.float64)

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
    if sets:
        found = bootstrap(metrics, len(sets), groups, why, seed=seed)
    return EvidenceAgreement(n=n, scored=len(sets), coverage=len(sets) / n, **found)
