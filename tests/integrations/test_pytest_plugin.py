import json
import os
import subprocess
import sys
from importlib import metadata

from faith_dspy.io.inputs import as_chunks
from faith_dspy.io.labels import answer_key

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
"""


def pytest_in(folder, base, *options):
    """What pytest prints, run on the tests of a folder."""
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:deepeval"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, *PLUGIN, *options, "test_it.py"],
        cwd=folder,
        env={**os.environ, "OPENAI_API_BASE": base, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return ran.stdout


def test_what_is_not_supported_or_not_scored_fails(chat_server, judge_at, tmp_path):
    """With the statements that are not supported, and no others; without a score, with the reason. The judge is that of
    the setting, unless an option names another; `none` is no folder."""
    server = chat_server(
        yes={"The kettle is blue.": 0.9, "It is blue.": 0.9, "It is new.": 0.1}
    )
    judge_at(server, threshold=0.9)[0].save(tmp_path / "judge")
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")

    def run(*options):
        return pytest_in(tmp_path, server.base, *options)

    said = run("-o", "faithfulness_judge=judge")
    assert "2 failed, 1 passed" in said, said
    assert "not_supported: It is new." in said
    assert "1 of 2 statements supported" in said
    assert "supported: It is blue." not in said
    assert "unscored: abstained" in said
    asked = len(server.requests)
    said = run(
        "--faithfulness-judge",
        "none",
        "-o",
        "faithfulness_judge=judge",
        "-k",
        "test_supported",
    )
    assert "1 passed" in said, said
    assert len(server.requests) == asked


AGREEMENT = """
def test_enough(assert_agreement):
    assert assert_agreement("labels.jsonl", 0.9).answers.balanced_accuracy.value == 1.0

def test_few(assert_agreement):
    assert_agreement("few.jsonl", 0.9)

def test_coverage(assert_agreement):
    assert_agreement("silent.jsonl", 0.5)
"""


def test_agreement_fails_as_on_the_command_line(chat_server, judge_at, tmp_path):
    """Ten sources of each label, a coverage of .9, other labels than it was tuned on, and an LM that answers."""
    server = chat_server(
        says=lambda asked: (
            "Perhaps."
            if "green" in server.statement(asked)
            else "Yes"
            if "blue" in server.statement(asked)
            else "No"
        )
    )

    def write(name, n, *colours):
        rows = [
            {
                "context": [f"Kettle {i} is blue."],
                "answer": f"It is {c} {i}.",
                "faithful": c == "blue",
            }
            for i in range(n)
            for c in colours
        ]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return rows

    first = write("labels.jsonl", 10, "blue", "red")[0]
    write("few.jsonl", 9, "blue", "red")
    write("silent.jsonl", 10, "blue", "red", "green")
    (tmp_path / "test_it.py").write_text(AGREEMENT, encoding="utf-8")
    judge, _ = judge_at(server)
    judge.save(tmp_path / "judge")
    key = answer_key(None, as_chunks(first["context"]), first["answer"])
    judge.copy(manifest={"answer_keys": [key]}).save(tmp_path / "tuned")

    said = pytest_in(tmp_path, server.base, "--faithfulness-judge", "judge")
    assert "2 failed, 1 passed" in said, said
    assert "the rarer label has 9" in said
    assert (
        "coverage is 0.67 (20 of 30 labelled answers scored), below the minimum of 0.9"
        in said
    )
    said = pytest_in(
        tmp_path, server.base, "--faithfulness-judge", "tuned", "-k", "enough"
    )
    assert "had a part in the study that tuned this judge" in said, said
    said = pytest_in(tmp_path, "http://127.0.0.1:9/v1", "--faithfulness-judge", "judge")
    assert "passed" not in said
    assert "does not answer" in said
