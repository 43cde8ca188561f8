"""The contract between the stages of a program and the optimizers that compile them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin

import dspy

from faith_dspy.errors import FaithDspyError
from faith_dspy.program.adapter import CompactAdapter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.config import JudgeConfig

T = TypeVar("T")


class Effort(NamedTuple):
    """How much an optimizer may try."""

    demos: int = 4
    """Examples shown in the prompt; half of each class."""
    candidates: int = 3
    """Instructions that are proposed, and sets of demos that random search tries besides none and the labelled ones."""
    compare_on: int = 40
    """Labelled statements that candidates are compared on."""


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


class Task(NamedTuple):
    """What an optimizer is given. It is called inside ``dspy.context(lm=…)`` with the judge's LM."""

    student: Stage
    """A copy of the stage; the optimizer may change it."""
    train: Sequence[Any]
    """Labelled `dspy.Example`s of the stage, to learn from."""
    dev: Sequence[Any]
    """Labelled examples to compare candidates on."""
    effort: Effort
    seed: int
    metric: Callable[..., Any]
    """``metric(gold, pred, trace, pred_name, pred_trace)``; more is better. See `agreement_metric`."""
    config: JudgeConfig
    """The judge's options before compiling."""
    proposer: Any = None
    """The LM that writes instructions; None: the judge's own."""
    threads: int = 1


class Compiled(NamedTuple, Generic[T]):
    """A compiled `Stage`, or the `Judge` made of such stages, and how compiling went."""

    result: T
    search: tuple[dict[str, Any], ...] = ()
    """Of each instruction, where the bank was searched: ``name, auroc, balanced_accuracy, n``."""
    notes: tuple[str, ...] = ()
    """The outcome of each stage, a line each."""
    asked: int = 0
    """Predictions that were compared with labels."""
    failed: int = 0
    """Those of them in which the LM failed or gave no label: no verdict, not a wrong one."""


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
