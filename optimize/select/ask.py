"""The variants asked: each compiled, then asked about the pool once. Whatever follows works on these replies."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, InputError, LimitReachedError, counted
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm.make import is_local, make_lm
from faith_dspy.lm.metered import Meter, metered
from faith_dspy.optimize.compile.judge import compile_judge, demo_ids, prompts_of
from faith_dspy.optimize.compile.optimizers import PROPOSING, SEARCHING
from faith_dspy.optimize.data.splits import Parts, deal
from faith_dspy.optimize.plan import WHOLE, Options, Plan, Variant, View
from faith_dspy.optimize.results import JudgedAnswer, JudgeResult
from faith_dspy.schema import LabelledExample, Usage
from faith_dspy.scoring.score import failure, unverified

FIRST = 5
"""Answers after which a study estimates what it will take."""


class Replies(NamedTuple):
    """What one variant said about the pool."""

    judge: Judge
    """Compiled, without a classifier."""
    answers: list[JudgedAnswer]
    """All of them, but for those whose source its prompts have learned from."""
    fields: dict[str, Any]
    """Of `JudgeResult`: name, description, params, prompts."""

    @property
    def name(self) -> str:
        """The variant's."""
        return str(self.fields["name"])


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
    judged = []
    for example, (raw, judgment) in zip(
        ordered, judge.verify_all(ordered, num_threads), strict=True
    ):
        judged.append(JudgedAnswer.of(example, raw, judgment))
        advance(1)
    return judged


def without_lm(examples: Iterable[LabelledExample]) -> list[JudgedAnswer]:
    """By the default judge without an LM."""
    return verify(Judge(NO_LM), examples)


def usable(answers: Iterable[JudgedAnswer]) -> list[JudgedAnswer]:
    """Those that a classifier can be fitted on: with a label, and statements that were all judged."""
    return [
        a
        for a in answers
        if a.example.label is not None
        and a.raw.raw_verdicts
        and failure(a.raw.last) is None
    ]


def ask_variants(
    planned: Plan,
    parts: Parts,
    options: Options,
    lm_name: str,
    meter: Meter,
    view: View,
) -> Asked:
    """Compile each variant and ask it about the pool, the untuned judge first; say beforehand what it will take.

    A variant that cannot be compiled, or whose replies cannot be scored, is skipped, as are those that would begin
    after the budget's minutes, from the third on. Ctrl-C ends it with those that were asked.

    Raises `LimitReachedError` where a limit ends it, and what is wrong with the untuned judge, without which there is
    no study.
    """
    replies: dict[str, Replies] = {}
    skipped = []
    late = planned.budget.minutes
    try:
        for variant in planned.variants:
            described = _described(variant, options, lm_name)
            try:
                if late is not None and meter.seconds > 60 * late and len(replies) > 1:
                    raise InputError(
                        f"the {late:g} minutes for beginning variants were over."
                    )
                if variant.name == WHOLE:
                    view.say(_forecast(planned, parts, options))
                replies[variant.name] = _ask(
                    variant, described, planned, parts, options, meter, view
                )
            except InputError as exc:
                if variant.name == WHOLE:
                    raise
                note = " ".join(str(exc).split()).rstrip(".")
                skipped.append(JudgeResult(**described, status="skipped", note=note))
                view.say(f"{variant.name}: skipped, {note}")
    except LimitReachedError as exc:
        raise LimitReachedError(
            f"{str(exc).rstrip('.')}, after {counted(len(replies), 'variant')} of {len(planned.variants)}. What was "
            "answered is kept: run it again with a higher limit, or with fewer variants."
        ) from exc
    except KeyboardInterrupt:
        if not replies:
            raise
        view.say(
            "Stopped. Going on to the test with what was asked so far; press Ctrl-C again to leave at once."
        )
        return Asked(replies, skipped, finished=False)
    return Asked(replies, skipped, finished=True)


def _ask(
    variant: Variant,
    described: dict[str, Any],
    planned: Plan,
    parts: Parts,
    options: Options,
    meter: Meter,
    view: View,
) -> Replies:
    """What the compiled variant says about the pool; `InputError` where none of it is scored."""
    judge = judge_of(variant, options)
    before = prompts_of(judge)
    learned: set[str] = set()
    if variant.optimizer is not None:
        judge, learned, usage = _compiled(variant, judge, planned, parts, options, view)
        described = {**described, "seed_prompts": before, "compile_usage": usage}
        if meter.refused:  # an optimizer takes a refused call for one that failed
            raise LimitReachedError("a limit was reached")
    asked = [e for e in parts.pool if e.group_key not in learned]
    with view.task(f"{variant.name}: judging the pool", len(asked)) as advance:
        answers = verify(judge, asked, advance)
    if not usable(answers):
        why = Counter(a.judgment.unscored for a in answers if a.judgment.unscored)
        reasons = (
            ", ".join(f"{n} {reason.value}" for reason, n in why.items())
            or "the LM judged none of them"
        )
        raise InputError(
            f"{counted(len(answers), 'answer')}, none scored ({reasons}); nothing can be fitted."
        )
    return Replies(judge, answers, {**described, "prompts": prompts_of(judge)})


def _compiled(
    variant: Variant,
    judge: Judge,
    planned: Plan,
    parts: Parts,
    options: Options,
    view: View,
) -> tuple[Judge, set[str], Usage]:
    """The compiled judge, the sources that its prompts have learned from, and what compiling took.

    An optimizer that searches has half of the sources, the others those of its demos: answers over one context are
    alike.
    """
    assert variant.optimizer is not None
    if parts.cross_fitted:
        raise ConfigError("so few labels are no ground to compile prompts on.")
    seed, effort = _seed(variant, options), planned.budget.effort
    train: Sequence[LabelledExample] = parts.pool
    if variant.optimizer in SEARCHING:
        train = _half(parts.pool, options.seed)
    writer = options.reflection_lm if variant.optimizer in PROPOSING else None
    proposer = None if writer is None else make_lm(writer, **options.times)
    total = (effort.candidates + 3) * effort.compare_on
    with metered() as spent, view.task(f"{variant.name}: compiling", total) as advance:
        compiled = compile_judge(
            judge,
            variant.optimizer,
            train,
            effort,
            seed,
            proposer=proposer,
            advance=advance,
        )
    for note in compiled.notes:
        view.say(f"{variant.name}: {note}")
    shown = demo_ids(compiled.judge, parts.pool)
    learned = {e.group_key for e in parts.pool if e.id in shown}
    if variant.optimizer in SEARCHING:
        learned |= {e.group_key for e in train}
    return compiled.judge, learned, spent.usage


def _half(pool: Sequence[LabelledExample], seed: int) -> list[LabelledExample]:
    """The answers of half of the sources, the same for every optimizer."""
    labels, sources = [bool(e.label) for e in pool], [e.group_key for e in pool]
    part_of = deal(labels, sources, [1, 1], 1, seed)
    return [e for e, part in zip(pool, part_of, strict=True) if part == 0]


def judge_of(variant: Variant, options: Options) -> Judge:
    """The variant's program on its own LM, or on the study's."""
    if variant.lm is None:
        endpoint: dict[str, Any] = {
            "lm": options.lm,
            "api_base": options.api_base,
            "api_key": options.api_key,
        }
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


def _forecast(planned: Plan, parts: Parts, options: Options) -> str:
    """What the study will take, from what the first answers of the pool took the untuned judge."""
    first = parts.pool[:FIRST]
    judge = judge_of(planned.variants[0], options)
    usage = sum((a.raw.usage for a in verify(judge, first)), Usage())
    sentences = sum(len(unverified(e.answer).raw_verdicts) for e in parts.pool) / len(
        parts.pool
    )
    each = [_calls(variant, sentences) for variant in planned.variants]
    calls = round(len(parts.pool) * sum(each) + len(parts.test) * (1 + max(each)))
    share = calls / max(1, usage.calls)
    tokens = share * (usage.computed_tokens + usage.output_tokens)
    dollars = price(judge, usage)
    minutes = share * usage.seconds / judge.default_threads / 60
    cost = "" if dollars is None else f", ${share * dollars:,.2f}"
    took = f", {counted(max(1, round(minutes)), 'minute')}" if minutes else ""
    return f"The study will take about {calls:,} LM calls, {round(tokens):,} tokens{cost}{took}, beside optimizers."


def _calls(variant: Variant, sentences: float) -> float:
    """Calls for an answer of so many sentences."""
    if (
        variant.config.granularity is Granularity.ANSWER
        or variant.config.verification == "joint"
    ):
        return 1
    return sentences + (variant.config.granularity is Granularity.STATEMENT)


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
