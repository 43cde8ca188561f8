"""The variants asked: each compiled, then asked about the pool once. Whatever follows works on these replies."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, InputError, LimitReachedError, counted
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm.make import is_local, make_lm
from faith_dspy.lm.metered import Meter
from faith_dspy.optimize.compile.judge import (
    CompiledJudge,
    compile_judge,
    demo_ids,
    prompts_of,
)
from faith_dspy.optimize.compile.optimizers import optimizer_of
from faith_dspy.optimize.data.splits import deal
from faith_dspy.optimize.plan import WHOLE, Options, Study, Variant
from faith_dspy.optimize.results import JudgedAnswer, JudgeResult
from faith_dspy.schema import LabelledExample, Usage
from faith_dspy.scoring.score import raw_judgment_without_lm, unjudged_reason

FIRST = 5
"""Answers after which a study estimates what it will take."""


class Replies(NamedTuple):
    """What one variant said about the pool."""

    judge: Judge
    """Compiled, without a classifier."""
    answers: list[JudgedAnswer]
    """All of them, but for those whose source its prompts have learned from."""
    variant: JudgeResult
    """Its name, parameters and prompts, nothing measured yet."""
    seed: Sequence[JudgedAnswer] = ()
    """The same answers by the prompts before compiling; empty where nothing was compiled."""
    compiled: CompiledJudge | None = None
    """What compiling took."""


class Asked(NamedTuple):
    """What became of the planned variants."""

    replies: dict[str, Replies]
    """Of those that were asked, by name; the untuned judge's first."""
    skipped: list[JudgeResult]
    finished: bool
    """False when it was stopped."""


def verify(
    judge: Judge,
    examples: Iterable[LabelledExample],
    advance: Callable[[int], None] = lambda _: None,
    num_threads: int | None = None,
) -> list[JudgedAnswer]:
    """Judge each answer, those over one context one after another so that the LM's prefix cache stays warm."""
    ordered = sorted(examples, key=lambda e: (e.context_key, e.id))
    judgments = judge.stream_raw(ordered, num_threads)
    judged = []
    for example, (raw, judgment) in zip(ordered, judgments, strict=True):
        judged.append(JudgedAnswer.judged(example, raw, judgment))
        advance(1)
    return judged


def without_lm(examples: Iterable[LabelledExample]) -> list[JudgedAnswer]:
    """Judge by the default judge without an LM."""
    return verify(Judge(NO_LM), examples)


def usable(answers: Iterable[JudgedAnswer]) -> list[JudgedAnswer]:
    """Return those that a classifier can be fitted on: with a label, and statements that were all judged."""
    labelled = [a for a in answers if a.example.label is not None]
    asked = [a for a in labelled if a.raw.raw_verdicts]
    return [a for a in asked if unjudged_reason(a.raw.last) is None]


def ask_variants(study: Study, lm_name: str, meter: Meter) -> Asked:
    """Compile each variant and ask it about the pool, the untuned judge first; say beforehand what it will take.

    A variant that cannot be compiled, or whose replies cannot be scored, has failed; those are skipped that would begin
    after the budget's minutes, from the third on. Ctrl-C ends it with those that were asked.

    Raises `LimitReachedError` where a limit ends it, and what is wrong with the untuned judge, without which there is
    no study.
    """
    variants, minutes = study.plan.variants, study.plan.budget.minutes
    replies: dict[str, Replies] = {}
    skipped = []
    finished = True
    try:
        study.view.say(_forecast(study))
        for variant in variants:
            described = _unmeasured(variant, study.options, lm_name)
            late = minutes is not None and meter.seconds > 60 * minutes
            try:
                if not late or len(replies) < 2:
                    replies[variant.name] = _ask_variant(
                        variant, described, study, meter
                    )
                    continue
                status = "skipped"
                note = f"the {minutes:g} minutes for beginning variants were over"
            except InputError as exc:
                if variant.name == WHOLE:
                    raise
                status = "failed"
                note = " ".join(str(exc).split()).rstrip(".")
            update = {"status": status, "note": note}
            skipped.append(described.model_copy(update=update))
            study.view.say(f"{variant.name}: {status}, {note}")
    except LimitReachedError as exc:
        raise LimitReachedError(
            f"{str(exc).rstrip('.')}, after {counted(len(replies), 'variant')} of {len(variants)}. What was "
            "answered is kept: run it again with a higher limit, or with fewer variants."
        ) from exc
    except KeyboardInterrupt:
        if not replies:
            raise
        study.view.say(
            "Stopped. Going on to the test with what was asked so far; press Ctrl-C again to leave at once."
        )
        finished = False
    return Asked(replies, skipped, finished)


def _ask_variant(
    variant: Variant,
    described: JudgeResult,
    study: Study,
    meter: Meter,
) -> Replies:
    """Return what the compiled variant says about the pool; `InputError` where none of it is scored."""
    judge = judge_of(variant, study.options)
    update = {"prompts": prompts_of(judge)}
    pool: Sequence[LabelledExample] = study.parts.pool
    seed: list[JudgedAnswer] = []
    compiled = None
    if variant.optimizer is not None:
        compiled, learned = _compile(variant, variant.optimizer, judge, study)
        if meter.refused:  # an optimizer takes a refused call for one that failed
            raise LimitReachedError("a limit was reached")
        pool = [e for e in pool if e.group_key not in learned]
        with study.view.task(f"{variant.name}: its seed prompt", len(pool)) as advance:
            seed = verify(judge, pool, advance)
        judge, seed_prompts = compiled.judge, update["prompts"]
        update = {"prompts": prompts_of(judge), "seed_prompts": seed_prompts}
    with study.view.task(f"{variant.name}: judging the pool", len(pool)) as advance:
        answers = verify(judge, pool, advance)
    if not usable(answers):
        why = Counter(a.judgment.unscored for a in answers)
        reasons = ", ".join(
            f"{n} {reason.value}" for reason, n in why.items() if reason
        )
        raise InputError(
            f"{counted(len(answers), 'answer')}, none scored ({reasons or 'the LM judged none of them'}); nothing can "
            "be fitted."
        )
    described = described.model_copy(update=update)
    if compiled is not None:
        study.view.say(f"{variant.name}: {'; '.join(described.changes)}")
    return Replies(judge, answers, described, seed, compiled)


def _compile(
    variant: Variant,
    optimizer: str,
    judge: Judge,
    study: Study,
) -> tuple[CompiledJudge, set[str]]:
    """Compile a variant's prompts; with the sources that they have learned from.

    Few-shot has learned from the sources of its demos, any other optimizer from the half of them that it was given:
    answers over one context are alike.
    """
    options = study.options
    effort = study.plan.budget.effort
    pool = study.parts.pool
    if study.parts.cross_fitted:
        raise ConfigError("so few labels are no ground to compile prompts on.")
    learns_demos = optimizer_of(optimizer).learns_demos
    train = pool if learns_demos else _half(pool, options.seed)
    proposer = None
    if options.reflection_lm is not None:
        proposer = make_lm(
            options.reflection_lm,
            api_base=options.reflection_api_base,
            timeout=options.timeout,
        )
    total = (effort.candidates + 3) * effort.compare_on
    task = study.view.task(f"{variant.name}: compiling", total)
    with task as advance:
        compiled = compile_judge(
            judge,
            optimizer,
            train,
            effort,
            options.seed,
            proposer=proposer,
            evidence_weight=options.evidence_weight,
            advance=advance,
        )
    for note in compiled.notes:
        study.view.say(f"{variant.name}: {note}")
    demos = demo_ids(compiled.judge, pool)
    learned = {e.group_key for e in pool if e.id in demos}
    if not learns_demos:
        learned |= {e.group_key for e in train}
    return compiled, learned


def _half(pool: Sequence[LabelledExample], seed: int) -> list[LabelledExample]:
    """Return the answers of half of the sources, the same for every optimizer."""
    part_of = deal(pool, [1, 1], 1, seed)
    return [e for e, part in zip(pool, part_of, strict=True) if part == 0]


def judge_of(variant: Variant, options: Options) -> Judge:
    """Return the variant's program on its own LM, or on the study's."""
    lm, api_base, api_key = variant.lm, variant.api_base, None
    if lm is None:
        lm, api_base, api_key = options.lm, options.api_base, options.api_key
    return Judge(
        lm,
        api_base=api_base,
        api_key=api_key,
        timeout=options.timeout,
        config=variant.config,
        classifier=None,
    )


def _unmeasured(variant: Variant, options: Options, lm_name: str) -> JudgeResult:
    params = {
        "granularity": variant.config.granularity.value,
        "instruction": variant.config.instruction,
        "optimizer": variant.optimizer or "none",
        "lm": variant.lm or lm_name,
        "seed": options.seed,
    }
    return JudgeResult(
        name=variant.name,
        kind="lm",
        description=variant.description,
        params=params,
    )


def _forecast(study: Study) -> str:
    """Return what the study will take, from what the first answers of the pool took the untuned judge."""
    pool, variants = study.parts.pool, study.plan.variants
    judge = judge_of(variants[0], study.options)
    first = verify(judge, pool[:FIRST])
    usage = sum((a.raw.usage for a in first), Usage())
    counts = [len(raw_judgment_without_lm(e.answer).raw_verdicts) for e in pool]
    sentences = sum(counts) / len(pool)
    each = [_calls(variant, sentences) for variant in variants]
    on_pool = len(pool) * sum(each)
    on_test = len(study.parts.test) * (1 + max(each))
    calls = round(on_pool + on_test)
    share = calls / max(1, usage.calls)
    tokens = share * (usage.computed_tokens + usage.output_tokens)
    dollars = price(judge, usage)
    minutes = share * usage.seconds / judge.default_threads / 60
    cost = "" if dollars is None else f", ${share * dollars:,.2f}"
    took = f", {counted(max(1, round(minutes)), 'minute')}" if minutes else ""
    return f"The study will take about {calls:,} LM calls, {round(tokens):,} tokens{cost}{took}, beside optimizers."


def _calls(variant: Variant, sentences: float) -> float:
    """Calls for an answer of so many sentences."""
    config = variant.config
    if config.granularity is Granularity.ANSWER or config.verification == "joint":
        return 1
    return sentences + (config.granularity is Granularity.STATEMENT)


def price(judge: Judge, usage: Usage) -> float | None:
    """Dollars by LiteLLM's price list, whether or not the replies came from the cache; None where it has no price."""
    if not judge.asks_lm or is_local(judge.lm_name):
        return None
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True  # it prints where it knows no price
    try:
        parts = litellm.cost_per_token(
            model=judge.lm_name,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.output_tokens,
            cache_read_input_tokens=usage.cached_tokens,
        )
    except Exception:  # noqa: BLE001 - whatever LiteLLM raises for a model that is not on its list
        return None
    return float(sum(parts)) or None
