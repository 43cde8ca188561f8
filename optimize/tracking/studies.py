"""Several studies compared: paired where they were tested on the same answers, spread where only seeds differ."""

from __future__ import annotations

from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError
from faith_dspy.optimize.checks import Comparison
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.optimize.select.optimism import holm
from faith_dspy.optimize.tracking.archive import StudyRecord

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

METRICS = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC", "cohen_kappa": "Cohen's κ"}


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pair(_Frozen):
    """Two studies tested on the same answers."""

    a: int
    """Position in `StudiesCompared.studies`."""
    b: int
    comparison: Comparison
    """Of their champions: a against b."""


class Spread(_Frozen):
    """One metric over several seeds."""

    mean: float
    sd: float
    """Sample standard deviation (n − 1)."""
    low: float
    high: float


class Seeds(_Frozen):
    """Studies that differ in their seed only."""

    studies: list[int]
    """Positions in `StudiesCompared.studies`."""
    spread: dict[str, Spread]
    """By metric, for the champion on the testset."""
    won: dict[str, int]
    """How often each variant became champion."""
    sentence: str


class StudiesCompared(_Frozen):
    """Studies side by side."""

    studies: list[StudyRecord]
    pairs: list[Pair]
    seeds: list[Seeds]
    notes: list[str]
    """What a reader must know beside the figures, a sentence each."""


def compare_studies(studies: Sequence[StudyRecord]) -> StudiesCompared:
    """Compare studies.

    Of the studies tested on the same answers (same ids, groups and labels), the first is compared with each of the
    others, paired, with p-values corrected for their number (Holm 1979). Studies of the same labels, LM and budget with
    different seeds give the mean and spread of their test figures.

    Raises `InputError` for fewer than two studies, or the same one twice.
    """
    if len(studies) < 2:
        raise InputError(f"expected at least two studies to compare, got {len(studies)}.")
    for i, s in enumerate(studies):
        if same := next((o for o in studies[:i] if (o.study_id, o.agreement) == (s.study_id, s.agreement)), None):
            raise InputError(f"{same.source} and {s.source} are the same study, {s.study_id}; name each once.")
    tests = _grouped((i, tuple(sorted((r.id, r.group, r.label) for r in s.rows))) for i, s in enumerate(studies))
    notes = []
    if without := tests.pop((), []):
        notes.append(
            f"Of study {', '.join(str(i + 1) for i in without)} only the exported judge is known, not its test "
            "predictions: no paired comparison. Name its run in MLflow, or the tracking store it is in."
        )
    if len(tests) + bool(without) > 1:
        notes.append(
            "Studies tested on different answers stand side by side only: part of their difference is the luck of the "
            "answers."
        )
    seeds = _grouped((i, (s.label_set_hash, s.lm, s.budget)) for i, s in enumerate(studies) if s.seed is not None)
    return StudiesCompared(
        studies=list(studies),
        pairs=[pair for at in tests.values() for pair in _pairs(studies, at)],
        seeds=[_seeds(studies, at) for at in seeds.values() if len({studies[i].seed for i in at}) > 1],
        notes=notes,
    )


def _grouped(items: Iterable[tuple[int, Hashable]]) -> dict[Any, list[int]]:
    """Positions by key, in order of first appearance."""
    groups: dict[Any, list[int]] = {}
    for i, key in items:
        groups.setdefault(key, []).append(i)
    return groups


def _pairs(studies: Sequence[StudyRecord], at: Sequence[int]) -> list[Pair]:
    rows = {i: sorted(studies[i].rows, key=lambda r: (r.id, r.group)) for i in at}
    sides = {i: Side([r.predicted for r in found], [r.probability for r in found]) for i, found in rows.items()}
    first, *others = at
    labels, groups = [r.label for r in rows[first]], [r.group for r in rows[first]]
    comparisons = {
        str(i): compare(labels, sides[first], sides[i], groups, names=(f"study {first + 1}", f"study {i + 1}"))
        for i in others
    }
    return [Pair(a=first, b=int(i), comparison=c) for i, c in holm(comparisons, primary="").items()]


def _seeds(studies: Sequence[StudyRecord], at: Sequence[int]) -> Seeds:
    found = [studies[i] for i in at]
    spread = {}
    for metric in METRICS:
        values = [v for s in found if (v := getattr(s.agreement, metric).value) is not None]
        if len(values) > 1:
            spread[metric] = Spread(mean=mean(values), sd=stdev(values), low=min(values), high=max(values))
    champions = [s.champion for s in found]
    won = {name: champions.count(name) for name in sorted(set(champions), key=lambda n: (-champions.count(n), n))}
    same_test = bool(found[0].rows) and len({tuple(sorted(r.id for r in s.rows)) for s in found}) == 1
    figures = "; ".join(
        f"{METRICS[m]} {s.mean:.2f} ± {s.sd:.2f} ({s.low:.2f} to {s.high:.2f})" for m, s in spread.items()
    )
    test = "all on the same test answers" if same_test else "each on its own test answers, whose luck is in the spread"
    counts = ", ".join(f"{name} {n} of {len(at)}" for name, n in won.items())
    sentence = f"{len(at)} seeds of {found[0].labels_file}, mean ± SD (lowest to highest): {figures}; {test}. "
    return Seeds(studies=list(at), spread=spread, won=won, sentence=f"{sentence}Champion: {counts}.")
