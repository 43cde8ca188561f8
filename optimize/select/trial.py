"""The variants: each compiled, measured on dev, and raced: at half of dev the worse ones are dropped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from faith_dspy.errors import InputError, LimitReachedError, counted
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import Limits, metered
from faith_dspy.optimize.classifier.fitting import FittedClassifier
from faith_dspy.optimize.compile.judge import compile_judge, prompts_of
from faith_dspy.optimize.compile.optimizers import PROPOSING
from faith_dspy.optimize.data.splits import Parts, sample
from faith_dspy.optimize.plan import UNTUNED, Options, Plan, Variant, View
from faith_dspy.optimize.results import JudgedAnswer, JudgeResult
from faith_dspy.optimize.select.evaluate import cross_fitted, fit, measure, usable, verify, without_lm
from faith_dspy.schema import LabelledExample

LEXICAL = "lexical-baseline"
FIRST = 20
"""Answers of dev that a variant is judged on at least before it may be dropped."""
SHARE = 0.6
"""Part of a limit that trying variants may spend; the rest is for fitting the champion and for its test."""


class Trial(NamedTuple):
    """A judge that is tried, and what was measured of it so far."""

    result: JudgeResult
    judge: Judge
    """Compiled, without a classifier of its own."""
    dev: list[JudgedAnswer]
    """By that judge."""
    fitted: FittedClassifier | None = None
    """On ``dev``."""


class Tried(NamedTuple):
    """What became of the planned variants."""

    trials: dict[str, Trial]
    """The lexical baseline and all variants that were measured."""
    results: list[JudgeResult]
    """Of all, dropped and skipped ones too, in the order of the plan."""
    finished: bool
    """False when it was stopped."""


def try_variants(planned: Plan, parts: Parts, options: Options, lm_name: str, view: View, track: Any) -> Tried:
    """Try the lexical baseline, then all variants on dev; of three or more, half are dropped after half of dev.

    A variant that cannot be compiled or fitted is skipped, as are those that a limit leaves nothing for, and from the
    third on those that would begin after the budget's minutes. Where the second half of dev is stopped or reaches a
    limit, the first one counts.
    """
    seed, variants = options.seed, planned.variants
    text = "lexical features alone, fitted on the same labels"
    lexical = JudgeResult(name=LEXICAL, kind="baseline", description=text)
    trials = {LEXICAL: _measured(Trial(lexical, Judge(NO_LM), without_lm(parts.dev)), seed)}
    results = {LEXICAL: trials[LEXICAL].result}
    track.variant(results[LEXICAL])
    finished = True
    race = len(variants) > 2 and not parts.cross_fitted and len(parts.dev) >= 2 * FIRST
    first = sample(parts.dev, len(parts.dev) // 2, 10**9, seed) if race else parts.dev
    share = {k: type(v)(SHARE * v) for k, v in vars(planned.limits).items() if v is not None}
    try:
        with metered(Limits(**share)) as meter:
            for variant in variants:
                try:
                    late = planned.budget.minutes
                    if late is not None and meter.seconds > 60 * late and variant not in variants[:2]:
                        raise LimitReachedError(f"the {late:g} minutes for trying variants were over")
                    trial = _begin(variant, parts, planned, options, lm_name, view)
                    if meter.refused:  # an optimizer takes a refused call for one that failed
                        raise LimitReachedError
                    trials[variant.name] = _judge(trial, first, seed, view)
                    results[variant.name] = trials[variant.name].result
                except (InputError, LimitReachedError) as exc:
                    why = str(exc)
                    if meter.refused:
                        limit = planned.limits.describe(meter.reached or "calls")
                        why = f"{SHARE:.0%} of the limit of {limit} are spent, the rest is for the test"
                    if isinstance(exc, LimitReachedError) and UNTUNED not in trials:
                        raise InputError(
                            f"{why}, before the untuned judge was measured on the {len(first)} answers of dev; "
                            "raise the limit, or give fewer answers with a smaller budget."
                        ) from exc
                    if variant.name == UNTUNED:
                        raise
                    note = " ".join(why.split()).rstrip(".")
                    described = _described(variant, options, lm_name)
                    results[variant.name] = JudgeResult(**described, status="skipped", note=note)
                    view.say(f"{variant.name}: skipped, {note}")
                if not race:
                    track.variant(results[variant.name])
            if race:
                for trial in _second_half(trials, parts.dev, seed, view):
                    trials[trial.result.name] = trial
                    results[trial.result.name] = trial.result
    except LimitReachedError as exc:
        view.say(f"{exc}: the champion is chosen on fewer dev answers")
    except KeyboardInterrupt:
        if UNTUNED not in trials:
            raise
        view.say("Stopped. Going on to the test with the best variant so far; press Ctrl-C again to leave at once.")
        finished = False
    for name in results if race else ():
        if name != LEXICAL:
            track.variant(results[name])
    return Tried(trials, list(results.values()), finished)


def _second_half(trials: dict[str, Trial], dev: Sequence[LabelledExample], seed: int, view: View) -> list[Trial]:
    """The untuned judge and the better half of the others measured on all of dev; the rest dropped."""
    others = [t for name, t in trials.items() if name not in (LEXICAL, UNTUNED)]
    ranked = sorted(others, key=lambda t: (-(t.result.score or 0.0), t.result.cost))
    kept = ranked[: (len(ranked) + 1) // 2]
    out = [_judge(t, dev, seed, view) for t in (trials[UNTUNED], *kept)]
    for t in ranked[len(kept) :]:
        note = f"others agreed better on {t.result.judged} of the {len(dev)} answers of dev"
        view.say(f"{t.result.name}: dropped, {note}")
        out.append(t._replace(result=t.result.model_copy(update={"status": "dropped", "note": note})))
    return out


def _begin(variant: Variant, parts: Parts, planned: Plan, options: Options, lm_name: str, view: View) -> Trial:
    """Compile the variant; `ConfigError` when it cannot be compiled on these labels."""
    judge = judge_of(variant, options)
    compiled: dict[str, Any] = {}
    if variant.optimizer:
        effort, before = planned.budget.effort, prompts_of(judge)
        writer = options.reflection_lm if variant.optimizer in PROPOSING else None
        proposer = None if writer is None else make_lm(writer, **options.times)
        total, seed = (effort.candidates + 3) * effort.compare_on, _seed(variant, options)
        with metered() as meter, view.task(f"{variant.name}: compiling", total) as advance:
            found = compile_judge(
                judge, variant.optimizer, parts.train, effort, seed, proposer=proposer, advance=advance
            )
        for note in found.notes:
            view.say(f"{variant.name}: {note}")
        judge, compiled = found.judge, {"seed_prompts": before, "compile_usage": meter.usage}
    result = JudgeResult(**_described(variant, options, lm_name), **compiled, prompts=prompts_of(judge))
    return Trial(result, judge, [])


def _judge(trial: Trial, dev: Sequence[LabelledExample], seed: int, view: View) -> Trial:
    """The same variant measured on ``dev``; what it has judged is not judged again. `InputError` when no classifier can
    be fitted on its replies."""
    known = {a.id for a in trial.dev}
    left = [e for e in dev if e.id not in known]
    with view.task(f"{trial.result.name}: judging dev", len(left)) as advance:
        judged = [*trial.dev, *verify(trial.judge, left, advance)]
    if not usable(judged):
        why = Counter(a.judgment.unscored for a in judged if a.judgment.unscored)
        reasons = ", ".join(f"{n} {reason.value}" for reason, n in why.items()) or "the LM judged none of them"
        raise InputError(f"dev: {counted(len(judged), 'answer')}, none scored ({reasons}); nothing can be fitted.")
    return _measured(trial._replace(dev=judged), seed)


def _measured(trial: Trial, seed: int) -> Trial:
    try:
        fitted = fit(trial.judge, trial.dev, seed)
    except InputError as exc:
        raise InputError(f"the devset is too small to fit a threshold on: {exc}") from exc
    found = measure(trial.result.name, trial.result.kind, cross_fitted(trial.dev, fitted))
    update = {name: getattr(found, name) for name in ("levels", "usage", "judged", "lm_share", "rows", "answers")}
    update["score"] = score(found)
    return trial._replace(result=trial.result.model_copy(update=update), fitted=fitted)


def score(found: JudgeResult) -> float | None:
    """AUROC times coverage: what the champion is chosen by."""
    auroc = found.agreement.auroc.value
    return None if auroc is None or math.isnan(auroc) else auroc * found.agreement.coverage


def judge_of(variant: Variant, options: Options) -> Judge:
    """The variant's program on its own LM, or on the study's."""
    if variant.lm is None:
        endpoint: dict[str, Any] = {"lm": options.lm, "api_base": options.api_base, "api_key": options.api_key}
    else:
        endpoint = {"lm": variant.lm, "api_base": variant.api_base}
    return Judge(**endpoint, **options.times, config=variant.config, classifier=None)


def _described(variant: Variant, options: Options, lm_name: str) -> dict[str, Any]:
    return {
        "name": variant.name,
        "kind": "lm",
        "description": variant.description,
        "params": {
            "granularity": variant.config.granularity.value,
            "instruction": variant.config.instruction,
            "optimizer": variant.optimizer or "none",
            "lm": variant.lm or lm_name,
            "seed": _seed(variant, options),
        },
    }


def _seed(variant: Variant, options: Options) -> int:
    return options.seed if variant.seed is None else variant.seed
