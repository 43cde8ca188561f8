"""The metric every optimizer maximises: agreement of a verdict with a person's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.signatures import INSTRUCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

_SUPPORTING = {label for i in INSTRUCTIONS.values() for label, v in i.verdicts.items() if v.is_supported}


def statement_examples(
    examples: Sequence[tuple[LabelledExample, Sequence[str], Sequence[bool | None]]], instruction: str
) -> list[dspy.Example]:
    """Labelled pieces of answers as DSPy examples of a verifier, with class weights.

    Per answer: the example, its pieces, and their labels. ``verdict`` is the instruction's label, ``weight`` makes
    both classes count the same in sum: n / (2 · n of the class).
    """
    known = INSTRUCTIONS[instruction].verdicts
    words = {ok: next(label for label, v in known.items() if v.is_supported is ok) for ok in (True, False)}
    rows = [
        (example, piece, label)
        for example, pieces, labels in examples
        for piece, label in zip(pieces, labels, strict=True)
        if label is not None
    ]
    count = {ok: sum(label is ok for _, _, label in rows) for ok in (True, False)}
    return [
        dspy.Example(
            context=[c.text for c in example.context],
            question=example.question or "",
            statement=piece,
            verdict=words[label],
            supported=label,
            reason=next((s.reason for s in example.statements if s.reason and s.text in piece), None),
            weight=len(rows) / (2 * count[label]),
        ).with_inputs("context", "question", "statement")
        for example, piece, label in rows
    ]


def agreement_metric(
    gold: dspy.Example, pred: dspy.Prediction, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
) -> Any:
    """Class-weighted probability that the verdict is the person's; its mean over a set is a soft balanced accuracy.

    With a ``trace`` (bootstrapping) whether the verdict is right; with a ``pred_name`` (GEPA) score and feedback. A
    reply without a label scores 0 and says so in the feedback; it is never taken for a verdict.
    """
    verdict = getattr(pred, "verdict", None)
    if verdict is None:
        score, right = 0.0, False
    else:
        right = (verdict in _SUPPORTING) == gold.supported
        probability = getattr(pred, "probability", None)
        score = float(right) if probability is None else (probability if gold.supported else 1 - probability)
    if trace is not None:
        return right
    if pred_name is not None or pred_trace is not None:
        return dspy.Prediction(score=score, feedback=_feedback(gold, verdict, right))
    return score * gold.weight


def _feedback(gold: dspy.Example, verdict: str | None, right: bool) -> str:
    said = "supports all of it" if gold.supported else "does not support all of it"
    why = f" Their reason: {gold.reason}" if gold.reason else ""
    if verdict is None:
        return f"The reply did not start with a label. People say the context {said}.{why}"
    judged = "Right" if right else "Wrong"
    return f"{judged}: the verdict was {verdict}; people say the context {said}.{why}"
