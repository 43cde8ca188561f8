import json

import pytest

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.continuous_eval import LLMBasedFaithfulness

HAMLET, BORN = "Hamlet is a tragedy by William Shakespeare.", "He was born in Ireland."
CONTEXT = ["Hamlet, a tragedy, was written by William Shakespeare."]
DATUM = {
    "question": "Who wrote Hamlet?",
    "answer": f"{HAMLET} {BORN}",
    "ground_truths": ["Shakespeare wrote Hamlet."],
}


def test_basic_usage(replies, dspy_lm):
    """By statement the share that is attributed, and as JSON each of them with its reason; else one boolean about all
    of the answer, in one call, and why, as text. The older name of the context is understood. Nobody is told the true
    answers."""
    server = replies({HAMLET: "Yes", BORN: "No", DATUM["answer"]: "No"})
    model = dspy_lm(server)
    found = LLMBasedFaithfulness(model, classify_by_statement=True).calculate(
        retrieved_contexts=CONTEXT, **DATUM
    )
    assert found["LLM_based_faithfulness"] == 0.5
    assert json.loads(found["LLM_based_faithfulness_reasoning"]) == {
        "classification": [
            {"statement_1": HAMLET, "reason": "So it is.", "Attributed": 1},
            {"statement_2": BORN, "reason": "So it is.", "Attributed": 0},
        ]
    }
    assert len(server.requests) == 3  # statements, and a verdict of each
    found = LLMBasedFaithfulness(model).calculate(retrieved_context=CONTEXT, **DATUM)
    assert found == {
        "LLM_based_faithfulness": False,
        "LLM_based_faithfulness_reasoning": "So it is.",
    }
    assert len(server.requests) == 4
    assert DATUM["ground_truths"][0] not in str(server.requests)


def test_no_few_shot():
    """Examples are asked for in vain, and not in silence."""
    with pytest.raises(
        ConfigError,
        match="there are no examples to use: give labels to `faith-dspy tune`",
    ):
        LLMBasedFaithfulness("none", use_few_shot=True)
