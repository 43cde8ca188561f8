import asyncio

import pytest

pytest.importorskip("deepeval")

from deepeval import assert_test, evaluate
from deepeval.evaluate import CacheConfig, DisplayConfig
from deepeval.test_case import LLMTestCase

from faith_dspy import JudgeConfig
from faith_dspy.integrations.deepeval import FaithfulnessMetric

pytestmark = pytest.mark.all


CARD, FULL, SUNDAYS = (
    "Refunds go to the card that was used to pay.",
    "Opened software is refunded in full.",
    "Our shops are open on Sundays.",
)
"""The first is supported, whatever the context; the others are not."""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """DeepEval writes into the working folder."""
    monkeypatch.chdir(tmp_path)


def case(*sentences):
    return LLMTestCase(input="?", actual_output=" ".join(sentences), retrieval_context=[CARD])


def test_a_measure(recorded):
    """Awaited, it measures the same; tokens are what the endpoint reported (2 calls of 100 and 5)."""
    metric = FaithfulnessMetric(recorded()[0])
    bare = LLMTestCase(input="?", actual_output=f"{FULL} {SUNDAYS}", context=["No."])
    assert asyncio.run(metric.a_measure(bare)) == 0.0
    assert (metric.input_tokens, metric.output_tokens) == (200, 10)


def test_threshold(recorded):
    """A threshold of one's own passes from that score on; without one the judge's threshold counts."""
    judge, _ = recorded()
    for metric, passes in (
        (FaithfulnessMetric(judge), False),
        (FaithfulnessMetric(judge, threshold=0.5), True),
        (FaithfulnessMetric(judge, threshold=0.6), False),
        (FaithfulnessMetric(judge.copy(config=JudgeConfig(threshold=0.5))), True),
    ):
        metric.measure(case(FULL, CARD))
        assert (metric.score, metric.success) == (0.5, passes)


def test_evaluate(recorded):
    """In DeepEval's own runner each test case has its score; one that could not be scored has an error."""
    result = evaluate(
        [case(CARD), case(SUNDAYS), case("I don't know.")],
        [FaithfulnessMetric(recorded()[0])],
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False),
    )
    found = [(m.score, m.success, m.error) for r in result.test_results for m in r.metrics_data]
    assert sorted(found, key=str) == [
        (0.0, False, None),
        (1.0, True, None),
        (None, False, "unscored (abstained): the answer only declines to answer"),
    ]


def test_assert_test(recorded):
    """`assert_test` lets a supported answer pass and stops at one that is not."""
    metric = [FaithfulnessMetric(recorded()[0])]
    assert_test(case(CARD), metric, run_async=False)
    with pytest.raises(AssertionError, match=r"Faithfulness \(faith_dspy\) \(score: 0.0, threshold: 1.0"):
        assert_test(case(FULL), metric, run_async=False)
