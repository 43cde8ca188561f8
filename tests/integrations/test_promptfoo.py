import json

import pytest

from faith_dspy.errors import ConfigError, FaithDspyError
from faith_dspy.integrations.promptfoo import get_assert

CONFIG = {"judge": "openai:tiny", "criteria": "Be strict."}
ASKED = {
    "prompt": "Which colour?",
    "vars": {"query": "Which colour?", "context": "It is blue."},
    "test": {"assert": [{"type": "python", "threshold": 0.5, "config": CONFIG}]},
    "config": CONFIG,
}
BOTH = "It is blue. It is new."


@pytest.fixture
def server(chat_server, monkeypatch):
    """It supports one of two statements; the environment names it."""
    server = chat_server(yes={"It is blue.": 0.9, "It is new.": 0.1})
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    return server


def test_an_assertion(server):
    """A grading result, which promptfoo takes as JSON, with a component for each statement, by the judge and the
    options of the configuration. It passes from the assertion's threshold on; without one every statement has to be
    supported. The provider's metadata may name the context; without any the answer is an error that says why, which is
    no pass under `not-python` either."""
    result = json.loads(json.dumps(get_assert(BOTH, ASKED)))
    assert result == {
        "pass": True,
        "score": 0.5,
        "reason": "1 of 2 statements supported\nfully_supported [0]: It is blue.\nnot_supported: It is new.",
        "namedScores": {"faithfulness": 0.5},
        "componentResults": [
            {"pass": True, "score": 1.0, "reason": "fully_supported [0]: It is blue."},
            {"pass": False, "score": 0.0, "reason": "not_supported: It is new."},
        ],
    }
    top, asked = (one["content"] for one in server.requests[0]["messages"])
    assert top.endswith("Be strict.")
    assert "Question: Which colour?" in asked
    for threshold, passes in ((None, False), (0.6, False)):
        assertion = ASKED["test"]["assert"][0] | {"threshold": threshold}
        test = {"assert": [{"type": "contains"}, assertion]}
        assert get_assert(BOTH, ASKED | {"test": test})["pass"] is passes
    bare = {**ASKED, "vars": {"query": "Which colour?"}}
    named = {**bare, "metadata": {"context": ["It is blue."]}}
    assert get_assert("It is blue.", named)["pass"] is True
    with pytest.raises(FaithDspyError, match=r"^unscored \(no_context\)"):
        get_assert("It is blue.", bare)


def test_a_configuration_that_is_no_object():
    """A text in its place is refused in one sentence that says what is expected."""
    with pytest.raises(ConfigError, match="config is 'none', expected an object"):
        get_assert("It is blue.", ASKED | {"config": "none"})
