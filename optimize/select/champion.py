"""The champion: chosen on dev, fitted on train and dev, then tested once. Only here is the testset opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import InputError, counted
from faith_dspy.optimize.classifier.operating_point import BALANCED
from faith_dspy.optimize.compile.stages import demo_ids
from faith_dspy.optimize.results import Kind, PredictionRow, TestsetResult
from faith_dspy.optimize.select.comparison import compare_rows
from faith_dspy.optimize.select.cost import choose_mode, cost_table, difference, not_worse
from faith_dspy.optimize.select.evaluate import (
    JudgedExample,
    agreement,
    baseline_rows,
    default_judge,
    held_out_folds,
    judge_agreement,
    judged_rows,
    lexical_judge,
    priors_of,
    scorable,
    usage_of,
    verify,
    without_lm,
)
from faith_dspy.optimize.select.learning import LearningCurve, learning_curve, steps
from faith_dspy.optimize.select.modes import as_judged_by, build_judge, fit_modes
from faith_dspy.optimize.select.spending import Cost, affords
from faith_dspy.optimize.select.variants import UNTUNED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.lm.metered import Meter
    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.optimize.data.splits import Parts
    from faith_dspy.optimize.options import Options, View
    from faith_dspy.optimize.results import Comparison, CostPoint, VariantResult
    from faith_dspy.optimize.select.trial import Trial
    from faith_dspy.schema import LabelledExample

TIE = 0.01
"""Variants whose selection scores are this close count as equal; the one that costs fewer tokens is promoted."""
MARGIN = 1.15
"""Answers of train and test may cost this many times what those of dev did."""
_KINDS: dict[str, Kind] = {"champion": "lm", "untuned": "untuned"}
MIN_GROUPS = 6
"""A test that the limits cut short needs at least so many groups."""

_FIRST_IMPRESSION = (
    "A first impression, not a test: {n} labels are too few to hold some out. Each answer was judged by a classifier "
    "fitted on answers over other contexts, but the variant was chosen on all of them, which flatters it; nor are "
    "prompts compiled on so few. Eight answers of each label over more contexts make a small test, a hundred a fair "
    "one."
)


class Promotion(NamedTuple):
    """The champion and all that promoting it found."""

    name: str
    """Of the variant."""
    judge: Judge
    """What is exported: the champion, or a cheaper mode of it that is as good."""
    fitted: FittedClassifier
    fitted_on: list[JudgedExample]
    test: list[JudgedExample]
    tested: tuple[TestsetResult, ...]
    """The champion, the untuned judge, the default judge, then the baselines."""
    comparisons: dict[str, Comparison]
    costs: tuple[CostPoint, ...]
    learning: LearningCurve
    notes: tuple[str, ...]
    """What the limits cut short."""


def choose(results: Sequence[VariantResult], prefer: str = "agreement", seed: int = 0) -> VariantResult:
    """The variant to promote: the best on dev; among equals the cheapest.

    With ``prefer="cheapest"``: the cheapest that is not shown to be worse than that one.
    """
    tried = [v for v in results if v.kind != "baseline" and v.status == "done"]
    scored = [(v.selection_score, v) for v in tried if v.selection_score is not None]
    if not scored:
        raise InputError("no variant could be measured on dev: the LM's answers there have one label only, or none.")
    top = max(score for score, _ in scored)
    best = min((v for score, v in scored if score >= top - TIE), key=lambda v: v.cost)
    if prefer != "cheapest":
        return best
    fair = [v for _, v in scored if not_worse(difference(v.predictions, best.predictions, seed))]
    return min([best, *fair], key=lambda v: v.cost)


def test_price(trials: Mapping[str, Trial], name: str) -> Cost:
    """What it costs to judge one test answer by that variant and by the untuned judge, as dev did."""
    results = [trials[n].result for n in {name, UNTUNED}]
    return Cost.sum(Cost.per_answer(r.usage, r.judged) for r in results)


def promote(
    trials: Mapping[str, Trial],
    baselines: Sequence[VariantResult],
    parts: Parts,
    options: Options,
    meter: Meter,
    view: View,
) -> Promotion:
    """Choose the champion on dev, fit it on train and dev, then test it, the untuned judge and the baselines.

    Without a test part all of them are cross-fitted on dev instead, and the notes say what that is worth.

    Raises `InputError` when no variant could be measured, or when the limits leave too little to test on.
    """
    seed = options.seed
    results = [*baselines, *(t.result for t in trials.values())]
    champion, untuned = trials[choose(results, options.prefer, seed).name], trials[UNTUNED]
    name = champion.result.name
    train, tested, notes = _affordable(trials, champion, parts, meter)

    with view.task(f"{name}: judging train for its classifier", len(train)) as advance:
        known = [*champion.dev, *verify(champion.judge, train, advance, partial=True)]
    modes = fit_modes(known, seed, options.operating_point, priors_of(champion.judge))
    costs = cost_table(name, champion.judge.config, modes, results, seed)
    mode = next(p for p in costs if p.reference)
    if options.operating_point == BALANCED:  # the lexical judge's threshold has no other operating point
        mode = choose_mode(costs, [bool(e.example.label) for e in scorable(known)], options.prefer)
    judge = build_judge(champion.judge, mode, modes)

    if parts.cross_fitted:
        folds, by_untuned = _cross_fitted(champion, untuned, mode, options)
        notes += (_FIRST_IMPRESSION.format(n=len(by_untuned)),)
    else:
        test, by_untuned, cut = _open_test(name, judge, untuned.judge, tested, mode, view)
        folds, notes = [_Fold(judge, known, test)], notes + cut
    test = [e for fold in folds for e in fold.held]
    own = parts.cross_fitted or champion.result.params["optimizer"] != "none"  # replies that owe much to these labels
    default = default_judge(*((untuned.judge, by_untuned) if own else (judge, test)))
    found = (
        _test_judge("champion", [(f.judge, f.held) for f in folds], seed),
        _test_judge("untuned", [(untuned.judge, by_untuned)], seed),
        _test_judge("default-judge", [default], seed),
        *_test_baselines(folds, seed),
    )
    learning = LearningCurve((), "Without a test part there is no learning curve.")
    if not parts.cross_fitted:
        with view.task("learning curve", steps(len(scorable(modes.of(mode).judged)))) as advance:
            point = options.operating_point
            start = found[2] if mode.lm_share == 0 or "both" in modes.priors else found[1]
            learning = learning_curve(modes, mode, test, found[0], start, point, seed, advance)
    return Promotion(
        name=name,
        judge=judge,
        fitted=modes.of(mode).fitted,
        fitted_on=scorable(modes.of(mode).judged),
        test=test,
        tested=found,
        comparisons={
            t.name: compare_rows(
                found[0].predictions, t.predictions, ("the champion", t.name), tested=not parts.cross_fitted
            )
            for t in found[1:]
        },
        costs=tuple(p.model_copy(update={"exported": p is mode}) for p in costs),
        learning=learning,
        notes=notes,
    )


def _affordable(
    trials: Mapping[str, Trial], champion: Trial, parts: Parts, meter: Meter
) -> tuple[list[LabelledExample], list[LabelledExample], tuple[str, ...]]:
    """As much of train and test as the limits still pay for: first the test, then train for the classifier.

    Answers of train whose labels stand in the prompt are left out.
    """
    shown = demo_ids(champion.judge, parts.train)
    train = [e for e in parts.train if e.id not in shown]
    price = test_price(trials, champion.result.name)
    each = Cost.per_answer(champion.result.usage, champion.result.judged)
    n = min(len(parts.test), affords(meter, price.times(MARGIN)))
    tested = parts.test[:n]
    too_few = len({e.group_key for e in tested}) < MIN_GROUPS or len({e.label for e in tested}) < 2
    if too_few and n < len(parts.test):
        raise InputError(
            f"the limits leave {counted(n, 'answer')} to test on, too few to say anything; one costs "
            f"{price.calls:.0f} calls and {price.tokens:.0f} tokens. Raise the limit."
        )
    rest = min(len(train), affords(meter, each.times(MARGIN), reserve=price.times(n * MARGIN)))
    notes: tuple[str, ...] = ()
    if n < len(parts.test) or rest < len(train):
        notes = (
            f"The limits left {n} of {counted(len(parts.test), 'answer')} to test on and {rest} of {len(train)} of "
            "train for the classifier.",
        )
    return train[:rest], tested, notes


class _Fold(NamedTuple):
    """A judge, what it was fitted on, and what it is tested on."""

    judge: Judge
    known: Sequence[JudgedExample]
    held: Sequence[JudgedExample]


def _open_test(
    name: str, judge: Judge, untuned: Judge, tested: Sequence[LabelledExample], mode: CostPoint, view: View
) -> tuple[list[JudgedExample], list[JudgedExample], tuple[str, ...]]:
    """The test answers as the champion and as the untuned judge see them, and a note where a limit cut them short."""
    with view.task(f"{name}: test", len(tested)) as advance:
        test = verify(judge, tested, advance, partial=True)
    by_untuned, notes = test, tuple[str, ...]()
    if name != UNTUNED or mode.cheaper_mode:
        with view.task(f"{UNTUNED}: test", len(tested)) as advance:
            by_untuned = verify(untuned, tested, advance, partial=True)
    if len(by_untuned) < len(test) or len(test) < len(tested):  # a limit was reached after all
        both = {e.example.id for e in test} & {e.example.id for e in by_untuned}
        test, by_untuned = ([e for e in side if e.example.id in both] for side in (test, by_untuned))
        notes = (f"A limit was reached in the test: it was cut to {counted(len(both), 'answer')} judged by both.",)
    if not test:
        raise InputError("The limits left nothing to test the champion with. Raise them; every reply so far is kept.")
    return test, by_untuned, notes


def _cross_fitted(
    champion: Trial, untuned: Trial, mode: CostPoint, options: Options
) -> tuple[list[_Fold], list[JudgedExample]]:
    """Dev in folds, each judged by the champion fitted on the others; and as the untuned judge sees it, in that order.

    No LM call: all replies are those of dev.
    """
    folds = []
    for known, held in held_out_folds(champion.dev, options.seed):
        modes = fit_modes(known, options.seed, options.operating_point, priors_of(champion.judge))
        judge = build_judge(champion.judge, mode, modes)
        folds.append(_Fold(judge, known, [as_judged_by(judge, e) for e in held]))
    by_id = {e.example.id: e for e in untuned.dev}
    return folds, [by_id[e.example.id] for fold in folds for e in fold.held]


def _test_judge(name: str, folds: Sequence[tuple[Judge, Sequence[JudgedExample]]], seed: int) -> TestsetResult:
    found = judge_agreement(folds, seed)
    assert found.answers is not None  # every answer of a testset is labelled
    return TestsetResult(
        name=name,
        kind=_KINDS.get(name, "baseline"),
        agreement=found.answers,
        statements=found.statements,
        evidence=found.evidence,
        usage=usage_of(e for _, judged in folds for e in judged),
        predictions=_of_test(row for judge, judged in folds for row in judged_rows(judged, judge)),
    )


def _test_baselines(folds: Sequence[_Fold], seed: int) -> list[TestsetResult]:
    """The baselines, fitted on the labels that the champion's classifier was fitted on."""
    judges, found = [], []
    for fold in folds:
        known, held = ([e.example for e in side] for side in (fold.known, fold.held))
        judges.append((lexical_judge(known, seed), without_lm(held)))
        found.append(baseline_rows(held, known, judges[-1][0], seed))
    rows = {name: [row for one in found for row in one[name]] for name in ("length-baseline", "majority-baseline")}
    return [
        _test_judge("lexical-baseline", judges, seed),
        *(
            TestsetResult(name=name, kind="baseline", agreement=agreement(r, seed), predictions=_of_test(r))
            for name, r in rows.items()
        ),
    ]


def _of_test(rows: Iterable[PredictionRow]) -> tuple[PredictionRow, ...]:
    return tuple(r.model_copy(update={"part": "test"}) for r in rows)
