"""From observations to agreement: heads fitted and measured, without any LM call.

Everything a variant costs is paid once, by `observe`. Heads, thresholds and floors are then drawn from the same
observations, cross-fitted by group, so that no answer is judged by a head that saw its group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.scoring.agreement import Agreement, evidence_f1, measure
from faith_dspy.errors import LimitReachedError
from faith_dspy.optimize.classifier.operating_point import BALANCED, Aim
from faith_dspy.optimize.data.matching import align, places
from faith_dspy.optimize.classifier.fitting import FittedHead, HeadExample, fit_head
from faith_dspy.optimize.results import PredictionRow
from faith_dspy.text.context import prepare
from faith_dspy.schema import Judgment, Observation, Usage
from faith_dspy.scoring.score import all_signals, unasked
from faith_dspy.text.features import HEAD_SIGNALS, SHORTCUTS, shortcut_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.scoring.statistics import Estimate
    from faith_dspy.schema import Finding, LabelledExample


class Observed(NamedTuple):
    """One labelled answer, and what was seen of it."""

    example: LabelledExample
    observation: Observation
    unscored: Judgment | None
    """Set when there was nothing to ask an LM about."""


def observe(
    judge: Judge,
    examples: Iterable[LabelledExample],
    advance: Callable[[int], None] = lambda _: None,
    *,
    partial: bool = False,
) -> list[Observed]:
    """Ask the LM about each answer, those over one context after each other so that its prefix cache stays warm.

    ``partial``: when a limit is reached, return what was judged before instead of raising `LimitReachedError`.
    """
    ordered = sorted(examples, key=lambda e: (e.context_key, e.id))
    out: list[Observed] = []
    try:
        for example, seen in zip(ordered, judge.observe_all(ordered), strict=True):
            out.append(Observed(example, *seen))
            advance(1)
    except LimitReachedError:
        if not partial:
            raise
    return out


def without_lm(examples: Iterable[LabelledExample]) -> list[Observed]:
    """The same with no LM: sentences as statements, for the floors."""
    return [Observed(e, unasked(e.answer), None) for e in examples]


def usage_of(seen: Iterable[Observed]) -> Usage:
    """Sum of what the observations cost."""
    return sum((o.observation.usage for o in seen), Usage())


def scorable(seen: Sequence[Observed]) -> list[Observed]:
    """Those with a label and at least one judged statement."""
    return [
        o
        for o in seen
        if o.unscored is None
        and o.example.label is not None
        and any(f.verdict is not None for f in o.observation.findings)
    ]


def head_example(o: Observed) -> HeadExample:
    """An observed answer as the head sees it."""
    findings = o.observation.findings
    signals = all_signals(o.observation, prepare(o.example.context, o.example.question))
    return HeadExample(
        statements=[None if f.verdict is None else s for f, s in zip(findings, signals, strict=True)],
        label=bool(o.example.label),
        group=o.example.group_key,
        labels=align([f.text for f in findings], o.example),
        signals=shortcut_signals(o.example.answer, len(o.observation.sentences)),
    )


def fit(seen: Sequence[Observed], which: str, seed: int) -> FittedHead:
    """Fit a head on observed answers. ``which``: ``joint`` (LM and words), ``lm``, ``overlap`` or ``shortcut``."""
    return fit_examples([head_example(o) for o in seen], which, seed)


def fit_examples(rows: Sequence[HeadExample], which: str, seed: int, aim: Aim = BALANCED) -> FittedHead:
    """The same from `head_example`s, and with a pass mark for ``aim``."""
    lm = sorted({n for r in rows for s in r.statements if s for n in s if n.startswith("lm:")})
    names = {"joint": [*lm, *HEAD_SIGNALS], "lm": lm, "overlap": HEAD_SIGNALS, "shortcut": ()}[which]
    return fit_head(rows, names=names, answer_names=SHORTCUTS if which == "shortcut" else (), aim=aim, seed=seed)


def agreement(rows: Sequence[PredictionRow], scores: Sequence[float | None] | None = None, seed: int = 0) -> Agreement:
    """Agreement of predictions with labels; intervals resample groups."""
    return measure(
        [r.label for r in rows],
        [r.predicted for r in rows],
        [r.probability for r in rows] if scores is None else scores,
        groups=[r.group for r in rows],
        seed=seed,
    )


def cross_fitted_rows(
    seen: Sequence[Observed], fitted_on: Sequence[Observed], fitted: FittedHead
) -> list[PredictionRow]:
    """Predictions of each answer by a head that did not see its group; unscored where it could not be judged."""
    known = {o.example.id: i for i, o in enumerate(fitted_on)}
    rows = []
    for o in seen:
        i = known.get(o.example.id)
        p = None if i is None else fitted.probabilities[i]
        confidences = [] if i is None else fitted.statement_probabilities[i]
        rows.append(_row(o, p, None if p is None else p >= fitted.head.threshold, confidences))
    return rows


def judged_rows(seen: Sequence[Observed], judge: Judge) -> tuple[list[PredictionRow], list[float | None]]:
    """Predictions by a judge as it stands, from what it observed, and what AUROC is measured on.

    Its head must not have seen these answers.
    """
    rows, ranking = [], []
    for o in seen:
        j = o.unscored or judge.conclude(o.observation, o.example.context, o.example.question)
        row = _row(
            o._replace(observation=o.observation.last), j.probability, j.faithful, [s.confidence for s in j.statements]
        )
        rows.append(row.model_copy(update={"unscored": j.unscored.value if j.unscored else None}))
        ranking.append(j.ranking)
    return rows, ranking


def evidence(seen: Sequence[Observed], judge: Judge, seed: int = 0) -> Estimate | None:
    """How far the chunks a judge names are those that people named (`evidence_f1`); None where no label says any.

    A person's statement is brought to the judge's that shares most of its words, ids brought to the same one are
    pooled, and what is brought to none is missed. Unscored answers are left out; intervals resample groups.
    """
    predicted: list[Collection[int]] = []
    gold: list[set[int]] = []
    groups = []
    for o in seen:
        told = [s for s in o.example.statements if s.supporting_chunk_ids is not None]
        j = o.unscored or judge.conclude(o.observation, o.example.context, o.example.question)
        if not told or j.unscored is not None:
            continue
        wanted: dict[int, set[int]] = {}
        for i, (s, place) in enumerate(
            zip(told, places([t.text for t in told], [s.text for s in j.statements]), strict=True)
        ):
            wanted.setdefault(-1 - i if place is None else place, set()).update(s.supporting_chunk_ids or ())
        predicted += [j.statements[at].supporting_chunk_ids if at >= 0 else () for at in wanted]
        gold += wanted.values()
        groups += [o.example.group_key] * len(wanted)
    return evidence_f1(predicted, gold, groups=groups, seed=seed) if gold else None


def _row(
    o: Observed, probability: float | None, predicted: bool | None, confidences: Sequence[float | None]
) -> PredictionRow:
    findings = o.observation.findings
    texts = [f.text for f in findings]
    confidences = confidences or [None] * len(texts)
    return PredictionRow(
        id=o.example.id,
        group=o.example.group_key,
        part="dev",
        label=bool(o.example.label),
        predicted=predicted,
        probability=probability,
        unscored=o.unscored.unscored.value if o.unscored and o.unscored.unscored else None,
        question=o.example.question,
        answer=o.example.answer,
        statements=[
            {"text": f.text, "verdict": f.verdict.value if f.verdict else None, "confidence": c, "label": y, **_said(f)}
            for f, c, y in zip(findings, confidences, align(texts, o.example), strict=True)
        ],
        context=[c.text for c in o.example.context],
        tags=o.example.tags | ({"group": o.example.group} if o.example.group else {}),
        annotators=o.example.annotators,
        usage=o.observation.usage,
        extraction=o.observation.extraction,
    )


def _said(f: Finding) -> dict[str, Any]:
    """What there is of a finding beside its verdict."""
    said: dict[str, Any] = {"chunk_ids": list(f.chunk_ids), "reason": f.reason, "error": f.error}
    if f.usage.calls:
        said["usage"] = f.usage.model_dump(mode="json")
    return {k: v for k, v in said.items() if v}
