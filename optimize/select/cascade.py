"""The cascade: lexical features first, and the LM for the answers they are least sure of.

It is made of replies already paid for: where it would not ask the LM, the known reply is left out of judgment and cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from faith_dspy.config import JudgeConfig
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import FittedClassifier
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.evaluate import cross_fitted
from faith_dspy.scoring.classifier import LOGIT_LIMIT, to_logit, to_probability
from faith_dspy.scoring.score import unverified

SHARE = 0.5
"""Share of the answers that a cascade escalates: those that the lexical judge is least sure of."""


def escalation_range(lexical: FittedClassifier) -> tuple[float, float]:
    """The lexical judge's probabilities between which the LM is asked.

    It is equally wide in log-odds on both sides of the threshold, and ends half way to the next answer outside.
    """
    centre = to_logit(lexical.classifier.threshold)
    distances = sorted(abs(to_logit(p) - centre) for p in lexical.probabilities)
    k = int(SHARE * len(distances))
    reach = (distances[k - 1] + distances[k]) / 2 if k else 0.0
    return (
        to_probability(max(-LOGIT_LIMIT, centre - reach)),
        to_probability(min(LOGIT_LIMIT, centre + reach)),
    )


def cascaded(
    lm: Sequence[JudgedAnswer], lexical: Sequence[JudgedAnswer], fitted: FittedClassifier
) -> list[JudgedAnswer]:
    """The answers of ``lm``, cross-fitted: each as ``lexical`` judges it, or as ``lm`` does where that is unsure.

    ``fitted`` was fitted on the `usable` ones of ``lexical``, which hold all of ``lm``.
    """
    low, high = escalation_range(fitted)
    first = {a.id: a for a in cross_fitted(lexical, fitted)}

    def sure(a: JudgedAnswer) -> bool:
        return a.judgment.unscored is None and a.probability is not None and not low <= a.probability < high

    return [first[a.id] if sure(first[a.id]) else a for a in lm]


def build_cascade(lm: Judge, lexical: FittedClassifier) -> Judge:
    """The lexical judge that escalates to ``lm``, which has its classifier."""
    first = JudgeConfig.make(**lm.config.scoring_options)
    classifier = lexical.classifier.model_copy(update={"review_range": escalation_range(lexical)})
    return Judge(NO_LM, config=first, classifier=classifier, escalate_to=lm)


def as_asked(judge: Judge, answer: JudgedAnswer) -> JudgedAnswer:
    """What ``judge`` would have made of an answer that an LM was asked about in full. No LM call."""
    if judge.asks_lm or not answer.raw.raw_verdicts:
        return answer.by(judge)
    raw, example = unverified(answer.example.answer), answer.example
    if judge.escalate_to and judge.should_escalate(judge.score_answer(raw, example.context, example.question)):
        raw = raw.model_copy(update={"escalated": answer.raw, "usage": answer.raw.usage})
    return JudgedAnswer.of(example, raw, judge.score_answer(raw, example.context, example.question))
