"""A part of the program as DSPy's optimizers run it."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args, get_origin

import dspy

from faith_dspy.errors import FaithDspyError
from faith_dspy.program.adapter import CompactAdapter


class Stage(dspy.Module):
    """A part of the program, such as its verifier.

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
            fields = predictor.signature.fields
            predictor.demos = [
                dspy.Example(**{k: v for k, v in dict(demo).items() if k in fields}) for demo in compiled.demos
            ]


class _AnswerableAdapter(CompactAdapter):
    """Asks candidates as a judge would ask them."""

    def format(self, signature: Any, demos: list[dict[str, Any]], inputs: dict[str, Any]) -> list[dict[str, Any]]:
        return super().format(answerable(signature), demos, inputs)


def answerable(signature: Any) -> Any:
    """The signature with a last paragraph that names its labels; the adapter asks it after the statement.

    A paragraph that names all labels is moved to the end; where there is none, a closing line is added.
    """
    labels = [
        label
        for field in signature.output_fields.values()
        if get_origin(field.annotation) is Literal
        for label in get_args(field.annotation)
    ]
    paragraphs = [p for p in re.split(r"\n\s*\n", signature.instructions.strip()) if p.strip()]
    naming = [p for p in paragraphs if all(re.search(rf"\b{re.escape(label)}\b", p) for label in labels)]
    if not labels or (naming and naming[-1] is paragraphs[-1]):
        return signature
    if naming:
        paragraphs.remove(naming[-1])
        paragraphs.append(naming[-1])
    else:
        paragraphs[-1:] = [f"{''.join(paragraphs[-1:])}\nAnswer {', '.join(labels[:-1])} or {labels[-1]}.".strip()]
    return signature.with_instructions("\n\n".join(paragraphs))
