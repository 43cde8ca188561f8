"""Decision models: a state and typed questions in, a probability for each answer out, no text.

DSPy's support of them is experimental. Requests, replies and errors are those of its own `dspy.lm15`, as for every LM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import dspy
from dspy.experimental import Choice
from dspy.lm15 import Config, Message, Request, choice, data, judgments

from faith_dspy.lm.metered import MeteredLM

HOME = "https://api.typesafe.ai"
"""Where decision models are, unless an address is given."""


class DecisionLM(MeteredLM):
    """A `MeteredLM` to which `dspy.Predict` sends decision requests in the place of prompts."""

    supports_decision_requests = True
    writes_text = False

    def __call__(
        self, state: Any, questions: Mapping[str, Any], **kwargs: Any
    ) -> dict[str, Any]:
        """Return each question's probabilities, as `dspy.experimental.TypeSafe` does. All questions are choices."""
        choices = {
            name: choice(q["instructions"], q["criteria"])
            for name, q in questions.items()
        }
        config = Config(response_format=judgments(**choices))
        request = Request(
            model=self.model, messages=(Message.user(data(state)),), config=config
        )
        (reply,) = super().__call__(request, **kwargs).message.parts
        return {
            name: {"probabilities": p, "confidence": max(p.values())}
            for name, p in reply.probabilities.items()
        }

    def decide(
        self,
        predict: dspy.Predict,
        context: Sequence[str],
        question: str,
        statements: Sequence[str],
    ) -> list[dspy.Prediction]:
        """Return each statement's ``verdict``, with the labels' probabilities as ``logprobs``, by one request.

        The last paragraph of the instruction is the question, once for each statement; the rest is part of the state.
        """
        top, _, ask = predict.signature.instructions.strip().rpartition("\n\n")
        labels = get_args(predict.signature.output_fields["verdict"].annotation)
        kind = Choice[tuple((label, "") for label in labels)]
        signature = predict.signature.with_instructions(top)
        about: dict[str, Any] = {"statement": statements[0]}
        if len(statements) == 1:
            signature = signature.with_updated_fields("verdict", type_=kind, desc=ask)
        else:
            signature = signature.delete("statement").delete("verdict")
            signature = signature.append(
                "statements", dspy.InputField(desc="by their numbers"), dict[str, str]
            )
            about = {
                "statements": {str(i): text for i, text in enumerate(statements, 1)}
            }
            for i in range(1, len(statements) + 1):
                signature = signature.append(
                    f"verdict_{i}",
                    dspy.OutputField(desc=f"About statement {i}: {ask}"),
                    kind,
                )
        decisions = predict(
            signature=signature,
            lm=self,
            context=list(context),
            question=question,
            **about,
        )
        return [_prediction(decisions[name]) for name in signature.output_fields]


def _prediction(decision: Choice) -> dspy.Prediction:
    top = [
        {"token": label, "logprob": math.log(p)}
        for label, p in decision.probabilities.items()
        if p
    ]
    content = [{"token": decision.value, "top_logprobs": top}]
    return dspy.Prediction(verdict=decision.value, logprobs={"content": content})
