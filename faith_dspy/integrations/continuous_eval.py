"""continuous-eval's own calls: faithfulness by statement, a number, or of the whole answer, yes or no.

from faith_dspy.integrations.continuous_eval import Faithfulness
Faithfulness(model="gpt-4o-mini")(**datum)  # since 0.3.14; before that LLMBasedFaithfulness
"""

from __future__ import annotations

import json
from typing import Any, Self

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.adapters import explain, judge_of
from faith_dspy.schema import Judgment

_NAME = "LLM_based_faithfulness"


def LLMFactory(model: str) -> str:
    """Return the model's name: the judge makes its LM itself."""
    return model


class _Metric:
    """What the metrics of all releases do. ``model`` and ``options``: what `judge_of` takes.

    ``datum`` has ``question``, ``retrieved_context`` (or ``retrieved_contexts``) and ``answer``; whatever else it has
    is not used. An answer that could not be scored has None, and the reason. ``use_few_shot`` is refused: demos come
    from tuning here.
    """

    def __init__(
        self, model: Any, use_few_shot: bool, default: str, **options: Any
    ) -> None:
        if use_few_shot:
            raise ConfigError(
                "there are no examples to use: give labels to `faith-dspy tune`, and its judge as the model"
            )
        defaults = {"granularity": default, "reasoning": "after"}
        self.judge = judge_of(defaults, model, **options)
        self.name = type(self).__name__
        self.overloaded_params: dict[str, Any] | None = None

    def __call__(self, **datum: Any) -> dict[str, Any]:
        """Return the result of a datum."""
        return self._result(self.judge.batch([datum], 1)[0])

    def batch(self, **columns: Any) -> list[dict[str, Any]]:
        """Return the results of many data, in their order; each column is a list."""
        rows = zip(*columns.values(), strict=True)
        data = [dict(zip(columns, row, strict=True)) for row in rows]
        return [self._result(judgment) for judgment in self.judge.batch(data)]

    def use(self, **arguments: Any) -> Self:
        """Keep what a pipeline's module hands to the metric."""
        self.overloaded_params = arguments
        return self

    def _result(self, judgment: Judgment) -> dict[str, Any]:
        raise NotImplementedError


class Faithfulness(_Metric):
    """The metric since 0.3.14: the probability that the whole answer is supported, and why.

    It is read, not sampled, so ``temperature`` changes nothing.
    """

    def __init__(
        self,
        use_few_shot: bool = False,
        temperature: float = 1.0,
        model: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(model, use_few_shot, "answer", **options)

    def _result(self, judgment: Judgment) -> dict[str, Any]:
        probabilities = [judgment.probability]
        probabilities += [one.confidence for one in judgment.statements]
        if judgment.unscored is not None:
            probabilities = []
        told = (value for value in probabilities if value is not None)
        return {
            "faithfulness": next(told, judgment.score),
            "reasoning": _reason(judgment),
        }


class LLMBasedFaithfulness(_Metric):
    """The metric up to 0.3.13: by statement the share that is supported, and why as JSON; else 1.0 or 0.0 for the whole
    answer, and why as text."""

    def __init__(
        self,
        model: Any = None,
        use_few_shot: bool = False,
        classify_by_statement: bool = False,
        **options: Any,
    ) -> None:
        granularity = "statement" if classify_by_statement else "answer"
        super().__init__(model, use_few_shot, granularity, **options)
        self.classify_by_statement = classify_by_statement

    def calculate(self, **datum: Any) -> dict[str, Any]:
        """Return the result of a datum as releases up to 0.2.7 do: a boolean for the whole answer."""
        result = self(**datum)
        if result[_NAME] is not None and not self.classify_by_statement:
            result[_NAME] = bool(result[_NAME])
        return result

    def _result(self, judgment: Judgment) -> dict[str, Any]:
        result, reasoning = judgment.score, _reason(judgment)
        if judgment.unscored is None and self.classify_by_statement:
            entries = []
            for i, statement in enumerate(judgment.statements):
                entry = {
                    f"statement_{i + 1}": statement.text,
                    "reason": statement.reason or statement.error,
                    "Attributed": int(bool(statement.is_supported)),
                }
                entries.append(entry)
            listed = {"classification": entries}
            reasoning = json.dumps(listed, indent=4, ensure_ascii=False)
        elif judgment.unscored is None:
            result = float(bool(judgment.faithful))
        return {_NAME: result, f"{_NAME}_reasoning": reasoning}


def _reason(judgment: Judgment) -> str:
    """Return why the whole answer is supported or not, or why it is unscored."""
    reasons = [one.reason or one.error for one in judgment.statements]
    if judgment.unscored is None and reasons and reasons[0]:
        return reasons[0]
    return explain(judgment)
