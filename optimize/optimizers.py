"""Optimizers by name: each takes a verifier and labelled statements, and returns a compiled verifier."""

from __future__ import annotations

import contextlib
import io
import logging
import random
from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from faith_dspy.errors import ConfigError
from faith_dspy.optimize.metric import agreement_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.program import Verifier

MAX_DEMO_WORDS = 450
"""Of a demo's context. Demos stand in every prompt; long ones cost more than they teach."""


POOL = 40
"""Statements that demos are bootstrapped from."""


class Effort(NamedTuple):
    """How much an optimizer may try."""

    demos: int = 4
    """Examples shown in the prompt; half of each class."""
    candidates: int = 3
    """Sets of demos tried by random search, besides none and the labelled ones."""
    compare_on: int = 40
    """Labelled statements that candidates are compared on."""


class Task(NamedTuple):
    """What an optimizer is given."""

    student: Verifier
    train: Sequence[Any]
    """Labelled statements to learn from."""
    dev: Sequence[Any]
    """Labelled statements to compare candidates on."""
    effort: Effort
    seed: int
    metric: Callable[..., Any] = agreement_metric


def labelled(task: Task) -> Verifier:
    """Few-shot with people's own labels: no LM calls, and no use of dev."""
    demos = _balanced(_short(task.train), task.effort.demos, task.seed)
    return _settled(dspy.LabeledFewShot(k=len(demos)).compile(task.student, trainset=demos, sample=False))


def bootstrap(task: Task) -> Verifier:
    """Few-shot with random search: sets of demos that the LM itself judges right, compared on dev."""
    optimizer = dspy.BootstrapFewShotWithRandomSearch(
        metric=task.metric,
        max_bootstrapped_demos=task.effort.demos,
        max_labeled_demos=task.effort.demos,
        num_candidate_programs=task.effort.candidates,
        num_threads=1,
    )
    pool = _balanced(_short(task.train), POOL, task.seed)
    with quiet():
        compiled = optimizer.compile(
            task.student, trainset=pool, valset=_balanced(task.dev, task.effort.compare_on, task.seed)
        )
    return _settled(compiled)


OPTIMIZERS: dict[str, Callable[[Task], Verifier]] = {"labelled": labelled, "bootstrap": bootstrap}
"""Each takes a `Task` and returns a compiled verifier."""


def compile_verifier(name: str, task: Task) -> Verifier:
    """A compiled copy of the task's student.

    `ConfigError` when there is no such optimizer, or too little to learn from.
    """
    if name not in OPTIMIZERS:
        raise ConfigError(f"there is no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}")
    for part, rows in (("train", task.train), ("dev", task.dev)):
        per_class = [sum(e.supported is want for e in rows) for want in (True, False)]
        if min(per_class) < 2:
            raise ConfigError(
                f"{name} needs at least 2 supported and 2 unsupported labelled statements in {part}; "
                f"got {per_class[0]} and {per_class[1]}"
            )
    return OPTIMIZERS[name](task._replace(student=task.student.deepcopy()))


def _short(rows: Sequence[Any]) -> list[Any]:
    """Examples whose context is no longer than the median, and than `MAX_DEMO_WORDS`."""
    size = {id(r): sum(len(c.split()) for c in r.context) for r in rows}
    limit = sorted(size.values())[len(rows) // 2]
    short = [r for r in rows if size[id(r)] <= min(limit, MAX_DEMO_WORDS)]
    both = {r.supported for r in short} == {True, False}
    return short if both else list(rows)


def _balanced(rows: Sequence[Any], n: int, seed: int) -> list[Any]:
    """Up to ``n`` examples, as many of each class as there are, classes in turn, at most one of each context first."""
    rng = random.Random(seed)
    pools: list[list[Any]] = []
    for want in (False, True):
        pool = [r for r in rows if r.supported is want]
        rng.shuffle(pool)
        seen: set[str] = set()
        fresh: list[Any] = []
        again: list[Any] = []
        for row in pool:
            key = "\n".join(row.context)
            (again if key in seen else fresh).append(row)
            seen.add(key)
        pools.append(fresh + again)
    out: list[Any] = []
    while len(out) < n and any(pools):
        for pool in pools:
            if pool and len(out) < n:
                out.append(pool.pop(0))
    return out


def _settled(compiled: Any) -> Verifier:
    # DSPy leaves a nested module out of the saved state when it says it is compiled.
    compiled._compiled = False
    verifier: Verifier = compiled
    return verifier


@contextlib.contextmanager
def quiet() -> Any:
    """DSPy's optimizers print and log as they go; the study has its own display."""
    loggers = [logging.getLogger(n) for n in ("dspy.evaluate.evaluate", "dspy.teleprompt")]
    levels = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        for log, level in zip(loggers, levels, strict=True):
            log.setLevel(level)
