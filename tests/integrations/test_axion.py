import asyncio

import pytest

from faith_dspy.integrations.axion import DatasetItem, EvaluationMode, Faithfulness

TABLET = ["Adults take one tablet of 200 mg every six hours with water."]
TAKEN = "The tablet is taken with water."
AFTER_A_MEAL = "Adults take one tablet every six hours, after a meal."
HEADACHES = "The medicine may cause headaches."
VERDICTS = {TAKEN: "fully", AFTER_A_MEAL: "partly", HEADACHES: "nothing"}


@pytest.fixture
def endpoint(replies):
    """Sentences as claims, each with its verdict and a reason."""
    return replies(VERDICTS)


@pytest.fixture
def llm(endpoint, dspy_lm):
    """The endpoint as an LM."""
    return dspy_lm(endpoint)


def test_basic_usage(llm):
    """axion's first example: defaults, one item, a result to print and its signals."""
    metric = Faithfulness(llm=llm)
    given = DatasetItem(
        query="How is the tablet taken?", actual_output=f"{TAKEN} {HEADACHES}", retrieved_content=TABLET
    )
    result = asyncio.run(metric.execute(given))
    assert HEADACHES in result.pretty()
    assert (result.score, result.passed) == (0.5, True)  # (1 + 0) / 2, and the threshold is .5
    assert result.signals.model_dump() == {
        "overall_score": 0.5,
        "total_claims": 2,
        "verdict_counts": {"fully_supported": 1, "partially_supported": 0, "no_evidence": 1, "contradictory": 0},
        "judged_claims": [
            {"claim_text": TAKEN, "faithfulness_verdict": "Fully Supported", "reason": "So it is."},
            {"claim_text": HEADACHES, "faithfulness_verdict": "No Evidence", "reason": "So it is."},
        ],
    }


@pytest.mark.parametrize(
    ("second", "options", "score"),
    [
        (AFTER_A_MEAL, {}, 0.75),  # (1 + .5) / 2
        (AFTER_A_MEAL, {"verdict_scores": {"PARTIALLY_SUPPORTED": 0.75}}, 0.875),
        (HEADACHES, {}, 0.5),
        (HEADACHES, {"strict_mode": True}, 0.0),  # (1 − 1) / 2
        (HEADACHES, {"strict_mode": True, "verdict_scores": {"NO_EVIDENCE": -0.5}}, 0.25),  # (1 − .5) / 2
    ],
)
def test_weights(llm, second, options, score):
    """Strict mode, and weights in axion's spelling, which come first; those left out keep theirs."""
    given = {"query": None, "actual_output": f"{TAKEN} {second}", "retrieved_content": TABLET}
    assert asyncio.run(Faithfulness(**options, llm=llm).execute(given)).score == score


def test_modes(llm, endpoint):
    """Granular takes the answer apart; holistic asks about all of it, once."""
    for mode, answer, calls in ((EvaluationMode.GRANULAR, TAKEN, 2), ("HOLISTIC", HEADACHES, 1)):
        asked = len(endpoint.requests)
        given = DatasetItem(actual_output=answer, retrieved_content=TABLET)
        assert asyncio.run(Faithfulness(mode=mode, llm=llm).execute(given)).data.total_claims == 1
        assert len(endpoint.requests) - asked == calls


def test_a_claim_that_was_not_judged(replies, dspy_lm):
    """It is none of the four verdicts and says why; the answer has no score."""
    result = asyncio.run(
        Faithfulness(llm=dspy_lm(replies({TAKEN: "perhaps"}))).execute(
            DatasetItem(actual_output=TAKEN, retrieved_content=TABLET)
        )
    )
    assert (result.score, result.data.judged_claims[0].verdict) == (None, "Not Judged")
    assert result.explanation.startswith("unscored (parse_failed)")
