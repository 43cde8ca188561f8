import asyncio

import pandas
import pytest

from faith_dspy.integrations.axion import (
    DatasetItem,
    EvaluationMode,
    Faithfulness,
    MetricRunner,
)

TABLET = ["Adults take one tablet of 200 mg every six hours with water."]
TAKEN = "The tablet is taken with water."
AFTER_A_MEAL = "Adults take one tablet every six hours, after a meal."
HEADACHES = "The medicine may cause headaches."
DRY = "The tablet is taken without water."


@pytest.fixture
def endpoint(replies):
    """Sentences as claims, each with its verdict and a reason."""
    return replies(
        {
            **{TAKEN: "fully", AFTER_A_MEAL: "partly", HEADACHES: "nothing"},
            **{DRY: "contradicts"},
        }
    )


@pytest.fixture
def execute(endpoint, dspy_lm):
    """The metric with these options on this answer."""

    def execute(answer, **options):
        given = DatasetItem(
            query="How is it taken?", actual_output=answer, retrieved_content=TABLET
        )
        return asyncio.run(
            Faithfulness(llm=dspy_lm(endpoint), **options).execute(given)
        )

    return execute


def test_basic_usage(execute):
    """axion's first example: defaults, one item, a result to print and its signals."""
    verdicts = {TAKEN: "Fully Supported", HEADACHES: "No Evidence"}
    result = execute(f"{TAKEN} {HEADACHES}")
    assert HEADACHES in result.pretty()
    assert (result.score, result.passed) == (
        0.5,
        True,
    )  # (1 + 0) / 2, and the threshold is .5
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
            for text, word in verdicts.items()
        ],
    }


def test_claims_of_one_sentence(chat_server, dspy_lm):
    """Two claims that the LM takes from one sentence stay two, each with its verdict, even where one adds a fact."""
    water, night = "The tablet is taken with water.", "It is taken at night."
    server = chat_server(
        says=lambda asked: {water: "fully\nWhy: So.", night: "nothing\nWhy: No."}.get(
            server.statement(asked), f"1. {water}\n1. {night}"
        )
    )
    item = {"actual_output": "The tablet is taken.", "retrieved_content": TABLET}
    (result,) = asyncio.run(Faithfulness(llm=dspy_lm(server)).run([item]))
    claims = [(c.claim_text, c.verdict) for c in result.signals.judged_claims]
    assert claims == [(water, "Fully Supported"), (night, "No Evidence")]
    assert (result.score, result.signals.total_claims) == (0.5, 2)


@pytest.mark.parametrize(
    ("second", "options", "score"),
    [
        (AFTER_A_MEAL, {}, 0.75),  # (1 + .5) / 2
        (AFTER_A_MEAL, {"verdict_scores": {"PARTIALLY_SUPPORTED": 0.75}}, 0.875),
        (HEADACHES, {"strict_mode": True}, 0.0),  # (1 − 1) / 2
        (
            HEADACHES,
            {"strict_mode": True, "verdict_scores": {"CONTRADICTORY": -2.0}},
            0.5,
        ),  # (1 + 0) / 2: weights of one's own take the place of strict mode
        (DRY, {}, 0.0),  # (1 − 1) / 2
        (HEADACHES, {"verdict_scores": {"FULLY_SUPPORTED": 3.0}}, 1.0),  # 3 / 2
    ],
)
def test_weights(execute, second, options, score):
    """Strict mode, or weights in axion's spelling; those left out keep theirs. The mean is clamped to [0, 1]."""
    assert execute(f"{TAKEN} {second}", **options).score == score


@pytest.mark.parametrize(
    ("mode", "answer", "calls"),
    [(EvaluationMode.GRANULAR, TAKEN, 2), ("HOLISTIC", HEADACHES, 1)],
)
def test_modes(execute, endpoint, mode, answer, calls):
    """Granular takes the answer apart; holistic asks about all of it, once."""
    assert execute(answer, mode=mode).data.total_claims == 1
    assert len(endpoint.requests) == calls


def test_runner(endpoint, dspy_lm):
    """A runner takes one metric or several, one item, items, or a data frame of one row; `execute_batch` gives each
    item with its results, which pass from the threshold of the metric's name on. Mode and strict mode come first."""
    metric = Faithfulness(EvaluationMode.GRANULAR, True, llm=dspy_lm(endpoint))
    row = {"query": "?", "actual_output": TAKEN, "retrieved_content": TABLET}
    frame = pandas.DataFrame([row])
    thresholds = {"Faithfulness": 1.0}
    runner = MetricRunner(metric=metric, max_concurrent=1, thresholds=thresholds)
    assert asyncio.run(runner.run(DatasetItem(**row))).score == 1.0
    for dataset in ([DatasetItem(**row)], frame):
        (result,) = asyncio.run(MetricRunner([metric]).run(dataset))
        assert result.score == 1.0
        (test,) = asyncio.run(runner.execute_batch(evaluation_inputs=dataset))
        assert test.test_case.query == "?"
        (score,) = test.score_results
        assert (score.name, score.threshold, score.passed) == (*thresholds, 1.0, True)
