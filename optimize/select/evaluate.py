"""From raw_judgments to agreement: classifiers fitted and measured, without any LM call.

Everything a variant costs is paid once, by `verify`. Classifiers, thresholds and baselines are then drawn from the same
raw_judgments, cross-fitted by group, so that no answer is judged by a classifier that saw its group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import LimitReachedError
from faith_dspy.optimize.classifier.arrays import ClassifierExample
from faith_dspy.optimize.classifier.fitting import FittedClassifier, fit_classifier
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.results import PredictionRow, StatementRow
from faith_dspy.schema import Judgment, RawJudgment, Usage
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.evidence import measure_evidence
from faith_dspy.scoring.matching import match_in_order, statement_labels
from faith_dspy.scoring.score import statement_features, unverified
from faith_dspy.text.context import index_context
from faith_dspy.text.features import CLASSIFIER_FEATURES, LENGTH_FEATURES, length_features

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.statistics import Estimate


class JudgedExample(NamedTuple):
    """One labelled answer, and what was seen of it."""

    example: LabelledExample
    raw_judgment: RawJudgment
    unscored: Judgment | None
    """Set when there was nothing to ask an LM about."""


def verify(
    judge: Judge,
    examples: Iterable[LabelledExample],
    advance: Callable[[int], None] = lambda _: None,
    *,
    partial: bool = False,
) -> list[JudgedExample]:
    """Ask the LM about each answer, those over one context after each other so that its prefix cache stays warm.

    ``partial``: when a limit is reached, return what was judged before instead of raising `LimitReachedError`.
    """
    ordered = sorted(examples, key=lambda e: (e.context_key, e.id))
    out: list[JudgedExample] = []
    try:
        for example, seen in zip(ordered, judge.verify_all(ordered), strict=True):
            out.append(JudgedExample(example, *seen))
            advance(1)
    except LimitReachedError:
        if not partial:
            raise
    return out


def without_lm(examples: Iterable[LabelledExample]) -> list[JudgedExample]:
    """The same with no LM: sentences as statements, for the baselines."""
    return [JudgedExample(e, unverified(e.answer), None) for e in examples]


def usage_of(seen: Iterable[JudgedExample]) -> Usage:
    """Sum of what the raw_judgments cost."""
    return sum((o.raw_judgment.usage for o in seen), Usage())


def scorable(seen: Sequence[JudgedExample]) -> list[JudgedExample]:
    """Those with a label and at least one judged statement."""
    return [
        o
        for o in seen
        if o.unscored is None
        and o.example.label is not None
        and any(f.verdict is not None for f in o.raw_judgment.raw_verdicts)
    ]


def classifier_example(o: JudgedExample) -> ClassifierExample:
    """An observed answer as the classifier sees it."""
    raw_verdicts = o.raw_judgment.raw_verdicts
    features = statement_features(o.raw_judgment, index_context(o.example.context, o.example.question))
    return ClassifierExample(
        statements=[None if f.verdict is None else s for f, s in zip(raw_verdicts, features, strict=True)],
        label=bool(o.example.label),
        group=o.example.group_key,
        labels=statement_labels([f.text for f in raw_verdicts], o.example),
        features=length_features(o.example.answer, len(o.raw_judgment.sentences)),
    )


def fit(seen: Sequence[JudgedExample], which: str, seed: int) -> FittedClassifier:
    """Fit a classifier on judged answers by ``both`` the LM and lexical features, ``lm``, ``lexical`` or ``length``."""
    return fit_examples([classifier_example(o) for o in seen], which, seed)


def fit_examples(
    rows: Sequence[ClassifierExample], which: str, seed: int, operating_point: OperatingPoint = BALANCED
) -> FittedClassifier:
    """The same from `classifier_example`s, and with a threshold for ``operating_point``."""
    lm = ["lm"] if any("lm" in s for r in rows for s in r.statements if s) else []
    names = {"both": [*lm, *CLASSIFIER_FEATURES], "lm": lm, "lexical": CLASSIFIER_FEATURES, "length": ()}[which]
    return fit_classifier(
        rows,
        names=names,
        answer_names=LENGTH_FEATURES if which == "length" else (),
        operating_point=operating_point,
        seed=seed,
    )


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
    seen: Sequence[JudgedExample], fitted_on: Sequence[JudgedExample], fitted: FittedClassifier
) -> list[PredictionRow]:
    """Predictions of each answer by a classifier that did not see its group; unscored where it could not be judged."""
    known = {o.example.id: i for i, o in enumerate(fitted_on)}
    rows = []
    for o in seen:
        i = known.get(o.example.id)
        p = None if i is None else fitted.probabilities[i]
        confidences = [] if i is None else fitted.statement_probabilities[i]
        rows.append(_row(o, p, None if p is None else p >= fitted.classifier.threshold, confidences))
    return rows


def judged_rows(seen: Sequence[JudgedExample], judge: Judge) -> tuple[list[PredictionRow], list[float | None]]:
    """Predictions by a judge as it stands, from what it observed, and what AUROC is measured on.

    Its classifier must not have seen these answers.
    """
    rows, ranking = [], []
    for o in seen:
        j = o.unscored or judge.score_answer(o.raw_judgment, o.example.context, o.example.question)
        row = _row(
            o._replace(raw_judgment=o.raw_judgment.last),
            j.probability,
            j.faithful,
            [s.confidence for s in j.statements],
        )
        rows.append(row.model_copy(update={"unscored": j.unscored.value if j.unscored else None}))
        ranking.append(j.ranking)
    return rows, ranking


def evidence(seen: Sequence[JudgedExample], judge: Judge, seed: int = 0) -> Estimate | None:
    """How far the chunks a judge names are those that people named (`measure_evidence`); None where no label says any.

    A person's statement is brought to the judge's that shares most of its words, ids brought to the same one are
    pooled, and what is brought to none is missed. Unscored answers are left out; intervals resample groups.
    """
    predicted: list[Collection[int]] = []
    gold: list[set[int]] = []
    groups = []
    for o in seen:
        told = [s for s in o.example.statements if s.supporting_chunk_ids is not None]
        j = o.unscored or judge.score_answer(o.raw_judgment, o.example.context, o.example.question)
        if not told or j.unscored is not None:
            continue
        wanted: dict[int, set[int]] = {}
        for i, (s, place) in enumerate(
            zip(told, match_in_order([t.text for t in told], [s.text for s in j.statements]), strict=True)
        ):
            wanted.setdefault(-1 - i if place is None else place, set()).update(s.supporting_chunk_ids or ())
        predicted += [j.statements[at].supporting_chunk_ids if at >= 0 else () for at in wanted]
        gold += wanted.values()
        groups += [o.example.group_key] * len(wanted)
    return measure_evidence(predicted, gold, groups=groups, seed=seed).f1 if gold else None


def _row(
    o: JudgedExample, probability: float | None, predicted: bool | None, confidences: Sequence[float | None]
) -> PredictionRow:
    raw_verdicts = o.raw_judgment.raw_verdicts
    texts = [f.text for f in raw_verdicts]
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
        statements=tuple(
            StatementRow(
                text=v.text,
                verdict=v.verdict.value if v.verdict else None,
                confidence=confidence,
                label=label,
                chunk_ids=v.chunk_ids,
                reason=v.reason or None,
                error=v.error or None,
                usage=v.usage if v.usage.calls else None,
            )
            for v, confidence, label in zip(raw_verdicts, confidences, statement_labels(texts, o.example), strict=True)
        ),
        context=tuple(c.text for c in o.example.context),
        tags=o.example.tags | ({"group": o.example.group} if o.example.group else {}),
        annotators=o.example.annotators,
        usage=o.raw_judgment.usage,
        extraction=o.raw_judgment.extraction,
    )
