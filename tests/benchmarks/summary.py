"""From rows to figures: agreement with people, cost, and both beside our champion's."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict
from sklearn.metrics import roc_curve

from faith_dspy.optimize.results import Row as Judged
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.statistics import Estimate

from .systems import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .rows import Book, Row

REFERENCE = "champion"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SystemResult(_Model):
    """One row of the tables. Costs are means per answer."""

    system: str
    absent: str | None = None
    """Why it took no part; nothing else is known then."""
    agreement: Agreement | None = None
    """Over the answers it scored."""
    all_answers: Estimate | None = None
    """Balanced accuracy over all answers, those without a verdict counted as wrong."""
    best_cut: float | None = None
    """Balanced accuracy at the threshold that suits these very answers best: what nobody can promise beforehand."""
    faults: dict[str, int] = {}
    """Reasons for the answers without a verdict, the most common first."""
    calls: float = 0.0
    cached_tokens: float = 0.0
    computed_tokens: float = 0.0
    output_tokens: float = 0.0
    seconds: float = 0.0
    """From giving the system an answer to its verdict."""
    difference: str | None = None
    """Whether the reference is better, in words. Unscored answers count as wrong."""


class SetResult(_Model):
    """One set's tables."""

    name: str
    answers: int
    faithful: int
    contexts: int
    least: float
    """Prompt tokens per answer that no judge can save (`least_tokens`)."""
    systems: list[SystemResult]


class Results(_Model):
    """All that was measured (``compare.json``)."""

    date: str
    machine: str
    model: str
    window: int
    versions: dict[str, str]
    sets: list[SetResult]


def summarise(book: Book) -> Results:
    """Figures of all sets that have an answer on which every system had its turn."""
    found = [_set(name, book) for name in book.run["sets"]]
    return Results(**{**book.run, "sets": [s for s in found if s is not None]})


def _set(name: str, book: Book) -> SetResult | None:
    run, rows = book.run["sets"][name], book.judged(name)
    counted = next(iter(rows.values()), [])
    if not counted:
        return None
    present = {s: _system(s, rows[s], rows.get(REFERENCE)) for s in rows}
    absent = {s: SystemResult(system=s, absent=why) for s, why in run["absent"].items()}
    return SetResult(
        name=name,
        answers=len(counted),
        faithful=sum(r.label for r in counted),
        contexts=len({r.group for r in counted}),
        least=sum(run["least"][r.answer] for r in counted) / len(counted),
        systems=sorted([*present.values(), *absent.values()], key=lambda s: list(SYSTEMS).index(s.system)),
    )


def _system(name: str, rows: list[Row], reference: list[Row] | None) -> SystemResult:
    labels, groups, n = [r.label for r in rows], [r.group for r in rows], len(rows)
    side, ours = (
        [Judged(id=r.answer, source=r.group, label=r.label, predicted=r.passes, probability=r.score) for r in found]
        for found in (rows, reference or ())
    )
    strict = [(not r.label) if r.passes is None else r.passes for r in rows]
    # Addresses and counts would make every fault look different.
    faults = [re.sub(r"0x[0-9a-f]+|\b\d{4,}\b", "…", r.why or "no reason given") for r in rows if r.passes is None]
    difference = None
    if reference and name != REFERENCE:
        titles = (SYSTEMS[REFERENCE].title, SYSTEMS[name].title)
        difference = compare(ours, side, titles).sentence
    total = sum((r.usage for r in rows), Usage())
    return SystemResult(
        system=name,
        agreement=measure(labels, [r.passes for r in rows], [r.score for r in rows], groups=groups),
        all_answers=measure(labels, strict, [None] * n, groups=groups).balanced_accuracy,
        best_cut=_best_cut(rows),
        faults=dict(Counter(faults).most_common()),
        seconds=sum(r.seconds for r in rows) / n,
        **{f: getattr(total, f) / n for f in ("calls", "cached_tokens", "computed_tokens", "output_tokens")},
        difference=difference,
    )


def _best_cut(rows: Sequence[Row]) -> float | None:
    known = [(r.label, r.score) for r in rows if r.score is not None]
    if len({label for label, _ in known}) < 2:
        return None
    false_passes, passes, _ = roc_curve(*zip(*known, strict=True))
    return float(((passes + 1 - false_passes) / 2).max())
