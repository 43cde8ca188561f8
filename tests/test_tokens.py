"""The count of tokens that `make check` holds each room to."""

import runpy
from pathlib import Path

TOKENS = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "tokens.py"))


def test_every_file_of_code_is_in_a_room():
    """No file is counted twice, and none of the package is left out."""
    rooms = TOKENS["tomllib"].loads((TOKENS["ROOT"] / "pyproject.toml").read_text())
    files = [
        file for room in rooms["tool"]["tokens"] for file in TOKENS["files_of"](room)
    ]
    assert len(files) == len(set(files))
    for folder in ("faith_dspy", "optimize", "eval_sets", "tests"):
        assert set((TOKENS["ROOT"] / folder).rglob("*.py")) <= set(files)
