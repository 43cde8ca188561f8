"""Labelled answers judged once, and everything that is measured from those replies without another LM call.

What a variant costs is paid by `verify`. Classifiers, thresholds and baselines are then fitted on the same replies,
cross-fitted by group: no answer is judged by a classifier that saw its group.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import LimitReachedError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.arrays import ClassifierExample
from faith_dspy.optimize.classifier.fitting import FittedClassifier, fit_classifier, grouped_folds
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.results import PredictionRow, StatementRow
from faith_dspy.schema import Judgment, RawJudgment, Usage
from faith_dspy.scoring.agreement import Agreement, JudgeAgreement, measure, measure_agreement
from faith_dspy.scoring.classifier import default_classifier
from faith_dspy.scoring.matching import statement_labels
from faith_dspy.scoring.score import failure, statement_features, unverified
from faith_dspy.text.features import CLASSIFIER_FEATURES, LENGTH_FEATURES, index_context, length_features

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.classifier import Classifier

BASELINES = {
    "lexical-baseline": "lexical features alone, no LM, fitted on the same labels",
    "length-baseline": "the answer's length and number of sentences: not evidence",
    "majority-baseline": "the more frequent label, whatever the answer",
}


class JudgedExample(NamedTuple):
    """One labelled answer, and what the LM said of it."""

    example: LabelledExample
    raw_judgment: RawJudgment
    unscored: Judgment | None
    """Set where there was nothing to ask an LM about."""

    def judgment_by(self, judge: Judge) -> Judgment:
        """The judgment that follows from what was said, by the judge's options and classifier."""
        return self.unscored or judge.score_answer(self.raw_judgment, self.example.context, self.example.question)


def verify(
    judge: Judge,
    examples: Iterable[LabelledExample],
    advance: Callable[[int], None] = lambda _: None,
    *,
    partial: bool = False,
) -> list[JudgedExample]:
    """Ask the LM about each answer, those over one context one after another so that its prefix cache stays warm.

    ``partial``: when a limit is reached, return what was judged before instead of raising `LimitReachedError`.
    """
    ordered = sorted(examples, key=lambda e: (e.context_key, e.id))
    judged: list[JudgedExample] = []
    try:
        for example, found in zip(ordered, judge.verify_all(ordered), strict=True):
            judged.append(JudgedExample(example, *found))
            advance(1)
    except LimitReachedError:
        if not partial:
            raise
    return judged


def without_lm(examples: Iterable[LabelledExample]) -> list[JudgedExample]:
    """The same without an LM: sentences as statements, for the baselines."""
    return [JudgedExample(e, unverified(e.answer), None) for e in examples]


def usage_of(judged: Iterable[JudgedExample]) -> Usage:
    """Sum of what judging cost."""
    return sum((e.raw_judgment.usage for e in judged), Usage())


def scorable(judged: Iterable[JudgedExample]) -> list[JudgedExample]:
    """Those with a label and statements, all of them judged."""
    return [
        e
        for e in judged
        if e.unscored is None
        and e.example.label is not None
        and e.raw_judgment.raw_verdicts
        and failure(e.raw_judgment) is None
    ]


def classifier_example(judged: JudgedExample) -> ClassifierExample:
    """A judged answer as the classifier sees it."""
    example, raw = judged.example, judged.raw_judgment
    features = statement_features(raw, index_context(example.context, example.question))
    return ClassifierExample(
        statements=[None if v.verdict is None else f for v, f in zip(raw.raw_verdicts, features, strict=True)],
        label=bool(example.label),
        group=example.group_key,
        labels=statement_labels(raw.raw_verdicts, example),
        features=length_features(example.answer, len(raw.sentences)),
    )


def priors_of(judge: Judge) -> dict[str, Classifier]:
    """The default classifiers that a judge's own starts from, by what `fit` is told to fit; its LM may have none."""
    lms = {"both": judge.lm_name, "lexical": NO_LM}
    return {which: c for which, lm in lms.items() if (c := default_classifier(lm, judge.config)) is not None}


def fit(
    judged: Iterable[JudgedExample],
    which: str,
    seed: int,
    operating_point: OperatingPoint = BALANCED,
    priors: Mapping[str, Classifier] = MappingProxyType({}),
) -> FittedClassifier:
    """Fit a classifier on `scorable` answers.

    ``which``: ``both`` (LM and lexical features), ``lm``, ``lexical`` or ``length``; ``priors``: as `priors_of` says.
    """
    return fit_examples([classifier_example(e) for e in judged], which, seed, operating_point, priors)


def fit_examples(
    rows: Sequence[ClassifierExample],
    which: str,
    seed: int,
    operating_point: OperatingPoint = BALANCED,
    priors: Mapping[str, Classifier] = MappingProxyType({}),
    prior_widths: tuple[float, float] | None = None,
) -> FittedClassifier:
    """The same on examples as the classifier sees them; ``prior_widths`` as for `fit_classifier`."""
    lm = ["lm"] if any("lm" in s for r in rows for s in r.statements if s) else []
    return fit_classifier(
        rows,
        names={"both": [*lm, *CLASSIFIER_FEATURES], "lm": lm, "lexical": CLASSIFIER_FEATURES, "length": ()}[which],
        answer_names=LENGTH_FEATURES if which == "length" else (),
        operating_point=operating_point,
        prior_widths=prior_widths,
        prior=priors.get(which),
        seed=seed,
    )


def agreement(rows: Sequence[PredictionRow], seed: int = 0) -> Agreement:
    """Agreement of predictions with labels; intervals resample groups."""
    return measure(
        [r.label for r in rows],
        [r.predicted for r in rows],
        [r.probability for r in rows],
        groups=[r.group for r in rows],
    )


def judge_agreement(folds: Sequence[tuple[Judge, Sequence[JudgedExample]]], seed: int) -> JudgeAgreement:
    """Agreement of a judge on all levels. Of each fold: the judge, and answers that its classifier has not seen."""
    pairs = [(e.example, e.judgment_by(judge)) for judge, judged in folds for e in judged]
    return measure_agreement([e for e, _ in pairs], [j for _, j in pairs])


def cross_fitted_rows(judged: Sequence[JudgedExample], fitted: FittedClassifier) -> list[PredictionRow]:
    """Predictions of each answer by a classifier that did not see its group; unscored where it could not be judged.

    ``fitted`` was fitted on the `scorable` ones of ``judged``.
    """
    answers = zip(scorable(judged), fitted.probabilities, fitted.statement_probabilities, strict=True)
    known = {e.example.id: (p, confidences) for e, p, confidences in answers}
    rows = []
    for e in judged:
        p, confidences = known.get(e.example.id, (None, ()))
        rows.append(prediction(e, p, None if p is None else p >= fitted.classifier.threshold, confidences))
    return rows


def lexical_judge(known: Iterable[LabelledExample], seed: int) -> Judge:
    """The lexical baseline fitted on ``known``: sentences judged by a classifier of lexical features alone."""
    default = Judge(NO_LM)
    fitted = fit(scorable(without_lm(known)), "lexical", seed, priors=priors_of(default))
    return default.copy(classifier=fitted.classifier)


def default_judge(judge: Judge, judged: Sequence[JudgedExample]) -> tuple[Judge, Sequence[JudgedExample]]:
    """A judge with the default classifier, and the replies to measure it by, without another LM call.

    Those of ``judge`` if it asks an LM about every sentence; else none, and lexical features alone decide.
    """
    classifier = default_classifier(judge.lm_name, judge.config) if judge.config.ask_about == "all" else None
    if judge.asks_lm and classifier is not None:
        return judge.copy(classifier=classifier, escalate_to=None), judged
    return Judge(NO_LM), without_lm(e.example for e in judged)


def baseline_rows(
    examples: Sequence[LabelledExample], known: Sequence[LabelledExample], lexical: Judge, seed: int
) -> dict[str, list[PredictionRow]]:
    """Predictions by each of `BASELINES`, fitted on ``known``, without an LM; ``lexical``: the first of them."""
    judged, learned = without_lm(examples), scorable(without_lm(known))
    share = sum(bool(e.label) for e in known) / len(known)
    length = fit(learned, "length", seed).classifier
    by_length = [(e, length.probability((), classifier_example(e).features)) for e in judged]
    return {
        "lexical-baseline": judged_rows(judged, lexical),
        "length-baseline": [prediction(e, p, None if p is None else p >= length.threshold) for e, p in by_length],
        "majority-baseline": [prediction(e, share, share >= 0.5) for e in judged],
    }


def held_out_folds(judged: Sequence[JudgedExample], seed: int) -> list[tuple[list[JudgedExample], list[JudgedExample]]]:
    """For each fold what to fit on and what is held out, no group on both sides; every answer is held out once."""
    usable = scorable(judged)
    labels, groups = [bool(e.example.label) for e in usable], [e.example.group_key for e in usable]
    held = [{groups[i] for i in fold} for fold in grouped_folds(labels, groups, seed)]
    held[0] |= {e.example.group_key for e in judged} - set(groups)
    return [
        ([e for e in judged if e.example.group_key not in own], [e for e in judged if e.example.group_key in own])
        for own in held
    ]


def judged_rows(judged: Iterable[JudgedExample], judge: Judge) -> list[PredictionRow]:
    """Predictions by a judge as it stands. Its classifier must not have seen these answers.

    ``probability`` is what answers are ranked by (`Judgment.ranking`): AUROC of the untuned judge is measured on the
    LM's own probability, since on its verdicts it would look worse than it is.
    """
    rows = []
    for e in judged:
        j = e.judgment_by(judge)
        last = e._replace(raw_judgment=e.raw_judgment.last, unscored=j if j.unscored else None)
        rows.append(prediction(last, j.ranking, j.faithful, [s.confidence for s in j.statements]))
    return rows


def prediction(
    judged: JudgedExample,
    probability: float | None,
    predicted: bool | None,
    confidences: Sequence[float | None] = (),
) -> PredictionRow:
    """A judged answer as a row. ``confidences``: one for each of its statements, or none at all."""
    example, raw = judged.example, judged.raw_judgment
    verdicts = raw.raw_verdicts
    labels = statement_labels(verdicts, example)
    reason = judged.unscored.unscored if judged.unscored else None
    return PredictionRow(
        id=example.id,
        group=example.group_key,
        label=bool(example.label),
        predicted=predicted,
        probability=probability,
        unscored=reason.value if reason else None,
        question=example.question,
        answer=example.answer,
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
            for v, confidence, label in zip(verdicts, confidences or [None] * len(verdicts), labels, strict=True)
        ),
        context=tuple(c.text for c in example.context),
        tags=example.tags | ({"group": example.group} if example.group else {}),
        usage=raw.usage,
        extraction=raw.extraction,
    )
