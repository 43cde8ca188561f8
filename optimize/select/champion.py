"""The promotion rule, and the only place where the testset is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.artifact import save_judge
from faith_dspy.config import JudgeConfig
from faith_dspy.errors import InputError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint, operating_point_sentence
from faith_dspy.optimize.compile.stages import demo_ids
from faith_dspy.optimize.diagnostics.diagnosis import diagnose
from faith_dspy.optimize.reporting.markdown import card
from faith_dspy.optimize.results import Kind, PredictionRow, StudyResult, TestResult
from faith_dspy.optimize.select.cascade import Way, Ways, less_asked, made_of, points, seen_by, worth_exporting
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.optimize.select.evaluate import (
    JudgedExample,
    agreement,
    classifier_example,
    fit,
    fit_examples,
    judged_rows,
    scorable,
    usage_of,
    verify,
    without_lm,
)
from faith_dspy.optimize.select.optimism import holm, selection
from faith_dspy.optimize.select.pareto import MARGIN as NOT_WORSE
from faith_dspy.optimize.select.pareto import difference, in_words
from faith_dspy.optimize.select.spending import Cost
from faith_dspy.optimize.select.variants import UNTUNED
from faith_dspy.schema import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from faith_dspy.optimize.checks import CostPoint
    from faith_dspy.optimize.select.spending import Purse
    from faith_dspy.optimize.study import View
    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.classifier import Classifier

TIE = 0.01
"""Variants whose selection figure is this close are taken as equal; the one that costs fewer tokens is promoted."""
MARGIN = 1.15
"""Answers of train and test may cost so much more than those of dev did."""
MIN_TESTED = 6
"""Groups a test is cut to at most."""


class Contest(NamedTuple):
    """What promotion needs of a study."""

    judges: dict[str, Judge]
    dev: dict[str, list[JudgedExample]]
    train: Sequence[LabelledExample]
    test: Sequence[LabelledExample]
    seed: int
    purse: Purse
    operating_point: OperatingPoint = BALANCED
    """What the champion's threshold is for."""
    prefer: str = "agreement"
    """``agreement`` or ``cheapest``: what is promoted among those that are not shown to be worse."""


def to_test(result: StudyResult, name: str) -> Cost:
    """What it costs to judge one test answer by that variant and by the untuned judge, as dev did."""
    costs = [Cost.each((v := result.variant(n)).usage, v.judged) for n in {name, UNTUNED}]
    return costs[0].plus(costs[1]) if len(costs) > 1 else costs[0]


def best(result: StudyResult, prefer: str = "agreement", seed: int = 0) -> str:
    """Name of the variant to promote: the best on dev; among equals the cheapest.

    To ``prefer="cheapest"``: the cheapest that is not shown to be worse than that one.
    """
    candidates = [v for v in result.variants if v.kind != "baseline" and v.selection_score is not None]
    if not candidates:
        raise InputError("no variant could be measured on dev: the LM's answers there have one label only, or none.")
    top = max(v.selection_score for v in candidates if v.selection_score is not None)
    near = [v for v in candidates if v.selection_score is not None and v.selection_score >= top - TIE]
    found = min(near, key=lambda v: v.cost)
    if prefer == "cheapest":
        against = {v.name: difference(v.predictions, found.predictions, seed) for v in candidates}
        fair = [v for v in candidates if (low := against[v.name].low) is not None and low >= -NOT_WORSE]
        found = min([found, *fair], key=lambda v: v.cost)
    return found.name


def promote(contest: Contest, result: StudyResult, view: View) -> Judge:
    """Choose the champion on dev, fit its classifier on train and dev, then open the testset for it and the untuned judge.

    The baselines are fitted on the same labels and stand beside them; they need no LM. Returned is the judge to export:
    the champion as it is, or with words asked first where that is as good.
    """
    name = best(result, contest.prefer, contest.seed)
    result.champion = name
    judge = contest.judges[name]
    shown = demo_ids(judge, contest.train)
    unseen, tested = _affordable(contest, result, [e for e in contest.train if e.id not in shown])
    with view.task(f"{name}: judging train for its classifier", len(unseen)) as advance:
        seen = [*contest.dev[name], *verify(judge, unseen, advance, partial=True)]
    ways = _ways(contest, seen)
    form = _form(contest, result, ways)
    judge = made_of(judge, form, ways)
    fitted = ways.of(form).fitted
    usable = scorable(ways.of(form).seen)
    result.classifier = fitted.classifier.model_dump(mode="json") | {"learned_from": fitted.learned_from}

    with view.task(f"{name}: test", len(tested)) as advance:
        test = verify(judge, tested, advance, partial=True)
    untuned_judge = contest.judges[UNTUNED]
    untuned = test
    if name != UNTUNED or not form.reference:
        with view.task(f"{UNTUNED}: test", len(tested)) as advance:
            untuned = verify(untuned_judge, tested, advance, partial=True)
    if len(untuned) < len(test) or len(test) < len(tested):  # a limit was reached after all: what both have judged
        both = {o.example.id for o in test} & {o.example.id for o in untuned}
        test, untuned = ([o for o in side if o.example.id in both] for side in (test, untuned))
        result.split["used"] |= {"test": len(both)}
        result.notes += (f"A limit was reached in the test: it was cut to the {len(both)} answers judged by both.",)
    rows, ranking = judged_rows(test, judge)
    _add(result, "champion", "lm", rows, ranking, usage_of(test), contest.seed)
    features = fitted.classifier.statement.names if fitted.classifier.statement else ()
    with view.task(f"{name}: what its classifier goes by", len(features) + 2) as advance:
        rows = _on_test(rows, ranking)
        result.diagnosis = diagnose(
            fitted, usable, test, rows, cascade=judge.escalate_to is not None, seed=contest.seed, advance=advance
        )
    _add(result, "untuned", "untuned", *judged_rows(untuned, untuned_judge), usage_of(untuned), contest.seed)
    _floors(contest, result, test, seen, ways.words.fitted.classifier)
    champion = result.tested("champion")
    for other in result.test[1:]:
        result.comparisons[other.name] = compare(
            [r.label for r in champion.predictions],
            _side(champion.predictions),
            _side(other.predictions),
            [r.group for r in champion.predictions],
            names=("the champion", other.name),
        )
    if contest.operating_point != BALANCED:
        sides = (champion.agreement, result.tested("untuned").agreement)
        auroc = result.comparisons["untuned"].auroc
        result.notes += (operating_point_sentence(contest.operating_point, *sides, auroc),)
    result.comparisons = holm(result.comparisons)
    if contest.prefer == "agreement":
        result.optimism = selection(result.variants, name, tie=TIE, seed=contest.seed)
    return judge


def _ways(contest: Contest, seen: Sequence[JudgedExample]) -> Ways:
    """The ways of asking the champion, each with the classifier fitted on what it would have observed."""

    def way(seen: Sequence[JudgedExample], which: str, operating_point: OperatingPoint) -> Way:
        return Way(
            seen, fit_examples([classifier_example(o) for o in scorable(seen)], which, contest.seed, operating_point)
        )

    return Ways(
        way(seen, "both", contest.operating_point),
        way([less_asked(o) for o in seen], "both", contest.operating_point),
        way(without_lm(o.example for o in seen), "lexical", BALANCED),
    )


def _form(contest: Contest, result: StudyResult, ways: Ways) -> CostPoint:
    """Write the frontier into the result, and say which of its points is to be exported."""
    found = points(result.champion, contest.judges[result.champion].config, ways, result.variants, contest.seed)
    form = next(p for p in found if p.reference)
    if contest.operating_point == BALANCED:  # the threshold of words is for nothing else
        labels = [bool(o.example.label) for o in scorable(ways.all.seen)]
        form = worth_exporting(found, labels, prefer=contest.prefer)
    result.costs = tuple(p.model_copy(update={"exported": p is form}) for p in found)
    result.costs_in_words = tuple(in_words(result.costs))
    return form


def _affordable(
    contest: Contest, result: StudyResult, train: Sequence[LabelledExample]
) -> tuple[Sequence[LabelledExample], Sequence[LabelledExample]]:
    """As much of train and test as the limits still pay for: first the test, then train for the classifier."""
    price = to_test(result, result.champion)
    each = Cost.each((v := result.variant(result.champion)).usage, v.judged)
    n = min(len(contest.test), contest.purse.affords(price.times(MARGIN)))
    tested = contest.test[:n]
    too_few = len({e.group_key for e in tested}) < MIN_TESTED or len({e.label for e in tested}) < 2
    if too_few and n < len(contest.test):
        raise InputError(
            f"the limits leave {n} answers to test on, too few to say anything; one costs {price.calls:.0f} calls and "
            f"{price.tokens:.0f} tokens. Raise the limit."
        )
    rest = min(len(train), contest.purse.affords(each.times(MARGIN), keep=price.times(n * MARGIN)))
    if n < len(contest.test) or rest < len(train):
        result.notes += (
            f"The limits left {n} of {len(contest.test)} answers to test on and {rest} of {len(train)} of train for "
            "the classifier.",
        )
    result.split["used"] |= {"test": n}
    return train[:rest], tested


def _floors(
    contest: Contest,
    result: StudyResult,
    test: Sequence[JudgedExample],
    fitted_on: Sequence[JudgedExample],
    overlap: Classifier,
) -> None:
    plain = without_lm(o.example for o in test)
    known = scorable(without_lm(o.example for o in fitted_on))
    by_words, ranking = judged_rows(plain, Judge(NO_LM, config=JudgeConfig(), classifier=overlap))
    _add(result, "lexical-baseline", "baseline", by_words, ranking, Usage(), contest.seed)
    shortcut = fit(known, "length", contest.seed).classifier
    rows = []
    for row, o in zip(by_words, plain, strict=True):
        example = classifier_example(o)
        p = shortcut.answer.probability([None] * len(example.statements), example.features)
        passed = None if p is None else p >= shortcut.threshold
        rows.append(row.model_copy(update={"probability": p, "predicted": passed}))
    _add(result, "length-baseline", "baseline", rows, [r.probability for r in rows], Usage(), contest.seed)
    rows = majority_rows(plain, [o.example for o in fitted_on])
    _add(result, "majority-baseline", "baseline", rows, [r.probability for r in rows], Usage(), contest.seed)


def majority_rows(seen: Sequence[JudgedExample], known: Sequence[LabelledExample]) -> list[PredictionRow]:
    """Every answer judged as most of the known ones are labelled."""
    share = sum(bool(e.label) for e in known) / len(known)
    return [
        PredictionRow(
            id=o.example.id,
            group=o.example.group_key,
            part="dev",
            label=bool(o.example.label),
            predicted=share >= 0.5,
            probability=share,
        )
        for o in seen
    ]


def export(judge: Judge, contest: Contest, result: StudyResult, out: Path) -> None:
    """Write the champion to ``out`` with what was measured of it."""
    tested = result.tested("champion")
    judge.manifest = {
        "study_id": result.study_id,
        "variant": result.champion,
        "label_set_hash": result.label_set_hash,
        "labels_file": result.labels_file,
        "agreement": tested.agreement.model_dump(mode="json"),
        "untuned_agreement": result.tested("untuned").agreement.model_dump(mode="json"),
        "comparison": {k: c.model_dump(mode="json") for k, c in result.comparisons.items()},
        "operating_point": str(contest.operating_point),
        "split": result.split,
        "budget": result.budget,
        "seed": result.seed,
        "seconds": round(result.seconds, 1),
        "usage": tested.usage.model_dump(mode="json"),
        "lexical_baseline_agreement": result.tested("lexical-baseline").agreement.model_dump(mode="json"),
        "finished": result.finished,
    }
    known = [seen_by(judge, o) for o in scorable(contest.dev[result.champion])]
    handed_on, settled = ([o for o in known if bool(o.raw_judgment.escalated) is side] for side in (True, False))
    reference = [
        (o.example.question, list(o.example.context), o.example.answer, o.raw_judgment)
        for o in [*handed_on[:1], *settled, *handed_on[1:]][:3]
    ]
    save_judge(judge, out, card=card(result), reference=reference)
    result.judge_dir = str(out)


def _add(
    result: StudyResult,
    name: str,
    kind: Kind,
    rows: list[PredictionRow],
    ranking: Sequence[float | None],
    usage: Usage,
    seed: int,
) -> None:
    # AUROC of the untuned judge is measured on the LM's own probability: on its verdicts it would look worse.
    rows = _on_test(rows, ranking)
    result.test += (
        TestResult(name=name, kind=kind, agreement=agreement(rows, seed=seed), usage=usage, predictions=tuple(rows)),
    )


def _on_test(rows: Sequence[PredictionRow], ranking: Sequence[float | None]) -> list[PredictionRow]:
    return [r.model_copy(update={"part": "test", "probability": s}) for r, s in zip(rows, ranking, strict=True)]


def _side(rows: Sequence[PredictionRow]) -> Side:
    return Side([r.predicted for r in rows], [r.probability for r in rows])
