"""The count of tokens that `make check` holds each room to."""

import runpy
from pathlib import Path

TOKENS = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "tokens.py"))


def test_layout_and_docstrings_are_no_tokens(tmp_path):
    """A name, an operator and a value are one each; so is a text with values in it, on every Python."""
    file = tmp_path / "room.py"
    file.write_text(
        '"""What it is."""\n\n\nclass Room:\n    """A room."""\n\n    size = 1  # in m²\n'
        '    """Its size."""\n    name = f"{size} {size}"\n'
    )
    assert TOKENS["count_tokens"](file) == 3 + 3 + 3


def test_every_file_of_code_is_in_a_room():
    """No file is counted twice, and none of the package is left out."""
    rooms = TOKENS["tomllib"].loads((TOKENS["ROOT"] / "pyproject.toml").read_text())
    files = [
        file for room in rooms["tool"]["tokens"] for file in TOKENS["files_of"](room)
    ]
    assert len(files) == len(set(files))
    for folder in ("faith_dspy", "optimize", "eval_sets", "tests"):
        assert set((TOKENS["ROOT"] / folder).rglob("*.py")) <= set(files)
