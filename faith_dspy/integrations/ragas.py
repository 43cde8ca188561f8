"""A judge as a RAGAS metric.

from faith_dspy.integrations.ragas import Faithfulness
ragas.evaluate(dataset, metrics=[Faithfulness(load_judge("judges/champion"))])
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import needs
from faith_dspy.integrations.datum import explain
from faith_dspy.schema import digest

with needs("ragas", "ragas", "A judge as a RAGAS metric"):
    from ragas.metrics.base import MetricType, SingleTurnMetric
    from ragas.metrics.result import MetricResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment


class Faithfulness(SingleTurnMetric):
    """`Judgment.score` as a RAGAS metric, for `ragas.evaluate`, ``single_turn_ascore`` and the newer ``ascore``.

    It needs ``response`` and ``retrieved_contexts``, uses ``user_input`` if it is there, and takes no RAGAS LM: the
    judge has its own. An unscored answer is NaN, RAGAS's own word for not scored, which its means leave out; the reason
    is in the `MetricResult`, and in ``judgment(sample)`` after `evaluate`, whose results have room for a number only.
    """

    def __init__(self, judge: Judge, name: str = "faithfulness") -> None:
        columns = {"response", "retrieved_contexts", "user_input:optional"}
        super().__init__(_required_columns={MetricType.SINGLE_TURN: columns}, name=name)
        self.judge = judge
        self._judgments: dict[str, Judgment] = {}

    def init(self, run_config: Any) -> None:
        """Nothing to set up: waiting and trying again are the judge's own business."""

    async def ascore(
        self,
        response: str | None = None,
        retrieved_contexts: Sequence[str] | None = None,
        user_input: str | None = None,
    ) -> MetricResult:
        """Score (NaN if unscored) with the reason; called as RAGAS's own faithfulness is."""
        judgment = await self.judge.acall(user_input, list(retrieved_contexts or ()), response or "")
        self._judgments[_key(response, retrieved_contexts, user_input)] = judgment
        return MetricResult(value=math.nan if judgment.score is None else judgment.score, reason=explain(judgment))

    def score(self, **kwargs: Any) -> MetricResult:
        """As `ascore`, outside an event loop."""
        return asyncio.run(self.ascore(**kwargs))

    async def _single_turn_ascore(self, sample: Any, callbacks: Any) -> float:
        result = await self.ascore(sample.response, sample.retrieved_contexts, sample.user_input)
        return float(result.value)

    def judgment(self, sample: Any) -> Judgment | None:
        """What was found of a sample (or a row of the data set) that this metric has scored; None of any other."""
        row = sample if isinstance(sample, dict) else sample.to_dict()
        return self._judgments.get(_key(*(row.get(k) for k in ("response", "retrieved_contexts", "user_input"))))


def _key(response: str | None, contexts: Sequence[str] | None, user_input: str | None) -> str:
    return digest([response, list(contexts or ()), user_input])
