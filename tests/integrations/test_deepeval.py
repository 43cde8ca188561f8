import asyncio

import pytest

pytest.importorskip("deepeval")

from deepeval import assert_test, evaluate
from deepeval.evaluate import CacheConfig, DisplayConfig
from deepeval.test_case import LLMTestCase

from faith_dspy import Judge, JudgeConfig
from faith_dspy.integrations.deepeval import FaithfulnessMetric
from tests.support.cases import CONTEXT, ICELAND, LANDED, WALKED

pytestmark = pytest.mark.all


@pytest.fixture
def judge(recorded, tmp_path, monkeypatch):
    """In a folder of its own: DeepEval writes into the working folder."""
    monkeypatch.chdir(tmp_path)
    return recorded()[0]


def case(*sentences):
    return LLMTestCase(
        input="?", actual_output=" ".join(sentences), retrieval_context=CONTEXT
    )


def test_a_measure(judge):
    """Awaited, it measures the same; tokens are what the endpoint reported (2 calls of 100 and 5)."""
    metric = FaithfulnessMetric(judge)
    bare = LLMTestCase(input="?", actual_output=f"{LANDED} {ICELAND}", context=["No."])
    assert asyncio.run(metric.a_measure(bare)) == 0.5
    assert (metric.input_tokens, metric.output_tokens) == (200, 10)


def test_threshold(judge):
    """A threshold of one's own passes from that score on; without one the judge's threshold counts."""
    for metric, passes in (
        (FaithfulnessMetric(judge), False),
        (FaithfulnessMetric(judge, threshold=0.5), True),
        (FaithfulnessMetric(judge, threshold=0.6), False),
        (FaithfulnessMetric(judge.copy(config=JudgeConfig(threshold=0.5))), True),
    ):
        metric.measure(case(ICELAND, LANDED))
        assert (metric.score, metric.success) == (0.5, passes)


def test_its_own_runners(judge):
    """Each test case has its score, and one that could not be scored an error; `assert_test` stops at an answer that is
    not supported."""
    metrics = [FaithfulnessMetric(judge)]
    result = evaluate(
        [case(WALKED), case(ICELAND), case("I don't know.")],
        metrics,
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False),
    )
    found = [
        (m.score, m.success, m.error)
        for r in result.test_results
        for m in r.metrics_data
    ]
    assert sorted(found, key=str) == [
        (0.0, False, None),
        (1.0, True, None),
        (None, False, "unscored (abstained): the answer only declines to answer"),
    ]
    assert_test(case(WALKED), metrics, run_async=False)
    with pytest.raises(
        AssertionError,
        match=r"Faithfulness \(faith_dspy\) \(score: 0.0, threshold: 1.0",
    ):
        assert_test(case(ICELAND), metrics, run_async=False)


def test_the_threshold_that_is_shown():
    """The judge's own where none is given: of five levels .5; 1 where every statement has to be supported."""
    levels = Judge("openai/tiny", granularity="answer", verdicts="five_level")
    for judge, threshold in ((levels, 0.5), (Judge("openai/tiny"), 1.0)):
        assert FaithfulnessMetric(judge).threshold == threshold
