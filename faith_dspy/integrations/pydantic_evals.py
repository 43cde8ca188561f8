"""A judge as an evaluator of Pydantic Evals.

from faith_dspy.integrations.pydantic_evals import Faithfulness
Dataset(name="shop", cases=cases, evaluators=[Faithfulness("judges/champion")]).evaluate_sync(task)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_core import to_jsonable_python

from faith_dspy.errors import FaithDspyError, optional_dependency
from faith_dspy.integrations.adapters import explain, judge_of, value
from faith_dspy.integrations.traces import record_of_call
from faith_dspy.judge import Judge

with optional_dependency(
    "pydantic_evals", "pydantic-evals", "A judge as a Pydantic Evals evaluator"
):
    from pydantic_evals.evaluators import (
        EvaluationReason,
        Evaluator,
        EvaluatorContext,
    )


@dataclass(repr=False)
class Faithfulness(Evaluator[Any, Any, Any]):
    """The output of a case, judged against the context that its inputs, metadata or output name as such.

    It gives ``faithfulness``, the probability of a tuned judge, the score of an untuned one, and ``faithful``, whether
    the answer passes, both with every statement's verdict as the reason. An answer that cannot be scored is an
    evaluator failure that says why, and is in no mean.
    """

    judge: Any = None
    """What `judge_of` takes: a `Judge`, its folder or MLflow address, a model's name, or a model of Pydantic AI's."""
    options: dict[str, Any] = field(default_factory=dict)
    """Those of `JudgeConfig`."""

    @cached_property
    def _judge(self) -> Judge:
        return judge_of({}, self.judge, **self.options)

    async def evaluate(
        self, ctx: EvaluatorContext[Any, Any, Any]
    ) -> dict[str, EvaluationReason]:
        """Judge the output of a case."""
        parts = (ctx.inputs, ctx.output, ctx.metadata)
        record = record_of_call(*(to_jsonable_python(part) for part in parts))
        (judgment,) = await self._judge.abatch([record], 1)
        reason = explain(judgment)
        score = value(judgment)
        if score is None:
            raise FaithDspyError(reason)
        return {
            "faithfulness": EvaluationReason(score, reason),
            "faithful": EvaluationReason(bool(judgment.faithful), reason),
        }
