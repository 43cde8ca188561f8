import json
import subprocess
import sys

import pytest

from faith_dspy.errors import ConfigError
from faith_dspy.integrations.promptfoo import get_assert

ASKED = {
    "prompt": "Which colour?",
    "vars": {"query": "Which colour?", "context": "It is blue."},
    "test": {"assert": [{"type": "python"}]},
    "config": {"judge": "openai:tiny", "criteria": "Be strict."},
}
WRAPPER = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("faithful", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
given = json.load(open(sys.argv[2]))
print(json.dumps(getattr(module, "get_assert")(*given)))
"""
"""As promptfoo calls a file: in a process of its own, by its path, with arguments and result as JSON."""


@pytest.fixture
def server(chat_server, monkeypatch):
    """It supports one of two statements; the environment names it."""
    server = chat_server(yes={"It is blue.": 0.9, "It is new.": 0.1})
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    return server


@pytest.fixture
def asserted(server, tmp_path):
    """What promptfoo gets for an output and a context."""
    file = tmp_path / "faithful.py"
    file.write_text("from faith_dspy.integrations.promptfoo import get_assert\n")

    def run(output, context):
        (tmp_path / "given.json").write_text(json.dumps([output, context]))
        command = [sys.executable, "-c", WRAPPER, str(file), "given.json"]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, check=True
        )
        return json.loads(done.stdout)

    return run


def test_a_file_as_promptfoo_calls_it(asserted, server):
    """A grading result with a component for each statement, by the judge and the options of the configuration."""
    assert asserted("It is blue. It is new.", ASKED) == {
        "pass": False,
        "score": 0.5,
        "reason": "1 of 2 statements supported\nfully_supported [0]: It is blue.\nnot_supported: It is new.",
        "namedScores": {"faithfulness": 0.5, "scored": 1.0},
        "componentResults": [
            {"pass": True, "score": 1.0, "reason": "fully_supported [0]: It is blue."},
            {"pass": False, "score": 0.0, "reason": "not_supported: It is new."},
        ],
    }
    top, asked = (one["content"] for one in server.requests[0]["messages"])
    assert top.endswith("Be strict.")
    assert "Question: Which colour?" in asked


def test_where_the_context_is(server):
    """The provider's metadata may name it; without any the answer does not pass, and the reason says that it is
    unscored."""
    from faith_dspy.integrations.promptfoo import get_assert

    bare = {**ASKED, "vars": {"query": "Which colour?"}}
    told = get_assert("It is blue.", {**bare, "metadata": {"context": ["It is blue."]}})
    assert (told["pass"], told["score"]) == (True, 1.0)
    unscored = get_assert("It is blue.", bare)
    assert unscored["reason"].startswith("unscored (no_context)")
    assert (unscored["pass"], unscored["namedScores"]) == (False, {"scored": 0.0})


def test_a_configuration_that_is_no_object():
    """A text in its place is refused in one sentence that says what is expected."""
    with pytest.raises(ConfigError, match="config is 'none', expected an object"):
        get_assert("It is blue.", ASKED | {"config": "none"})
