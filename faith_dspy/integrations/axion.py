"""axion's own calls: claims with one of four verdicts, their weights' mean clamped to [0, 1].

from faith_dspy.integrations.axion import DatasetItem, Faithfulness, MetricRunner
result = await Faithfulness(strict_mode=True).execute(DatasetItem(query=…, actual_output=…, retrieved_content=[…]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from faith_dspy.integrations.adapters import explain, judge_of
from faith_dspy.schema import Judgment

DEFAULTS = {"granularity": "statement", "verdicts": "graded", "reasoning": "after", "threshold": 0.5}


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

    score: float | None
    passed: bool | None
    explanation: str
    signals: FaithfulnessResult
    judgment: Judgment
    data = property(lambda self: self.signals)

    def pretty(self) -> str:
        """The result as text for a terminal."""
        head = [] if self.score is None else [f"{'passed' if self.passed else 'failed'} · score {self.score:.2f}"]
        claims = [f"{c.verdict}: {c.text}{f' – {c.reason}' if c.reason else ''}" for c in self.signals.judged_claims]
        return "\n".join([*head, *(claims if head else [self.explanation])])


class Faithfulness:
    """axion's metric. ``llm`` and ``options``: what `judge_of` takes.

    ``verdict_scores``, in axion's spelling or ours, comes before ``strict_mode``, in which a claim without evidence
    counts −1. An answer passes from the score ``threshold`` on, 0.5 unless given; without it a tuned judge decides as
    it was tuned.
    """

    def __init__(
        self,
        strict_mode: bool = False,
        verdict_scores: Mapping[str, float] | None = None,
        mode: EvaluationMode | str = EvaluationMode.GRANULAR,
        *,
        threshold: float | None = None,
        llm: Any = None,
        **options: Any,
    ) -> None:
        if EvaluationMode(mode.lower()) is EvaluationMode.HOLISTIC:
            options["granularity"] = "answer"
        if verdict_scores:  # what we call not supported is its No Evidence
            verdict_scores = {str(getattr(k, "value", k)).lower(): v for k, v in verdict_scores.items()}
            if "no_evidence" in verdict_scores:
                verdict_scores = {"not_supported": verdict_scores["no_evidence"], **verdict_scores}
        self.threshold = threshold
        defaults = DEFAULTS if threshold is None else DEFAULTS | {"threshold": threshold}
        weights = {"strict_mode": strict_mode or None, "verdict_scores": verdict_scores}
        self.judge = judge_of(defaults, llm, **weights, **options)

    async def execute(self, item: Any) -> MetricResult:
        """Judge one `DatasetItem`, or whatever else has its fields."""
        return (await self.run([item]))[0]

    async def run(self, items: Iterable[Any]) -> list[MetricResult]:
        """Judge many; one that cannot be judged has no score, and says why."""
        return [self._result(judgment) for judgment in await self.judge.abatch(items)]

    def _result(self, judgment: Judgment) -> MetricResult:
        claims = []
        counts = dict.fromkeys(("fully_supported", "partially_supported", "no_evidence", "contradictory"), 0)
        for s in judgment.statements:
            # A binary judge does not tell no evidence from contradictory.
            verdict = "not_judged" if s.verdict is None else s.verdict.value.replace("not_supported", "no_evidence")
            if verdict in counts:
                counts[verdict] += 1
            word = verdict.replace("_", " ").title()
            claims.append(JudgedClaim(claim_text=s.text, faithfulness_verdict=word, reason=s.reason or s.error))
        score, passed, why, n = judgment.score, judgment.faithful, explain(judgment), len(claims)
        if score is not None and self.threshold is not None:
            passed = score >= self.threshold
        signals = FaithfulnessResult(overall_score=score, total_claims=n, verdict_counts=counts, judged_claims=claims)
        return MetricResult(score=score, passed=passed, explanation=why, signals=signals, judgment=judgment)


@dataclass
class MetricRunner:
    """Runs metrics over a data set."""

    metrics: Sequence[Faithfulness]

    async def run(self, dataset: Iterable[Any]) -> list[MetricResult]:
        """The results in the order of the items, those of the first metric first."""
        items = list(dataset)
        return [result for metric in self.metrics for result in await metric.run(items)]
