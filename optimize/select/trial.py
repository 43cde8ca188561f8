"""One variant: its program compiled, answers of dev judged by it, a classifier cross-fitted on the replies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import InputError, counted
from faith_dspy.judge import Judge
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import metered
from faith_dspy.optimize.compile.optimizers import PROPOSING
from faith_dspy.optimize.compile.stages import compiled_judge, prompts_of
from faith_dspy.optimize.results import VariantResult
from faith_dspy.optimize.select.evaluate import (
    BASELINES,
    JudgedExample,
    agreement,
    baseline_rows,
    cross_fitted_rows,
    fit,
    held_out_folds,
    judge_agreement,
    lexical_judge,
    priors_of,
    scorable,
    usage_of,
    verify,
    without_lm,
)
from faith_dspy.optimize.select.variants import UNTUNED, Budget, Variant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.optimize.data.splits import Parts
    from faith_dspy.optimize.options import Options, View
    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.classifier import Classifier


class Trial(NamedTuple):
    """A variant that is tried, and what was measured of it so far."""

    result: VariantResult
    judge: Judge
    """Compiled, without a classifier."""
    dev: list[JudgedExample]


def begin(variant: Variant, parts: Parts, budget: Budget, options: Options, lm_name: str, view: View) -> Trial:
    """Compile the variant. ``lm_name``: the study's LM, for the record.

    Raises `ConfigError` when it cannot be compiled on these labels, `LimitReachedError` when a limit is reached.
    """
    judge = judge_of(variant, options)
    compiled: dict[str, Any] = {}
    if variant.optimizer:
        judge, compiled = _compile(judge, variant, variant.optimizer, parts, budget, options, view)
    described = _described(variant, judge.config.instruction, options, lm_name)
    return Trial(VariantResult(**described, **compiled, prompts=prompts_of(judge)), judge, [])


def judge_dev(trial: Trial, dev: Sequence[LabelledExample], seed: int, view: View) -> Trial:
    """The same variant measured on ``dev``, which holds the answers that it has judged; the others are judged.

    Raises `LimitReachedError` when a limit is reached, and `InputError` when no classifier can be fitted on its
    replies.
    """
    judge, name = trial.judge, trial.result.name
    known = {e.example.id for e in trial.dev}
    left = [e for e in dev if e.id not in known]
    with view.task(f"{name}: judging dev", len(left)) as advance:
        judged = [*trial.dev, *verify(judge, left, advance)]
    fitted = _fit(judged, "both", seed, priors_of(judge))
    as_it_stands = judge_agreement([(judge, judged)], seed)
    measured = {
        **_measured(cross_fitted_rows(judged, fitted), seed),
        "lm_only": agreement(cross_fitted_rows(judged, _fit(judged, "lm", seed, {})), seed),
        "untuned": as_it_stands.answers if name == UNTUNED else None,
        "statements": as_it_stands.statements,
        "evidence": as_it_stands.evidence,
        "usage": usage_of(judged),
        "judged": len(judged),
    }
    return Trial(trial.result.model_copy(update=measured), judge, judged)


def skipped(variant: Variant, why: str, options: Options, lm_name: str) -> VariantResult:
    """A variant that was not tried, and the reason."""
    described = _described(variant, variant.config.instruction, options, lm_name)
    return VariantResult(**described, status="skipped", note=" ".join(why.split()).rstrip("."))


def try_baselines(parts: Parts, seed: int) -> list[VariantResult]:
    """The baselines on the devset, fitted on train; cross-fitted where there is no train."""
    folds: list[tuple[Sequence[LabelledExample], Sequence[LabelledExample]]] = [(parts.train, parts.dev)]
    if not parts.train:
        halves = held_out_folds(without_lm(parts.dev), seed)
        folds = [([e.example for e in known], [e.example for e in held]) for known, held in halves]
    found = [baseline_rows(held, known, lexical_judge(known, seed), seed) for known, held in folds]
    return [
        VariantResult(
            name=name, kind="baseline", description=text, **_measured([row for f in found for row in f[name]], seed)
        )
        for name, text in BASELINES.items()
    ]


def judge_of(variant: Variant, options: Options) -> Judge:
    """The variant's program on its own LM, or on the study's."""
    if variant.lm is None:
        endpoint: dict[str, Any] = {"lm": options.lm, "api_base": options.api_base, "api_key": options.api_key}
    else:
        endpoint = {"lm": variant.lm, "api_base": variant.api_base}
    return Judge(**endpoint, **options.times, config=variant.config, classifier=None)


def _described(variant: Variant, instruction: str, options: Options, lm_name: str) -> dict[str, Any]:
    return {
        "name": variant.name,
        "kind": "untuned" if variant.name == UNTUNED else "lm",
        "description": variant.description,
        "params": {
            "granularity": variant.config.granularity.value,
            "instruction": instruction,
            "optimizer": variant.optimizer or "none",
            "lm": variant.lm or lm_name,
            "seed": _seed(variant, options),
        },
    }


def _compile(
    judge: Judge, variant: Variant, optimizer: str, parts: Parts, budget: Budget, options: Options, view: View
) -> tuple[Judge, dict[str, Any]]:
    """A judge with the compiled prompts, and the fields of a `VariantResult` that say what was found."""
    effort = budget.effort
    proposer = (
        make_lm(options.reflection_lm, **options.times)
        if options.reflection_lm is not None and optimizer in PROPOSING
        else None
    )
    total = (effort.candidates + 3) * effort.compare_on
    with metered() as meter, view.task(f"{variant.name}: compiling", total) as advance:
        compiled = compiled_judge(
            judge,
            optimizer,
            parts.train,
            parts.dev,
            effort,
            _seed(variant, options),
            advance=advance,
            proposer=proposer,
        )
    for note in compiled.notes:
        view.say(f"{variant.name}: {note}")
    if compiled.failed:
        view.say(
            f"{variant.name}: the LM failed in {compiled.failed} of {counted(compiled.asked, 'call')} of compiling"
        )
    found = {"seed_prompts": prompts_of(judge), "compile_usage": meter.usage, "search": compiled.search}
    return compiled.result, found


def _fit(dev: Sequence[JudgedExample], which: str, seed: int, priors: Mapping[str, Classifier]) -> FittedClassifier:
    usable = scorable(dev)
    if not usable:
        why = Counter(e.unscored.unscored for e in dev if e.unscored and e.unscored.unscored)
        reasons = ", ".join(f"{n} {reason.value}" for reason, n in why.items()) or "the LM judged none of them"
        raise InputError(f"dev: {counted(len(dev), 'answer')}, none scored ({reasons}); nothing can be fitted.")
    try:
        return fit(usable, which, seed, priors=priors)
    except InputError as exc:
        raise InputError(f"the devset is too small to fit a threshold on: {exc}") from exc


def _measured(rows: Sequence[PredictionRow], seed: int) -> dict[str, Any]:
    a = agreement(rows, seed)
    values = [v for v in (a.balanced_accuracy.value, a.auroc.value) if v is not None]
    score = sum(values) / 2 * a.coverage if len(values) == 2 else None
    return {"predictions": tuple(rows), "agreement": a, "selection_score": score}


def _seed(variant: Variant, options: Options) -> int:
    return options.seed if variant.seed is None else variant.seed
