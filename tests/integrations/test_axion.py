from __future__ import annotations

import asyncio

import pytest

from faith_dspy.integrations.axion import DatasetItem, EvaluationMode, Faithfulness, MetricRunner

TABLET = ["Adults take one tablet of 200 mg every six hours with water."]
TAKEN = "The tablet is taken with water."
AFTER_A_MEAL = "Adults take one tablet every six hours, after a meal."
HEADACHES = "The medicine may cause headaches."
VERDICTS = {TAKEN: "fully", AFTER_A_MEAL: "partly", HEADACHES: "nothing"}


@pytest.fixture(params=[True, False], ids=["log-probabilities", "labels alone"])
def endpoint(request, replies):
    """Sentences as claims, each with its verdict and a reason; with log-probabilities and without."""
    server = replies(VERDICTS)
    server.tells = request.param
    return server


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


def test_what_a_claim_leaves_out_counts(judge_at):
    """An LM that drops a clause of the only sentence: the sentence is the claim, and the rest of it makes no 1.0."""
    rest = "The offside rule keeps attackers from waiting near the goal"
    answer = f"{rest} to receive an easy pass."

    def say(asked):
        prompt = asked["messages"][-1]["content"]
        return f"1. {rest}." if "Sentences:" in prompt else "partly" if "pass" in server.statement(asked) else "fully"

    judge, server = judge_at(says=say, granularity="statement", verdicts="graded")
    given = DatasetItem(
        query="What is the offside rule for?",
        actual_output=answer,
        retrieved_content=[f"{rest}.", "It applies in the other half."],
    )
    result = asyncio.run(Faithfulness(llm=judge).execute(given))
    assert (result.score, [c.text for c in result.data.judged_claims]) == (0.5, [answer])
    assert result.judgment.stand_ins == 1


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


def test_runner(llm):
    """Over a data set: a result an item, in order; one without an answer has no score and says why."""

    async def run():
        runner = MetricRunner(metrics=[Faithfulness(strict_mode=True, llm=llm)])
        return await runner.run([{"actual_output": a, "retrieved_content": TABLET} for a in (TAKEN, None, HEADACHES)])

    results = asyncio.run(run())
    assert [r.score for r in results] == [1.0, None, 0.0]
    assert "it has no answer" in results[1].explanation
    assert [f"{c.verdict}: {c.text}" for r in results for c in r.data.judged_claims] == [
        f"Fully Supported: {TAKEN}",
        f"No Evidence: {HEADACHES}",
    ]


def test_a_claim_that_was_not_judged(replies, dspy_lm):
    """It is none of the four verdicts and says why; the answer has no score."""
    result = asyncio.run(
        Faithfulness(llm=dspy_lm(replies({TAKEN: "perhaps"}))).execute(
            DatasetItem(actual_output=TAKEN, retrieved_content=TABLET)
        )
    )
    assert (result.score, result.data.judged_claims[0].verdict) == (None, "Not Judged")
    assert result.explanation.startswith("unscored (parse_failed)")
