import os
import subprocess
import sys
from importlib import metadata

import pytest

from faith_dspy.io.inputs import as_chunks
from faith_dspy.io.labels import answer_key
from tests.support.files import blue_kettles, write_lines

LOADED = any(
    point.name == "faith_dspy" for point in metadata.entry_points(group="pytest11")
)
PLUGIN = [] if LOADED else ["-p", "faith_dspy.integrations.pytest_plugin"]
TESTS = """
CONTEXT = ["The kettle is blue."]

def test_supported(assert_faithful):
    assert assert_faithful(CONTEXT[0], CONTEXT).score == 1.0

def test_not_supported(assert_faithful):
    assert_faithful("It is blue. It is new.", CONTEXT)

def test_unscored(assert_faithful):
    assert_faithful("I don't know.", CONTEXT)

def test_enough(assert_agreement):
    assert assert_agreement("labels.jsonl", 0.9).answers.balanced_accuracy.value == 1.0

def test_few(assert_agreement):
    assert_agreement("few.jsonl", 0.9)

def test_coverage(assert_agreement):
    assert_agreement("silent.jsonl", 0.5)
"""


@pytest.fixture
def run(chat_server, judge_at, tmp_path):
    """What pytest prints, run on these tests; the judge in ``judge`` supports what is blue, and had no part of the
    labels, the one in ``tuned`` had."""
    words = {"blue": "Yes", "green": "Perhaps."}

    def say(asked):
        statement = server.statement(asked)
        return next((words[word] for word in words if word in statement), "No")

    server = chat_server(says=say)
    labels = blue_kettles(10)
    silent = [row | {"answer": f"It is green {i}."} for i, row in enumerate(labels)]
    write_lines(tmp_path / "labels.jsonl", labels)
    write_lines(tmp_path / "few.jsonl", labels[:-2])
    write_lines(tmp_path / "silent.jsonl", labels + silent[::2])
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")
    judge, _ = judge_at(server)
    judge.save(tmp_path / "judge")
    key = answer_key(None, as_chunks(labels[0]["context"]), labels[0]["answer"])
    judge.copy(manifest={"answer_keys": [key]}).save(tmp_path / "tuned")

    def run(*options, base=server.base):
        quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:deepeval"]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *quiet, *PLUGIN, *options, "test_it.py"],
            cwd=tmp_path,
            env={**os.environ, "OPENAI_API_BASE": base, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return ran.stdout

    return run


def test_what_is_not_supported_or_does_not_agree_fails(run):
    """With the statements that are not supported, and no others; without a score, with the reason; as on the command
    line where there are fewer than ten sources of a label, or less coverage than .9. A setting names the judge."""
    said = run("-o", "faithfulness_judge=judge")
    assert "4 failed, 2 passed" in said, said
    assert "not_supported: It is new." in said
    assert "1 of 2 statements supported" in said
    assert "supported: It is blue." not in said
    assert "unscored: abstained" in said
    assert "the rarer label has 9" in said
    assert "coverage is 0.67 (20 of 30 labelled answers scored), below the" in said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            ["none", "-o", "faithfulness_judge=judge", "-k", "test_supported"],
            "1 passed",
        ),
        (["tuned", "-k", "enough"], "had a part in the study that tuned this judge"),
    ],
)
def test_an_option_names_another_judge(run, options, why):
    """`none` is no folder; labels that a judge was tuned on say nothing of new ones."""
    assert why in run("--faithfulness-judge", *options)


def test_an_lm_that_does_not_answer_fails(run):
    said = run("--faithfulness-judge", "judge", base="http://127.0.0.1:9/v1")
    assert "passed" not in said
    assert "does not answer" in said
