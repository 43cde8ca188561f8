"""continuous-eval's own calls: faithfulness by statement, a number, or of the whole answer, yes or no.

from faith_dspy.integrations.continuous_eval import LLMBasedFaithfulness, LLMFactory
LLMBasedFaithfulness(LLMFactory("gpt-4o-mini"), classify_by_statement=True).calculate(**datum)
"""

from __future__ import annotations

import json
from typing import Any

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.adapters import explain, judge_of
from faith_dspy.schema import Judgment

_NAME = "LLM_based_faithfulness"


def LLMFactory(model: str) -> str:
    """Return the model's name: the judge makes its LM itself."""
    return model


class LLMBasedFaithfulness:
    """``model`` and ``options``: what `judge_of` takes. ``use_few_shot`` is refused: demos come from tuning here."""

    def __init__(
        self,
        model: Any = None,
        use_few_shot: bool = False,
        classify_by_statement: bool = False,
        **options: Any,
    ) -> None:
        if use_few_shot:
            raise ConfigError(
                "there are no examples to use: give labels to `faith-dspy tune`, and its judge as the model"
            )
        self.classify_by_statement = classify_by_statement
        defaults = {
            "granularity": "statement" if classify_by_statement else "answer",
            "reasoning": "after",
        }
        self.judge = judge_of(defaults, model, **options)

    def calculate(self, **datum: Any) -> dict[str, Any]:
        """``LLM_based_faithfulness``, a share or a boolean, and its reasoning: JSON by statement, else text.

        ``datum``: ``question``, ``retrieved_contexts`` (or ``retrieved_context``) and ``answer``; whatever else it has
        is not used. An answer that could not be scored has None, and the reason.
        """
        judgment: Judgment = self.judge.batch([datum], 1)[0]
        result: bool | float | None = judgment.faithful
        reasons = [s.reason or s.error for s in judgment.statements]
        reasoning = explain(judgment)
        if judgment.unscored is None and self.classify_by_statement:
            result = judgment.score
            entries = []
            for i, statement in enumerate(judgment.statements):
                entry = {
                    f"statement_{i + 1}": statement.text,
                    "reason": reasons[i],
                    "Attributed": int(bool(statement.is_supported)),
                }
                entries.append(entry)
            listed = {"classification": entries}
            reasoning = json.dumps(listed, indent=4, ensure_ascii=False)
        elif judgment.unscored is None and reasons and reasons[0]:
            reasoning = reasons[0]
        return {_NAME: result, f"{_NAME}_reasoning": reasoning}
