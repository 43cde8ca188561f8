import json

import pytest

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.continuous_eval import Faithfulness, LLMBasedFaithfulness

HAMLET, BORN = "Hamlet is a tragedy by William Shakespeare.", "He was born in Ireland."
DATUM = {
    "question": "Who wrote Hamlet?",
    "answer": f"{HAMLET} {BORN}",
    "retrieved_context": ["Hamlet, a tragedy, was written by William Shakespeare."],
    "ground_truths": ["Shakespeare wrote Hamlet."],
}
OLD = {**DATUM, "retrieved_contexts": DATUM["retrieved_context"]}
OLD.pop("retrieved_context")


@pytest.fixture
def server(replies):
    """It supports one of two statements, and not the whole answer."""
    return replies({HAMLET: "Yes", BORN: "No", DATUM["answer"]: "No"})


@pytest.fixture
def model(server, dspy_lm):
    """The endpoint as an LM."""
    return dspy_lm(server)


def test_by_statement(model, server):
    """The share that is attributed, and as JSON each statement with its reason. Nobody is told the true answers."""
    metric = LLMBasedFaithfulness(model, classify_by_statement=True)
    for result in (metric.calculate(**OLD), metric(**DATUM)):
        assert result["LLM_based_faithfulness"] == 0.5
        assert json.loads(result["LLM_based_faithfulness_reasoning"]) == {
            "classification": [
                {"statement_1": HAMLET, "reason": "So it is.", "Attributed": 1},
                {"statement_2": BORN, "reason": "So it is.", "Attributed": 0},
            ]
        }
    assert len(server.requests) == 3  # statements, and a verdict of each
    assert DATUM["ground_truths"][0] not in str(server.requests)


def test_the_whole_answer(model, server):
    """In one call: up to 0.2.7 `calculate` gives a boolean, up to 0.3.13 a call a number, since then the probability
    of support; many at once are columns."""
    metric = LLMBasedFaithfulness(model)
    reasoning = {"LLM_based_faithfulness_reasoning": "So it is."}
    assert metric.calculate(**OLD) == {"LLM_based_faithfulness": False} | reasoning
    assert (
        metric.use(answer="?").batch(
            **{name: [value, value] for name, value in DATUM.items()}
        )
        == [{"LLM_based_faithfulness": 0.0} | reasoning] * 2
    )
    newest = Faithfulness(model=model)(**DATUM)
    assert len(server.requests) == 1
    assert newest["reasoning"] == "So it is."
    assert 0 < newest["faithfulness"] < 0.5


def test_no_few_shot():
    """Examples are asked for in vain, and not in silence."""
    with pytest.raises(ConfigError, match="give labels to `faith-dspy tune`"):
        Faithfulness(use_few_shot=True, model="none")
