"""Labelled sets by name.

Only sets written for this project are shipped. Any labels file is used in the same way, by its path.
"""

from __future__ import annotations

from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError
from faith_dspy.eval_sets.public import PUBLIC
from faith_dspy.io.labels import read_labels
from faith_dspy.io.readers import rows_of

if TYPE_CHECKING:
    from faith_dspy.schema import LabelledExample

SETS = ("quickstart", "assistants", "hard_cases")
"""Each is a folder: CARD.md and NAME.jsonl."""


def folder_of(name: str, otherwise: str = "no shipped set") -> Path:
    """Return the folder of a shipped set; `InputError` for a name that is none."""
    if name not in SETS:
        known = f"those are {', '.join(SETS)}"
        if name in PUBLIC:
            known = f"it is a public one: faith-dspy labels get {name}"
        raise InputError(f"{name}: {otherwise}; {known}.")
    return Path(str(files(f"faith_dspy.eval_sets.{name}")))


def path_of(name_or_path: str | PathLike[str]) -> Path:
    """Return the file of a shipped set's name; any other value is a path and comes back as one. A file of that name
    wins.

    `InputError` for a name without an ending that is neither.
    """
    path, name = Path(name_or_path), str(name_or_path)
    if (name in SETS and not path.is_file()) or (
        path.name == name and not path.suffix and not path.exists()
    ):
        return folder_of(name, "no such file, and no shipped set") / f"{name}.jsonl"
    return path


def source_of(labels: Any) -> Any:
    """`path_of` a name or path; labels in memory as a list of their rows."""
    if isinstance(labels, str | PathLike):
        return path_of(labels)
    return list(rows_of(labels))


def load(name_or_path: str | Path) -> list[LabelledExample]:
    """Return all labelled examples of a set."""
    return read_labels(path_of(name_or_path))
