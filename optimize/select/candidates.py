"""The candidates of a study: judges that can be exported, each fitted on the whole pool and measured cross-fitted.

No LM is asked here: everything is made of replies that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import (
    BALANCED,
    OperatingPoint,
    assign_folds,
    fit_classifier,
    recalibrate,
)
from faith_dspy.optimize.data.splits import with_sources
from faith_dspy.optimize.results import (
    LEXICAL,
    JudgedAnswer,
    JudgeResult,
    PromptGain,
)
from faith_dspy.optimize.select.ask import Replies, price, usable, verify, without_lm
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.schema import LabelledExample, Unscored, Usage
from faith_dspy.scoring.agreement import measure_agreement
from faith_dspy.scoring.classifier import (
    LOGIT_LIMIT,
    default_classifier,
    to_logit,
    to_probability,
)
from faith_dspy.scoring.measure import measure_features
from faith_dspy.scoring.score import raw_judgment_without_lm, unjudged_reason
from faith_dspy.text.features import CLASSIFIER_FEATURES

Method = Literal["lm", "features", "default"]
"""How replies become verdicts. ``lm``: slope, offset and threshold of the LM's log-odds, of its verdict where it tells
none; ``features``: with the lexical features, or these alone where no LM is asked; ``default``: the classifier we ship,
with a slope, offset and threshold of its own."""
_WITHOUT_LM: dict[Method, tuple[str, str]] = {
    "features": (LEXICAL, "lexical features, no LM"),
    "default": ("lexical, default", "the shipped default, recalibrated; no LM"),
}
"""Name and description of each candidate that asks no LM."""
SHARE = 0.5
"""Share of the answers that a cascade escalates: those that the lexical judge is least sure of."""
_OF_VARIANT = {
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
    """A judge fitted on replies, and the same answers cross-fitted."""

    judge: Judge
    answers: list[JudgedAnswer]


class Candidate(NamedTuple):
    """A judge that could be exported."""

    result: JudgeResult
    """On the pool, cross-fitted."""
    judge: Judge
    """Fitted on the whole pool."""
    replies: Replies | None
    """Of the variant that it asks; None without an LM."""
    method: str
    """`Method`, or ``cascade``."""


def candidates(
    replies: Mapping[str, Replies],
    pool: Sequence[LabelledExample],
    seed: int,
    point: OperatingPoint,
) -> list[Candidate]:
    """Lexical features, fitted and as the shipped default recalibrated; and for each variant the LM calibrated, with
    lexical features, the cascade, and the shipped default recalibrated.

    Folds by source are the same for all of them. `InputError` where no variant can be fitted.
    """
    fold_of = assign_folds(pool, seed)
    judge, answers = Judge(NO_LM), without_lm(pool)
    tried, lexical = [], {}
    for method, (name, description) in _WITHOUT_LM.items():
        fitted = fit_judge(judge, answers, method, fold_of, point)
        lexical[method] = fitted
        result = JudgeResult(
            name=name,
            kind="baseline",
            description=description,
        )
        measured = measure_judge(result, fitted.answers)
        tried.append(Candidate(measured, fitted.judge, None, method))
    faults = []
    for asked in replies.values():
        try:
            tried += _of_variant(asked, lexical["features"], fold_of, point)
        except InputError as exc:
            faults.append(f"{asked.variant.name}: {exc}")
    if len(faults) == len(replies):
        raise InputError(faults[0])
    return tried


def _of_variant(
    asked: Replies,
    lexical: FittedJudge,
    fold_of: Mapping[str, int],
    point: OperatingPoint,
) -> list[Candidate]:
    judge, answers, variant = asked.judge, asked.answers, asked.variant
    fitted = {
        "lm": fit_judge(judge, answers, "lm", fold_of, point),
        "features": fit_judge(judge, answers, "features", fold_of, point),
    }
    fitted["cascade"] = cascade(lexical, fitted["features"])
    if (
        not variant.seed_prompts
        and default_classifier(judge.lm_name, judge.config) is not None
    ):
        fitted["default"] = fit_judge(judge, answers, "default", fold_of, point)
    gain = _prompt_gain(asked, fitted["lm"], fold_of)
    tried = []
    for method, one in fitted.items():
        texts = {"name": variant.name, "description": variant.description}
        name, description = (text.format(**texts) for text in _OF_VARIANT[method])
        update: dict[str, Any] = {"name": name, "description": description}
        if name == variant.name:
            update["gain"] = gain
        unmeasured = variant.model_copy(update=update)
        result = measure_judge(unmeasured, one.answers, one.judge)
        tried.append(Candidate(result, one.judge, asked, method))
    return tried


def _prompt_gain(
    asked: Replies, fitted: FittedJudge, fold_of: Mapping[str, int]
) -> PromptGain | None:
    """Return what compiled prompts gain over the seed's, both calibrated on the same answers; None where nothing was
    compiled, or the seed's replies cannot be fitted."""
    if asked.compiled is None:
        return None
    try:
        seed = fit_judge(asked.judge, asked.seed, "lm", fold_of)
    except InputError:
        return None
    names = asked.variant.name, "its seed prompt"
    before = measure_judge(asked.variant, seed.answers)
    after = measure_judge(asked.variant, fitted.answers)
    return PromptGain(
        comparison=compare(after.rows, before.rows, names),
        compiled=after.levels,
        seed=before.levels,
        metric_calls=asked.compiled.metric_calls,
        seconds=asked.compiled.seconds,
    )


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
        The judge with its classifier, and the answers each judged by one that did not see its source.
    """
    scorable = usable(answers)
    default = default_classifier(judge.lm_name, judge.config)
    if method == "default" and default is not None:
        fitted = recalibrate(default, scorable, operating_point)
    else:
        lm = ["lm"] if judge.asks_lm else []
        names = lm if method == "lm" else [*lm, *CLASSIFIER_FEATURES]
        fitted = fit_classifier(scorable, names, fold_of, operating_point, default)
    ids = [a.id for a in scorable]
    probability_of = dict(zip(ids, fitted.probabilities, strict=True))
    threshold = fitted.classifier.threshold
    cross_fitted = []
    for a in answers:
        again = _judged_again(a, probability_of.get(a.id), threshold)
        cross_fitted.append(again)
    return FittedJudge(judge.copy(classifier=fitted.classifier), cross_fitted)


def _judged_again(
    answer: JudgedAnswer, probability: float | None, threshold: float
) -> JudgedAnswer:
    """Return the answer with its cross-fitted probability; unscored where there is none because the LM failed."""
    if probability is not None:
        faithful = probability >= threshold
        return answer.rejudged(
            probability=probability,
            faithful=faithful,
            threshold=threshold,
        )
    if not answer.raw.raw_verdicts:
        return answer
    why = answer.judgment.unscored or unjudged_reason(answer.raw.last)
    unscored = why or Unscored.LM_FAILED
    nothing = dict.fromkeys(("probability", "faithful", "score"))
    return answer.rejudged(**nothing, unscored=unscored)


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
    fold_of = assign_folds(labelled, 0)
    answers = verify(judge, labelled, num_threads=num_threads)
    point = OperatingPoint.parse(operating_point)
    fitted = fit_judge(judge, answers, method, fold_of, point)
    return judge.copy(classifier=fitted.judge.classifier, manifest={})


def cascade(lexical: FittedJudge, lm: FittedJudge) -> FittedJudge:
    """Return the lexical judge, which escalates to the other one the half of the answers that it is least sure of."""
    classifier = lexical.judge.classifier
    assert classifier is not None
    low, high = _escalation_range(lexical, classifier.threshold)
    sure = {}
    for a in lexical.answers:
        p = a.probability
        if p is not None and not low <= p < high:
            sure[a.id] = a
    judge = Judge(
        NO_LM,
        config=JudgeConfig.make(**lm.judge.config.scoring_options),
        classifier=classifier.model_copy(update={"review_range": (low, high)}),
        escalate_to=lm.judge,
    )
    return FittedJudge(judge, [sure.get(a.id, a) for a in lm.answers])


def _escalation_range(lexical: FittedJudge, threshold: float) -> tuple[float, float]:
    """Return the lexical judge's probabilities between which the LM is asked.

    It is equally wide in log-odds on both sides of the threshold, and ends half way to the next answer outside.
    """
    centre = to_logit(threshold)
    distances = []
    for a in usable(lexical.answers):
        if a.probability is not None:
            distances.append(abs(to_logit(a.probability) - centre))
    distances.sort()
    k = int(SHARE * len(distances))
    reach = (distances[k - 1] + distances[k]) / 2 if k else 0.0
    low = max(-LOGIT_LIMIT, centre - reach)
    high = min(LOGIT_LIMIT, centre + reach)
    return to_probability(low), to_probability(high)


def as_asked(judge: Judge, answer: JudgedAnswer) -> JudgedAnswer:
    """Return what ``judge`` would have made of an answer that its LM was asked about in full. No LM call."""
    if judge.asks_lm or not answer.raw.raw_verdicts:
        return answer.by(judge)
    example = answer.example
    raw = raw_judgment_without_lm(example.answer)
    features = measure_features(raw, example.context, example.question)
    judgment = judge.score_answer(raw, features)
    if judge.escalate_to and judge.should_escalate(judgment):
        update = {"escalated": answer.raw, "usage": answer.raw.usage}
        raw = raw.model_copy(update=update)
        features = replace(features, escalated=answer.measured)
        judgment = judge.score_answer(raw, features)
    return JudgedAnswer.judged(example, raw, judgment)


def measure_judge(
    result: JudgeResult, answers: Sequence[JudgedAnswer], judge: Judge | None = None
) -> JudgeResult:
    """Return the result with what its judge reached on these answers; ``judge``: whose LM has a price."""
    usage = sum((a.raw.usage for a in answers), Usage())
    dollars = price(judge.cascade[-1], usage) if judge is not None else None
    examples = [a.example for a in answers]
    judgments = [a.judgment for a in answers]
    asked = [a for a in answers if a.raw.usage.calls]
    measured: dict[str, Any] = {
        "levels": measure_agreement(examples, judgments),
        "usage": usage,
        "judged": len(answers),
        "lm_share": len(asked) / len(answers),
        "price": None if dollars is None else dollars / len(answers),
        "rows": tuple(answers),
    }
    return result.model_copy(update=measured)
