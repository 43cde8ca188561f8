import json

import pytest

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.continuous_eval import Faithfulness, LLMBasedFaithfulness
from tests.support.cases import CONTEXT, ICELAND, LANDED

DATUM = {
    "question": "When did it land?",
    "answer": f"{LANDED} {ICELAND}",
    "retrieved_context": CONTEXT,
    "ground_truths": ["On a Sunday."],
}
OLD = {"retrieved_contexts" if k == "retrieved_context" else k: DATUM[k] for k in DATUM}
NAME, REASONING = "LLM_based_faithfulness", "LLM_based_faithfulness_reasoning"


def test_by_statement(lm, endpoint):
    """The share that is attributed, and as JSON each statement with its reason. Nobody is told the true answers."""
    metric = LLMBasedFaithfulness(lm, classify_by_statement=True)
    for result in (metric.calculate(**OLD), metric(**DATUM)):
        assert result[NAME] == 0.5
        assert json.loads(result[REASONING]) == {
            "classification": [
                {"statement_1": LANDED, "reason": "So it is.", "Attributed": 1},
                {"statement_2": ICELAND, "reason": "So it is.", "Attributed": 0},
            ]
        }
    assert len(endpoint.requests) == 3  # statements, and a verdict of each
    assert DATUM["ground_truths"][0] not in str(endpoint.requests)


def test_the_whole_answer(lm, endpoint):
    """In one call: up to 0.2.7 `calculate` gives a boolean, up to 0.3.13 a call a number, since then the probability
    of support; many at once are columns."""
    endpoint.labels = {DATUM["answer"]: "No"}
    metric = LLMBasedFaithfulness(lm)
    assert metric.calculate(**OLD) == {NAME: False, REASONING: "So it is."}
    columns = {name: [value, value] for name, value in DATUM.items()}
    results = metric.use(answer="?").batch(**columns)
    assert results == [{NAME: 0.0, REASONING: "So it is."}] * 2
    newest = Faithfulness(model=lm)(**DATUM)
    assert len(endpoint.requests) == 1
    assert newest["reasoning"] == "So it is."
    assert 0 < newest["faithfulness"] < 0.5


def test_no_few_shot():
    """Examples are asked for in vain, and not in silence."""
    with pytest.raises(ConfigError, match="give labels to `faith-dspy tune`"):
        Faithfulness(use_few_shot=True, model="none")
