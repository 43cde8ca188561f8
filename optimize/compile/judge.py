"""A judge's prompts compiled: its verifier as DSPy's optimizers run it, on labelled statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args, get_origin

import dspy

from faith_dspy.config import Granularity
from faith_dspy.errors import ConfigError, FaithDspyError
from faith_dspy.judge import Judge
from faith_dspy.optimize.compile.examples import statement_examples
from faith_dspy.optimize.compile.metric import agreement_metric
from faith_dspy.optimize.compile.optimizers import MIN_LABELS, Effort, Task, compile_stage
from faith_dspy.program.adapter import CompactAdapter
from faith_dspy.program.program import FaithfulnessProgram, bytes_of_context
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
        """The part's prediction."""
        try:
            with dspy.context(adapter=_AnswerableAdapter()):
                return self.part(**inputs)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: counted, never mistaken for a wrong verdict
            return dspy.Prediction(error=f"{type(exc).__name__}: {exc}"[:300])

    def copy_prompts_to(self, part: dspy.Module) -> None:
        """Give ``part``, of the same class as this stage's, the compiled instructions and demos.

        Instructions are made `answerable`; of each demo only the fields of the prompt are copied.
        """
        for compiled, predictor in zip(self.part.predictors(), part.predictors(), strict=True):
            predictor.signature = answerable(compiled.signature)
            predictor.demos = [
                dspy.Example(**{k: v for k, v in dict(demo).items() if k in predictor.signature.fields})
                for demo in compiled.demos
            ]


class CompiledJudge(NamedTuple):
    """A judge with compiled prompts, and how compiling went."""

    judge: Judge
    note: str
    """What was compiled on other than the judge's own granularity, or nothing."""
    asked: int
    failed: int
    """As in `Compiled`."""


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
        rows, note = _verification_rows(judge, optimizer, train)
        metric = partial(agreement_metric, cite=judge.config.cite)
        task = Task(Stage(judge.program.verify), rows, effort, seed, metric, proposer, judge.default_threads)
        compiled = compile_stage(optimizer, task, advance)
    new = judge.copy()
    new.program = FaithfulnessProgram(new.config)
    compiled.stage.copy_prompts_to(new.program.verify)
    return CompiledJudge(new, note, compiled.asked, compiled.failed)


def _verification_rows(
    judge: Judge, optimizer: str, train: Sequence[LabelledExample]
) -> tuple[list[dspy.Example], str]:
    """The examples that verification is compiled on, and a note; `ConfigError` if they are too few."""

    def rows(granularity: Granularity) -> tuple[list[dspy.Example], int, int]:
        """Those an optimizer can ask about, the whole context at once, and how many are supported and not."""
        found = statement_examples(train, granularity, judge.config.instruction)
        window = bytes_of_context(judge.lm)
        kept = [r for r in found if window is None or sum(len(c.encode()) for c in r.context) <= window]
        return kept, sum(r.supported for r in kept), sum(not r.supported for r in kept)

    granularity, note = judge.config.granularity, ""
    found, *counts = rows(granularity)
    if granularity is not Granularity.ANSWER and min(counts) < MIN_LABELS:
        found, *counts = rows(Granularity.ANSWER)
        note = "verification: compiled on whole answers, too few of their parts are labelled"
    if min(counts) < MIN_LABELS:
        raise ConfigError(
            f"{optimizer} needs at least {MIN_LABELS} supported and {MIN_LABELS} unsupported labelled statements, "
            f"or answers, in train; got {counts[0]} and {counts[1]}"
        )
    return found, note


def demo_ids(judge: Judge, examples: Sequence[LabelledExample]) -> set[str]:
    """Ids of labelled examples that are demos in the prompt: the LM was shown their labels, so they measure nothing."""
    demos = [dict(demo) for predictor in judge.program.predictors() for demo in predictor.demos]
    verified = {(tuple(d["context"]), d["statement"]) for d in demos if "statement" in d}

    def shown(e: LabelledExample) -> bool:
        context = tuple(c.text for c in e.context)
        own = {s.text for s in e.statements}
        return any(context == c and (text in e.answer or text in own) for c, text in verified)

    return {e.id for e in examples if shown(e)}


def prompts_of(judge: Judge) -> dict[str, Any]:
    """Instructions and demos of each predictor, as they are sent."""
    return {
        name: {
            "instructions": predictor.signature.instructions,
            "demos": [{k: v for k, v in dict(d).items() if k in predictor.signature.fields} for d in predictor.demos],
        }
        for name, predictor in judge.program.named_predictors()
    }


class _AnswerableAdapter(CompactAdapter):
    """Asks candidates as a judge would ask them."""

    def format(self, signature: Any, demos: list[dict[str, Any]], inputs: dict[str, Any]) -> list[dict[str, Any]]:
        return super().format(answerable(signature), demos, inputs)


def answerable(signature: Any) -> Any:
    """The signature with a last paragraph that names its labels; the adapter asks it after the statement.

    A paragraph that names all labels is moved to the end; where there is none, a closing line is added.
    """
    literals = (f.annotation for f in signature.output_fields.values() if get_origin(f.annotation) is Literal)
    labels = [label for literal in literals for label in get_args(literal)]
    if not labels:
        return signature
    paragraphs = [p for p in re.split(r"\n\s*\n", signature.instructions.strip()) if p.strip()] or [""]
    naming = [p for p in paragraphs if all(re.search(rf"\b{re.escape(label)}\b", p) for label in labels)]
    if naming and naming[-1] is paragraphs[-1]:
        return signature
    if naming:
        paragraphs.remove(naming[-1])
        paragraphs.append(naming[-1])
    else:
        paragraphs[-1] = f"{paragraphs[-1]}\nAnswer {', '.join(labels[:-1])} or {labels[-1]}.".strip()
    return signature.with_instructions("\n\n".join(paragraphs))
