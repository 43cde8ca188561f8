"""RAGAS' own calls, over a judge.

from faith_dspy.integrations.ragas import Faithfulness
ragas.evaluate(dataset, metrics=[Faithfulness()])
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import needs
from faith_dspy.integrations.datum import explain, judge_of
from faith_dspy.schema import digest

with needs("ragas", "ragas", "A judge as a RAGAS metric"):
    from ragas.metrics.base import MetricType, SingleTurnMetric
    from ragas.metrics.result import MetricResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import Judgment


class Faithfulness(SingleTurnMetric):
    """`Judgment.score` as a RAGAS metric, for `ragas.evaluate`, ``single_turn_ascore`` and the newer ``ascore``.

    ``llm``: whatever `judge_of` takes, a RAGAS LLM or a judge among it. ``language``: of the reasons; answers and
    contexts may be in any. It needs ``response`` and ``retrieved_contexts`` and uses ``user_input`` if it is there.

    An unscored answer is NaN, RAGAS's word for it, which its means leave out; the reason is in the `MetricResult`, and
    in ``judgment(sample)`` after `evaluate`, whose results have room for a number only.
    """

    def __init__(self, llm: Any = None, name: str = "faithfulness", *, language: str = "english") -> None:
        columns = {"response", "retrieved_contexts", "user_input:optional"}
        super().__init__(_required_columns={MetricType.SINGLE_TURN: columns}, name=name)
        self.language = language
        self.llm = llm
        self._judgments: dict[str, Judgment] = {}

    @property
    def llm(self) -> Any:
        """As given; a new one makes a new judge."""
        return self._llm

    @llm.setter
    def llm(self, llm: Any) -> None:
        own = {} if self.language == "english" else {"criteria": f"Give reasons in {self.language.capitalize()}."}
        self._llm, self.judge = llm, judge_of("ragas", llm, **own)

    def init(self, run_config: Any) -> None:
        """Nothing to set up: waiting and trying again are the judge's own business."""

    async def ascore(
        self,
        user_input: str | None = None,
        response: str | None = None,
        retrieved_contexts: Sequence[Any] | None = None,
    ) -> MetricResult:
        """Score (NaN if unscored) with the reason; ``traces`` have each statement with its sentence's index."""
        given = user_input, list(retrieved_contexts or ()), response or ""
        return self._result(await self.judge.acall(*given), given)

    def score(
        self,
        user_input: str | None = None,
        response: str | None = None,
        retrieved_contexts: Sequence[Any] | None = None,
    ) -> MetricResult:
        """As `ascore`, also where an event loop runs."""
        given = user_input, list(retrieved_contexts or ()), response or ""
        return self._result(self.judge(*given), given)

    def single_turn_score(self, sample: Any, callbacks: Any = None) -> float:
        """The score of a sample, also where an event loop runs."""
        return float(self.score(sample.user_input, sample.response, sample.retrieved_contexts).value)

    async def _single_turn_ascore(self, sample: Any, callbacks: Any) -> float:
        return float((await self.ascore(sample.user_input, sample.response, sample.retrieved_contexts)).value)

    def _result(self, judgment: Judgment, given: tuple[Any, ...]) -> MetricResult:
        self._judgments[digest(given)] = judgment
        statements = [
            {
                "sentence_index": s.sentence_index,
                "statement": s.text,
                "reason": s.reason or s.error,
                "verdict": int(bool(s.is_supported)),
            }
            for s in judgment.statements
        ]
        score = math.nan if judgment.score is None else judgment.score
        return MetricResult(value=score, reason=explain(judgment), traces={"output": {"statements": statements}})

    def judgment(self, sample: Any) -> Judgment | None:
        """What was found of a sample (or a row of the data set) that this metric has scored; None of any other."""
        row = sample if isinstance(sample, dict) else sample.to_dict()
        key = row.get("user_input"), list(row.get("retrieved_contexts") or ()), row.get("response") or ""
        return self._judgments.get(digest(key))
