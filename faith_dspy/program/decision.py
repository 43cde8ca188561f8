"""What a decision model is asked: the judge's question by DSPy's own translation, and its answers as verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import dspy
from dspy.experimental import Choice

from faith_dspy.program.adapter import as_data


def decide(
    predict: dspy.Predict, context: Sequence[str], question: str, statements: Sequence[str]
) -> list[dspy.Prediction]:
    """One request about all ``statements``: of each the ``verdict``, with the labels' probabilities as ``logprobs``.

    The last paragraph of the instruction is the question, once for each statement; the rest is part of the state.
    """
    top, _, ask = predict.signature.instructions.strip().rpartition("\n\n")
    labels = get_args(predict.signature.output_fields["verdict"].annotation)
    kind = Choice[tuple((label, "") for label in labels)]
    signature = predict.signature.with_instructions(top)
    texts, about = [as_data(s) for s in statements], dict[str, Any]()
    if len(texts) == 1:
        signature = signature.with_updated_fields("verdict", type_=kind, desc=ask)
        about["statement"] = texts[0]
    else:
        signature = signature.delete("statement").delete("verdict")
        signature = signature.append("statements", dspy.InputField(desc="by their numbers"), dict[str, str])
        for i in range(1, len(texts) + 1):
            signature = signature.append(f"verdict_{i}", dspy.OutputField(desc=f"About statement {i}: {ask}"), kind)
        about["statements"] = {str(i): text for i, text in enumerate(texts, 1)}
    found = predict(signature=signature, context=[as_data(c) for c in context], question=as_data(question), **about)
    return [_verdict(found[name]) for name in signature.output_fields]


def _verdict(decision: Choice) -> dspy.Prediction:
    top = [{"token": label, "logprob": math.log(p)} for label, p in decision.probabilities.items() if p]
    content = [{"token": decision.value, "top_logprobs": top}]
    return dspy.Prediction(verdict=decision.value, logprobs={"content": content})
