"""A study of studies: side by side, paired where they were tested on the same answers, spread over seeds."""

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
    from collections.abc import Sequence

METRICS = {"balanced_accuracy": "balanced accuracy", "auroc": "AUROC", "cohen_kappa": "Cohen's κ"}


class Pair(BaseModel):
    """Two studies tested on the same answers; positions in `Studies.studies`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    a: int
    b: int
    comparison: Comparison


class Spread(BaseModel):
    """One figure over seeds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean: float
    sd: float
    """With n - 1."""
    low: float
    high: float


class Seeds(BaseModel):
    """Studies that differ by their seed only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    studies: list[int]
    spread: dict[str, Spread]
    """By metric, of the champion on the testset."""
    won: dict[str, int]
    """How often each variant became champion."""
    sentence: str


class Studies(BaseModel):
    """Studies side by side."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    studies: list[StudyRecord]
    pairs: list[Pair]
    seeds: list[Seeds]
    notes: list[str]


def compare_studies(studies: Sequence[StudyRecord]) -> Studies:
    """Studies side by side, the first of those tested on the same answers against each of the others.

    The same answers: same ids, groups and labels. Those comparisons are paired and corrected for their number (Holm).
    Studies of the same labels, LM and budget with different seeds give the mean and spread of their test figures.
    `InputError` when the same study is given twice, or fewer than two.
    """
    if len(studies) < 2:
        raise InputError(f"expected at least two studies to compare, got {len(studies)}.")
    for i, s in enumerate(studies):
        same = next((o for o in studies[:i] if o.study_id == s.study_id and o.agreement == s.agreement), None)
        if same:
            raise InputError(f"{same.source} and {s.source} are the same study, {s.study_id}; name each once.")
    together: dict[Any, list[int]] = {}
    for i, s in enumerate(studies):
        key = tuple(sorted((r.id, r.group, r.label) for r in s.rows)) or ("unknown", i)
        together.setdefault(key, []).append(i)
    pairs = [p for at in together.values() for p in _paired(studies, at)]
    notes = []
    if blind := [str(i + 1) for i, s in enumerate(studies) if not s.rows]:
        notes.append(
            f"Of study {', '.join(blind)} only the exported judge is known, not its test predictions: no paired "
            "comparison. Name its run in MLflow, or the tracking store it is in."
        )
    if sum(bool(studies[at[0]].rows) for at in together.values()) > 1 or (blind and len(studies) > len(blind)):
        notes.append(
            "Studies tested on different answers stand side by side only: the luck of the answers is in the difference."
        )
    return Studies(studies=list(studies), pairs=pairs, seeds=_seeds(studies), notes=notes)


def _paired(studies: Sequence[StudyRecord], at: Sequence[int]) -> list[Pair]:
    rows = {i: sorted(studies[i].rows, key=lambda r: (r.id, r.group)) for i in at}
    sides = {i: Side([r.predicted for r in found], [r.probability for r in found]) for i, found in rows.items()}
    one = at[0]
    labels, groups = [r.label for r in rows[one]], [r.group for r in rows[one]]
    found = {
        str(i): compare(labels, sides[one], sides[i], groups, names=(f"study {one + 1}", f"study {i + 1}"))
        for i in at[1:]
    }
    return [Pair(a=one, b=int(i), comparison=c) for i, c in holm(found, primary="").items()]


def _seeds(studies: Sequence[StudyRecord]) -> list[Seeds]:
    alike: dict[tuple[str, str, str | None], list[int]] = {}
    for i, s in enumerate(studies):
        if s.seed is not None:
            alike.setdefault((s.label_set_hash, s.lm, s.budget), []).append(i)
    out = []
    for at in alike.values():
        if len({studies[i].seed for i in at}) < 2:
            continue
        spread = {}
        for metric in METRICS:
            values = [v for i in at if (v := getattr(studies[i].agreement, metric).value) is not None]
            if len(values) > 1:
                spread[metric] = Spread(mean=mean(values), sd=stdev(values), low=min(values), high=max(values))
        champions = [studies[i].champion for i in at]
        won = {name: champions.count(name) for name in sorted(set(champions), key=lambda n: (-champions.count(n), n))}
        one = studies[at[0]]
        figures = "; ".join(
            f"{METRICS[m]} {s.mean:.2f} ± {s.sd:.2f} ({s.low:.2f} to {s.high:.2f})" for m, s in spread.items()
        )
        same = len({tuple(sorted(r.id for r in studies[i].rows)) for i in at}) == 1 and bool(one.rows)
        luck = "all on the same test answers" if same else "each with its own test answers, whose luck is in the spread"
        text = f"{len(at)} seeds of {one.labels_file}, mean ± SD (least to most): {figures}; {luck}. Champion: "
        text += ", ".join(f"{name} {n} of {len(at)}" for name, n in won.items()) + "."
        out.append(Seeds(studies=at, spread=spread, won=won, sentence=text))
    return out
