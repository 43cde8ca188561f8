"""A judge in use, watched: its agreement on an anchor set over time, what flipped, what drifted, and alarms.

`faith_dspy.optimize.monitoring.drift_run` keeps what was seen from one time to the next.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from faith_dspy.optimize.checks import Comparison
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.report.numbers import points
from faith_dspy.scoring.agreement import Agreement
from faith_dspy.scoring.statistics import need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import PredictionRow

MAX_DRIFT = 0.2
"""Largest distance between two distributions of scores, or two coverages, that raises no alarm."""
_CHARACTERS = 200  # of an answer, kept to be recognised by
_Since = Literal["last", "first"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Verdict(_Model):
    """One answer of the anchor set as the judge saw it."""

    id: str
    group: str
    label: bool
    predicted: bool | None
    score: float | None
    """What AUROC is measured on: probability, else confidence or score."""
    answer: str


class Look(_Model):
    """The judge at one time."""

    at: str
    """ISO, UTC."""
    judge: str
    """`Judge.fingerprint`."""
    agreement: Agreement
    verdicts: list[Verdict]
    traffic: list[float | None] = Field(default_factory=list)
    """Scores of unlabelled answers, where some were judged; None: unscored."""


class Flip(_Model):
    """An answer with another verdict than the last time; None: unscored."""

    id: str
    label: bool
    before: bool | None
    now: bool | None
    answer: str


class Drift(_Model):
    """How far scores and coverage have moved."""

    of: Literal["anchor", "traffic"]
    since: _Since
    distance: float | None
    """Largest difference of the two distribution functions, in [0, 1] (the two-sample Kolmogorov–Smirnov statistic);
    None when nothing was scored on a side."""
    p_value: float | None
    coverage: float
    """Of now minus that of then."""


class Watched(_Model):
    """One look, beside the last and the first."""

    step: int
    """0 for the first."""
    now: Look
    since: dict[_Since, Comparison]
    """The judge now against itself then, paired; empty at the first look."""
    then: dict[_Since, str]
    """When that was."""
    other_version: bool
    """Whether LM, options, prompts or classifier are others than the last time."""
    flips: list[Flip]
    drifts: list[Drift]
    alarms: list[str]
    """A sentence for each bar that was failed."""


def look(rows: Sequence[PredictionRow], ranking: Sequence[float | None], agreement: Agreement, judge: str,
         traffic: Sequence[float | None] = ()) -> Look:  # fmt: skip
    """The judge as it is now, from what `judged_rows` gives."""
    verdicts = [
        Verdict(id=r.id, group=r.group, label=r.label, predicted=r.predicted, score=s, answer=r.answer[:_CHARACTERS])
        for r, s in zip(rows, ranking, strict=True)
    ]
    return Look(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        judge=judge,
        agreement=agreement,
        verdicts=sorted(verdicts, key=lambda v: v.id),
        traffic=list(traffic),
    )


class History(NamedTuple):
    """What was seen before."""

    steps: int = 0
    first: Look | None = None
    last: Look | None = None


def watched(
    now: Look, before: History, *, minimum: float | None = None, max_drift: float = MAX_DRIFT, seed: int = 0
) -> Watched:
    """Now against then.

    Alarms: balanced accuracy below ``minimum``; now worse than the last time or the first, by the 95 % interval of the
    paired difference; scores or coverage moved by more than ``max_drift`` since either.
    """
    known: dict[_Since, Look] = {}
    if before.last is not None and before.first is not None:
        known = {"last": before.last} if before.steps == 1 else {"last": before.last, "first": before.first}
    since = {k: _compared(now, then, k, seed) for k, then in known.items()}
    drifts = [d for k, then in known.items() for d in _drifts(now, then, k)]
    alarms = below(now.agreement, minimum)
    for k, c in since.items():
        if c.verdict == "worse":
            alarms.append(f"worse than the {k} time ({known[k].at}): balanced accuracy {_change(c)}.")
    for d in drifts:
        what = f"{'the traffic' if d.of == 'traffic' else 'the anchor set'} since the {d.since} time"
        if d.distance is not None and d.distance > max_drift:
            alarms.append(f"the scores of {what} have moved by {d.distance:.2f}, more than {max_drift:g}.")
        if abs(d.coverage) > max_drift:
            alarms.append(f"the coverage of {what} has moved by {d.coverage:+.2f}, more than {max_drift:g}.")
    last = known.get("last")
    return Watched(
        step=before.steps,
        now=now,
        since=since,
        then={k: v.at for k, v in known.items()},
        other_version=last is not None and last.judge != now.judge,
        flips=_flips(now, last) if last else [],
        drifts=drifts,
        alarms=alarms,
    )


def below(agreement: Agreement, minimum: float | None) -> list[str]:
    """The alarm of a balanced accuracy below a bar, or that could not be measured."""
    value = agreement.balanced_accuracy.value
    if minimum is None or (value is not None and value >= minimum):
        return []
    what = f"is {value:.3f}" if value is not None else f"is not known ({agreement.balanced_accuracy.why})"
    return [f"balanced accuracy {what}, below the {minimum:g} that was asked for."]


def _compared(now: Look, then: Look, since: str, seed: int) -> Comparison:
    a, b = (Side([v.predicted for v in s.verdicts], [v.score for v in s.verdicts]) for s in (now, then))
    labels, groups = [v.label for v in now.verdicts], [v.group for v in now.verdicts]
    return compare(labels, a, b, groups, names=("the judge now", f"the {since} time"), seed=seed)


def _flips(now: Look, then: Look) -> list[Flip]:
    """Those that became wrong first."""
    flips = [
        Flip(id=n.id, label=n.label, before=t.predicted, now=n.predicted, answer=n.answer)
        for n, t in zip(now.verdicts, then.verdicts, strict=True)
        if n.predicted != t.predicted
    ]
    return sorted(flips, key=lambda f: (f.now == f.label, f.id))


def _drifts(now: Look, then: Look, since: _Since) -> list[Drift]:
    pairs: dict[Literal["anchor", "traffic"], tuple[Sequence[float | None], Sequence[float | None]]] = {
        "anchor": ([v.score for v in now.verdicts], [v.score for v in then.verdicts])
    }
    if now.traffic and then.traffic:
        pairs["traffic"] = (now.traffic, then.traffic)
    out = []
    for of, sides in pairs.items():
        here, there = ([s for s in side if s is not None] for side in sides)
        found = need("scipy.stats", "Watching for drift").ks_2samp(here, there) if here and there else None
        out.append(
            Drift(
                of=of,
                since=since,
                distance=None if found is None else float(found.statistic),
                p_value=None if found is None else float(found.pvalue),
                coverage=len(here) / len(sides[0]) - len(there) / len(sides[1]),
            )
        )
    return out


def _change(c: Comparison) -> str:
    return f"{points(c.balanced_accuracy)} points"


def sentences(found: Watched) -> list[str]:
    """What changed, in words; nothing at the first look."""
    out = []
    for k, c in found.since.items():
        out.append(f"Since the {k} time ({found.then[k]}): balanced accuracy {_change(c)}.")
    if found.since:
        wrong = sum(f.now != f.label for f in found.flips)
        version = "another version of the judge" if found.other_version else "the same judge"
        out.append(f"{len(found.flips)} verdicts flipped, {wrong} of them to wrong or unscored; {version}.")
    for d in found.drifts:
        p = "" if d.p_value is None else f" (p = {d.p_value:.2g})"
        moved = "not comparable" if d.distance is None else f"{d.distance:.2f}{p}"
        out.append(f"Drift of the {d.of} since the {d.since} time: scores {moved}, coverage {d.coverage:+.2f}.")
    return out
