from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata

import pytest

LOADED = any(point.name == "faith_dspy" for point in metadata.entry_points(group="pytest11"))
PLUGIN = [] if LOADED else ["-p", "faith_dspy.integrations.pytest_plugin"]
TESTS = """
def test_it(assert_faithful):
    assert assert_faithful({answer!r}, ["The kettle is blue."]).score == 1.0
"""


@pytest.fixture
def tried(chat_server, judge_at, tmp_path):
    """Runs pytest on a test of one answer, with a judge of its own: (exit code, what it printed)."""
    server = chat_server(yes={"It is blue.": 0.9, "It is new.": 0.1})
    judge_at(server, threshold=0.9)[0].save(tmp_path / "judge")

    def run(answer: str, *options: str) -> tuple[int, str]:
        (tmp_path / "test_it.py").write_text(TESTS.format(answer=answer), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:deepeval", *PLUGIN]
        settings = {**os.environ, "OPENAI_API_BASE": server.base, "COLUMNS": "200"}
        done = subprocess.run(
            [*command, *options, "test_it.py"],
            cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    return run


def test_an_answer_that_is_supported(tried):
    """`assert_faithful` gives the judgment, of the judge that the option names."""
    code, said = tried("It is blue.", "--faithfulness-judge", "judge")
    assert (code, "1 passed" in said) == (0, True), said


def test_a_judge_that_needs_no_model(tried):
    """`none` is no folder."""
    code, said = tried("The kettle is blue.", "--faithfulness-judge", "none")
    assert (code, "1 passed" in said) == (0, True), said


def test_an_answer_that_is_not_supported(tried):
    """It fails with the statements that are not supported, and with no others."""
    code, said = tried("It is blue. It is new.", "--faithfulness-judge", "judge")
    assert code == 1, said
    assert "not_supported: It is new." in said
    assert "1 of 2 statements supported" in said
    assert "supported: It is blue." not in said


def test_an_answer_that_cannot_be_scored(tried):
    """An answer without a score fails, and says why; the judge may also be a setting."""
    code, said = tried("I don't know.", "-o", "faithfulness_judge=judge")
    assert (code, "unscored: abstained" in said) == (1, True), said
