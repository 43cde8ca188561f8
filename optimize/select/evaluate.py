"""Labelled answers judged once, and what is fitted and measured on those replies without another LM call.

Classifiers are cross-fitted by source: no answer is judged by a classifier that saw its source.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from faith_dspy.errors import InputError, LimitReachedError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import FittedClassifier, fit_classifier, grouped_folds
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.results import CurvePoint, JudgedAnswer, JudgeResult
from faith_dspy.schema import LabelledExample, Unscored, Usage
from faith_dspy.scoring.agreement import measure as agreement_of
from faith_dspy.scoring.agreement import measure_agreement
from faith_dspy.scoring.classifier import Classifier, default_classifier
from faith_dspy.scoring.score import failure
from faith_dspy.scoring.statistics import Estimate, from_draws
from faith_dspy.text.features import CLASSIFIER_FEATURES

SHARES = (0.25, 0.5)
DRAWS = 10
ENOUGH = 30
"""With fewer labels to fit on there is no curve: a quarter of them can hardly be fitted."""
_METRICS = ("balanced_accuracy", "auroc")


def verify(
    judge: Judge,
    examples: Iterable[LabelledExample],
    advance: Callable[[int], None] = lambda _: None,
    *,
    partial: bool = False,
) -> list[JudgedAnswer]:
    """Judge each answer, those over one context one after another so that the LM's prefix cache stays warm.

    ``partial``: when a limit is reached, return what was judged before instead of raising `LimitReachedError`.
    """
    ordered = sorted(examples, key=lambda e: (e.context_key, e.id))
    judged: list[JudgedAnswer] = []
    try:
        for example, (raw, judgment) in zip(ordered, judge.verify_all(ordered), strict=True):
            judged.append(JudgedAnswer.of(example, raw, judgment))
            advance(1)
    except LimitReachedError:
        if not partial:
            raise
    return judged


def without_lm(examples: Iterable[LabelledExample]) -> list[JudgedAnswer]:
    """By the default judge without an LM."""
    return verify(Judge(NO_LM), examples)


def usable(answers: Iterable[JudgedAnswer]) -> list[JudgedAnswer]:
    """Those that a classifier can be fitted on: with a label, and statements that were all judged."""
    return [a for a in answers if a.example.label is not None and a.raw.raw_verdicts and failure(a.raw.last) is None]


def fit(
    judge: Judge,
    answers: Iterable[JudgedAnswer],
    seed: int,
    operating_point: OperatingPoint = BALANCED,
    prior: Classifier | Literal["default"] | None = "default",
) -> FittedClassifier:
    """Fit a classifier for the judge on its replies: lexical features, and the LM's log-odds where it gives any.

    ``prior``: the classifier to start from; by default the judge's default one, if it has one.
    """
    known = usable(answers)
    lm = ["lm"] if any(f and "lm" in f for a in known for f in a.features) else []
    start = default_classifier(judge.lm_name, judge.config) if prior == "default" else prior
    return fit_classifier(known, [*lm, *CLASSIFIER_FEATURES], operating_point=operating_point, prior=start, seed=seed)


def cross_fitted(answers: Sequence[JudgedAnswer], fitted: FittedClassifier) -> list[JudgedAnswer]:
    """Each answer judged by a classifier that did not see its source; unscored where the LM failed.

    ``fitted`` was fitted on the `usable` ones of ``answers``.
    """
    probability = dict(zip((a.id for a in usable(answers)), fitted.probabilities, strict=True))
    threshold = fitted.classifier.threshold
    out = []
    for a in answers:
        p = probability.get(a.id)
        update: dict[str, Any] = {}
        if p is not None:
            update = {"probability": p, "faithful": p >= threshold, "threshold": threshold}
        elif a.raw.raw_verdicts:
            why = a.judgment.unscored or failure(a.raw.last) or Unscored.LM_FAILED
            update = {"probability": None, "faithful": None, "score": None, "unscored": why}
        out.append(a.model_copy(update={"judgment": a.judgment.model_copy(update=update)}))
    return out


def held_out_folds(answers: Sequence[JudgedAnswer], seed: int) -> list[tuple[list[JudgedAnswer], list[JudgedAnswer]]]:
    """For each fold what to fit on and what is held out, no source on both sides; every answer is held out once."""
    known = usable(answers)
    sources = [a.source for a in known]
    held = [{sources[i] for i in fold} for fold in grouped_folds([a.label for a in known], sources, seed)]
    held[0] |= {a.source for a in answers} - set(sources)
    return [([a for a in answers if a.source not in own], [a for a in answers if a.source in own]) for own in held]


def measure(
    name: str, kind: Literal["untuned", "lm", "baseline"], answers: Sequence[JudgedAnswer], **fields: Any
) -> JudgeResult:
    """What a judge reached on these answers; ``fields``: others of the result."""
    return JudgeResult(
        name=name,
        kind=kind,
        levels=measure_agreement([a.example for a in answers], [a.judgment for a in answers]),
        usage=sum((a.raw.usage for a in answers), Usage()),
        judged=len(answers),
        lm_share=sum(a.raw.usage.calls > 0 for a in answers) / len(answers),
        rows=tuple(a.row for a in answers),
        answers=tuple(answers),
        **fields,
    )


def by_length(known: Sequence[JudgedAnswer], held: Sequence[JudgedAnswer]) -> list[JudgedAnswer]:
    """The length baseline, fitted on ``known``: by an answer's words and sentences, which are not evidence."""
    from sklearn.linear_model import LogisticRegression

    def lengths(answers: Sequence[JudgedAnswer]) -> Any:
        return np.log1p([[len(a.example.answer.split()), len(a.raw.sentences)] for a in answers])

    model = LogisticRegression(class_weight="balanced").fit(lengths(known), [a.label for a in known])
    chances = model.predict_proba(lengths(held))[:, list(model.classes_).index(True)].tolist()
    return [
        a.model_copy(
            update={"judgment": a.judgment.model_copy(update={"probability": p, "faithful": p >= 0.5, "score": p})}
        )
        for a, p in zip(held, chances, strict=True)
    ]


def learning_curve(
    known: Sequence[JudgedAnswer],
    build: Callable[[Sequence[JudgedAnswer]], Judge],
    champion: JudgeResult,
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[CurvePoint, ...]:
    """Agreement on the champion's test answers when ``build`` fits it on a quarter, half, and last on all of ``known``.

    It costs no LM call: classifier and threshold are fitted anew on random draws of whole sources; variant, prompts and
    which answers the LM is asked about stay the champion's. Nothing is chosen by these figures. Draws on which nothing
    can be fitted are left out. Empty with fewer labels than `ENOUGH`.
    """
    if len(known) < ENOUGH:
        return ()
    by_source: dict[str, list[JudgedAnswer]] = {}
    for a in sorted(known, key=lambda a: a.id):
        by_source.setdefault(a.source, []).append(a)
    rng = random.Random(seed)
    points = []
    for share in SHARES:
        n, draws = round(share * len(known)), []
        for _ in range(DRAWS):
            advance(1)
            order = rng.sample(list(by_source.values()), len(by_source))
            try:
                judge = build([a for source in order for a in source][:n])
            except InputError:
                continue
            found = [a.by(judge) for a in champion.answers]
            said = ([a.label for a in found], [a.predicted for a in found], [a.probability for a in found])
            agreement = agreement_of(*said)
            draws.append([getattr(agreement, m).value for m in _METRICS])
        why = "the scored test answers have one label only"
        columns = zip(_METRICS, np.array(draws, dtype=np.float64).T, strict=True) if draws else ()
        if spread := {m: from_draws(float(values.mean()), values, why) for m, values in columns}:
            points.append(CurvePoint(labels=n, draws=len(draws), **spread))
    whole = {m: getattr(champion.agreement, m) for m in _METRICS}
    last = {m: Estimate(value=e.value, why=e.why or "there is one draw only") for m, e in whole.items()}
    return (*points, CurvePoint(labels=len(known), draws=1, **last))
