"""From rows to figures: agreement with people, cost, and both beside our champion's."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from sklearn.metrics import roc_curve

from faith_dspy.optimize.checks import Comparison
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.statistics import Estimate, from_draws, resample_weights

from .systems import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .rows import Book, Row

REFERENCE = "champion"
FLOOR_TOKENS = 3
"""A statement's share of the baseline: what no judge that asks about each statement can save."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cost(_Model):
    """Per answer, on average."""

    calls: float
    cached_tokens: float
    computed_tokens: float
    output_tokens: float
    seconds: float
    """From giving the system an answer to its verdict."""


class Beside(_Model):
    """A system beside the reference, on the same answers."""

    computed_tokens: Estimate
    """Its computed tokens over the reference's; intervals resample contexts."""
    all_tokens: Estimate
    """The same with the tokens written, each of which takes the server longer than one read."""
    seconds: Estimate
    difference: Comparison
    """Reference minus the system. Unscored answers count as wrong."""


class SystemResult(_Model):
    """One row of the table."""

    system: str
    title: str
    pass_mark: str
    absent: str | None = None
    """Why it took no part; nothing else is known then."""
    agreement: Agreement | None = None
    """Over the answers it scored."""
    all_answers: Estimate | None = None
    """Balanced accuracy over all answers, those without a verdict counted as wrong."""
    best_cut: float | None = None
    """Balanced accuracy at the threshold that suits these very answers best: what nobody can promise beforehand."""
    unscored: int = 0
    most_common_fault: str | None = None
    cost: Cost | None = None
    beside: Beside | None = None


class SetResult(_Model):
    """One set's table."""

    name: str
    answers: int
    faithful: int
    contexts: int
    baseline: float
    """Computed tokens per answer: each context once, each answer, `FLOOR_TOKENS` a statement."""
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
    run = {k: v for k, v in book.run.items() if k in Results.model_fields and k != "sets"}
    found = [_set(name, book) for name in book.run["sets"]]
    return Results(**run, sets=[s for s in found if s is not None])


def _set(name: str, book: Book) -> SetResult | None:
    run, rows = book.run["sets"][name], book.judged(name)
    counted = next(iter(rows.values()), [])
    if not counted:
        return None
    reference = rows.get(REFERENCE)
    systems = [
        _system(s, rows[s], reference if s != REFERENCE else None)
        if s in rows
        else SystemResult(system=s, title=SYSTEMS[s].title, pass_mark=SYSTEMS[s].pass_mark, absent=run["absent"][s])
        for s in SYSTEMS
        if s in rows or s in run["absent"]
    ]
    return SetResult(
        name=name,
        answers=len(counted),
        faithful=sum(r.label for r in counted),
        contexts=len({r.group for r in counted}),
        baseline=_floor(run, [r.answer for r in counted]),
        systems=systems,
    )


def _floor(run: dict[str, Any], answers: Sequence[str]) -> float:
    parts = [run["baseline"][a] for a in answers]
    read = sum(run["contexts"][c] for c in {p["context"] for p in parts})
    return float(read + sum(p["answer_tokens"] + FLOOR_TOKENS * p["statements"] for p in parts)) / len(parts)


def _system(name: str, rows: list[Row], reference: list[Row] | None) -> SystemResult:
    labels, groups = [r.label for r in rows], [r.group for r in rows]
    passes, scores = [r.passes for r in rows], [r.score for r in rows]
    counted = [(not r.label) if r.passes is None else r.passes for r in rows]
    faults = Counter(
        # without the addresses and counts that make every fault look different
        re.sub(r"0x[0-9a-f]+|\b\d{4,}\b", "…", r.why or "no reason given")
        for r in rows
        if r.passes is None
    )
    return SystemResult(
        system=name,
        title=SYSTEMS[name].title,
        pass_mark=SYSTEMS[name].pass_mark,
        agreement=measure(labels, passes, scores, groups=groups),
        all_answers=measure(labels, counted, [None] * len(rows), groups=groups).balanced_accuracy,
        best_cut=_best_cut(rows),
        unscored=sum(p is None for p in passes),
        most_common_fault=faults.most_common(1)[0][0] if faults else None,
        cost=_cost(rows),
        beside=None if reference is None else _beside(name, rows, reference),
    )


def _best_cut(rows: Sequence[Row]) -> float | None:
    known = [(r.label, r.score) for r in rows if r.score is not None]
    if len({label for label, _ in known}) < 2:
        return None
    labels, scores = [label for label, _ in known], [score for _, score in known]
    false_passes, passes, _ = roc_curve(labels, scores)
    return float(((passes + 1 - false_passes) / 2).max())


def _cost(rows: Sequence[Row]) -> Cost:
    total, n = sum((r.usage for r in rows), Usage()), len(rows)
    told = {name: getattr(total, name) / n for name in Cost.model_fields if name != "seconds"}
    return Cost(**told, seconds=sum(r.seconds for r in rows) / n)


def _beside(name: str, rows: Sequence[Row], reference: Sequence[Row]) -> Beside:
    labels, groups = [r.label for r in rows], [r.group for r in rows]
    ours, theirs = (Side([r.passes for r in side], [r.score for r in side]) for side in (reference, rows))
    return Beside(
        computed_tokens=_ratio(rows, reference, lambda r: r.usage.computed_tokens),
        all_tokens=_ratio(rows, reference, lambda r: r.usage.computed_tokens + r.usage.output_tokens),
        seconds=_ratio(rows, reference, lambda r: r.seconds),
        difference=compare(labels, ours, theirs, groups, names=(SYSTEMS[REFERENCE].title, SYSTEMS[name].title)),
    )


def _ratio(rows: Sequence[Row], reference: Sequence[Row], what: Callable[[Row], float]) -> Estimate:
    """Ratio of sums, with the interval of both sums over the same resampled contexts."""
    import numpy as np

    a, b = (np.array([what(r) for r in side], dtype=float) for side in (rows, reference))
    if not b.sum():
        return Estimate(why="the reference's is 0")
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = np.concatenate([(w @ a) / (w @ b) for w in resample_weights(len(a), [r.group for r in rows], 1000, 0)])
    return from_draws(float(a.sum() / b.sum()), np.where(np.isfinite(draws), draws, np.nan), "undefined")
