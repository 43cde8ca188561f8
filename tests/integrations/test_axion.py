import asyncio

import pytest

from faith_dspy.integrations.axion import DatasetItem, EvaluationMode, Faithfulness

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
            **{DRY: "contradicts", "So.": "perhaps"},
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
            {
                "claim_text": TAKEN,
                "faithfulness_verdict": "Fully Supported",
                "reason": "So it is.",
            },
            {
                "claim_text": HEADACHES,
                "faithfulness_verdict": "No Evidence",
                "reason": "So it is.",
            },
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
            {"strict_mode": True, "verdict_scores": {"NO_EVIDENCE": -0.5}},
            0.25,
        ),  # (1 − .5) / 2
        (DRY, {}, 0.0),  # (1 − 1) / 2
        (DRY, {"verdict_scores": {"CONTRADICTORY": -3.0}}, 0.0),  # (1 − 3) / 2
        (HEADACHES, {"verdict_scores": {"FULLY_SUPPORTED": 3.0}}, 1.0),  # 3 / 2
    ],
)
def test_weights(execute, second, options, score):
    """Strict mode, and weights in axion's spelling, which come first; those left out keep theirs. The mean is clamped
    to [0, 1]."""
    assert execute(f"{TAKEN} {second}", **options).score == score


@pytest.mark.parametrize(
    ("mode", "answer", "calls"),
    [(EvaluationMode.GRANULAR, TAKEN, 2), ("HOLISTIC", HEADACHES, 1)],
)
def test_modes(execute, endpoint, mode, answer, calls):
    """Granular takes the answer apart; holistic asks about all of it, once."""
    assert execute(answer, mode=mode).data.total_claims == 1
    assert len(endpoint.requests) == calls


def test_a_claim_that_was_not_judged(execute):
    """It is none of the four verdicts and says why; the answer has no score."""
    result = execute("So.")
    assert (result.score, result.data.judged_claims[0].verdict) == (None, "Not Judged")
    assert result.explanation.startswith("unscored (parse_failed)")
