from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("deepeval")

from deepeval import assert_test, evaluate
from deepeval.evaluate import CacheConfig, DisplayConfig
from deepeval.test_case import LLMTestCase

from faith_dspy import JudgeConfig
from faith_dspy.integrations.deepeval import FaithfulnessMetric

pytestmark = pytest.mark.all


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """DeepEval writes into the working folder."""
    monkeypatch.chdir(tmp_path)


def test_a_measure(recorded):
    """Awaited, it measures the same; tokens are what the endpoint reported (2 calls of 100 and 5)."""
    judge, _ = recorded()
    metric = FaithfulnessMetric(judge)
    row = LLMTestCase(
        input="?", actual_output="Opened software is refunded in full. Our shops are open on Sundays.", context=["No."]
    )
    assert asyncio.run(metric.a_measure(row)) == 0.0
    assert (metric.input_tokens, metric.output_tokens) == (200, 10)


def test_threshold(recorded):
    """A threshold of one's own passes from that score on; without one the judge's threshold counts."""
    judge, _ = recorded()
    half = LLMTestCase(
        input="?",
        actual_output="Opened software is refunded in full. Refunds go to the card that was used to pay.",
        retrieval_context=["Refunds go to the card that was used to pay."],
    )
    for metric, passes in (
        (FaithfulnessMetric(judge), False),
        (FaithfulnessMetric(judge, threshold=0.5), True),
        (FaithfulnessMetric(judge, threshold=0.6), False),
        (FaithfulnessMetric(judge.copy(config=JudgeConfig(threshold=0.5))), True),
    ):
        metric.measure(half)
        assert (metric.score, metric.success) == (0.5, passes)


def test_evaluate(recorded):
    """In DeepEval's own runner each test case has its score; one that could not be scored has an error."""
    judge, _ = recorded()
    context = ["Unused items are refunded in full within 30 days of purchase."]
    rows = [
        LLMTestCase(input="?", actual_output=answer, retrieval_context=context)
        for answer in (
            "Unused items are refunded in full within 30 days of purchase.",
            "Our shops are open on Sundays.",
        )
    ]
    rows.append(LLMTestCase(input="?", actual_output="I don't know.", retrieval_context=context))
    result = evaluate(
        rows,
        [FaithfulnessMetric(judge)],
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False),
    )
    found = sorted(
        ((r.input, m.score, m.success, m.error) for r in result.test_results for m in r.metrics_data),
        key=lambda f: str(f[1]),
    )
    assert [f[1:] for f in found] == [
        (0.0, False, None),
        (1.0, True, None),
        (None, False, "unscored (abstained): the answer only declines to answer"),
    ]


def test_assert_test(recorded):
    """`assert_test` lets a supported answer pass and stops at one that is not."""
    judge, _ = recorded()
    context = ["Opened software is not refunded."]
    good = LLMTestCase(
        input="?", actual_output="Refunds go to the card that was used to pay.", retrieval_context=context
    )
    bad = LLMTestCase(input="?", actual_output="Opened software is refunded in full.", retrieval_context=context)
    assert_test(good, [FaithfulnessMetric(judge)], run_async=False)
    with pytest.raises(AssertionError, match=r"Faithfulness \(faith_dspy\) \(score: 0.0, threshold: 1.0"):
        assert_test(bad, [FaithfulnessMetric(judge)], run_async=False)
