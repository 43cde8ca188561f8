"""Optimizers by name. A new one is a function here and an entry in `OPTIMIZERS`; a plan file can then name it, and
`optimize/variants.toml` can offer it by a variant's name.

It takes a `Task` and returns the student with its new prompts. It asks verdicts of the judge's LM through
``task.student`` only, and scores them by ``task.metric``. It raises `ConfigError` where it cannot run on these labels.
A function of the user's own, ``module:function``, takes student, trainset and metric instead.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from statistics import fmean
from typing import Any, Literal, NamedTuple

import dspy
from dspy.adapters import ChatAdapter
from gepa.utils import ScoreThresholdStopper

from faith_dspy.errors import (
    ConfigError,
    FaithDspyError,
    LMUnavailableError,
    short_message,
)
from faith_dspy.lm.function import import_function
from faith_dspy.lm.make import preflight
from faith_dspy.lm.metered import MeteredLM
from faith_dspy.optimize.compile.examples import (
    balanced,
    classes_in_turn,
    drawn,
    short,
)
from faith_dspy.optimize.compile.metric import failed, fault
from faith_dspy.optimize.compile.proposals import Proposer, with_rules, write_rules
from faith_dspy.program.windows import context_bytes, utf8_size

Auto = Literal["light", "medium", "heavy"]
"""What GEPA and MIPROv2 spend, as DSPy names it; GEPA at light some 400 to 600 verdicts."""
MAX_DEMOS = 8
"""Shown in a prompt, as far as they fit `DEMO_SHARE`; each call pays for them."""
DEMO_SHARE = 1 / 4
"""Of the room for contexts that demos may fill."""
MIN_LABELS = 2
"""Supported and unsupported examples that are needed each, to learn from and to compare candidates on."""
HELD_BACK = 1 / 3
"""Share of the sources on which an optimizer compares its candidates."""
COMPARE_ON = 20
"""Examples of each class that candidates are compared on, at most."""
MAX_FAILED = 0.5
"""Share of the LM's answers that may fail; beyond it, the comparison would be luck."""
MIN_PROPOSER_TOKENS = 1024
"""Output tokens a proposer needs; a lower limit is raised."""


class Task(NamedTuple):
    """What an optimizer is given. It is called inside ``dspy.context(lm=…)`` with the judge's LM."""

    student: dspy.Module
    """A copy of the program, or of a part of it; the optimizer may change it."""
    train: Sequence[Any]
    """Labelled `dspy.Example`s of the student, to learn from and to compare candidates on."""
    auto: Auto
    seed: int
    metric: Callable[..., Any]
    """``metric(gold, pred, trace, pred_name, pred_trace)``; more is better. See `agreement_metric`."""
    proposer: Any
    """The LM that writes instructions."""
    threads: int = 1


class _Asked(NamedTuple):
    """A labelled example, what the student says of it, and its score."""

    gold: Any
    pred: Any
    score: float


def _evaluate(task: Task, student: Any, rows: Sequence[Any]) -> list[_Asked]:
    evaluate = dspy.Evaluate(
        devset=list(rows),
        metric=task.metric,
        num_threads=task.threads,
        display_progress=False,
    )
    return [_Asked(*one) for one in evaluate(student).results]


def labelled_few_shot(task: Task) -> dspy.Module:
    """Show demos with people's own labels, drawn at random, those first that people gave a reason for: no LM calls."""
    rows = drawn(short(task.train), task.seed)
    rows.sort(key=lambda row: not row.get("reason"))
    return _with_demos(task, classes_in_turn(rows))


def mistakes(task: Task) -> dspy.Module:
    """Demos with people's own labels about which the LM is most wrong, of equal verdicts the surest first."""
    rows = short(task.train)
    asked = _evaluate(task, task.student, rows)
    # That the LM gave no verdict says nothing of the statement.
    replied = [one for one in asked if not failed(one.pred)]
    replied.sort(key=lambda one: (one.score, -_doubt(one)))
    return _with_demos(task, classes_in_turn([one.gold for one in replied]))


def _doubt(asked: _Asked) -> float:
    """Return how far the LM's probability is from what people say; 0 where there is none."""
    probability = asked.pred.get("probability")
    return 0.0 if probability is None else abs(asked.gold.support - probability)


def _with_demos(task: Task, rows: Sequence[Any]) -> dspy.Module:
    """Return the student with the first of these demos, as many as its prompt has room for."""
    room = context_bytes(dspy.settings.lm)
    demos: list[Any] = []
    size = 0
    for row in rows[:MAX_DEMOS]:
        size += utf8_size(str(row.toDict()))
        if room is not None and size > room * DEMO_SHARE and len(demos) >= 2:
            break
        demos.append(row)
    return dspy.LabeledFewShot(k=len(demos)).compile(
        task.student, trainset=demos, sample=False
    )


def learn_and_compare(task: Task) -> tuple[list[Any], list[Any]]:
    """Return the examples in two parts, no source in both: to learn from, and `balanced` to compare candidates on."""
    sources = sorted({row.source for row in task.train})
    random.Random(task.seed).shuffle(sources)
    held = set(sources[: round(HELD_BACK * len(sources))])
    learn = [row for row in task.train if row.source not in held]
    compare = [row for row in task.train if row.source in held]
    for part in (learn, compare):
        supported = sum(row.supported for row in part)
        if min(supported, len(part) - supported) < MIN_LABELS:
            raise ConfigError(
                f"got {len(sources)} sources, a third of them to compare candidates on; expected "
                f"{MIN_LABELS} supported and {MIN_LABELS} unsupported statements in either part: label more."
            )
    return learn, balanced(compare, COMPARE_ON, task.seed)


def mipro(task: Task) -> dspy.Module:
    """MIPROv2 (Opsahl-Ong et al. 2024): proposed instructions and bootstrapped demos, searched by TPE."""
    trainset, valset = learn_and_compare(task)
    optimizer = dspy.MIPROv2(
        metric=task.metric,
        prompt_model=_proposing_lm(task),
        task_model=dspy.settings.lm,
        auto=task.auto,
        num_threads=task.threads,
        seed=task.seed + 1,  # it takes 0 for no seed at all
        metric_threshold=1.0,
    )
    return optimizer.compile(
        task.student,
        trainset=short(trainset),
        valset=valset,
        program_aware_proposer=False,  # the source code of our adapter would not help to judge
    )


def gepa(task: Task) -> dspy.Module:
    """GEPA (Agrawal et al. 2025): instructions rewritten from feedback on single examples, Pareto-compared.

    It runs without a ``log_dir``: DSPy's cache of replies makes a second run as free as resuming one, and cannot
    return the result of other data.
    """
    trainset, valset = learn_and_compare(task)
    proposer = Proposer()
    optimizer = dspy.GEPA(
        metric=task.metric,
        auto=task.auto,
        reflection_lm=_proposing_lm(task),
        instruction_proposer=proposer,
        num_threads=task.threads,
        seed=task.seed,
        gepa_kwargs={"stop_callbacks": [proposer.gives_up, ScoreThresholdStopper(1.0)]},
    )
    compiled = optimizer.compile(task.student, trainset=trainset, valset=valset)
    if proposer.error and not proposer.proposed:
        raise proposer.error
    return compiled


def guidelines(task: Task) -> dspy.Module:
    """Rules that the proposer writes in one call, from all statements about which the LM and people disagree.

    They are taken unless the LM agrees less with people by them than without them.
    """
    asked = _evaluate(task, task.student, task.train)
    wrong = [one for one in asked if one.score < 1 and not failed(one.pred)]
    if not wrong:
        raise ConfigError(
            f"the LM agrees with people on all of {len(asked)} statements: there is nothing to learn."
        )
    disagreements = []
    for one in wrong:
        names = "context", "question", "statement", "reason"
        shown = {name: one.gold[name] for name in names if one.gold[name]}
        verdicts = {"judge": one.pred.verdict, "people": one.gold.verdict}
        disagreements.append(shown | verdicts)
    with dspy.context(lm=_proposing_lm(task)):
        rules = write_rules(disagreements)
    student = task.student.deepcopy()
    for predictor in student.predictors():
        text = with_rules(predictor.signature.instructions, rules)
        predictor.signature = predictor.signature.with_instructions(text)
    compared = balanced(task.train, COMPARE_ON, task.seed)
    before, after = (
        fmean(one.score for one in _evaluate(task, judging, compared))
        for judging in (task.student, student)
    )
    if after < before:
        raise ConfigError(
            f"by the rules that {task.proposer.model} wrote the LM agrees with people at {after:.2f}, without them at "
            f"{before:.2f} (1 is always). Name another one with --reflection-lm"
        )
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
    extraction: Literal["apart", "together"] | None = None
    """Whether it compiles extraction, too: by itself, or the whole program at once."""


OPTIMIZERS = {
    "labelled": Optimizer(labelled_few_shot, cheap=True, extraction="apart"),
    "mistakes": Optimizer(mistakes, cheap=True, extraction="apart"),
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
    function = import_function(
        name, "an optimizer: a function of student, trainset and metric"
    )

    def compile_own(task: Task) -> Any:
        return function(task.student, list(task.train), task.metric)

    return Optimizer(compile_own, extraction="together")


def compile_student(
    name: str, task: Task, advance: Callable[[int], None] = lambda _: None
) -> tuple[Any, int]:
    """Run the optimizer of that name on a copy of the task's student; ``advance`` is called for each prediction.

    Returns the compiled student, and how many predictions were compared with labels.

    `ConfigError` where it cannot run on this task, raises, exits or returns something else, and before any verdict
    where the proposer does not answer. `LMUnavailableError` when the judge's LM fails in more than `MAX_FAILED` of its
    answers.
    """
    optimizer = optimizer_of(name)
    if optimizer.proposes and isinstance(task.proposer, MeteredLM):
        try:
            preflight(task.proposer)
        except LMUnavailableError as exc:
            raise ConfigError(f"{name}: {short_message(exc)}") from exc
    faults: list[str | None] = []
    """Of each prediction that was compared with a label."""

    def counted_metric(
        gold: Any,
        pred: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> Any:
        if pred_name is None:  # else GEPA asks for feedback on what it has scored
            advance(1)
            faults.append(fault(pred))
        return task.metric(gold, pred, trace, pred_name, pred_trace)

    def check_lm() -> None:
        errors = [error for error in faults if error is not None]
        if len(errors) > MAX_FAILED * len(faults):
            raise LMUnavailableError(
                f"{name}: {len(errors)} of {len(faults)} answers of the LM failed, the last with: {errors[-1]}. "
                "Check the endpoint and run again; what was answered is kept."
            )

    student = task.student.deepcopy()
    counting = task._replace(student=student, metric=counted_metric)
    try:
        # DSPy's optimizers print and log as they go; the study has its own display. Proposals are long replies in
        # several fields: DSPy's adapter, not the compact one.
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            dspy.context(adapter=ChatAdapter()),
        ):
            compiled = optimizer.compile(counting)
    except (Exception, SystemExit) as exc:
        check_lm()
        why = short_message(exc)[:300].rstrip(". ")
        if isinstance(exc, FaithDspyError):
            raise type(exc)(f"{name}: {why}.") from exc
        who = f"; {task.proposer.model} proposed" if optimizer.proposes else ""
        raise ConfigError(f"{name} cannot run here: it ended with {why}{who}.") from exc
    check_lm()
    _check_student(name, compiled, student)
    return compiled, len(faults)


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
    return {name: list(p.signature.fields) for name, p in predictors_of(module).items()}


def predictors_of(module: dspy.Module) -> dict[str, dspy.Predict]:
    """Return the predictors of a program, or of a part of it, by name."""
    return getattr(module, "prompts", None) or dict(module.named_predictors())
