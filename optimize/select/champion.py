"""The champion: chosen on dev, fitted on train and dev, then tested once. Only here is the testset opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import InputError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.operating_point import BALANCED
from faith_dspy.optimize.compile.stages import demo_ids
from faith_dspy.optimize.results import PredictionRow, TestResult
from faith_dspy.optimize.select.comparison import Side, compare, holm
from faith_dspy.optimize.select.cost import choose_mode, cost_table, difference, loses_at_most_margin
from faith_dspy.optimize.select.evaluate import (
    JudgedExample,
    agreement,
    classifier_example,
    fit,
    judged_rows,
    scorable,
    test_result,
    verify,
    without_lm,
)
from faith_dspy.optimize.select.modes import Modes, build_judge, fit_modes
from faith_dspy.optimize.select.spending import Allowance, Cost
from faith_dspy.optimize.select.trial import majority_rows
from faith_dspy.optimize.select.variants import UNTUNED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.checks import Comparison, CostPoint
    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.optimize.data.parts import Parts
    from faith_dspy.optimize.options import Options, View
    from faith_dspy.optimize.results import VariantResult
    from faith_dspy.optimize.select.trial import Trial
    from faith_dspy.schema import LabelledExample

TIE = 0.01
"""Variants whose selection scores are this close count as equal; the one that costs fewer tokens is promoted."""
MARGIN = 1.15
"""Answers of train and test may cost this many times what those of dev did."""
MIN_GROUPS = 6
"""A test that the limits cut short needs at least so many groups."""


class Promotion(NamedTuple):
    """The champion and all that promoting it found."""

    name: str
    """Of the variant."""
    judge: Judge
    """What is exported: the champion, or a cheaper mode of it that is as good."""
    fitted: FittedClassifier
    fitted_on: list[JudgedExample]
    test: list[JudgedExample]
    tested: tuple[TestResult, ...]
    """The champion, the untuned judge, then the baselines."""
    comparisons: dict[str, Comparison]
    costs: tuple[CostPoint, ...]
    notes: tuple[str, ...]
    """What the limits cut short."""


def choose(results: Sequence[VariantResult], prefer: str = "agreement", seed: int = 0) -> VariantResult:
    """The variant to promote: the best on dev; among equals the cheapest.

    With ``prefer="cheapest"``: the cheapest that is not shown to be worse than that one.
    """
    scored = [(v.selection_score, v) for v in results if v.kind != "baseline" and v.selection_score is not None]
    if not scored:
        raise InputError("no variant could be measured on dev: the LM's answers there have one label only, or none.")
    top = max(score for score, _ in scored)
    best = min((v for score, v in scored if score >= top - TIE), key=lambda v: v.cost)
    if prefer != "cheapest":
        return best
    fair = [v for _, v in scored if loses_at_most_margin(difference(v.predictions, best.predictions, seed))]
    return min([best, *fair], key=lambda v: v.cost)


def test_price(results: Mapping[str, VariantResult], name: str) -> Cost:
    """What it costs to judge one test answer by that variant and by the untuned judge, as dev did."""
    costs = [Cost.per_answer(results[n].usage, results[n].judged) for n in sorted({name, UNTUNED})]
    return costs[0].plus(costs[1]) if len(costs) > 1 else costs[0]


def promote(
    trials: Mapping[str, Trial],
    baselines: Sequence[VariantResult],
    parts: Parts,
    options: Options,
    allowance: Allowance,
    view: View,
) -> Promotion:
    """Choose the champion on dev, fit it on train and dev, then test it, the untuned judge and the baselines.

    Raises `InputError` when no variant could be measured, or when the limits leave too little to test on.
    """
    seed = options.seed
    results = [*baselines, *(t.result for t in trials.values())]
    champion, untuned = trials[choose(results, options.prefer, seed).name], trials[UNTUNED]
    name = champion.result.name
    train, tested, notes = _affordable({k: t.result for k, t in trials.items()}, champion, parts, allowance)

    with view.task(f"{name}: judging train for its classifier", len(train)) as advance:
        known = [*champion.dev, *verify(champion.judge, train, advance, partial=True)]
    modes = fit_modes(known, seed, options.operating_point)
    costs = cost_table(name, champion.judge.config, modes, results, seed)
    mode = next(p for p in costs if p.reference)
    if options.operating_point == BALANCED:  # the lexical judge's threshold has no other operating point
        mode = choose_mode(costs, [bool(e.example.label) for e in scorable(known)], options.prefer)
    judge = build_judge(champion.judge, mode, modes)

    with view.task(f"{name}: test", len(tested)) as advance:
        test = verify(judge, tested, advance, partial=True)
    by_untuned = test
    if name != UNTUNED or mode.cheaper_mode:
        with view.task(f"{UNTUNED}: test", len(tested)) as advance:
            by_untuned = verify(untuned.judge, tested, advance, partial=True)
    if len(by_untuned) < len(test) or len(test) < len(tested):  # a limit was reached after all
        both = {e.example.id for e in test} & {e.example.id for e in by_untuned}
        test, by_untuned = ([e for e in side if e.example.id in both] for side in (test, by_untuned))
        notes += (f"A limit was reached in the test: it was cut to the {len(both)} answers judged by both.",)
    found = (
        test_result("champion", "lm", test, judge, seed),
        test_result("untuned", "untuned", by_untuned, untuned.judge, seed),
        *_test_baselines(test, known, modes, seed),
    )
    return Promotion(
        name=name,
        judge=judge,
        fitted=modes.of(mode).fitted,
        fitted_on=scorable(modes.of(mode).judged),
        test=test,
        tested=found,
        comparisons=holm({t.name: _compare(found[0], t) for t in found[1:]}),
        costs=tuple(p.model_copy(update={"exported": p is mode}) for p in costs),
        notes=notes,
    )


def _affordable(
    results: Mapping[str, VariantResult], champion: Trial, parts: Parts, allowance: Allowance
) -> tuple[list[LabelledExample], list[LabelledExample], tuple[str, ...]]:
    """As much of train and test as the limits still pay for: first the test, then train for the classifier.

    Answers of train whose labels stand in the prompt are left out.
    """
    shown = demo_ids(champion.judge, parts.train)
    train = [e for e in parts.train if e.id not in shown]
    price = test_price(results, champion.result.name)
    each = Cost.per_answer(champion.result.usage, champion.result.judged)
    n = min(len(parts.test), allowance.affords(price.times(MARGIN)))
    tested = parts.test[:n]
    too_few = len({e.group_key for e in tested}) < MIN_GROUPS or len({e.label for e in tested}) < 2
    if too_few and n < len(parts.test):
        raise InputError(
            f"the limits leave {n} answers to test on, too few to say anything; one costs {price.calls:.0f} calls and "
            f"{price.tokens:.0f} tokens. Raise the limit."
        )
    rest = min(len(train), allowance.affords(each.times(MARGIN), reserve=price.times(n * MARGIN)))
    notes: tuple[str, ...] = ()
    if n < len(parts.test) or rest < len(train):
        notes = (
            f"The limits left {n} of {len(parts.test)} answers to test on and {rest} of {len(train)} of train for the "
            "classifier.",
        )
    return train[:rest], tested, notes


def _test_baselines(
    test: Sequence[JudgedExample], known: Sequence[JudgedExample], modes: Modes, seed: int
) -> list[TestResult]:
    """The baselines, fitted on the labels that the champion's classifier was fitted on."""
    plain = without_lm(e.example for e in test)
    lexical_judge = Judge(NO_LM, config=JudgeConfig(), classifier=modes.lexical.fitted.classifier)
    lexical = judged_rows(plain, lexical_judge, "test")
    length = fit(scorable(without_lm(e.example for e in known)), "length", seed).classifier
    by_length = []
    for row, judged in zip(lexical, plain, strict=True):
        example = classifier_example(judged)
        p = length.answer.probability([None] * len(example.statements), example.features)
        passed = None if p is None else p >= length.threshold
        by_length.append(row.model_copy(update={"probability": p, "predicted": passed}))
    majority = [r.model_copy(update={"part": "test"}) for r in majority_rows(plain, [e.example for e in known])]

    def result(name: str, rows: Sequence[PredictionRow]) -> TestResult:
        return TestResult(name=name, kind="baseline", agreement=agreement(rows, seed), predictions=tuple(rows))

    return [
        result("lexical-baseline", lexical),
        result("length-baseline", by_length),
        result("majority-baseline", majority),
    ]


def _compare(champion: TestResult, other: TestResult) -> Comparison:
    rows = champion.predictions
    return compare(
        [r.label for r in rows],
        Side.of(rows),
        Side.of(other.predictions),
        [r.group for r in rows],
        names=("the champion", other.name),
    )
