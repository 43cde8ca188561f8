import os
import subprocess
import sys

import pytest

from faith_dspy.cli.judge import KINDS, demo
from faith_dspy.errors import InputError

WITHOUT_NETWORK = """
import socket, sys
def refuse(*args, **kwargs):
    raise OSError("no network here")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
sys.argv = ["faith-dspy", "demo"]
from faith_dspy.cli import main
main()
"""
SHOWN = (
    *KINDS,
    "[4] ",
    "  +  ",
    "  x  ",
    "< [3]",
    "closest [4]",
    "eleven puffin",
    "demo.html",
    "judge demo.jsonl --judge ",
)


def test_the_demo_replaces_no_file_but_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("demo.html", "demo.jsonl"):
        demo()
        page, file = (tmp_path / name).read_bytes(), tmp_path / name
        file.write_text("mine", encoding="utf-8")
        with pytest.raises(InputError, match=f"{name}: is there already"):
            demo()
        assert file.read_text(encoding="utf-8") == "mine"
        file.write_bytes(page)


def test_the_demo_needs_no_model_no_key_and_no_network(tmp_path):
    """In an empty folder it shows three answers and what their contexts say, and writes a page. A sign that a terminal
    lacks is shown by one that it has."""
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    cache = str(tmp_path / "cache")
    env = clean | {"DSPY_CACHEDIR": cache, "COLUMNS": "80", "HOME": str(tmp_path)}
    env |= {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", WITHOUT_NETWORK]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert all(said in done.stdout for said in SHOWN)
    assert "faith-dspy demo" in (tmp_path / "demo.html").read_text(encoding="utf-8")
