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
        choices = {}
        for name, question in questions.items():
            choices[name] = choice(question["instructions"], question["criteria"])
        request = Request(
            model=self.model,
            messages=(Message.user(data(state)),),
            config=Config(response_format=judgments(**choices)),
        )
        response = super().__call__(request, **kwargs)
        (reply,) = response.message.parts
        decisions = {}
        for name, shares in reply.probabilities.items():
            confidence = max(shares.values())
            decisions[name] = {"probabilities": shares, "confidence": confidence}
        return decisions

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
        about = dict(inputs)
        shown = "statement"
        questions = {"verdict": ask}
        if "statements" in about:
            about["context"] = list(about["context"].values())
            about["statements"] = {}
            shown = "statements: dict[str, str]"
            questions = {}
            for i, text in inputs["statements"].items():
                about["statements"][str(i)] = text
                questions[f"verdict_{i}"] = f"About statement {i}: {ask}"
        signature = dspy.Signature(
            f"context: list[str], question, {shown} -> {', '.join(questions)}", top
        )
        if "statements" in about:
            signature = signature.with_updated_fields(
                "statements", desc="by their numbers"
            )
        kind = Choice[tuple((label, "") for label in labels)]
        for name, question in questions.items():
            signature = signature.with_updated_fields(name, type_=kind, desc=question)
        decisions = predict(signature=signature, lm=self, **about)
        verdicts: list[Any] = []
        tokens: list[Any] = []
        for i, name in enumerate(questions, 1):
            decision = decisions[name]
            verdicts.append({"statement": i, "verdict": decision.value})
            likely = []
            for label, share in decision.probabilities.items():
                if share:
                    likely.append({"token": label, "logprob": math.log(share)})
            # Each label stands where a reply in JSON would have it.
            tokens.append({"token": '"verdict": "'})
            tokens.append({"token": decision.value, "top_logprobs": likely})
        return dspy.Prediction(
            verdict=decision.value,
            verdicts=verdicts,
            logprobs={"content": tokens},
        )
