"""Killed with SIGKILL at random moments, then run again: the result is that of a run that nobody disturbed.

``KILLS=15`` in the environment kills each of them so often. A study that is killed is a test of
`optimize/test_study.py`.
"""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from faith_dspy import load_judge
from faith_dspy.errors import ArtifactError
from tests.support.files import MAIN, read_lines, write_lines

pytestmark = pytest.mark.all
KILLS = int(os.environ.get("KILLS", "3"))
CONTEXT = ["The kettle is blue."]
SAVING = """
import sys
from itertools import count
from faith_dspy import Judge
print("ready", flush=True)
for i in count():
    Judge("openai/tiny", criteria=f"{i % 2} " * 20_000, escalate_to=Judge("openai/tiny")).save(sys.argv[1])
"""


def killed(command, chance, longest, *, ready=False, **how):
    """Start a command and kill it within so many seconds after its start or, of one that says so, when it is ready."""
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
    with subprocess.Popen(command, **how) as process:
        if ready:
            process.stdout.read(1)
        time.sleep(chance.uniform(0, longest))
        process.kill()
        return process.wait()


def test_a_batch(chat_server, tmp_path):
    """Each record has one row, in order, with the same judgment, however often the run was killed on the way."""
    server = chat_server(
        says=lambda asked: "Yes" if "7" in server.statement(asked) else "No"
    )
    server.delay = 0.01
    rows = [
        {"id": i, "context": CONTEXT, "answer": f"Kettle {i} is blue."}
        for i in range(600)
    ]
    write_lines(tmp_path / "in.jsonl", rows)
    command = [*MAIN, "judge", "in.jsonl", "--lm", "openai/tiny", "--api-base"]
    command += [server.base, "--out"]
    env = os.environ | {"DSPY_CACHEDIR": str(tmp_path / "cache")}
    how = {"cwd": tmp_path, "env": env}
    chance, codes = random.Random(50), []
    for _ in range(KILLS):
        codes.append(killed([*command, "out.jsonl"], chance, 6, **how))
    for out in ("out.jsonl", "whole.jsonl"):
        subprocess.run([*command, out], check=True, **how)
    paid = {"usage": 0, "replayed": 0}  # a killed run had paid for some replies
    resumed, whole = (
        [row | paid for row in read_lines(tmp_path / name)]
        for name in ("out.jsonl", "whole.jsonl")
    )
    assert resumed == whole
    assert [row["id"] for row in resumed] == list(range(600))
    assert -signal.SIGKILL in codes


def test_an_export(tmp_path):
    chance, folder, refused = random.Random(50), tmp_path / "judge", 0
    for _ in range(KILLS):
        code = killed([sys.executable, "-c", SAVING, folder], chance, 2, ready=True)
        assert code == -signal.SIGKILL
        try:
            load_judge(folder)
        except ArtifactError:
            refused += 1  # between two renames, or before the first: the next mends it
        load = "import sys; from faith_dspy import Judge; Judge('openai/tiny').save(sys.argv[1])"
        for to in (folder, tmp_path / "fresh"):
            subprocess.run([sys.executable, "-c", load, to], check=True)
        written = [p for p in folder.iterdir() if p.suffix in (".json", ".md")]
        files = {p.name: p.read_bytes() for p in written}
        assert files == {p.name: p.read_bytes() for p in (tmp_path / "fresh").iterdir()}
        assert load_judge(folder).escalate_to is None
    assert refused <= max(1, KILLS // 5)
