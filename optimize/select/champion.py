"""The champion: chosen on dev, fitted on train and dev, then tested once. Only here is the testset opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from faith_dspy.errors import InputError, counted
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm.metered import Meter
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.compile.judge import demo_ids
from faith_dspy.optimize.data.splits import Parts
from faith_dspy.optimize.plan import UNTUNED, Options, View
from faith_dspy.optimize.results import CHEAPER, Comparison, CurvePoint, Difference, JudgedAnswer, JudgeResult, Row
from faith_dspy.optimize.select.cascade import as_asked, build_cascade, cascaded
from faith_dspy.optimize.select.comparison import Metrics, compare, paired
from faith_dspy.optimize.select.evaluate import (
    DRAWS,
    SHARES,
    by_length,
    fit,
    held_out_folds,
    learning_curve,
    measure,
    usable,
    verify,
    without_lm,
)
from faith_dspy.optimize.select.trial import LEXICAL, Trial, score
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.statistics import Floats, metric_values

WITHIN = {"agreement": 1.0, "cheapest": 2.0}
"""Standard errors that the champion may be behind the best, by what the user prefers."""
MARGIN = 1.15
"""Answers of train and test may cost this many times what those of dev did."""
_AS_THEY_ARE = ("untuned", "default-judge")
"""Nothing of them is fitted to the labels."""
MIN_SOURCES = 6
"""A test that the limits cut short needs at least so many."""

_FIRST_IMPRESSION = (
    "A first impression, not a test: {n} labels are too few to hold some out. Each answer was judged by a classifier "
    "fitted on answers over other contexts, but the variant was chosen on all of them, which flatters it; nor are "
    "prompts compiled on so few. Eight answers of each label over more contexts make a small test, a hundred a fair "
    "one."
)


class Candidate(NamedTuple):
    """A judge that could be exported."""

    result: JudgeResult
    """On dev, cross-fitted."""
    trial: Trial
    """Whose judge is asked, and whose replies it is fitted on."""
    build: Callable[[Sequence[JudgedAnswer]], Judge]
    """The judge, fitted on replies of the trial's judge."""


class Promotion(NamedTuple):
    """The champion and all that promoting it found."""

    name: str
    judge: Judge
    """What is exported."""
    trial: Trial
    compared: list[JudgeResult]
    """All candidates on dev, each with how far it is behind the best."""
    test: list[JudgedAnswer]
    tested: tuple[JudgeResult, ...]
    """The champion, the untuned judge, the default judge, then the baselines."""
    comparisons: dict[str, Comparison]
    learning: tuple[CurvePoint, ...]
    notes: tuple[str, ...]
    """What the limits cut short."""


def candidates(trials: Mapping[str, Trial], options: Options) -> list[Candidate]:
    """All that is compared on dev: lexical, default and untuned judge, every variant not dropped, and the cascade of
    the best of them."""
    seed, point = options.seed, options.operating_point

    def fitted(trial: Trial) -> Candidate:
        return Candidate(trial.result, trial, lambda known: _fitted(trial.judge, known, seed, point))

    lexical, whole = trials[LEXICAL], trials[UNTUNED]
    done = [t for t in trials.values() if t.result.status == "done"]
    found = [fitted(t) for t in done]
    text = "the LM's verdict on the whole answer, nothing fitted"
    untuned = measure("untuned", "untuned", whole.dev, description=text)
    found.append(Candidate(untuned, whole, lambda known: whole.judge))
    # The default judge is that of the LM where a variant has its replies, else that without an LM.
    asked = next((t for t in done if default_of(t) is not None and t is not lexical), lexical)
    default = default_of(asked) or lexical.judge
    text = "as shipped, fitted to other sets and none of these labels"
    by_default = measure("default-judge", "baseline", [a.by(default) for a in asked.dev], description=text)
    found.append(Candidate(by_default, asked, lambda known: default))
    best = max((t for t in done if t is not lexical), key=lambda t: t.result.score or 0.0)
    if lexical.fitted is not None:

        def build(known: Sequence[JudgedAnswer]) -> Judge:
            lm = _fitted(best.judge, known, seed, point)
            return build_cascade(lm, fit(lexical.judge, without_lm(a.example for a in known), seed, point))

        text = f"lexical features first, then “{best.result.name}” for the half of the answers they are least sure of"
        answers = cascaded(best.result.answers, lexical.dev, lexical.fitted)
        made_of = {"params": best.result.params, "prompts": best.result.prompts}
        result = measure(f"lexical, then {best.result.name}", "lm", answers, description=text, **made_of)
        found.append(Candidate(result, best, build))
    return [c._replace(result=c.result.model_copy(update={"score": score(c.result)})) for c in found]


def _fitted(judge: Judge, known: Sequence[JudgedAnswer], seed: int, point: OperatingPoint) -> Judge:
    return judge.copy(classifier=fit(judge, known, seed, point).classifier)


def default_of(trial: Trial) -> Judge | None:
    """The default judge that has the trial's replies; None where there is none, or its prompts were compiled."""
    default = trial.judge.copy(classifier="default")
    seed_prompts = trial.result.params.get("optimizer", "none") == "none" and default.config.ask_about == "all"
    return default if seed_prompts and default.classifier is not None else None


def choose(found: Sequence[Candidate], prefer: str) -> tuple[Candidate, list[JudgeResult]]:
    """The cheapest candidate within one standard error of the best (Breiman et al. 1984, *CART*, §3.4.3), or within two
    (``prefer="cheapest"``); and all of them, each with how far it is behind the best.

    Of those that cost the same, a fitted one goes before one that is not, then the better one. None is chosen
    where a cheaper one is better: to be within one error may mean no more than that the error is wide.
    """
    scored = [c for c in found if c.result.score is not None]
    if not scored:
        raise InputError("no variant could be measured on dev: the LM's answers there have one label only, or none.")
    best = max(scored, key=lambda c: c.result.score or 0.0)
    compared = []
    for c in found:
        behind = None if c is best or c.result.score is None else difference(c.result.rows, best.result.rows)
        compared.append(c._replace(result=c.result.model_copy(update={"behind": behind})))
    fair = [c for c in compared if c.result.score is not None and _within(c.result.behind, WITHIN[prefer])]
    fair = [c for c in fair if not any(_ahead(other.result, c.result) for other in scored)]
    champion = min(fair, key=lambda c: (c.result.cost, c.result.name in _AS_THEY_ARE, -(c.result.score or 0.0)))
    return champion, [c.result for c in compared]


def _ahead(one: JudgeResult, other: JudgeResult) -> bool:
    """Whether one costs less than the other and is better."""
    return one.cost < other.cost and (one.score or 0.0) > (other.score or 0.0)


def _within(behind: Difference | None, errors: float) -> bool:
    return behind is None or (
        behind.value is not None and -behind.value <= errors * (behind.standard_error or 0.0) + 1e-12
    )


def difference(rows: Sequence[Row], others: Sequence[Row]) -> Difference:
    """AUROC times coverage of the first minus that of the second, on the answers both have, by source."""
    both = {r.id for r in rows} & {r.id for r in others}
    one, other = (sorted((r for r in side if r.id in both), key=lambda r: r.id) for side in (rows, others))
    if not both:
        return Difference(why="no answer was judged by both")
    return paired(_score_of(one), _score_of(other), [r.source for r in one])[0]


def _score_of(rows: Sequence[Row]) -> Metrics:
    at = [i for i, r in enumerate(rows) if r.predicted is not None]
    labels = np.array([rows[i].label for i in at], dtype=bool)
    ranks = np.array([np.nan if rows[i].probability is None else rows[i].probability for i in at], dtype=np.float64)

    def metric(w: Floats) -> Sequence[Floats]:
        auroc = metric_values(w[:, at], labels, np.ones(len(at), dtype=bool), ranks)["auroc"]
        return [auroc * w[:, at].sum(axis=1) / w.sum(axis=1)]

    return metric


def promote(trials: Mapping[str, Trial], parts: Parts, options: Options, meter: Meter, view: View) -> Promotion:
    """Choose the champion on dev, fit it on train and dev, then test it, the untuned judge and the baselines.

    Without a test part all of them are cross-fitted on dev instead, and the notes say what that is worth.

    Raises `InputError` when no variant could be measured, or when the limits leave too little to test on.
    """
    seed, untuned = options.seed, trials[UNTUNED]
    champion, compared = choose(candidates(trials, options), options.prefer)
    name, trial = champion.result.name, champion.trial
    fits = name not in _AS_THEY_ARE
    train, tested, notes = _affordable(champion, untuned, parts, meter)
    known: Sequence[JudgedAnswer] = trial.dev
    if train:
        with view.task(f"{name}: judging train for its classifier", len(train)) as advance:
            known = [*known, *verify(trial.judge, train, advance, partial=True)]
    judge = champion.build(known)
    if parts.cross_fitted:
        folds = []
        for rest, held in held_out_folds(trial.dev, seed):
            fold = champion.build(rest)
            folds.append(_Fold(fold, rest, [as_asked(fold, a) for a in held]))
        by_id = {a.id: a for a in untuned.dev}
        by_untuned = [by_id[a.id] for fold in folds for a in fold.held]
        notes += (_FIRST_IMPRESSION.format(n=len(by_untuned)),)
    else:
        test, by_untuned, cut = _open_test(champion, judge, untuned.judge, tested, view)
        folds, notes = [_Fold(judge, known, test)], notes + cut
    found = _test(folds, by_untuned, default_of(trial) if judge.asks_lm and not parts.cross_fitted else None, seed)
    learning: tuple[CurvePoint, ...] = ()
    if fits and not parts.cross_fitted:
        with view.task("learning curve", DRAWS * len(SHARES)) as advance:
            learning = learning_curve(usable(known), champion.build, found[0], seed, advance)
    return Promotion(
        name=name,
        judge=judge,
        trial=trial,
        compared=compared,
        test=list(found[0].answers),
        tested=found,
        comparisons={
            t.name: compare(
                found[0].rows, t.rows, ("the champion", CHEAPER.get(t.name, t.name)), tested=not parts.cross_fitted
            )
            for t in found[1:]
            if t.name != name or name == "untuned"  # a baseline that won is not compared with itself
        },
        learning=learning,
        notes=notes,
    )


class _Fold(NamedTuple):
    """A judge, what it was fitted on, and what it is tested on."""

    judge: Judge
    known: Sequence[JudgedAnswer]
    held: Sequence[JudgedAnswer]


def _affordable(
    champion: Candidate, untuned: Trial, parts: Parts, meter: Meter
) -> tuple[list[LabelledExample], list[LabelledExample], tuple[str, ...]]:
    """As much of train and test as the limits still pay for: first the test, then train for the classifier.

    Answers of train whose labels stand in the prompt are left out, and all where nothing is fitted.
    """
    name, judge = champion.result.name, champion.trial.judge
    shown = demo_ids(judge, parts.train) if judge.asks_lm else set()
    train = [e for e in parts.train if name not in _AS_THEY_ARE and e.id not in shown]
    each, asked = _price(champion.trial.result), _price(champion.result)
    both = {k: asked[k] + v for k, v in _price(untuned.result).items()} if name != "untuned" else asked
    left = {k: v - meter.spent[k] for k, v in vars(meter.limits).items() if v is not None and k in both}
    n = min([len(parts.test), *(int(left[k] / both[k]) for k in left if both[k])])
    tested = parts.test[:n]
    if n < len(parts.test) and (len({e.group_key for e in tested}) < MIN_SOURCES or len({e.label for e in tested}) < 2):
        raise InputError(
            f"the limits leave {counted(n, 'answer')} to test on, too few to say anything; one costs "
            f"{both['calls']:.0f} calls and {both['tokens']:.0f} tokens. Raise the limit."
        )
    rest = min([len(train), *(int((left[k] - n * both[k]) / each[k]) for k in left if each[k])])
    if n == len(parts.test) and rest == len(train):
        return train, tested, ()
    note = (
        f"The limits left {n} of {counted(len(parts.test), 'answer')} to test on and {rest} of {len(train)} of "
        "train for the classifier."
    )
    return train[:rest], tested, (note,)


def _price(result: JudgeResult) -> dict[str, float]:
    """What an answer may cost, named as in `Limits`."""
    u = result.usage
    spent = {"calls": u.calls, "tokens": u.computed_tokens + u.output_tokens, "dollars": u.dollars or 0.0}
    return {k: MARGIN * v / max(1, result.judged) for k, v in spent.items()}


def _open_test(
    champion: Candidate, judge: Judge, untuned: Judge, tested: Sequence[LabelledExample], view: View
) -> tuple[list[JudgedAnswer], list[JudgedAnswer], tuple[str, ...]]:
    """The test answers by the champion and by the untuned judge, and a note where a limit cut them short."""
    with view.task(f"{champion.result.name}: test", len(tested)) as advance:
        test = verify(judge, tested, advance, partial=True)
    if champion.trial.judge is untuned and judge.asks_lm:
        by_untuned = [a.by(untuned) for a in test]
    else:
        with view.task(f"{UNTUNED}: test", len(tested)) as advance:
            by_untuned = verify(untuned, tested, advance, partial=True)
    notes: tuple[str, ...] = ()
    if len(by_untuned) < len(tested) or len(test) < len(tested):  # a limit was reached after all
        both = {a.id for a in test} & {a.id for a in by_untuned}
        test, by_untuned = ([a for a in side if a.id in both] for side in (test, by_untuned))
        notes = (f"A limit was reached in the test: it was cut to {counted(len(both), 'answer')} judged by both.",)
    if not test:
        raise InputError("The limits left nothing to test the champion with: raise them.")
    return test, by_untuned, notes


def _test(
    folds: Sequence[_Fold], by_untuned: Sequence[JudgedAnswer], default: Judge | None, seed: int
) -> tuple[JudgeResult, ...]:
    """Champion, untuned and default judge, and the baselines, fitted on the labels that the champion was fitted on.

    ``default``: the default judge that has the champion's replies; None: the one without an LM.
    """
    test = [a for fold in folds for a in fold.held]
    by_default = [a.by(default) for a in test] if default else without_lm(a.example for a in test)
    lexical, length = [], []
    for fold in folds:
        known, held = (without_lm(a.example for a in side) for side in (fold.known, fold.held))
        fitted = _fitted(Judge(NO_LM), known, seed, BALANCED)
        lexical += [a.by(fitted) for a in held]
        length += by_length(known, held)
    order = {a.id: i for i, a in enumerate(test)}

    def of(name: str, kind: str, answers: Sequence[JudgedAnswer]) -> JudgeResult:
        return measure(name, kind, sorted(answers, key=lambda a: order[a.id]))  # type: ignore[arg-type]

    return (
        of("champion", "lm", test),
        of("untuned", "untuned", by_untuned),
        of("default-judge", "baseline", by_default),
        of(LEXICAL, "baseline", lexical),
        of("length-baseline", "baseline", length),
    )
