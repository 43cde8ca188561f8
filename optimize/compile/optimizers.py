"""Optimizers by name. A new one is a function here and an entry in `OPTIMIZERS`; a plan file can then name it, and
`optimize/variants.toml` can offer it by a variant's name.

It takes a `Task` and returns the student with its new prompts. It asks verdicts of the judge's LM through
``task.student`` only, and scores them by ``task.metric``. It raises `ConfigError` where it cannot run on these labels.
A function of the user's own, ``module:function``, takes student, trainset and metric instead.
"""

from __future__ import annotations

import importlib
import io
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import dspy
from dspy.adapters import ChatAdapter
from pydantic import BaseModel, Field

from faith_dspy.errors import ConfigError, FaithDspyError, LMUnavailableError
from faith_dspy.lm.make import preflight
from faith_dspy.lm.metered import MeteredLM
from faith_dspy.optimize.compile.examples import balanced, in_turn, short
from faith_dspy.optimize.compile.metric import (
    Judged,
    best_cut,
    failed,
    fault,
    is_right,
    judged_statements,
    share_right,
)
from faith_dspy.optimize.compile.proposals import (
    Guidelines,
    Halves,
    MoreRight,
    Proposer,
    with_rules,
)

MIN_LABELS = 2
"""Supported and unsupported examples that are needed each, to learn from and to compare candidates on."""
HELD_BACK = 1 / 3
"""Share of the contexts on which an optimizer compares its candidates."""
LEARN_FROM = 40
"""Examples that the LM is asked about to find demos, mistakes and the seed prompt's cut."""
MAX_FAILED = 0.5
"""Share of the LM's answers that may fail; beyond it, the comparison would be luck."""
MIN_PROPOSER_TOKENS = 1024
"""Output tokens a proposer needs; a lower limit is raised."""
PERFECT = 0.5
"""GEPA's score from which an example is wholly right; below and above it goes by probability."""
MINIBATCH = 35
"""Examples MIPROv2 tries a candidate on before the best are tried on all."""


class Effort(BaseModel, extra="forbid", frozen=True):
    """How much an optimizer may try."""

    demos: int = Field(default=4, ge=1)
    """Examples shown in the prompt; half of each class."""
    candidates: int = Field(default=3, ge=1)
    """Instructions that MIPROv2 proposes, and sets of demos that random search tries besides none and the labelled."""
    compare_on: int = Field(default=40, ge=4)
    """Labelled examples that candidates are compared on."""
    metric_calls: int | None = Field(default=None, ge=1)
    """GEPA's; None: as many as DSPy's ``auto="light"`` takes, some 400 to 600."""


class Task(NamedTuple):
    """What an optimizer is given. It is called inside ``dspy.context(lm=…)`` with the judge's LM."""

    student: dspy.Module
    """A copy of the program, or of a part of it; the optimizer may change it."""
    train: Sequence[Any]
    """Labelled `dspy.Example`s of the student, to learn from and to compare candidates on."""
    effort: Effort
    seed: int
    metric: Callable[..., Any]
    """``metric(gold, pred, trace, pred_name, pred_trace)``; more is better. See `agreement_metric`."""
    proposer: Any = None
    """The LM that writes instructions, and the teacher; None: the judge's own."""
    threads: int = 1


class _Asked(NamedTuple):
    """A labelled example, what the student says of it, and its score."""

    gold: Any
    pred: Any
    score: float


def _evaluate(task: Task, rows: Sequence[Any]) -> list[_Asked]:
    evaluate = dspy.Evaluate(
        devset=list(rows),
        metric=task.metric,
        num_threads=task.threads,
        display_progress=False,
    )
    return [_Asked(*one) for one in evaluate(task.student).results]


def _judged(asked: _Asked) -> list[Judged]:
    return judged_statements(asked.gold, asked.pred)


class _Seed(NamedTuple):
    """What the seed prompt is right and wrong about, counted from its own best cut."""

    cut: float
    task: Task
    """Whose metric counts from it."""
    wrong: list[Any]
    right: list[Any]


def _asked_seed(task: Task, rows: Sequence[Any]) -> _Seed:
    asked = _evaluate(task, rows)
    cut = best_cut([judged for one in asked for judged in _judged(one)])
    wrong: list[Any] = []
    right: list[Any] = []
    for one in asked:
        part = right if share_right(one.gold, one.pred, cut) == 1 else wrong
        part.append(one.gold)
    metric = partial(task.metric, cut=cut)
    return _Seed(cut, task._replace(metric=metric), wrong, right)


def labelled_few_shot(task: Task) -> dspy.Module:
    """Show demos with people's own labels, drawn at random: no LM calls."""
    demos = balanced(short(task.train), task.effort.demos, task.seed)
    return _with_demos(task, demos)


def _with_demos(task: Task, demos: Sequence[Any]) -> dspy.Module:
    return dspy.LabeledFewShot(k=len(demos)).compile(
        task.student, trainset=list(demos), sample=False
    )


def mistakes(task: Task) -> dspy.Module:
    """Demos with people's own labels where the LM, asked about `LEARN_FROM` examples, was most wrong."""
    asked = _evaluate(task, balanced(short(task.train), LEARN_FROM, task.seed))
    asked.sort(key=lambda one: one.score)
    # That the LM gave no verdict says nothing of the statement.
    worst = [one.gold for one in asked if not failed(one.pred)]
    supported = [row for row in worst if row.supported]
    unsupported = [row for row in worst if not row.supported]
    demos = in_turn([supported, unsupported])
    return _with_demos(task, demos[: task.effort.demos])


def learn_and_compare(task: Task) -> tuple[list[Any], list[Any]]:
    """Return the examples in two parts, no context in both: to learn from, and `balanced` to compare candidates on."""
    contexts = sorted({"\n".join(r.context) for r in task.train})
    random.Random(task.seed).shuffle(contexts)
    held = set(contexts[: round(HELD_BACK * len(contexts))])
    learn: list[Any] = []
    compare: list[Any] = []
    for row in task.train:
        part = compare if "\n".join(row.context) in held else learn
        part.append(row)
    for part in (learn, compare):
        supported = sum(row.supported for row in part)
        if min(supported, len(part) - supported) < MIN_LABELS:
            raise ConfigError(
                f"got {len(contexts)} contexts, a third of them to compare candidates on; expected "
                f"{MIN_LABELS} supported and {MIN_LABELS} unsupported statements in either part: label more."
            )
    return learn, balanced(compare, task.effort.compare_on, task.seed)


def bootstrap(task: Task) -> dspy.Module:
    """Reasoning bootstrapped from a teacher, with random search: demos in which its reasons lead to people's verdicts.

    Without reasoning its demos would be the labelled ones that are easy.
    """
    fields = [p.signature.output_fields for p in task.student.predictors()]
    if not any("reason" in names for names in fields):
        raise ConfigError("it shows reasoning: give reasoning='before' with it.")
    learn, valset = learn_and_compare(task)
    trainset = balanced(short(learn), LEARN_FROM, task.seed)
    task = _asked_seed(task, trainset).task
    optimizer = dspy.BootstrapFewShotWithRandomSearch(
        metric=task.metric,
        max_bootstrapped_demos=task.effort.demos,
        max_labeled_demos=0,
        num_candidate_programs=task.effort.candidates,
        num_threads=task.threads,
        teacher_settings={"lm": task.proposer},
    )
    return optimizer.compile(task.student, trainset=trainset, valset=valset)


def mipro(task: Task) -> dspy.Module:
    """MIPROv2 (Opsahl-Ong et al. 2024): proposed instructions and bootstrapped demos, searched by TPE."""
    learn, valset = learn_and_compare(task)
    trainset = balanced(short(learn), task.effort.compare_on, task.seed)
    task = _asked_seed(task, trainset).task
    # The first candidate is the seed instruction, the first set of demos is empty.
    candidates = task.effort.candidates + 2
    optimizer = dspy.MIPROv2(
        metric=task.metric,
        prompt_model=_proposing_lm(task),
        task_model=dspy.settings.lm,
        max_bootstrapped_demos=task.effort.demos,
        max_labeled_demos=task.effort.demos,
        auto=None,
        num_candidates=candidates,
        num_threads=task.threads,
        seed=task.seed + 1,  # it takes 0 for no seed at all
    )
    return optimizer.compile(
        task.student,
        trainset=trainset,
        valset=valset,
        num_trials=2 * candidates,
        minibatch=len(valset) > MINIBATCH,
        minibatch_size=min(MINIBATCH, len(valset)),
        program_aware_proposer=False,  # the source code of our adapter would not help to judge
    )


def gepa(task: Task) -> dspy.Module:
    """GEPA (Agrawal et al. 2025): instructions rewritten from feedback on single examples, Pareto-compared.

    Half of each minibatch are examples that the seed prompt gets wrong. A proposal is accepted for verdicts that it
    puts right, and compared with others by probability. It runs without a ``log_dir``: DSPy's cache of replies makes a
    second run as free as resuming one, and cannot return the result of other data.
    """
    learn, valset = learn_and_compare(task)
    seed = _asked_seed(task, balanced(learn, LEARN_FROM, task.seed))
    if not seed.wrong:
        raise ConfigError(
            f"the seed prompt is right about all of {len(seed.right)} examples: there is nothing to reflect on."
        )
    judging = seed.task.metric

    def metric(
        gold: Any,
        pred: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> Any:
        # It passes a trace where it compares scores; with one the metric would say right or wrong.
        judged = judging(gold, pred, None, pred_name or "", pred_trace)
        is_perfect = judged.objective_scores["right"] == 1
        judged.score = (judged.score + is_perfect) / 2
        return judged

    proposer = Proposer()
    calls = task.effort.metric_calls
    optimizer = dspy.GEPA(
        metric=metric,
        auto="light" if calls is None else None,
        max_metric_calls=calls,
        reflection_lm=_proposing_lm(task),
        reflection_minibatch_size=None,
        instruction_proposer=proposer,
        perfect_score=PERFECT,
        component_selector="all",
        use_merge=False,
        warn_on_score_mismatch=False,
        num_threads=task.threads,
        seed=task.seed,
        gepa_kwargs={
            "batch_sampler": Halves(len(seed.wrong)),
            "acceptance_criterion": MoreRight(),
            "stop_callbacks": proposer.gives_up,
        },
    )
    trainset = [*seed.wrong, *seed.right]
    compiled = optimizer.compile(task.student, trainset=trainset, valset=valset)
    if proposer.error and not proposer.proposed:
        raise proposer.error
    return compiled


def guidelines(task: Task) -> dspy.Module:
    """Rules that the proposer writes in one call, from all statements that people gave a reason for and that the seed
    prompt gets wrong."""
    explained = [row for row in task.train if row.get("reason")]
    if not explained:
        raise ConfigError(
            "it makes rules of the reasons that people wrote (`reason` of a statement), and these labels have none."
        )
    sample = balanced(task.train, LEARN_FROM, task.seed)
    cut = _asked_seed(task, sample).cut
    asked = _evaluate(task, explained)
    wrong = []
    for one in asked:
        if not all(is_right(judged, cut) for judged in _judged(one)):
            wrong.append(one)
    if not wrong:
        raise ConfigError(
            f"the seed prompt is right about all {len(explained)} statements that people gave a reason for."
        )
    disagreements = []
    for one in wrong:
        names = "context", "question", "statement", "verdict", "reason"
        fields = {name: one.gold[name] for name in names}
        disagreements.append({**fields, "judge": one.pred.get("verdict")})
    with dspy.context(lm=_proposing_lm(task)):
        rules = Guidelines()(disagreements)
    student = task.student.deepcopy()
    for predictor in student.predictors():
        text = with_rules(predictor.signature.instructions, rules)
        predictor.signature = predictor.signature.with_instructions(text)
    return student


def _proposing_lm(task: Task) -> Any:
    """Return the proposing LM with room for a whole instruction, and at a temperature at which proposals differ."""
    own = task.proposer.kwargs
    settings: dict[str, Any] = {"temperature": 1.0} if "temperature" in own else {}
    if own.get("max_tokens"):
        settings["max_tokens"] = max(own["max_tokens"], MIN_PROPOSER_TOKENS)
    return task.proposer.copy(**settings)


class Optimizer(NamedTuple):
    """How prompts are compiled, and what compiling them takes."""

    compile: Callable[[Task], Any]
    cheap: bool = False
    """Whether it costs next to nothing, so that prompts can be compiled on each half of the sources to be judged on the
    other, and on all to be exported. Else they are exported as they were judged: compiled on one half."""
    proposes: bool = False
    """Whether an LM writes instructions for it."""
    has_teacher: bool = False
    """Whether an LM shows the judge's how to answer."""
    learns_demos: bool = False
    """Whether it learns from nothing but the demos that it shows. It is then given the whole pool, and only their
    sources are lost to measuring; any other has learned from all that it was given, which is half of the pool."""
    extraction: Literal["apart", "together"] | None = None
    """Whether it compiles extraction, too: by itself, or the whole program at once."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Options of the judge that it comes with, unless a variant has others."""


OPTIMIZERS = {
    "labelled": Optimizer(
        labelled_few_shot, cheap=True, learns_demos=True, extraction="apart"
    ),
    "mistakes": Optimizer(mistakes, cheap=True, learns_demos=True, extraction="apart"),
    "bootstrap": Optimizer(
        bootstrap, has_teacher=True, options={"reasoning": "before"}
    ),
    "guidelines": Optimizer(guidelines, cheap=True, proposes=True),
    "mipro": Optimizer(mipro, proposes=True, extraction="apart"),
    "gepa": Optimizer(gepa, proposes=True, extraction="together"),
}


def optimizer_of(name: str) -> Optimizer:
    """Return the optimizer of that name, or a function of the user's own, ``module:function``; `ConfigError` if there
    is none."""
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    if ":" not in name:
        raise ConfigError(
            f"there is no optimizer {name!r}; choose one of {', '.join(OPTIMIZERS)}, or module:function"
        )
    function = own_optimizer(name)

    def compile_own(task: Task) -> Any:
        return function(task.student, list(task.train), task.metric)

    return Optimizer(compile_own, extraction="together")


def own_optimizer(name: str) -> Callable[..., Any]:
    """Return the user's function that ``module:function`` names, found from the working folder, too; `ConfigError` if
    there is none."""
    module, _, attribute = name.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as exc:
        raise ConfigError(
            f"the optimizer {name!r} cannot be imported ({type(exc).__name__}: {exc}); expected module:function, a "
            "function of student, trainset and metric."
        ) from exc
    finally:
        sys.path.remove(folder)
    if not callable(function):
        raise ConfigError(f"the optimizer {name!r} is {function!r}, no function.")
    return function  # type: ignore[no-any-return]


class Compiled(NamedTuple):
    """A compiled student, and how compiling went."""

    student: Any
    metric_calls: int
    """Predictions that were compared with labels."""


def compile_student(
    name: str, task: Task, advance: Callable[[int], None] = lambda _: None
) -> Compiled:
    """Run the optimizer of that name on a copy of the task's student; ``advance`` is called for each prediction.

    `ConfigError` where it cannot run on this task, raises, or returns something else. `LMUnavailableError` when the
    proposer's endpoint is down – before any call – or the judge's LM fails in more than `MAX_FAILED` of its answers.
    """
    optimizer = optimizer_of(name)
    proposer = task.proposer or dspy.settings.lm
    asks_proposer = optimizer.proposes or optimizer.has_teacher
    if asks_proposer and isinstance(task.proposer, MeteredLM):
        preflight(task.proposer)
    asked = 0
    errors: list[str] = []

    def counted_metric(
        gold: Any,
        pred: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
        **more: Any,
    ) -> Any:
        nonlocal asked
        if not pred_name:  # else GEPA asks for feedback on what it has scored
            asked += 1
            advance(1)
            if error := fault(pred):
                errors.append(error)
        return task.metric(gold, pred, trace, pred_name, pred_trace, **more)

    def check_lm() -> None:
        if len(errors) > MAX_FAILED * asked:
            raise LMUnavailableError(
                f"{name}: {len(errors)} of {asked} answers of the LM failed, the last with: {errors[-1]}. "
                "Check the endpoint and run again; what was answered is kept."
            )

    student = task.student.deepcopy()
    counting = task._replace(
        student=student,
        metric=counted_metric,
        proposer=proposer,
    )
    try:
        # DSPy's optimizers print and log as they go; the study has its own display. Proposals are long replies in
        # several fields: DSPy's adapter, not the compact one.
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            dspy.context(adapter=ChatAdapter()),
        ):
            compiled = optimizer.compile(counting)
    except Exception as exc:
        check_lm()
        if isinstance(exc, LMUnavailableError):
            raise
        why = " ".join(str(exc).split())[:300].rstrip(" .:")
        if isinstance(exc, FaithDspyError):
            raise type(exc)(f"{name}: {why}.") from exc
        who = f"; {proposer.model} proposed" if optimizer.proposes else ""
        raise ConfigError(
            f"{name} cannot run here: it ended with {type(exc).__name__}: {why}{who}."
        ) from exc
    check_lm()
    _check_student(name, compiled, student)
    return Compiled(compiled, asked)


def _check_student(name: str, compiled: Any, student: dspy.Module) -> None:
    """Refuse what is not the student with other prompts."""
    expected = _fields(student)
    if not isinstance(compiled, dspy.Module):
        got = f"{type(compiled).__name__}, no dspy.Module"
    elif _fields(compiled) == expected:
        return
    else:
        got = f"a module with the predictors {_fields(compiled)}"
    raise ConfigError(
        f"{name} returned {got}; expected the student with other prompts, its predictors {expected}."
    )


def _fields(module: dspy.Module) -> dict[str, list[str]]:
    prompts = getattr(module, "prompts", None) or dict(module.named_predictors())
    return {name: list(p.signature.fields) for name, p in prompts.items()}
