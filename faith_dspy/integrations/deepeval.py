"""A judge as a DeepEval metric.

from faith_dspy.integrations.deepeval import FaithfulnessMetric
assert_test(test_case, [FaithfulnessMetric(load_judge("judges/champion"))])
"""

from __future__ import annotations

from typing import Any, Literal

from faith_dspy.errors import optional_dependency
from faith_dspy.integrations.adapters import explain, judge_of, passes, value
from faith_dspy.judge import Judge
from faith_dspy.schema import Judgment

with optional_dependency("deepeval", "deepeval", "A judge as a DeepEval metric"):
    from deepeval.metrics import BaseMetric
    from deepeval.test_case import LLMTestCase


class FaithfulnessMetric(BaseMetric):
    """A judge for `LLMTestCase`: ``actual_output`` against ``retrieval_context`` (else ``context``).

    ``model``: what `judge_of` takes: a `Judge`, its folder or MLflow address, a model by name, or one of DeepEval's.

    The score is the probability of a tuned judge, the score of an untuned one. Without ``threshold`` the judge's own
    counts: an answer passes if the judge calls it faithful. With None it neither passes nor fails.

    An unscored answer, such as one with an image, has no score, does not pass, and ``error`` says why. It is not
    ``skipped``, as DeepEval drops skipped metrics from its report and nobody would see that it was not judged.
    """

    def __init__(
        self,
        model: Any = None,
        threshold: float | Literal["judge"] | None = "judge",
        include_reason: bool = True,
        async_mode: bool = True,
    ) -> None:
        # DeepEval copies a metric by passing its attributes of these names to a new one.
        self.model = judge_of({}, model)
        if isinstance(threshold, str):
            threshold = threshold_of(self.model)
        self.threshold = threshold
        self.include_reason = include_reason
        self.async_mode = async_mode
        self.evaluation_model = self.model.lm_name
        self.judgment: Judgment | None = None
        """The judgment of the last test case."""

    def measure(
        self, test_case: LLMTestCase, *args: Any, **kwargs: Any
    ) -> float | None:
        """Judge a test case; sets ``score``, ``reason``, ``success``, ``error`` and the tokens used."""
        return self._record(self.model.batch([_readable(test_case)], 1)[0])

    async def a_measure(
        self, test_case: LLMTestCase, *args: Any, **kwargs: Any
    ) -> float | None:
        """Measure without blocking the event loop."""
        record = _readable(test_case)
        return self._record((await self.model.abatch([record], 1))[0])

    def is_successful(self) -> bool | None:
        """Tell whether the last test case passed; False when it could not be scored, None without a threshold."""
        return None if self.threshold is None else bool(self.success)

    @property
    def __name__(self) -> str:
        return "Faithfulness (faith_dspy)"

    def _record(self, judgment: Judgment) -> float | None:
        self.judgment = judgment
        self.score = value(judgment)
        self.error = None if judgment.unscored is None else explain(judgment)
        self.reason = explain(judgment) if self.include_reason else None
        self.input_tokens = judgment.usage.prompt_tokens
        self.output_tokens = judgment.usage.output_tokens
        self.success = None
        if self.threshold is not None:
            is_own = self.threshold == threshold_of(self.model)
            threshold = None if is_own else self.threshold
            self.success = passes(judgment, self.score, threshold)
        return self.score


def _readable(test_case: LLMTestCase) -> Any:
    """Return the test case, or why it cannot be judged: DeepEval writes an image or a PDF as a placeholder."""
    if test_case.multimodal:
        return {"error": "the test case has an image or a PDF; a judge reads text"}
    return test_case


def threshold_of(judge: Judge) -> float:
    """Return the number that DeepEval shows where the judge's own threshold counts; 1 where all statements have to be
    supported."""
    fitted = judge.classifier or judge.config
    return 1.0 if fitted.threshold is None else fitted.threshold
