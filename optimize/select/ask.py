"""The variants asked: each compiled, then asked about every answer once. Whatever follows works on these replies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from faith_dspy.config import Granularity
from faith_dspy.errors import InputError, LimitReachedError, counted, priced
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm.make import is_local, make_lm
from faith_dspy.lm.metered import Meter
from faith_dspy.optimize.compile.judge import CompiledJudge, compile_judge, prompts_of
from faith_dspy.optimize.compile.optimizers import optimizer_of
from faith_dspy.optimize.data.pool import halves
from faith_dspy.optimize.plan import Options, Study, Variant
from faith_dspy.optimize.results import JudgedAnswer, Learned, Prompts, SkippedVariant
from faith_dspy.schema import LabelledExample, Unscored, Usage
from faith_dspy.scoring.score import unjudged_reason

FIRST = 5
"""Answers after which a study estimates what it will take."""
SPREAD = 2**0.5
"""An estimate of minutes is given as a range: from that times less to that times more."""


class Replies(NamedTuple):
    """What one judge said about the pool, before anything was fitted."""

    name: str
    """Of its variant; of the lexical judge `NO_LM`."""
    description: str
    params: dict[str, str | int]
    judge: Judge
    """With the prompts that would be exported, without a classifier."""
    answers: list[JudgedAnswer]
    """Each by prompts that had not learned from its source."""
    prompts: Prompts | None = None
    """None without an LM."""
    seed: Sequence[JudgedAnswer] = ()
    """The same answers by the prompts before compiling, where those were asked; empty where nothing was compiled."""

    @property
    def is_seed(self) -> bool:
        """Whether nothing was compiled."""
        return self.prompts is None or not self.prompts.seed


class Asked(NamedTuple):
    """What became of the planned variants."""

    lexical: Replies
    replies: list[Replies]
    """Of those that were asked, in the order of the plan."""
    skipped: list[SkippedVariant]
    finished: bool
    """False when it was stopped."""

    @property
    def untuned(self) -> Replies | None:
        """The judge that nobody tuned: the first variant that was asked as it is, without an LM the default judge;
        None where every variant was compiled."""
        if not self.replies:
            return self.lexical
        return next((r for r in self.replies if r.is_seed), None)


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


def without_lm(
    examples: Iterable[LabelledExample], scores: Sequence[str] = ()
) -> Replies:
    """Judge by the default judge without an LM, and read these columns."""
    judge = Judge(NO_LM, scores=scores)
    return Replies(NO_LM, "no LM", {}, judge, verify(judge, examples))


def usable(answers: Iterable[JudgedAnswer]) -> list[JudgedAnswer]:
    """Return those that a classifier can be fitted on: with statements that were all judged, and a language that the
    judge can compare."""
    return [
        a
        for a in answers
        if a.raw.raw_verdicts
        and unjudged_reason(a.raw.last) is None
        and a.judgment.unscored is not Unscored.LANGUAGE
    ]


def ask_variants(study: Study, lm_name: str, meter: Meter) -> Asked:
    """Compile each variant and ask it about the pool; say beforehand what it will take.

    A variant that cannot be compiled, or whose replies cannot be scored, has failed; those are skipped that would begin
    after the budget's minutes, from the third on. Ctrl-C ends it with those that were asked.

    Raises:
        LimitReachedError: a limit ends it.
        InputError: no variant could be asked; it says what is wrong with the first.
    """
    variants, minutes = study.variants, study.budget.minutes
    lexical = without_lm(study.labels.pool, study.options.scores)
    asked = Asked(lexical, [], [], finished=True)
    if not variants:
        return asked
    first_fault = None
    try:
        study.view.say(_forecast(study, lexical.answers))
        for variant in variants:
            params = _params(variant, study.options, lm_name)
            late = minutes is not None and meter.seconds > 60 * minutes
            status: Literal["skipped", "failed"]
            if late and len(asked.replies) > 1:
                status = "skipped"
                note = f"the {minutes:g} minutes for beginning variants were over"
            else:
                try:
                    replies = _ask_variant(variant, params, study, meter, asked.replies)
                except InputError as exc:
                    first_fault = first_fault or exc
                    status, note = "failed", " ".join(str(exc).split()).rstrip(".")
                else:
                    asked.replies.append(replies)
                    continue
            left_out = SkippedVariant(
                name=variant.name,
                description=variant.description,
                params=params,
                status=status,
                note=note,
            )
            asked.skipped.append(left_out)
            study.view.say(f"{variant.name}: {status}, {note}")
    except LimitReachedError as exc:
        raise LimitReachedError(
            f"{str(exc).rstrip('.')}, after {counted(len(asked.replies), 'variant')} of {len(variants)}. What was "
            "answered is kept: run it again with a higher limit, or with fewer variants."
        ) from exc
    except KeyboardInterrupt:
        if not asked.replies:
            raise
        study.view.say(
            "Stopped. Going on with what was asked so far; press Ctrl-C again to leave at once."
        )
        return asked._replace(finished=False)
    if not asked.replies and first_fault is not None:
        raise first_fault
    return asked


def _ask_variant(
    variant: Variant,
    params: dict[str, str | int],
    study: Study,
    meter: Meter,
    asked: Sequence[Replies],
) -> Replies:
    """Return what the variant says about the pool; `InputError` where none of it is scored."""
    judge = judge_of(variant, study.options)
    seed: list[JudgedAnswer] = []
    if variant.optimizer is None:
        answers = _judge_pool(variant.name, judge, study.labels.pool, study)
        prompts = Prompts(now=prompts_of(judge))
    else:
        uncompiled = prompts_of(judge)
        judge, answers, prompts = _compile(variant, variant.optimizer, judge, study)
        if meter.refused:  # an optimizer takes a refused call for one that failed
            raise LimitReachedError("a limit was reached")
        prompts = prompts.model_copy(update={"seed": uncompiled})
        seed = _seed_answers(params, answers, asked)
    if not usable(answers):
        why = Counter(a.judgment.unscored for a in answers if a.judgment.unscored)
        reasons = ", ".join(f"{n} {reason}" for reason, n in why.items())
        raise InputError(
            f"{counted(len(answers), 'answer')}, none scored ({reasons or 'the LM judged none of them'}); nothing can "
            "be fitted."
        )
    return Replies(
        variant.name, variant.description, params, judge, answers, prompts, seed
    )


def _judge_pool(
    name: str, judge: Judge, pool: Sequence[LabelledExample], study: Study
) -> list[JudgedAnswer]:
    with study.view.task(f"{name}: judging", len(pool)) as advance:
        return verify(judge, pool, advance)


def _compile(
    variant: Variant, optimizer: str, judge: Judge, study: Study
) -> tuple[Judge, list[JudgedAnswer], Prompts]:
    """Return a variant compiled, what its prompts say of sources that they have not learned from, and what it took.

    An optimizer that costs next to nothing is run on each half of the sources, whose prompts judge the other half, and
    on all for the export. An expensive one is run on one half, judges the other, and is exported as it was judged.
    """
    name, pool, options = variant.name, study.labels.pool, study.options
    runs: list[CompiledJudge] = []

    def compile_on(examples: Sequence[LabelledExample]) -> Judge:
        with study.view.task(f"{name}: compiling", None) as advance:
            compiled = compile_judge(
                judge,
                optimizer,
                examples,
                auto=study.budget.auto,
                seed=options.seed,
                proposer=reflection_lm_of(options),
                advance=advance,
            )
        for note in compiled.notes:
            study.view.say(f"{name}: {note}")
        runs.append(compiled)
        return compiled.judge

    one, other = halves(pool, options.seed)
    exported = compile_on(one)
    answers = _judge_pool(name, exported, other, study)
    learned: Learned = "one half"
    if optimizer_of(optimizer).cheap:
        answers += _judge_pool(name, compile_on(other), one, study)
        learned, exported = "the other half", compile_on(pool)
    prompts = Prompts(
        now=prompts_of(exported),
        learned=learned,
        metric_calls=sum(run.metric_calls for run in runs),
        seconds=sum(run.seconds for run in runs),
    )
    return exported, answers, prompts


def _seed_answers(
    params: dict[str, str | int],
    answers: Sequence[JudgedAnswer],
    asked: Sequence[Replies],
) -> list[JudgedAnswer]:
    """Return the same answers by the uncompiled variant of the same options and LM; none where it was not asked."""
    for replies in asked:
        if replies.params == params | {"optimizer": "none"}:
            by_id = {a.id: a for a in replies.answers}
            return [by_id[a.id] for a in answers]
    return []


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
        config=variant.config.model_copy(update={"scores": options.scores}),
        classifier=None,
    )


def reflection_lm_of(options: Options) -> Any:
    """Return the LM that writes instructions; None where it is the judge's own."""
    if options.reflection_lm is None:
        return None
    return make_lm(
        options.reflection_lm,
        api_base=options.reflection_api_base,
        timeout=options.timeout,
    )


def _params(variant: Variant, options: Options, lm_name: str) -> dict[str, str | int]:
    """Return what the variant is made of: every option of its judge that is not the usual one, optimizer and LM."""
    own = variant.config.model_dump(mode="json", exclude_defaults=True)
    return {
        "granularity": variant.config.granularity.value,
        **{name: str(value) for name, value in own.items()},
        "optimizer": variant.optimizer or "none",
        "lm": variant.lm or lm_name,
        "seed": options.seed,
    }


def _forecast(study: Study, lexical: Sequence[JudgedAnswer]) -> str:
    """Return what the study will take, from what the first answers of the pool took the first variant."""
    pool, variants = study.labels.pool, study.variants
    judge = judge_of(variants[0], study.options)
    by_context = sorted(pool, key=lambda e: e.context_key)  # as they will be asked
    first = verify(judge, by_context[:FIRST])
    usage = sum((a.raw.usage for a in first), Usage())
    sentences = sum(len(a.raw.raw_verdicts) for a in lexical) / len(pool)
    if judge.function is not None:  # it is asked about all of them at once
        sentences = 1
    each = [_calls(variant, sentences) for variant in variants]
    calls = round(len(pool) * sum(each) + len(study.labels.test) * max(each))
    share = calls / max(1, usage.calls)
    tokens = share * (usage.computed_tokens + usage.output_tokens)
    dollars = price(judge, usage)
    minutes = share * usage.seconds / judge.default_threads / 60
    cost = "" if dollars is None else f", {priced(share * dollars)}"
    took = f", {in_minutes(minutes)}" if minutes else ""
    more = "; optimizers come on top" if any(v.optimizer for v in variants) else ""
    asked = f"{calls:,} LM calls, {round(tokens):,} tokens{cost}{took}{more}"
    if not tokens:
        asked = f"{calls:,} calls{took}"
    return f"The study will take about {asked}."


def in_minutes(minutes: float) -> str:
    """Return ``5 to 10 minutes`` for an estimate of 7."""
    least = max(1, round(minutes / SPREAD))
    most = max(1, round(minutes * SPREAD))
    return f"{least} to {most} minutes" if least < most else "1 minute"


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
