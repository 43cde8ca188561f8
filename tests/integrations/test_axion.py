import asyncio

import pandas
import pytest

from faith_dspy.integrations.axion import (
    DatasetItem,
    EvaluationMode,
    Faithfulness,
    MetricRunner,
)
from tests.support.cases import CONTEXT, ICELAND, LABELS, LANDED, VIEWERS


@pytest.fixture
def execute(endpoint, lm):
    """The metric with these options on this answer."""
    endpoint.labels = LABELS

    def execute(answer, **options):
        item = DatasetItem(query="?", actual_output=answer, retrieved_content=CONTEXT)
        return asyncio.run(Faithfulness(llm=lm, **options).execute(item))

    return execute


def test_basic_usage(execute):
    """axion's first example: defaults, one item, a result to print and its signals."""
    result = execute(f"{LANDED} {ICELAND}")
    assert ICELAND in result.pretty()
    assert (result.score, result.passed) == (0.5, True)  # (1 + 0) / 2 reaches .5
    assert result.signals.model_dump() == {
        "overall_score": 0.5,
        "total_claims": 2,
        "verdict_counts": {
            "fully_supported": 1,
            "partially_supported": 0,
            "no_evidence": 1,
            "contradictory": 0,
        },
        "judged_claims": [
            {"claim_text": text, "faithfulness_verdict": word, "reason": "So it is."}
            for text, word in ((LANDED, "Fully Supported"), (ICELAND, "No Evidence"))
        ],
    }


def test_claims_of_one_sentence(chat_server, judge_at):
    """Two claims that the LM takes from one sentence stay two, each with its verdict, even where one adds a fact."""
    water, night = "The tablet is taken with water.", "It is taken at night."
    replies = {water: "fully", night: "nothing", "": f"1. {water}\n1. {night}"}
    server = chat_server(says=lambda asked: replies[server.statement(asked)])
    item = {"actual_output": "The tablet is taken.", "retrieved_content": [water]}
    metric = Faithfulness(llm=judge_at(server)[0].lm, reasoning="none")
    (result,) = asyncio.run(metric.run([item]))
    claims = [(c.claim_text, c.verdict) for c in result.signals.judged_claims]
    assert claims == [(water, "Fully Supported"), (night, "No Evidence")]
    assert (result.score, result.signals.total_claims) == (0.5, 2)


@pytest.mark.parametrize(
    ("second", "options", "score"),
    [
        (VIEWERS, {"verdict_scores": {"PARTIALLY_SUPPORTED": 0.75}}, 0.875),
        (ICELAND, {"strict_mode": True}, 0.0),  # (1 − 1) / 2
        (
            ICELAND,
            {"strict_mode": True, "verdict_scores": {"CONTRADICTORY": -2.0}},
            0.5,
        ),  # (1 + 0) / 2: weights of one's own take the place of strict mode
        (ICELAND, {"verdict_scores": {"FULLY_SUPPORTED": 3.0}}, 1.0),  # 3 / 2
    ],
)
def test_weights(execute, second, options, score):
    """Strict mode, or weights in axion's spelling; those left out keep theirs. The mean is clamped to [0, 1]."""
    assert execute(f"{LANDED} {second}", **options).score == score


@pytest.mark.parametrize(
    ("mode", "calls"), [(EvaluationMode.GRANULAR, 2), ("HOLISTIC", 1)]
)
def test_modes(execute, endpoint, mode, calls):
    """Granular takes the answer apart; holistic asks about all of it, once."""
    assert execute(LANDED, mode=mode).data.total_claims == 1
    assert len(endpoint.requests) == calls


def test_runner(endpoint, lm):
    """A runner takes one metric or several, one item, items, or a data frame of one row; `execute_batch` gives each
    item with its results, which pass from the threshold of the metric's name on. Mode and strict mode come first."""
    endpoint.labels = LABELS
    metric = Faithfulness(EvaluationMode.GRANULAR, True, llm=lm)
    row = {"query": "?", "actual_output": LANDED, "retrieved_content": CONTEXT}
    thresholds = {"Faithfulness": 1.0}
    runner = MetricRunner(metric=metric, max_concurrent=1, thresholds=thresholds)
    assert asyncio.run(runner.run(DatasetItem(**row))).score == 1.0
    for dataset in ([DatasetItem(**row)], pandas.DataFrame([row])):
        (result,) = asyncio.run(MetricRunner([metric]).run(dataset))
        assert result.score == 1.0
        (test,) = asyncio.run(runner.execute_batch(evaluation_inputs=dataset))
        assert test.test_case.query == "?"
        (score,) = test.score_results
        assert (score.name, score.threshold, score.passed) == (*thresholds, 1.0, True)
