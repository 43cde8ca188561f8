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
    Auto,
    Task,
    compile_student,
    optimizer_of,
    predictors_of,
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


def compile_judge(
    judge: Judge,
    optimizer: str,
    train: Sequence[LabelledExample],
    *,
    auto: Auto = "light",
    seed: int = 0,
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
        auto: what the optimizer may spend.
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
        for part, rows in _stages(new, optimizer, train, notes):
            task = Task(
                part,
                rows,
                auto,
                seed,
                metric,
                proposer or judge.lm,
                judge.default_threads,
            )
            compiled, calls = compile_student(optimizer, task, advance)
            metric_calls += calls
            predictors = predictors_of(compiled)
            for name, prompt in predictors_of(part).items():
                signature = predictors[name].signature
                # An endpoint may repeat a key in what it writes.
                instructions = redact_keys(signature.instructions)
                prompt.signature = signature.with_instructions(instructions)
                demos = [_in_prompt(prompt, demo) for demo in predictors[name].demos]
                prompt.demos = [dspy.Example(**demo) for demo in demos]
    return CompiledJudge(new, notes, metric_calls, spent.seconds)


def _stages(
    judge: Judge,
    optimizer: str,
    train: Sequence[LabelledExample],
    notes: list[str],
) -> Iterator[tuple[dspy.Module, list[dspy.Example]]]:
    """Return what is compiled, one after the other: the program or a part of it, and examples of it."""
    program, config = judge.program, judge.config
    extraction = optimizer_of(optimizer).extraction
    own = ":" in optimizer
    is_whole = program.extract is not None or program.verify.joint is not None
    if extraction == "together" and (own or is_whole):
        yield program, _fitting(answer_examples(train, config.verdicts), judge)
        return
    if program.verify.joint is not None:
        raise ConfigError(
            f"{optimizer} compiles one question a statement, and verification='joint' asks about all at once; leave "
            "it out, or take gepa."
        )
    yield program.verify, _verification_rows(judge, optimizer, train, notes)
    if program.extract is None or extraction is None:
        return
    divided = extraction_examples(train)
    if divided:
        yield program.extract, divided
    else:
        notes.append("extraction: as it was, people wrote no statements")


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
