"""axion's own calls: claims with one of four verdicts, their weights' mean clamped to [0, 1].

from faith_dspy.integrations.axion import DatasetItem, Faithfulness, MetricRunner
result = await Faithfulness(strict_mode=True).execute(DatasetItem(query=…, actual_output=…, retrieved_content=[…]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from faith_dspy.integrations.adapters import explain, judge_of, passes
from faith_dspy.schema import Judgment

DEFAULTS = {
    "granularity": "statement",
    "verdicts": "graded",
    "reasoning": "after",
    "threshold": 0.5,
}


class EvaluationMode(StrEnum):
    """How finely an answer is judged: claim by claim, or all of it as one claim."""

    GRANULAR = "granular"
    HOLISTIC = "holistic"


class DatasetItem(BaseModel, extra="allow"):
    """One answer; other fields are kept."""

    query: str | None = None
    actual_output: str | None = None
    retrieved_content: list[Any] | None = None


class JudgedClaim(BaseModel):
    """A claim with axion's word for its verdict; ``Not Judged`` where the LM gave none."""

    claim_text: str
    faithfulness_verdict: str
    reason: str | None = None
    text = property(lambda self: self.claim_text)
    verdict = property(lambda self: self.faithfulness_verdict)


class FaithfulnessResult(BaseModel):
    """The signals of one answer; no score where it could not be scored, all four verdicts as keys of the counts."""

    overall_score: float | None
    total_claims: int
    verdict_counts: dict[str, int]
    judged_claims: list[JudgedClaim]


class MetricResult(BaseModel):
    """The result of one answer; ``explanation`` says why it has no score, ``judgment`` is the judge's own."""

    name: str
    score: float | None
    threshold: float | None
    passed: bool | None
    explanation: str
    signals: FaithfulnessResult
    judgment: Judgment
    data = property(lambda self: self.signals)

    def pretty(self) -> str:
        """Return the result as text for a terminal."""
        if self.score is None:
            return self.explanation
        return f"{'passed' if self.passed else 'failed'} · score {self.score:.2f}\n{self.explanation}"


class Faithfulness:
    """axion's metric. ``llm`` (or ``model_name``) and ``options``: what `judge_of` takes.

    In ``strict_mode`` a claim without evidence counts −1; ``verdict_scores``, in axion's spelling or ours, take its
    place. An answer passes from the score ``threshold`` on, 0.5 unless given; without it a judge of one's own
    decides.
    """

    name = "Faithfulness"

    def __init__(
        self,
        mode: EvaluationMode | str = EvaluationMode.GRANULAR,
        strict_mode: bool = False,
        verdict_scores: Mapping[str, float] | None = None,
        *,
        threshold: float | None = None,
        llm: Any = None,
        model_name: str | None = None,
        **options: Any,
    ) -> None:
        if EvaluationMode(mode.lower()) is EvaluationMode.HOLISTIC:
            options["granularity"] = "answer"
        if strict_mode and not verdict_scores:
            verdict_scores = {"no_evidence": -1.0}
        weights = {}
        for name, weight in (verdict_scores or {}).items():
            weights[str(getattr(name, "value", name)).lower()] = weight
        if "no_evidence" in weights:  # what we call not supported is its No Evidence
            weights = {"not_supported": weights["no_evidence"], **weights}
        self.threshold = threshold
        self.judge = judge_of(
            DEFAULTS,
            model_name if llm is None else llm,
            verdict_scores=weights or None,
            checks_statements=False,
            **options,
        )

    async def execute(self, item: Any) -> MetricResult:
        """Judge one `DatasetItem`, or whatever else has its fields."""
        return (await self.run([item]))[0]

    async def run(
        self,
        items: Iterable[Any],
        max_concurrent: int | None = None,
        threshold: float | None = None,
    ) -> list[MetricResult]:
        """Judge many; one that cannot be judged has no score, and says why."""
        if threshold is None:
            threshold = self.threshold
        judgments = await self.judge.abatch(items, max_concurrent)
        return [self._result(judgment, threshold) for judgment in judgments]

    def _result(self, judgment: Judgment, threshold: float | None) -> MetricResult:
        score = judgment.score
        counts = judgment.verdict_counts
        counts["no_evidence"] += counts.pop("not_supported")  # a binary judge's word
        del counts["unjudged"]
        claims = []
        for statement in judgment.statements:
            verdict = statement.verdict or "not_judged"
            if verdict == "not_supported":
                verdict = "no_evidence"
            claim = JudgedClaim(
                claim_text=statement.text,
                faithfulness_verdict=verdict.replace("_", " ").title(),
                reason=statement.reason or statement.error,
            )
            claims.append(claim)
        signals = FaithfulnessResult(
            overall_score=score,
            total_claims=len(claims),
            verdict_counts=counts,
            judged_claims=claims,
        )
        passed = None if score is None else passes(judgment, score, threshold)
        return MetricResult(
            name=self.name,
            score=score,
            threshold=threshold,
            passed=passed,
            explanation=explain(judgment),
            signals=signals,
            judgment=judgment,
        )


@dataclass
class TestResult:
    """An item with the result of each metric."""

    test_case: Any
    score_results: list[MetricResult]


class MetricRunner:
    """Runs metrics, or a ``metric``, over a data set.

    ``max_concurrent``: items judged at the same time. ``thresholds``: by the name of a metric.
    """

    def __init__(
        self,
        metrics: Iterable[Faithfulness] = (),
        *,
        metric: Faithfulness | None = None,
        max_concurrent: int | None = None,
        thresholds: Mapping[str, float] | None = None,
    ) -> None:
        self.metrics = [*metrics] if metric is None else [*metrics, metric]
        self.max_concurrent = max_concurrent
        self.thresholds = thresholds or {}

    async def run(self, dataset: Any) -> Any:
        """Return the results in the order of the items, those of the first metric first; of a `DatasetItem` by a single
        metric its result."""
        is_item = isinstance(dataset, DatasetItem)
        tests = await self.execute_batch([dataset] if is_item else dataset)
        by_metric = zip(*(test.score_results for test in tests), strict=True)
        results = [result for results in by_metric for result in results]
        return results[0] if is_item and len(results) == 1 else results

    async def execute_batch(self, evaluation_inputs: Any) -> list[TestResult]:
        """Return each item, or row of a data frame, with its results."""
        items = _items(evaluation_inputs)
        by_metric = []
        for metric in self.metrics:
            threshold = self.thresholds.get(metric.name)
            by_metric.append(await metric.run(items, self.max_concurrent, threshold))
        by_item = zip(items, *by_metric, strict=True)
        return [TestResult(item, results) for item, *results in by_item]


def _items(dataset: Any) -> list[Any]:
    """Return the items of a data set, or the rows of a data frame as items."""
    if not hasattr(dataset, "to_dict"):
        return list(dataset)
    return [DatasetItem.model_construct(**row) for row in dataset.to_dict("records")]
