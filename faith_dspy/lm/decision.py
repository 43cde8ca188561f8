"""Decision models: a state and typed questions in, a probability for each answer out, no text.

DSPy's support of them is experimental. Requests, replies and errors are those of its own `dspy.lm15`, as for every LM.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
        message = Message.user(data(state))
        request = Request(model=self.model, messages=(message,), config=config)
        (reply,) = super().__call__(request, **kwargs).message.parts
        return {
            name: {"probabilities": shares, "confidence": max(shares.values())}
            for name, shares in reply.probabilities.items()
        }

    def decide(
        self,
        predict: Callable[..., dspy.Prediction],
        instructions: tuple[str, str],
        labels: Sequence[str],
        inputs: Mapping[str, Any],
    ) -> dspy.Prediction:
        """Return what a text would say: a ``verdict``, or ``verdicts`` by number, and their labels' probabilities.

        Args:
            predict: Sends a signature's request.
            instructions: What is part of the state, and what is asked, once for each statement.
            labels: What may be answered.
            inputs: ``context``, ``question``, and a ``statement`` or ``statements`` by number.
        """
        top, ask = instructions
        about, shown, names = dict(inputs), "statement", {"verdict": ask}
        changes: dict[str, Any] = {}
        kind = Choice[tuple((label, "") for label in labels)]
        if "statements" in about:
            numbers = about["statements"]
            about["context"] = list(about["context"].values())
            about["statements"] = {str(i): text for i, text in numbers.items()}
            shown = "statements: dict[str, str]"
            names = {f"verdict_{i}": f"About statement {i}: {ask}" for i in numbers}
            changes["statements"] = (None, "by their numbers")
        changes |= {name: (kind, desc) for name, desc in names.items()}
        fields = f"context: list[str], question, {shown} -> {', '.join(names)}"
        signature = dspy.Signature(fields, top)
        for name, (type_, desc) in changes.items():
            signature = signature.with_updated_fields(name, type_=type_, desc=desc)
        decisions = predict(signature=signature, lm=self, **about)
        verdicts: list[Any] = []
        tokens: list[Any] = []
        for i, name in enumerate(names, 1):
            decision = decisions[name]
            verdicts.append({"statement": i, "verdict": decision.value})
            shares = [pair for pair in decision.probabilities.items() if pair[1]]
            likely = [{"token": label, "logprob": math.log(p)} for label, p in shares]
            # Each label stands where a reply in JSON would have it.
            tokens.append({"token": '"verdict": "'})
            tokens.append({"token": decision.value, "top_logprobs": likely})
        return dspy.Prediction(
            verdict=decision.value, verdicts=verdicts, logprobs={"content": tokens}
        )
