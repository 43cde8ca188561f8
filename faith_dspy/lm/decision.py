"""Decision models: a state and typed questions in, a probability for each answer out, no text.

DSPy's support of them is experimental. Requests, replies and errors are those of its own `dspy.lm15`, as for every LM.
"""

from collections.abc import Mapping
from typing import Any

from dspy.lm15 import Config, Message, Request, choice, data, judgments

from faith_dspy.lm.metered import MeteredLM


class DecisionLM(MeteredLM):
    """A `MeteredLM` to which `dspy.Predict` sends decision requests in the place of prompts."""

    supports_decision_requests = True

    def __call__(self, state: Any, questions: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Each question's probabilities, as `dspy.experimental.TypeSafe` gives them. All questions are choices."""
        asked = {name: choice(q["instructions"], q["criteria"]) for name, q in questions.items()}
        config = Config(response_format=judgments(**asked))
        request = Request(model=self.model, messages=(Message.user(data(state)),), config=config)
        (reply,) = super().__call__(request, **kwargs).message.parts
        return {name: {"probabilities": p, "confidence": max(p.values())} for name, p in reply.probabilities.items()}
