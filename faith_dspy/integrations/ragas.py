"""RAGAS' own calls, over a judge.

from faith_dspy.integrations.ragas import Faithfulness
ragas.evaluate(dataset, metrics=[Faithfulness()], llm=llm)
"""

from __future__ import annotations

import math
from typing import Any

from pydantic import BaseModel

from faith_dspy.errors import ConfigError, needs
from faith_dspy.integrations.adapters import explain, judge_of, prompt_of
from faith_dspy.judge import Judge
from faith_dspy.schema import Judgment, digest

with needs("ragas", "ragas", "A judge as a RAGAS metric"):
    from ragas.metrics.base import MetricType, MetricWithLLM, SingleTurnMetric
    from ragas.metrics.result import MetricResult
    from ragas.prompt import PydanticPrompt

DEFAULTS = {"granularity": "statement", "reasoning": "after"}
KEPT = 10_000
"""Judgments that a metric keeps for ``judgment(sample)``, the latest."""


class NLIStatementPrompt(PydanticPrompt[BaseModel, BaseModel]):
    """What the judge is asked about a statement. Another ``instruction`` takes its place in all requests; the form of
    the reply stays ours. Reasons are in ``language``. ``examples`` are refused: the judge's demos come from tuning."""

    instruction = prompt_of(DEFAULTS)
    input_model = output_model = BaseModel

    def to_string(self, data: Any = None) -> str:
        """The instruction; the texts that are judged follow it."""
        return self.instruction


class Faithfulness(MetricWithLLM, SingleTurnMetric):
    """`Judgment.score` as a RAGAS metric, for `ragas.evaluate`, ``single_turn_ascore`` and the newer ``ascore``.

    ``llm`` and ``options``: what `judge_of` takes, a RAGAS LLM or a judge among it. Without ``llm`` the one of
    `ragas.evaluate` is asked (by RAGAS' own default a model of OpenAI's), outside it the embedded model. ``language``:
    of the reasons; answers and contexts may be in any. It needs ``response`` and ``retrieved_contexts`` and uses
    ``user_input`` if it is there.

    An unscored answer is NaN, RAGAS's word for it, which its means leave out; the reason is in the `MetricResult`, and
    in ``judgment(sample)`` after `evaluate`, whose results have room for a number only.
    """

    def __init__(
        self,
        llm: Any = None,
        name: str = "faithfulness",
        *,
        language: str = "english",
        **options: Any,
    ) -> None:
        columns = {"response", "retrieved_contexts", "user_input:optional"}
        super().__init__(_required_columns={MetricType.SINGLE_TURN: columns}, name=name)
        self.llm, self.options = llm, options
        self.nli_statements_prompt = NLIStatementPrompt(language=language)
        self._made: tuple[Any, Judge] | None = None
        self._judgments: dict[str, Judgment] = {}

    @property
    def judge(self) -> Judge:
        """Made anew when the LM or the prompt has changed."""
        prompt = self.nli_statements_prompt
        if prompt.examples:
            raise ConfigError(
                "the prompt's examples are not used: give labels to `faith-dspy tune`, which makes demos"
            )
        wanted = self.llm, prompt.instruction, prompt.language
        if self._made is None or self._made[0] != wanted:
            own = (
                None
                if prompt.instruction == NLIStatementPrompt.instruction
                else prompt.instruction
            )
            reasons = (
                None
                if prompt.language == "english"
                else f"Give reasons in {prompt.language.capitalize()}."
            )
            asks = {"system_prompt": own, "criteria": reasons, **self.options}
            self._made = wanted, judge_of(DEFAULTS, self.llm, **asks)
        return self._made[1]

    def init(self, run_config: Any) -> None:
        """Nothing to set up: waiting and trying again are the judge's own business."""

    async def ascore(
        self,
        user_input: str | None = None,
        response: str = "",
        retrieved_contexts: Any = (),
    ) -> MetricResult:
        """Score (NaN if unscored) with the reason; ``traces`` have each statement with its sentence's index."""
        given = _given(user_input, response, retrieved_contexts)
        return self._result(await self.judge.acall(*given), given)

    def score(
        self,
        user_input: str | None = None,
        response: str = "",
        retrieved_contexts: Any = (),
    ) -> MetricResult:
        """As `ascore`, also where an event loop runs."""
        given = _given(user_input, response, retrieved_contexts)
        return self._result(self.judge(*given), given)

    def single_turn_score(self, sample: Any, callbacks: Any = None) -> float:
        """The score of a sample, also where an event loop runs."""
        return float(
            self.score(
                sample.user_input, sample.response, sample.retrieved_contexts
            ).value
        )

    async def _single_turn_ascore(self, sample: Any, callbacks: Any) -> float:
        return float(
            (
                await self.ascore(
                    sample.user_input, sample.response, sample.retrieved_contexts
                )
            ).value
        )

    def _result(self, judgment: Judgment, given: tuple[Any, ...]) -> MetricResult:
        self._judgments[digest(given)] = judgment
        if len(self._judgments) > KEPT:
            del self._judgments[next(iter(self._judgments))]
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
        return MetricResult(
            value=score,
            reason=explain(judgment),
            traces={"output": {"statements": statements}},
        )

    def judgment(self, sample: Any) -> Judgment | None:
        """What was found of a sample (or a row of the data set) that this metric has scored; None of any other."""
        row = sample if isinstance(sample, dict) else sample.to_dict()
        given = _given(
            row.get("user_input"), row.get("response"), row.get("retrieved_contexts")
        )
        return self._judgments.get(digest(given))


def _given(
    user_input: str | None, response: str | None, retrieved_contexts: Any
) -> tuple[Any, ...]:
    return user_input, list(retrieved_contexts or ()), response or ""
