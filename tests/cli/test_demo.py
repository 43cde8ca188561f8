from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from faith_dspy import load_judge
from faith_dspy.cli.judge import RECORDED

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_NETWORK = """
import socket, sys
def refuse(*args, **kwargs):
    raise OSError("no network here")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
sys.argv = ["faith-dspy", "demo"]
from faith_dspy.cli import main
main()
"""


def test_the_demo_needs_no_model_no_key_and_no_network(tmp_path: Path) -> None:
    """In an empty folder it shows statements with evidence, three lines, a page, and how to do the same live."""
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    env = clean | {"DSPY_CACHEDIR": str(tmp_path / "cache"), "COLUMNS": "80", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NETWORK],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for said in (
        "recorded replies", " (threshold 0.", "← [", "not in the context: ",
        "Agreement: balanced accuracy .", "Gain: +", "Next: ", "demo.html", "faith-dspy judge demo.jsonl --judge ",
    ):  # fmt: skip
        assert said in done.stdout
    assert "no LM calls" not in done.stdout  # it says that the LM had been asked
    assert "Traceback" not in done.stderr
    widths = [len(line) for line in done.stdout.splitlines() if str(RECORDED.parent) not in line]
    assert max(widths) <= 80
    assert "faith-dspy demo" in (tmp_path / "demo.html").read_text(encoding="utf-8")
    records = [json.loads(line) for line in (tmp_path / "demo.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [set(r) for r in records] == [{"question", "context", "answer"}] * len(records)


def test_the_recorded_judge_loads_and_shows_both_outcomes() -> None:
    """Loading reproduces its stored judgments; one answer passes and one does not."""
    stored = load_judge(RECORDED).manifest["reference"]
    assert {r["faithful"] for r in stored} == {True, False}
    assert sum(len(json.dumps(r)) for r in stored) < 50_000
