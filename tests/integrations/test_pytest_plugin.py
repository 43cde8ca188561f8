import os
import subprocess
import sys
from importlib import metadata

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


def test_what_is_not_supported_or_not_scored_fails(chat_server, judge_at, tmp_path):
    """With the statements that are not supported, and no others; without a score, with the reason. The judge is that of
    the setting, unless an option names another; `none` is no folder."""
    server = chat_server(
        yes={"The kettle is blue.": 0.9, "It is blue.": 0.9, "It is new.": 0.1}
    )
    judge_at(server, threshold=0.9)[0].save(tmp_path / "judge")
    (tmp_path / "test_it.py").write_text(TESTS, encoding="utf-8")

    def run(*options):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:deepeval",
            *PLUGIN,
        ]
        settings = {**os.environ, "OPENAI_API_BASE": server.base, "COLUMNS": "200"}
        given = {
            "cwd": tmp_path,
            "env": settings,
            "capture_output": True,
            "text": True,
            "timeout": 300,
        }
        return subprocess.run(
            [*command, *options, "test_it.py"], check=False, **given
        ).stdout

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
