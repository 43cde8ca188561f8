"""The candidates of a study: judges that can be exported, each fitted on the pool and cross-fitted.

No LM is asked here: everything is made of replies that are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

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
    COLUMN,
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
none, or without an LM of a column; ``features``: with the lexical features, or these alone where no LM is asked;
``default``: the classifier we ship, with a slope, offset and threshold of its own."""
SHARE = 0.5
"""Share of the answers that a cascade escalates: those that the lexical judge is least sure of."""
_ABOUT: dict[Method, str] = {
    "lm": "slope, offset and threshold of its log-odds",
    "features": "with lexical features",
    "default": "the shipped default, recalibrated",
}
"""What the description of a candidate says of its method."""

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
    first: Replies | None = None
    """Of a cascade, those of its first judge."""

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
    lexical features, the cascade, and the shipped default recalibrated. For each column of another judge's the column
    calibrated, and each of these with it. Where functions and LMs are asked, the cascades of one and the other.

    Args:
        lexical: replies without an LM; its judge's ``scores`` are the columns.
        asked: replies of the variants.
        fold_of: the fold of each source; answers of other sources count for nothing.
        point: what thresholds are for.

    Raises:
        InputError: no variant can be fitted.
    """
    tried: list[Candidate] = []
    faults = []
    for columns in ((), *zip(lexical.judge.config.scores, strict=True)):
        fit = partial(_fit, columns=columns, fold_of=fold_of, point=point)
        try:
            words = fit(lexical, "features")
            tried += [words, fit(lexical, "lm" if columns else "default")]
        except InputError:
            if columns:  # too few of its cells are filled
                continue
            raise
        for replies in asked:
            try:
                own = [] if columns else [fit(replies, "lm")]
                own.append(fit(replies, "features"))
                own.append(cascade(words, own[-1], point))
                if replies.is_seed and not columns and _has_default(replies.judge):
                    own.append(fit(replies, "default"))
                tried += own
            except InputError as exc:
                faults.append(f"{replies.name}: {exc}")
    if asked and not any(c.asks_lm for c in tried):
        raise InputError(faults[0])
    plain = [c for c in tried if c.method == "features" and not c.judge.columns]
    for first, second in permutations(plain[1:], 2):
        are_two = (first.judge.function is None) is not (second.judge.function is None)
        if are_two and first.replies.is_seed:
            tried.append(cascade(first, second, point))
    return tried


def _fit(
    replies: Replies,
    method: Method,
    columns: tuple[str, ...],
    fold_of: Mapping[str, int],
    point: OperatingPoint,
) -> Candidate:
    """Return a candidate without a cascade that reads these columns."""
    config = replies.judge.config.model_copy(update={"scores": columns})
    judge = replies.judge.copy(config=config)
    answers = [a for a in replies.answers if a.source in fold_of]
    parts = [replies.name if judge.asks_lm else "lexical"]
    if method == "default":
        parts.append("default")
    elif method == "lm":
        parts.append(f"{'LM' if judge.function is None else 'function'} calibrated")
    beside = [f"with {column}" for column in judge.columns]
    name = ", ".join((*parts, *beside))
    about = ", ".join((f"{replies.description}; {_ABOUT[method]}", *beside))
    if method == "lm" and columns:
        name = f"column {judge.columns[0]}"
        about = f"{replies.description}; {name}, calibrated"
    elif name == "lexical":
        name = LEXICAL
    fitted = fit_judge(judge, answers, method, fold_of, point)
    return Candidate(name, about, replies, method, *fitted)


def _has_default(judge: Judge) -> bool:
    return default_classifier(judge.lm_name, judge.config) is not None


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
    columns = [COLUMN + name for name in judge.config.scores]
    lm = ["lm"] if judge.asks_lm else []
    names = lm or columns
    if method == "features":
        names = [*lm, *columns, *CLASSIFIER_FEATURES]
    needed = {name for name in judge.config.scores if COLUMN + name in names}
    scorable = [a for a in scorable if a.raw.scores.keys() >= needed]
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
    if method == "default" and not _has_default(judge):
        raise ConfigError(
            f"there is no default classifier for {judge.lm_name} with these options; fit 'features'."
        )
    if method == "lm" and not (judge.asks_lm or judge.config.scores):
        raise ConfigError("this judge asks no LM; fit 'features'.")
    labelled = with_sources([e for e in examples if e.label is not None])
    fold_of = assign_folds(labelled, 0, least=2)
    answers = verify(judge, labelled, num_threads=num_threads)
    point = OperatingPoint.parse(operating_point)
    fitted = fit_judge(judge, answers, method, fold_of, point)
    keys = {words_key(e.context, e.answer) for e in labelled}
    manifest = {"answer_keys": sorted(keys)}  # `agree` on any of them is refused
    return judge.copy(classifier=fitted.judge.classifier, manifest=manifest)


def cascade(first: Candidate, second: Candidate, point: OperatingPoint) -> Candidate:
    """Return the first judge, which escalates to the second the half of the answers that it is least sure of.

    Both have one threshold, fitted to the answers as the cascade judges them.
    """
    own, following = first.judge.classifier, second.judge.classifier
    assert own is not None
    assert following is not None
    own = own.model_copy(update={"review_range": _escalation_range(first.answers, own)})
    by_id = {a.id: a for a in first.answers}
    judged = []
    for further in second.answers:
        a = by_id[further.id]
        judgment = a.judgment
        if a.probability is not None:  # by weights that did not see its source
            unsure = own.needs_review(a.probability)
            judgment = judgment.model_copy(update={"needs_review": unsure})
        if first.judge.should_escalate(judgment):
            usage = a.raw.usage + further.raw.usage
            raw = further.raw.model_copy(update={"usage": usage})
            a = further.model_copy(update={"raw": raw})
        judged.append(a)
    scored = [a for a in judged if a.probability is not None]
    threshold = threshold_for(
        point,
        np.array([a.probability for a in scored], dtype=np.float64),
        np.array([a.label for a in scored], dtype=bool),
    )
    scoring = second.judge.config.scoring_options
    judge = first.judge.copy(
        config=first.judge.config.model_copy(update=scoring),
        classifier=_with_threshold(own, threshold),
        escalate_to=second.judge.copy(classifier=_with_threshold(following, threshold)),
    )
    answers = []
    for a in judged:
        judgment = a.judgment
        if judgment.probability is not None:
            faithful = judgment.probability >= threshold
            judgment = judgment.model_copy(
                update={"faithful": faithful, "threshold": threshold}
            )
        answers.append(a.with_judgment(judgment))
    name = first.name if first.asks_lm else "lexical"
    return Candidate(
        f"{name}, then {second.name}",
        f"“{name}” first, then “{second.name}” for the half of the answers that it is least sure of: "
        f"{second.description}",
        second.replies,
        "cascade",
        judge,
        answers,
        first.replies,
    )


def _with_threshold(classifier: Classifier, threshold: float) -> Classifier:
    """Return the classifier with that threshold, its review range as wide as it has to be to hold it."""
    low, high = classifier.review_range or (threshold, threshold)
    update: dict[str, Any] = {"threshold": threshold}
    update["review_range"] = min(low, threshold), max(high, threshold)
    return classifier.model_copy(update=update)


def _escalation_range(
    answers: Sequence[JudgedAnswer], classifier: Classifier
) -> tuple[float, float]:
    """Return the first judge's probabilities between which the second is asked.

    It is equally wide in log-odds on both sides of the threshold, and ends half way to the next answer outside; what is
    as unsure as the last answer inside is inside, too.
    """
    centre = to_logit(classifier.threshold)
    probabilities = [a.probability for a in usable(answers)]
    logits = [to_logit(p) for p in probabilities if p is not None]
    distances = sorted(abs(logit - centre) for logit in logits)
    k = int(SHARE * len(distances))
    reach = (distances[k - 1] + distances[k]) / 2 + 1e-9 if k else 0.0
    low = max(-LOGIT_LIMIT, centre - reach)
    high = min(LOGIT_LIMIT, centre + reach)
    return to_probability(low), to_probability(high)


def as_asked(
    judge: Judge, answers: Sequence[JudgedAnswer], first: Sequence[JudgedAnswer]
) -> list[JudgedAnswer]:
    """Return what a judge would have made of answers that its last judge was asked about in full; ``first``: what the
    first one of a cascade said of them, and perhaps of others. No LM call."""
    if judge.escalate_to is None:
        return [a.by(judge) for a in answers]
    by_id = {a.id: a for a in first}
    judged = []
    for last in answers:
        one = by_id[last.id].by(judge)
        if last.raw.raw_verdicts and judge.should_escalate(one.judgment):
            calls = {
                "escalated_to": last.raw,
                "usage": one.raw.usage + last.raw.usage,
                "cached_usage": one.raw.cached_usage + last.raw.cached_usage,
            }
            raw = one.raw.model_copy(update=calls)
            measured = replace(one.measured, escalated_to=last.measured)
            one = last.model_copy(update={"raw": raw, "measured": measured}).by(judge)
        judged.append(one)
    return judged


def cost_of(usages: Sequence[Usage], judge: Judge) -> Cost:
    """Return what judging took, from what each answer did."""
    usage = sum(usages, Usage())
    lms = [one for one in judge.cascade if one.function is None]
    dollars = price((lms or judge.cascade)[-1], usage)
    asked = [one for one in usages if one.calls]
    if judge.function is not None and lms:  # the function is asked about all
        asked = [one for one in asked if one.prompt_tokens]
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
