"""The candidates of a study: judges that can be exported, each fitted on the whole pool and measured cross-fitted.

No LM is asked here: everything is made of replies that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.fitting import (
    FittedClassifier,
    assign_folds,
    fit_classifier,
    recalibrate,
)
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.data.splits import with_sources
from faith_dspy.optimize.results import LEXICAL, JudgedAnswer, JudgeResult
from faith_dspy.optimize.select.ask import Replies, price, usable, verify, without_lm
from faith_dspy.schema import LabelledExample, Unscored, Usage
from faith_dspy.scoring.agreement import measure_agreement
from faith_dspy.scoring.classifier import (
    LOGIT_LIMIT,
    Classifier,
    default_classifier,
    to_logit,
    to_probability,
)
from faith_dspy.scoring.score import failure, unverified
from faith_dspy.text.features import CLASSIFIER_FEATURES

Method = Literal["lm", "features", "default"]
"""How replies become verdicts. ``lm``: slope, offset and threshold of the LM's log-odds, of its verdict where it tells
none; ``features``: with the lexical features, or these alone where no LM is asked; ``default``: the classifier we ship,
with a slope, offset and threshold of its own."""
SHARE = 0.5
"""Share of the answers that a cascade escalates: those that the lexical judge is least sure of."""


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
    method: Method | Literal["cascade"]


def candidates(
    replies: Mapping[str, Replies],
    pool: Sequence[LabelledExample],
    seed: int,
    point: OperatingPoint,
) -> list[Candidate]:
    """Lexical features, fitted and as the shipped default recalibrated; and for each variant the LM calibrated, with
    lexical features, the shipped default recalibrated, and the cascade.

    Folds by source are the same for all of them. `InputError` where no variant can be fitted.
    """
    fold_of = pool_folds(pool, seed)
    judge, answers = Judge(NO_LM), without_lm(pool)
    lexical = fit_judge(judge, answers, "features", fold_of, point)
    made = [
        _candidate(LEXICAL, "lexical features, no LM", lexical, None, "features"),
        _candidate(
            "lexical, default", "the shipped default, recalibrated; no LM",
            fit_judge(judge, answers, "default", fold_of, point), None, "default",
        ),
    ]  # fmt: skip
    faults = []
    for asked in replies.values():
        try:
            made += _of_variant(asked, lexical, fold_of, point)
        except InputError as exc:
            faults.append(f"{asked.name}: {exc}")
    if len(faults) == len(replies):
        raise InputError(faults[0])
    return made


def _of_variant(
    asked: Replies,
    lexical: FittedJudge,
    fold_of: Mapping[str, int],
    point: OperatingPoint,
) -> list[Candidate]:
    name = asked.name
    alone = fit_judge(asked.judge, asked.answers, "lm", fold_of, point)
    whole = fit_judge(asked.judge, asked.answers, "features", fold_of, point)
    made = [
        _candidate(f"{name}, LM calibrated", "slope, offset and threshold of the LM's log-odds", alone, asked, "lm"),
        _candidate(name, "the LM with lexical features", whole, asked, "features"),
        _candidate(
            f"lexical, then {name}",
            f"lexical features first, then “{name}” for the half of the answers they are least sure of",
            cascade(lexical, whole), asked, "cascade",
        ),
    ]  # fmt: skip
    if _default_of(asked) is not None:
        default = fit_judge(asked.judge, asked.answers, "default", fold_of, point)
        made.append(
            _candidate(
                f"{name}, default",
                "the shipped default, recalibrated",
                default,
                asked,
                "default",
            )
        )
    return made


def _default_of(asked: Replies) -> Classifier | None:
    """The shipped classifier of these replies; None where there is none, or the prompts are others."""
    seed_prompts = (
        not asked.fields.get("seed_prompts") and asked.judge.config.ask_about == "all"
    )
    return (
        default_classifier(asked.judge.lm_name, asked.judge.config)
        if seed_prompts
        else None
    )


def _candidate(
    name: str,
    description: str,
    fitted: FittedJudge,
    asked: Replies | None,
    method: Method | Literal["cascade"],
) -> Candidate:
    fields: dict[str, Any] = {}
    if asked is not None:
        fields = {
            k: v
            for k, v in asked.fields.items()
            if k not in ("name", "kind", "description")
        }
        described = asked.fields["description"]
        description = (
            f"{described}; {description}"
            if method != "cascade"
            else f"{description}: {described}"
        )
    kind: Literal["baseline", "lm"] = "baseline" if asked is None else "lm"
    result = measure(
        name, kind, fitted.answers, fitted.judge, description=description, **fields
    )
    return Candidate(result, fitted.judge, asked, method)


def pool_folds(examples: Iterable[LabelledExample], seed: int) -> dict[str, int]:
    """The fold of each source of these answers (`assign_folds`)."""
    labelled = [e for e in examples if e.label is not None]
    return assign_folds(
        [bool(e.label) for e in labelled], [e.group_key for e in labelled], seed
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
    known = usable(answers)
    default = default_classifier(judge.lm_name, judge.config)
    if method == "default" and default is not None:
        fitted = recalibrate(default, known, operating_point)
    else:
        lm = ["lm"] if judge.asks_lm else []
        names = lm if method == "lm" else [*lm, *CLASSIFIER_FEATURES]
        fitted = fit_classifier(known, names, fold_of, operating_point, default)
    return FittedJudge(
        judge.copy(classifier=fitted.classifier), _cross_fitted(answers, fitted)
    )


def fit_on_labels(
    judge: _Judge,
    examples: Sequence[LabelledExample],
    method: Method,
    operating_point: str,
    num_threads: int | None = None,
) -> _Judge:
    """What `Judge.fit` does."""
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
    fold_of = pool_folds(labelled, 0)
    answers = verify(judge, labelled, num_threads=num_threads)
    fitted = fit_judge(
        judge, answers, method, fold_of, OperatingPoint.parse(operating_point)
    )
    return judge.copy(classifier=fitted.judge.classifier, manifest={})


def _cross_fitted(
    answers: Sequence[JudgedAnswer], fitted: FittedClassifier
) -> list[JudgedAnswer]:
    """Each answer judged by weights that did not see its source; unscored where the LM failed."""
    probability = dict(
        zip((a.id for a in usable(answers)), fitted.probabilities, strict=True)
    )
    threshold = fitted.classifier.threshold
    judged = []
    for a in answers:
        p = probability.get(a.id)
        update: dict[str, Any] = {}
        if p is not None:
            update = {
                "probability": p,
                "faithful": p >= threshold,
                "threshold": threshold,
            }
        elif a.raw.raw_verdicts:
            why = a.judgment.unscored or failure(a.raw.last) or Unscored.LM_FAILED
            update = {
                "probability": None,
                "faithful": None,
                "score": None,
                "unscored": why,
            }
        judged.append(
            a.model_copy(update={"judgment": a.judgment.model_copy(update=update)})
        )
    return judged


def cascade(lexical: FittedJudge, lm: FittedJudge) -> FittedJudge:
    """The lexical judge, which escalates to the other one the half of the answers that it is least sure of."""
    low, high = _escalation_range(lexical)
    first = {a.id: a for a in lexical.answers}

    def sure(a: JudgedAnswer) -> bool:
        return (
            a.judgment.unscored is None
            and a.probability is not None
            and not low <= a.probability < high
        )

    answers = [first[a.id] if sure(first[a.id]) else a for a in lm.answers]
    config = JudgeConfig.make(**lm.judge.config.scoring_options)
    assert lexical.judge.classifier is not None
    classifier = lexical.judge.classifier.model_copy(
        update={"review_range": (low, high)}
    )
    return FittedJudge(
        Judge(NO_LM, config=config, classifier=classifier, escalate_to=lm.judge),
        answers,
    )


def _escalation_range(lexical: FittedJudge) -> tuple[float, float]:
    """The lexical judge's probabilities between which the LM is asked.

    It is equally wide in log-odds on both sides of the threshold, and ends half way to the next answer outside.
    """
    assert lexical.judge.classifier is not None
    centre = to_logit(lexical.judge.classifier.threshold)
    known = [
        a.probability for a in usable(lexical.answers) if a.probability is not None
    ]
    distances = sorted(abs(to_logit(p) - centre) for p in known)
    k = int(SHARE * len(distances))
    reach = (distances[k - 1] + distances[k]) / 2 if k else 0.0
    return (
        to_probability(max(-LOGIT_LIMIT, centre - reach)),
        to_probability(min(LOGIT_LIMIT, centre + reach)),
    )


def as_asked(judge: Judge, answer: JudgedAnswer) -> JudgedAnswer:
    """What ``judge`` would have made of an answer that its LM was asked about in full. No LM call."""
    if judge.asks_lm or not answer.raw.raw_verdicts:
        return answer.by(judge)
    raw, example = unverified(answer.example.answer), answer.example
    if judge.escalate_to and judge.should_escalate(
        judge.score_answer(raw, example.context, example.question)
    ):
        raw = raw.model_copy(
            update={"escalated": answer.raw, "usage": answer.raw.usage}
        )
    return JudgedAnswer.of(
        example, raw, judge.score_answer(raw, example.context, example.question)
    )


def measure(
    name: str,
    kind: Literal["untuned", "lm", "baseline"],
    answers: Sequence[JudgedAnswer],
    judge: Judge | None = None,
    **fields: Any,
) -> JudgeResult:
    """What a judge reached on these answers; ``judge``: whose LM has a price; ``fields``: others of the result."""
    usage = sum((a.raw.usage for a in answers), Usage())
    dollars = price(judge.chain[-1], usage) if judge is not None else None
    return JudgeResult(
        name=name,
        kind=kind,
        levels=measure_agreement(
            [a.example for a in answers], [a.judgment for a in answers]
        ),
        usage=usage,
        judged=len(answers),
        lm_share=sum(a.raw.usage.calls > 0 for a in answers) / len(answers),
        price=None if dollars is None else dollars / len(answers),
        rows=tuple(a.row for a in answers),
        answers=tuple(answers),
        **fields,
    )
