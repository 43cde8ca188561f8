"""A judge's prompts compiled: its verifier as DSPy's optimizers run it, on labelled statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args, get_origin

import dspy

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, FaithDspyError, counted
from faith_dspy.judge import Judge
from faith_dspy.optimize.compile.examples import agreement_metric, statement_examples
from faith_dspy.optimize.compile.optimizers import (
    MIN_LABELS,
    Effort,
    Task,
    compile_stage,
)
from faith_dspy.program.program import FaithfulnessProgram
from faith_dspy.program.prompt import CompactAdapter
from faith_dspy.program.windows import context_bytes
from faith_dspy.schema import LabelledExample


class Stage(dspy.Module):
    """A part of the program, such as its verifier, as DSPy's optimizers run it.

    It talks to the LM through the compact adapter, while whoever proposes instructions uses DSPy's own. An LM fault
    comes back as a prediction with nothing but ``error``, which the metric counts as a failure, never as a verdict.
    """

    def __init__(self, part: dspy.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, **inputs: Any) -> dspy.Prediction:
        try:
            with dspy.context(adapter=_AnswerableAdapter()):
                return self.part(**inputs)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: counted, never mistaken for a wrong verdict
            return dspy.Prediction(error=f"{type(exc).__name__}: {exc}"[:300])


class CompiledJudge(NamedTuple):
    """A judge with compiled prompts, and what is to be said of compiling it."""

    judge: Judge
    notes: list[str]


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
    """A new judge, its verifier compiled by ``optimizer`` on labelled answers; the judge given stays as it is.

    It learns from people's statements where the LM extracts statements and people wrote some, else from sentences, and
    from whole answers where that is the granularity or too few of their parts are labelled.

    ``proposer``: the LM that writes instructions; None: the judge's own. ``advance`` is called for each prediction.
    Raises `ConfigError` where the optimizer cannot run on these labels or without an LM that can propose, and
    `LMUnavailableError` when an endpoint is down.
    """
    with dspy.context(lm=judge.lm):
        rows, notes = _verification_rows(judge, optimizer, train)
        metric = partial(agreement_metric, cite=judge.config.cite)
        task = Task(
            Stage(judge.program.verify),
            rows,
            effort,
            seed,
            metric,
            proposer,
            judge.default_threads,
        )
        compiled = compile_stage(optimizer, task, advance)
    new = judge.copy()
    new.program = FaithfulnessProgram(new.config)
    for made, predictor in zip(
        compiled.stage.part.predictors(), new.program.verify.predictors(), strict=True
    ):
        predictor.signature = answerable(made.signature)
        predictor.demos = [
            dspy.Example(**_in_prompt(predictor, demo)) for demo in made.demos
        ]
    if compiled.failed:
        notes.append(
            f"{compiled.failed} of {counted(compiled.asked, 'LM call')} failed while compiling"
        )
    return CompiledJudge(new, notes)


def _verification_rows(
    judge: Judge, optimizer: str, train: Sequence[LabelledExample]
) -> tuple[list[dspy.Example], list[str]]:
    """The examples that verification is compiled on, the whole context at once, and notes; `ConfigError` if they are
    too few."""
    counts, window = [0, 0], context_bytes(judge.lm)
    notes = [
        "verification: compiled on whole answers, too few of their parts are labelled"
    ]
    for granularity in dict.fromkeys((judge.config.granularity, Granularity.ANSWER)):
        found = statement_examples(train, granularity, judge.config.instruction)
        found = [
            r
            for r in found
            if window is None or sum(len(c.encode()) for c in r.context) <= window
        ]
        counts = [sum(r.supported is label for r in found) for label in (True, False)]
        if min(counts) >= MIN_LABELS:
            return found, notes if granularity is not judge.config.granularity else []
    raise ConfigError(
        f"{optimizer} needs at least {MIN_LABELS} supported and {MIN_LABELS} unsupported labelled statements, or "
        f"answers; got {counts[0]} and {counts[1]}"
    )


def demo_ids(judge: Judge, examples: Sequence[LabelledExample]) -> set[str]:
    """Ids of labelled examples that are demos in the prompt: the LM was shown their labels, so they measure nothing."""
    demos = [
        dict(demo)
        for predictor in judge.program.predictors()
        for demo in predictor.demos
    ]
    verified = {
        (tuple(d["context"]), d["statement"]) for d in demos if "statement" in d
    }

    def shown(e: LabelledExample) -> bool:
        context = tuple(c.text for c in e.context)
        own = {s.text for s in e.statements}
        return any(
            context == c and (text in e.answer or text in own) for c, text in verified
        )

    return {e.id for e in examples if shown(e)}


def prompts_of(judge: Judge) -> dict[str, Any]:
    """Instructions and demos of each predictor, as they are sent."""
    return {
        name: {
            "instructions": predictor.signature.instructions,
            "demos": [_in_prompt(predictor, demo) for demo in predictor.demos],
        }
        for name, predictor in judge.program.named_predictors()
    }


def _in_prompt(predictor: Any, demo: Any) -> dict[str, Any]:
    return {k: v for k, v in dict(demo).items() if k in predictor.signature.fields}


class _AnswerableAdapter(CompactAdapter):
    """Asks candidates as a judge would ask them."""

    def format(
        self, signature: Any, demos: list[dict[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        return super().format(answerable(signature), demos, inputs)


def answerable(signature: Any) -> Any:
    """The signature with a last paragraph that names its labels; the adapter asks it after the statement.

    A paragraph that names all labels is moved to the end; where there is none, a closing line is added.
    """
    literals = (
        f.annotation
        for f in signature.output_fields.values()
        if get_origin(f.annotation) is Literal
    )
    labels = [label for literal in literals for label in get_args(literal)]
    if not labels:
        return signature
    paragraphs = [
        p for p in re.split(r"\n\s*\n", signature.instructions.strip()) if p.strip()
    ] or [""]
    naming = [
        p
        for p in paragraphs
        if all(re.search(rf"\b{re.escape(label)}\b", p) for label in labels)
    ]
    if naming and naming[-1] is paragraphs[-1]:
        return signature
    if naming:
        paragraphs.remove(naming[-1])
        paragraphs.append(naming[-1])
    else:
        paragraphs[-1] = (
            f"{paragraphs[-1]}\nAnswer {', '.join(labels[:-1])} or {labels[-1]}.".strip()
        )
    return signature.with_instructions("\n\n".join(paragraphs))
