import asyncio

import pytest

pytest.importorskip("deepeval")

from deepeval import assert_test, evaluate
from deepeval.evaluate import CacheConfig, DisplayConfig
from deepeval.test_case import LLMTestCase, MLLMImage

from faith_dspy import Judge, JudgeConfig
from faith_dspy.integrations.deepeval import FaithfulnessMetric
from tests.support.cases import CONTEXT, ICELAND, LANDED, WALKED

pytestmark = pytest.mark.all


@pytest.fixture
def judge(lm, tmp_path, monkeypatch):
    """In a folder of its own: DeepEval writes into the working folder."""
    monkeypatch.chdir(tmp_path)
    return Judge(lm)


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
    """A threshold of one's own passes from that score on, None only scores; without one the judge's own counts, and is
    shown: 1 where every statement has to be supported, of five levels .5."""
    of_its_own = judge.copy(config=JudgeConfig(threshold=0.5))
    for metric, threshold, passes in (
        (FaithfulnessMetric(judge), 1.0, False),
        (FaithfulnessMetric(of_its_own), 0.5, True),
        (FaithfulnessMetric(threshold=0.5, model=judge), 0.5, True),
        (FaithfulnessMetric(judge, threshold=None), None, None),
    ):
        metric.measure(case(ICELAND, LANDED))
        assert (metric.threshold, metric.score) == (threshold, 0.5)
        assert metric.is_successful() is metric.success is passes
    levels = Judge("openai/tiny", granularity="answer", verdicts="five_level")
    assert FaithfulnessMetric(levels).threshold == 0.5
    assert FaithfulnessMetric().evaluation_model == "local"


def test_its_own_runners(judge):
    """Each test case has its score, and one that could not be scored, such as an image, an error; `assert_test` stops
    at an answer that is not supported."""
    metrics = [FaithfulnessMetric(judge)]
    image = MLLMImage(url="https://example.org/eagle.png")
    result = evaluate(
        [case(WALKED), case(ICELAND), case("I don't know."), case(WALKED, str(image))],
        metrics,
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False),
    )
    measured = [m for r in result.test_results for m in r.metrics_data]
    outcomes = [(m.score, m.success, (m.error or "")[:23]) for m in measured]
    assert sorted(outcomes, key=str) == [
        (0.0, False, ""),
        (1.0, True, ""),
        (None, False, "unscored (abstained): t"),
        (None, False, "unscored (parse_failed)"),
    ]
    assert_test(case(WALKED), metrics, run_async=False)
    why = r"Faithfulness \(faith_dspy\) \(score: 0.0, threshold: 1.0"
    with pytest.raises(AssertionError, match=why):
        assert_test(case(ICELAND), metrics, run_async=False)
