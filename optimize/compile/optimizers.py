"""Optimizers by name: each takes a `Task` and gives back the stage it compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dspy
from dspy.adapters import ChatAdapter

from faith_dspy.errors import ConfigError, FaithDspyError, LMUnavailableError
from faith_dspy.lm import MeteredLM, preflight
from faith_dspy.optimize.compile.instruction_search import search
from faith_dspy.optimize.compile.metric import failed
from faith_dspy.optimize.compile.proposers import gepa, mipro, simba
from faith_dspy.optimize.compile.task import Effort as Effort
from faith_dspy.optimize.compile.task import Found, Task, balanced, quiet, short

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = 40
"""Statements that demos are bootstrapped from."""
MAX_FAILED = 0.5
"""Share of the LM's answers that may fail; with more, what was compared is luck."""


def labelled(task: Task) -> Found:
    """Few-shot with people's own labels: no LM calls, and no use of dev."""
    demos = balanced(short(task.train), task.effort.demos, task.seed)
    return Found(dspy.LabeledFewShot(k=len(demos)).compile(task.student, trainset=demos, sample=False))


def bootstrap(task: Task) -> Found:
    """Few-shot with random search: sets of demos that the LM itself judges right, compared on dev."""
    optimizer = dspy.BootstrapFewShotWithRandomSearch(
        metric=task.metric,
        max_bootstrapped_demos=task.effort.demos,
        max_labeled_demos=task.effort.demos,
        num_candidate_programs=task.effort.candidates,
        num_threads=task.threads,
    )
    return Found(
        optimizer.compile(
            task.student,
            trainset=balanced(short(task.train), POOL, task.seed),
            valset=balanced(task.dev, task.effort.compare_on, task.seed),
        )
    )


OPTIMIZERS: dict[str, Callable[[Task], Found]] = {
    "labelled": labelled,
    "bootstrap": bootstrap,
    "search": search,
    "mipro": mipro,
    "simba": simba,
    "gepa": gepa,
}
"""Each takes a `Task` and returns what it `Found`."""

PROPOSING = ("mipro", "simba", "gepa")
"""Those that have an LM write instructions."""


def check_optimizer(name: str) -> None:
    """`ConfigError` when there is no such optimizer."""
    if name not in OPTIMIZERS:
        raise ConfigError(f"there is no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}")


def compile_stage(name: str, task: Task) -> Found:
    """A compiled copy of the task's student, ready to be put into a judge.

    `ConfigError` when there is no such optimizer or it cannot be run on this, `LMUnavailableError` when the proposer's
    endpoint is not there – before any call – or the judged LM fails in more than `MAX_FAILED` of its answers.
    """
    check_optimizer(name)
    proposer = task.proposer or dspy.settings.lm
    if name in PROPOSING and isinstance(task.proposer, MeteredLM):
        preflight(task.proposer)
    count = {"asked": 0, "failed": 0, "errors": 0}
    last: list[str] = []

    def metric(gold: Any, pred: Any, *rest: Any, **more: Any) -> Any:
        count["asked"] += 1
        error = pred.get("error") if pred is not None else "no prediction"
        count["failed"] += bool(error) or ("verdict" in gold and failed(pred))
        if error:
            count["errors"] += 1
            last[:] = [error]
        return task.metric(gold, pred, *rest, **more)

    given = task._replace(student=task.student.deepcopy(), metric=metric, proposer=proposer)
    try:
        # Proposals are long replies in fields of their own: DSPy's adapter, not the compact one.
        with dspy.context(adapter=ChatAdapter()), quiet():
            found = OPTIMIZERS[name](given)
    except Exception as exc:
        _raise_if_dead(name, count, last)
        if isinstance(exc, FaithDspyError) or name not in PROPOSING:
            raise
        # DSPy passes on whatever the proposer's endpoint or its reply caused.
        told = " ".join(str(exc).split())[:200].rstrip(" .:")
        raise ConfigError(
            f"{name} cannot be run here. {proposer.model}, which was to propose instructions, ended it with "
            f"{type(exc).__name__}: {told}. Give another LM for proposals, or take the optimizer search, which needs "
            "none."
        ) from exc
    _raise_if_dead(name, count, last)
    return found._replace(asked=count["asked"], failed=count["failed"])


def _raise_if_dead(name: str, count: dict[str, int], last: list[str]) -> None:
    if last and count["errors"] > MAX_FAILED * count["asked"]:
        raise LMUnavailableError(
            f"{name}: {count['errors']} of {count['asked']} answers of the LM failed, the last with: {last[0]}. "
            "Check the endpoint and run again; what was answered is kept."
        )
