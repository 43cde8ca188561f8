import json

import pytest

from faith_dspy.errors import ConfigError, FaithDspyError
from faith_dspy.integrations.promptfoo import get_assert
from tests.support.cases import CONTEXT, ICELAND, LANDED

CONFIG = {"judge": "openai:tiny", "criteria": "Be strict."}
ASKED = {"vars": {"query": "When?", "context": CONTEXT[0]}, "config": CONFIG}
BOTH = f"{LANDED} {ICELAND}"


def test_an_assertion(endpoint):
    """A grading result, which promptfoo takes as JSON, with a component for each statement, by the judge and the
    options of the configuration; it passes from the assertion's own threshold on. The provider's metadata may name the
    context; without any the answer is an error that says why, which is no pass under `not-python` either."""
    endpoint.labels = {LANDED: "Yes", ICELAND: "No"}
    result = json.loads(json.dumps(get_assert(BOTH, ASKED)))
    landed, iceland = f"fully_supported [0]: {LANDED}", f"not_supported: {ICELAND}"
    assert result == {
        "pass": False,
        "score": 0.5,
        "reason": f"1 of 2 statements supported\n{landed}\n{iceland}",
        "namedScores": {"faithfulness": 0.5},
        "componentResults": [
            {"pass": True, "score": 1.0, "reason": landed},
            {"pass": False, "score": 0.0, "reason": iceland},
        ],
    }
    top, asked = (one["content"] for one in endpoint.requests[0]["messages"])
    assert top.endswith("Be strict.")
    assert "Question: When?" in asked
    for threshold, passes in ((0.5, True), (0.6, False)):
        own = {"type": "python", "threshold": threshold, "config": CONFIG}
        test = {"assert": [{"type": "contains"}, own]}
        assert get_assert(BOTH, ASKED | {"test": test})["pass"] is passes
    bare = {**ASKED, "vars": {"query": "When?"}}
    named = {**bare, "metadata": {"context": CONTEXT}}
    assert get_assert(LANDED, named)["pass"] is True
    with pytest.raises(FaithDspyError, match=r"^unscored \(no_context\)"):
        get_assert(LANDED, bare)


def test_a_configuration_that_is_no_object():
    """A text in its place is refused in one sentence that says what is expected."""
    with pytest.raises(ConfigError, match="config is 'none', expected an object"):
        get_assert(LANDED, ASKED | {"config": "none"})
