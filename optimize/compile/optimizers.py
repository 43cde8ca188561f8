"""Optimizers by name. A new one is a function here and an entry in `OPTIMIZERS`, and in `PROPOSING` if an LM proposes
instructions for it; a plan file can then name it, and `optimize/plan.py` can offer it by a variant's name.

It takes a `Task` and returns the stage with its new prompts. It asks verdicts of the judge's LM through
``task.student`` only, whose predictions have ``error`` set, and nothing else, where the LM failed; the metric scores
those 0. It raises `ConfigError` where it cannot run on these labels. Whatever else it raises is reported as the
proposer's fault if it is in `PROPOSING`.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import dspy
from dspy.adapters import ChatAdapter
from dspy.teleprompt.gepa import InstructionProposer
from pydantic import BaseModel, Field

from faith_dspy.errors import ConfigError, FaithDspyError, LMUnavailableError
from faith_dspy.lm.make import decision_model, preflight
from faith_dspy.lm.metered import MeteredLM
from faith_dspy.optimize.compile.examples import balanced, failed, short

MIN_LABELS = 2
"""Supported and unsupported examples that are needed each, to learn from and to compare candidates on."""
HELD_BACK = 1 / 3
"""Share of the contexts on which an optimizer compares its candidates."""
LEARN_FROM = 40
"""Statements that the LM is asked about to find demos."""
MAX_FAILED = 0.5
"""Share of the LM's answers that may fail; beyond it, the comparison would be luck."""
MIN_PROPOSER_TOKENS = 1024
"""Output tokens a proposer needs; a lower limit is raised."""
MINIBATCH = 35
"""Examples MIPROv2 tries a candidate on before the best are tried on all."""
REFLECT_ON = 3
"""Statements GEPA reflects on at a time."""
FORM = (
    "Write the instruction in two parts with one blank line between them. The first says what to mind when statements "
    "are checked against a context. The second, the last paragraph, is put after the statement: it asks the question "
    "in one or two sentences and names the labels to answer with, exactly as they are now."
)


class Effort(BaseModel, extra="forbid", frozen=True):
    """How much an optimizer may try."""

    demos: int = Field(default=4, ge=1)
    """Examples shown in the prompt; half of each class."""
    candidates: int = Field(default=3, ge=1)
    """Instructions that are proposed, and sets of demos that random search tries besides none and the labelled ones."""
    compare_on: int = Field(default=40, ge=4)
    """Labelled statements that candidates are compared on."""


class Task(NamedTuple):
    """What an optimizer is given. It is called inside ``dspy.context(lm=…)`` with the judge's LM."""

    student: dspy.Module
    """A copy of the stage; the optimizer may change it."""
    train: Sequence[Any]
    """Labelled `dspy.Example`s of the stage, to learn from and to compare candidates on."""
    effort: Effort
    seed: int
    metric: Callable[..., Any]
    """``metric(gold, pred, trace, pred_name, pred_trace)``; more is better. See `agreement_metric`."""
    proposer: Any = None
    """The LM that writes instructions; None: the judge's own."""
    threads: int = 1


def labelled_few_shot(task: Task) -> dspy.Module:
    """Demos with people's own labels: no LM calls."""
    return _with_demos(task, balanced(short(task.train), task.effort.demos, task.seed))


def _with_demos(task: Task, demos: Sequence[Any]) -> dspy.Module:
    return dspy.LabeledFewShot(k=len(demos)).compile(
        task.student, trainset=list(demos), sample=False
    )


def mistakes(task: Task) -> dspy.Module:
    """Demos with people's own labels where the LM, asked about `LEARN_FROM` statements, was most wrong."""
    rows = balanced(short(task.train), LEARN_FROM, task.seed)
    evaluate = dspy.Evaluate(
        devset=rows,
        metric=task.metric,
        num_threads=task.threads,
        display_progress=False,
    )
    kinds: dict[Any, list[Any]] = {}
    for row, pred, _ in sorted(evaluate(task.student).results, key=lambda one: one[2]):
        if not failed(
            pred
        ):  # that the LM gave no verdict says nothing of the statement
            kinds.setdefault(row.get("supported"), []).append(row)
    return _with_demos(
        task,
        [row for rows in zip(*kinds.values(), strict=False) for row in rows][
            : task.effort.demos
        ],
    )


def learn_and_compare(task: Task) -> tuple[list[Any], list[Any]]:
    """The examples in two parts, no context in both: to learn from, and `balanced` to compare candidates on."""
    contexts = sorted({"\n".join(r.context) for r in task.train})
    random.Random(task.seed).shuffle(contexts)
    held = set(contexts[: round(HELD_BACK * len(contexts))])
    learn, compare = (
        [r for r in task.train if ("\n".join(r.context) in held) is side]
        for side in (False, True)
    )
    for part in (learn, compare):
        if (
            min(sum(r.supported is label for r in part) for label in (True, False))
            < MIN_LABELS
        ):
            raise ConfigError(
                f"got {len(contexts)} contexts, a third of them to compare candidates on; expected "
                f"{MIN_LABELS} supported and {MIN_LABELS} unsupported statements in either part: label more."
            )
    return learn, balanced(compare, task.effort.compare_on, task.seed)


def bootstrap(task: Task) -> dspy.Module:
    """Bootstrapped demos with random search: sets of demos that the LM itself judges right, compared on others."""
    learn, valset = learn_and_compare(task)
    optimizer = dspy.BootstrapFewShotWithRandomSearch(
        metric=task.metric,
        max_bootstrapped_demos=task.effort.demos,
        max_labeled_demos=task.effort.demos,
        num_candidate_programs=task.effort.candidates,
        num_threads=task.threads,
    )
    trainset = balanced(short(learn), LEARN_FROM, task.seed)
    return optimizer.compile(task.student, trainset=trainset, valset=valset)


def mipro(task: Task) -> dspy.Module:
    """MIPROv2 (Opsahl-Ong et al. 2024): proposed instructions and bootstrapped demos, searched by TPE."""
    learn, valset = learn_and_compare(task)
    candidates = (
        task.effort.candidates + 2
    )  # the first is the seed instruction, the first set of demos is empty
    demos = 0 if decision_model(dspy.settings.lm) else task.effort.demos
    optimizer = dspy.MIPROv2(
        metric=task.metric,
        prompt_model=_proposer(task),
        task_model=dspy.settings.lm,
        max_bootstrapped_demos=demos,
        max_labeled_demos=demos,
        auto=None,
        num_candidates=candidates,
        num_threads=task.threads,
        seed=task.seed + 1,  # it takes 0 for no seed at all
    )
    return optimizer.compile(
        task.student,
        trainset=balanced(short(learn), task.effort.compare_on, task.seed),
        valset=valset,
        num_trials=2 * candidates,
        minibatch=len(valset) > MINIBATCH,
        minibatch_size=min(MINIBATCH, len(valset)),
        program_aware_proposer=False,  # the source code of our adapter would not help to judge
    )


def gepa(task: Task) -> dspy.Module:
    """GEPA (Agrawal et al. 2025): instructions rewritten from feedback on single statements, Pareto-compared.

    It runs without a ``log_dir``: DSPy's cache of replies makes a second run as free as resuming one, and cannot return
    the result of other data.
    """

    def metric(
        gold: Any,
        pred: Any,
        trace: Any = None,
        pred_name: str | None = None,
        pred_trace: Any = None,
    ) -> Any:
        # GEPA passes a trace where it compares scores; with one the metric would say right or wrong.
        return task.metric(gold, pred, None, pred_name, pred_trace)

    learn, valset = learn_and_compare(task)
    proposer = _RememberingProposer(adapter=ChatAdapter(), additional_instructions=FORM)
    optimizer = dspy.GEPA(
        metric=metric,
        max_metric_calls=(task.effort.candidates + 1) * (len(valset) + 2 * REFLECT_ON),
        reflection_minibatch_size=REFLECT_ON,
        reflection_lm=_proposer(task),
        instruction_proposer=proposer,
        skip_perfect_score=False,  # a score is weighted by its class: 1 is nothing special
        warn_on_score_mismatch=False,
        num_threads=task.threads,
        seed=task.seed,
    )
    compiled = optimizer.compile(task.student, trainset=learn, valset=valset)
    if proposer.error and not proposer.proposed:
        raise proposer.error
    return compiled


class _RememberingProposer(InstructionProposer):
    """GEPA's own proposer, which remembers its last error – GEPA goes on without proposals and reports nothing – and
    does not take its own brief for a proposal."""

    proposed = 0
    error: Exception | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            texts = super().__call__(*args, **kwargs)
        except Exception as exc:
            self.error = exc
            raise
        if any(FORM in text for text in texts.values()):  # as small models do
            self.error = ConfigError(
                "it repeated what it was told about the form of an instruction"
            )
            raise self.error
        self.proposed += 1
        return texts


def _proposer(task: Task) -> Any:
    """The proposing LM with room for a whole instruction, and at a temperature at which proposals differ."""
    given = task.proposer.kwargs
    settings: dict[str, Any] = {"temperature": 1.0} if "temperature" in given else {}
    if given.get("max_tokens"):
        settings["max_tokens"] = max(given["max_tokens"], MIN_PROPOSER_TOKENS)
    return task.proposer.copy(**settings)


OPTIMIZERS: dict[str, Callable[[Task], dspy.Module]] = {
    "labelled": labelled_few_shot,
    "mistakes": mistakes,
    "bootstrap": bootstrap,
    "mipro": mipro,
    "gepa": gepa,
}
PROPOSING = ("mipro", "gepa")
"""Optimizers for which an LM writes instructions."""
SEARCHING = ("bootstrap", *PROPOSING)
"""Optimizers that compare prompts on labels: all they were given is what they have learned from."""


class Compiled(NamedTuple):
    """A compiled stage, and how compiling went."""

    stage: Any
    asked: int
    """Predictions that were compared with labels."""
    failed: int
    """Those of them in which the LM failed or gave no label: no verdict, not a wrong one."""


def compile_stage(
    name: str, task: Task, advance: Callable[[int], None] = lambda _: None
) -> Compiled:
    """Run the optimizer of that name on a copy of the task's student; ``advance`` is called for each prediction.

    `ConfigError` when it cannot run on this task. `LMUnavailableError` when the proposer's endpoint is down – before
    any call – or the judge's LM fails in more than `MAX_FAILED` of its answers.
    """
    proposer = task.proposer or dspy.settings.lm
    if name not in PROPOSING and (judging := decision_model(dspy.settings.lm)):
        raise ConfigError(
            f"{name} shows examples in the prompt, and {judging} is only asked a question. Compile its wording with "
            f"{' or '.join(PROPOSING)} and --reflection-lm."
        )
    if name in PROPOSING and (silent := decision_model(proposer)):
        raise ConfigError(
            f"{name} needs an LM that writes instructions, got {silent}. Name one with --reflection-lm."
        )
    if name in PROPOSING and isinstance(task.proposer, MeteredLM):
        preflight(task.proposer)
    asked = without_verdict = 0
    errors: list[str] = []

    def counted_metric(gold: Any, pred: Any, *rest: Any, **more: Any) -> Any:
        nonlocal asked, without_verdict
        asked += 1
        advance(1)
        if error := "no prediction" if pred is None else pred.get("error"):
            errors.append(error)
        without_verdict += failed(pred)
        return task.metric(gold, pred, *rest, **more)

    def check_lm() -> None:
        if len(errors) > MAX_FAILED * asked:
            raise LMUnavailableError(
                f"{name}: {len(errors)} of {asked} answers of the LM failed, the last with: {errors[-1]}. "
                "Check the endpoint and run again; what was answered is kept."
            )

    given = task._replace(
        student=task.student.deepcopy(), metric=counted_metric, proposer=proposer
    )
    try:
        # DSPy's optimizers print and log as they go; the study has its own display. Proposals are long replies in
        # several fields: DSPy's adapter, not the compact one.
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            dspy.context(adapter=ChatAdapter()),
        ):
            compiled = OPTIMIZERS[name](given)
    except Exception as exc:
        check_lm()
        if isinstance(exc, FaithDspyError) or name not in PROPOSING:
            raise
        # DSPy passes on whatever the proposer's endpoint or its reply caused.
        why = " ".join(str(exc).split())[:200].rstrip(" .:")
        raise ConfigError(
            f"{name} cannot run here. {proposer.model}, which was to propose instructions, ended it with "
            f"{type(exc).__name__}: {why}. Give another LM for proposals."
        ) from exc
    check_lm()
    return Compiled(compiled, asked, without_verdict)
