"""A judge's prompts compiled: its program, or parts of it, given to DSPy's optimizers as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import dspy

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, redact_keys
from faith_dspy.judge import Judge
from faith_dspy.lm.metered import metered
from faith_dspy.optimize.compile.examples import (
    answer_examples,
    extraction_examples,
    statement_examples,
)
from faith_dspy.optimize.compile.metric import agreement_metric
from faith_dspy.optimize.compile.optimizers import (
    MIN_LABELS,
    Effort,
    Task,
    compile_student,
    optimizer_of,
)
from faith_dspy.program.windows import context_bytes
from faith_dspy.schema import LabelledExample


class CompiledJudge(NamedTuple):
    """A judge with compiled prompts, and what is to be said of compiling it."""

    judge: Judge
    notes: list[str]
    metric_calls: int
    """Predictions that were compared with labels."""
    seconds: float


class _Student(NamedTuple):
    """What an optimizer is given: the program or a part of it, and examples of it."""

    module: dspy.Module
    train: list[dspy.Example]
    prompts: Callable[[Any], dict[str, dspy.Predict]]
    """The predictors of it, or of what it was compiled to, by their names in the program."""


def compile_judge(
    judge: Judge,
    optimizer: str,
    train: Sequence[LabelledExample],
    effort: Effort,
    seed: int,
    *,
    proposer: Any = None,
    advance: Callable[[int], None] = lambda _: None,
) -> CompiledJudge:
    """Return a new judge, its prompts compiled by ``optimizer`` on labelled answers; the judge given stays as it is.

    A function of the user's own is given the whole program, and so is GEPA where the LM extracts statements or judges
    them all in one call: extraction and verification are compiled together. Few-shot and MIPROv2 compile one after the
    other. Else verification is compiled on labelled sentences, on whole answers where that is the granularity or too
    few of their parts are labelled.

    Args:
        judge: whose program is compiled.
        optimizer: what `optimizer_of` knows.
        train: labelled answers.
        effort: what the optimizer may try.
        seed: of its choices.
        proposer: the LM that writes instructions; None: the judge's own.
        advance: is called for each prediction.

    Raises:
        ConfigError: the optimizer cannot run on these labels, or without an LM that can propose, or failed.
        LMUnavailableError: an endpoint is down.
    """
    new = judge.copy(config=judge.config)
    new.program = judge.program.deepcopy()
    notes: list[str] = []
    metric_calls = 0
    metric = partial(agreement_metric, cite=judge.config.cite)
    with metered(lm=judge.lm, disable_history=True) as spent:
        for student in _students(judge, optimizer, train, notes):
            task = Task(
                student.module,
                student.train,
                effort,
                seed,
                metric,
                proposer or judge.lm,
                judge.default_threads,
            )
            compiled = compile_student(optimizer, task, advance)
            metric_calls += compiled.metric_calls
            for name, predictor in student.prompts(compiled.student).items():
                prompt = new.program.prompts[name]
                # An endpoint may repeat a key in what it writes.
                instructions = redact_keys(predictor.signature.instructions)
                prompt.signature = predictor.signature.with_instructions(instructions)
                prompt.demos = [
                    dspy.Example(**_in_prompt(prompt, demo)) for demo in predictor.demos
                ]
    return CompiledJudge(new, notes, metric_calls, spent.seconds)


def _students(
    judge: Judge,
    optimizer: str,
    train: Sequence[LabelledExample],
    notes: list[str],
) -> Iterator[_Student]:
    """Return what is compiled, one after the other."""
    program, config = judge.program, judge.config
    extraction = optimizer_of(optimizer).extraction
    own = ":" in optimizer
    is_whole = program.extract is not None or program.verify.joint is not None
    if extraction == "together" and (own or is_whole):
        rows = answer_examples(train, config.verdicts)
        yield _Student(program, _fitting(rows, judge), lambda p: p.prompts)
        return
    if program.verify.joint is not None:
        raise ConfigError(
            f"{optimizer} compiles one question a statement, and verification='joint' asks about all at once; leave "
            "it out, or take gepa."
        )
    rows = _verification_rows(judge, optimizer, train, notes)
    yield _Student(program.verify, rows, lambda p: {"verify.predict": p.predict})
    if program.extract is None or extraction is None:
        return
    divided = extraction_examples(train)
    if not divided:
        notes.append("extraction: as it was, people wrote no statements")
        return
    yield _Student(program.extract, divided, lambda p: {"extract": p})


def _verification_rows(
    judge: Judge,
    optimizer: str,
    train: Sequence[LabelledExample],
    notes: list[str],
) -> list[dspy.Example]:
    """Return the examples that verification is compiled on, the whole context at once; `ConfigError` if they are too
    few."""
    own = judge.config.granularity
    supported = unsupported = 0
    for granularity in dict.fromkeys((own, Granularity.ANSWER)):
        rows = statement_examples(train, granularity, judge.config.verdicts)
        rows = _fitting(rows, judge)
        supported = sum(row.supported for row in rows)
        unsupported = len(rows) - supported
        if min(supported, unsupported) >= MIN_LABELS:
            if granularity is not own:
                notes.append(
                    "verification: compiled on whole answers, too few of their parts are labelled"
                )
            return rows
    raise ConfigError(
        f"{optimizer} needs at least {MIN_LABELS} supported and {MIN_LABELS} unsupported labelled statements, or "
        f"answers; got {supported} and {unsupported}"
    )


def _fitting(rows: Sequence[Any], judge: Judge) -> list[Any]:
    """Return those whose context fits one call."""
    window = context_bytes(judge.lm)
    if window is None:
        return list(rows)
    return [r for r in rows if sum(len(c.encode()) for c in r.context) <= window]


def prompts_of(judge: Judge) -> dict[str, Any]:
    """Instructions and demos of each predictor, as they are sent."""
    return {
        name: {
            "instructions": predictor.signature.instructions,
            "demos": [_in_prompt(predictor, demo) for demo in predictor.demos],
        }
        for name, predictor in judge.program.prompts.items()
    }


def _in_prompt(predictor: Any, demo: Any) -> dict[str, Any]:
    return {k: v for k, v in dict(demo).items() if k in predictor.signature.fields}
