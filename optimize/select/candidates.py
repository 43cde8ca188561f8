"""The candidates of a study: judges that can be exported, each fitted on the pool and cross-fitted.

No LM is asked here: everything is made of replies that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import (
    BALANCED,
    OperatingPoint,
    fit_classifier,
    recalibrate,
    threshold_for,
)
from faith_dspy.optimize.data.pool import assign_folds, with_sources
from faith_dspy.optimize.results import LEXICAL, Cost, JudgedAnswer, JudgeResult
from faith_dspy.optimize.select.ask import Replies, price, usable, verify
from faith_dspy.schema import LabelledExample, Usage
from faith_dspy.scoring.agreement import measure_agreement
from faith_dspy.scoring.classifier import (
    LOGIT_LIMIT,
    Classifier,
    default_classifier,
    to_logit,
    to_probability,
)
from faith_dspy.scoring.gate import words_key
from faith_dspy.text.features import CLASSIFIER_FEATURES

Method = Literal["lm", "features", "default"]
"""How replies become verdicts. ``lm``: slope, offset and threshold of the LM's log-odds, of its verdict where it tells
none; ``features``: with the lexical features, or these alone where no LM is asked; ``default``: the classifier we ship,
with a slope, offset and threshold of its own."""
_LEXICAL_DEFAULT = "lexical, default"
SHARE = 0.5
"""Share of the answers that a cascade escalates: those that the lexical judge is least sure of."""
_TEXTS = {
    "lm": (
        "{name}, LM calibrated",
        "{description}; slope, offset and threshold of the LM's log-odds",
    ),
    "features": ("{name}", "{description}; the LM with lexical features"),
    "cascade": (
        "lexical, then {name}",
        "lexical features first, then “{name}” for the half of the answers they are least sure of: {description}",
    ),
    "default": ("{name}, default", "{description}; the shipped default, recalibrated"),
}
"""Name and description of each candidate that asks a variant."""

_Judge = TypeVar("_Judge", bound=Judge)


class FittedJudge(NamedTuple):
    """A judge fitted on replies, and the same answers, each by one whose weights did not see its source."""

    judge: Judge
    answers: list[JudgedAnswer]


class Candidate(NamedTuple):
    """A judge that could be exported."""

    name: str
    description: str
    replies: Replies
    """Of the variant that it asks, or without an LM."""
    method: str
    """`Method`, or ``cascade``."""
    judge: Judge
    answers: list[JudgedAnswer]
    """Cross-fitted."""

    @property
    def asks_lm(self) -> bool:
        """Whether any of its judges does."""
        return self.replies.name != NO_LM


def candidates(
    lexical: Replies,
    asked: Sequence[Replies],
    fold_of: Mapping[str, int],
    point: OperatingPoint,
) -> list[Candidate]:
    """Lexical features, fitted and as the shipped default recalibrated; and for each variant the LM calibrated, with
    lexical features, the cascade, and the shipped default recalibrated.

    Args:
        lexical: replies without an LM.
        asked: replies of the variants.
        fold_of: the fold of each source; answers of other sources count for nothing.
        point: what thresholds are for.

    Raises:
        InputError: no variant can be fitted.
    """
    judge, answers = lexical.judge, _in_folds(lexical, fold_of)
    words = fit_judge(judge, answers, "features", fold_of, point)
    default = fit_judge(judge, answers, "default", fold_of, point)
    about, about_default = (
        "lexical features, no LM",
        "the shipped default, recalibrated; no LM",
    )
    tried = [
        Candidate(LEXICAL, about, lexical, "features", *words),
        Candidate(_LEXICAL_DEFAULT, about_default, lexical, "default", *default),
    ]
    faults = []
    for replies in asked:
        try:
            tried += _of_variant(replies, words, fold_of, point)
        except InputError as exc:
            faults.append(f"{replies.name}: {exc}")
    if asked and len(faults) == len(asked):
        raise InputError(faults[0])
    return tried


def _in_folds(replies: Replies, fold_of: Mapping[str, int]) -> list[JudgedAnswer]:
    return [a for a in replies.answers if a.source in fold_of]


def _of_variant(
    replies: Replies,
    lexical: FittedJudge,
    fold_of: Mapping[str, int],
    point: OperatingPoint,
) -> list[Candidate]:
    judge, answers = replies.judge, _in_folds(replies, fold_of)
    fitted = {
        "lm": fit_judge(judge, answers, "lm", fold_of, point),
        "features": fit_judge(judge, answers, "features", fold_of, point),
    }
    fitted["cascade"] = cascade(lexical, fitted["features"], point)
    is_seed = replies.prompts is None or not replies.prompts.seed
    if is_seed and default_classifier(judge.lm_name, judge.config) is not None:
        fitted["default"] = fit_judge(judge, answers, "default", fold_of, point)
    tried = []
    for method, one in fitted.items():
        texts = {"name": replies.name, "description": replies.description}
        name, description = (text.format(**texts) for text in _TEXTS[method])
        tried.append(Candidate(name, description, replies, method, *one))
    return tried


def fit_judge(
    judge: Judge,
    answers: Sequence[JudgedAnswer],
    method: Method,
    fold_of: Mapping[str, int],
    operating_point: OperatingPoint = BALANCED,
) -> FittedJudge:
    """Fit a judge on its own replies: from them follow its classifier and its thresholds.

    Args:
        judge: whose program was asked; its classifier does not count.
        answers: labelled answers with its replies. Those that could not be judged are not learned from.
        method: how replies become verdicts.
        fold_of: the fold of each source, for the cross-fitted answers.
        operating_point: what the threshold is for.

    Returns:
        The judge with its classifier, and the answers each judged by one whose weights did not see its source.
    """
    scorable = usable(answers)
    default = default_classifier(judge.lm_name, judge.config)
    if method == "default" and default is not None:
        fitted = judge.copy(classifier=recalibrate(default, scorable, operating_point))
        return FittedJudge(fitted, [a.by(fitted) for a in answers])
    lm = ["lm"] if judge.asks_lm else []
    names = lm if method == "lm" else [*lm, *CLASSIFIER_FEATURES]
    fit = fit_classifier(scorable, names, fold_of, operating_point, default)
    without = {k: judge.copy(classifier=c) for k, c in fit.without_fold.items()}
    fitted = judge.copy(classifier=fit.classifier)
    # A fold without an answer that was learned from has no classifier of its own.
    cross_fitted = [a.by(without.get(fold_of[a.source], fitted)) for a in answers]
    return FittedJudge(fitted, cross_fitted)


def fit_on_labels(
    judge: _Judge,
    examples: Sequence[LabelledExample],
    method: Method,
    operating_point: str,
    num_threads: int | None = None,
) -> _Judge:
    """Fit a judge as `Judge.fit` does."""
    if judge.escalate_to is not None:
        raise ConfigError(
            "a cascade is fitted by a study; fit each of its two judges by itself."
        )
    if method == "default" and default_classifier(judge.lm_name, judge.config) is None:
        raise ConfigError(
            f"there is no default classifier for {judge.lm_name} with these options; fit 'features'."
        )
    if method == "lm" and not judge.asks_lm:
        raise ConfigError("this judge asks no LM; fit 'features'.")
    labelled = with_sources([e for e in examples if e.label is not None])
    fold_of = assign_folds(labelled, 0, least=2)
    answers = verify(judge, labelled, num_threads=num_threads)
    point = OperatingPoint.parse(operating_point)
    fitted = fit_judge(judge, answers, method, fold_of, point)
    keys = {words_key(e.context, e.answer) for e in labelled}
    manifest = {"answer_keys": sorted(keys)}  # `agree` on any of them is refused
    return judge.copy(classifier=fitted.judge.classifier, manifest=manifest)


def cascade(
    lexical: FittedJudge, lm: FittedJudge, point: OperatingPoint = BALANCED
) -> FittedJudge:
    """Return the lexical judge, which escalates to the other one the half of the answers that it is least sure of.

    Both have one threshold, fitted to the answers as the cascade judges them.
    """
    first = _escalating(lexical, lm.judge)
    assert first.classifier is not None
    followed = {a.id: a for a in lm.answers}
    judged = {}
    for a in lexical.answers:
        if a.id in followed:
            judgment = a.judgment
            if a.probability is not None:  # by weights that did not see its source
                unsure = first.classifier.needs_review(a.probability)
                judgment = judgment.model_copy(update={"needs_review": unsure})
            escalates = first.should_escalate(judgment)
            judged[a.id] = followed[a.id] if escalates else a
    scored = [a for a in judged.values() if a.probability is not None]
    threshold = threshold_for(
        point,
        np.array([a.probability for a in scored], dtype=np.float64),
        np.array([a.label for a in scored], dtype=bool),
    )
    judge = first.copy(
        classifier=_with_threshold(first.classifier, threshold),
        escalate_to=lm.judge.copy(
            classifier=_with_threshold(lm.judge.classifier, threshold)
        ),
    )
    answers = []
    for a in lm.answers:
        one = judged.get(a.id, a)
        judgment = one.judgment
        if judgment.probability is not None:
            faithful = judgment.probability >= threshold
            judgment = judgment.model_copy(
                update={"faithful": faithful, "threshold": threshold}
            )
        answers.append(one.with_judgment(judgment))
    return FittedJudge(judge, answers)


def _escalating(lexical: FittedJudge, following: Judge) -> Judge:
    classifier = lexical.judge.classifier
    assert classifier is not None
    low, high = _escalation_range(lexical, classifier.threshold)
    return Judge(
        NO_LM,
        config=JudgeConfig.make(**following.config.scoring_options),
        classifier=classifier.model_copy(update={"review_range": (low, high)}),
        escalate_to=following,
    )


def _with_threshold(classifier: Classifier | None, threshold: float) -> Classifier:
    """Return the classifier with that threshold, its review range as wide as it has to be to hold it."""
    assert classifier is not None
    low, high = classifier.review_range or (threshold, threshold)
    update: dict[str, Any] = {"threshold": threshold}
    update["review_range"] = min(low, threshold), max(high, threshold)
    return classifier.model_copy(update=update)


def _escalation_range(lexical: FittedJudge, threshold: float) -> tuple[float, float]:
    """Return the lexical judge's probabilities between which the LM is asked.

    It is equally wide in log-odds on both sides of the threshold, and ends half way to the next answer outside; what is
    as unsure as the last answer inside is inside, too.
    """
    centre = to_logit(threshold)
    distances = []
    for a in usable(lexical.answers):
        if a.probability is not None:
            distances.append(abs(to_logit(a.probability) - centre))
    distances.sort()
    k = int(SHARE * len(distances))
    reach = (distances[k - 1] + distances[k]) / 2 + 1e-9 if k else 0.0
    low = max(-LOGIT_LIMIT, centre - reach)
    high = min(LOGIT_LIMIT, centre + reach)
    return to_probability(low), to_probability(high)


def as_asked(judge: Judge, answer: JudgedAnswer, words: JudgedAnswer) -> JudgedAnswer:
    """Return what ``judge`` would have made of an answer that its LM was asked about in full, and of which ``words`` is
    what was said without an LM. No LM call."""
    if judge.escalate_to is None or not answer.raw.raw_verdicts:
        return answer.by(judge)
    first = words.by(judge)
    if not judge.should_escalate(first.judgment):
        return first
    following = {"escalated_to": answer.raw, "usage": answer.raw.usage}
    raw = words.raw.model_copy(update=following)
    measured = replace(words.measured, escalated_to=answer.measured)
    both = answer.model_copy(update={"raw": raw, "measured": measured})
    return both.with_judgment(judge.score_answer(raw, measured))


def cost_of(usages: Sequence[Usage], judge: Judge) -> Cost:
    """Return what judging took, from what each answer did."""
    usage = sum(usages, Usage())
    dollars = price(judge.cascade[-1], usage)
    asked = [one for one in usages if one.calls]
    return Cost(
        usage=usage,
        judged=len(usages),
        lm_share=len(asked) / len(usages),
        price=None if dollars is None else dollars / len(usages),
    )


def measure_judge(
    name: str, answers: Sequence[JudgedAnswer], judge: Judge
) -> JudgeResult:
    """Return what a judge reached on these answers."""
    examples = [a.example for a in answers]
    judgments = [a.judgment for a in answers]
    return JudgeResult(
        **dict(cost_of([a.raw.usage for a in answers], judge)),
        name=name,
        levels=measure_agreement(examples, judgments),
        rows=tuple(answers),
    )
