"""Labels and records in files, and the command line as a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

MAIN = (sys.executable, "-c", "from faith_dspy.cli import main; main()")


def write_lines(path, rows):
    """Write rows as JSON lines; the path."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    Path(path).write_text("".join(lines), encoding="utf-8")
    return Path(path)


def read_lines(path):
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def blue_kettles(n):
    """Labels: over each of n contexts a faithful answer, that the kettle is blue, and one that it is red."""
    return [
        {
            "context": [f"The kettle is blue, {i}."],
            "answer": f"It is {colour} {i}.",
            "faithful": colour == "blue",
        }
        for i in range(n)
        for colour in ("blue", "red")
    ]


def run(*words, cwd=None, **environment):
    """A finished process of the command line."""
    return subprocess.run(
        [*MAIN, *map(str, words)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        check=False,
        timeout=800,
    )


def run_python(code):
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
