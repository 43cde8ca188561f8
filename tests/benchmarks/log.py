"""Rows of a benchmark in a file of JSON lines, kept as they come: a run that is stopped goes on where it was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class Log:
    """Its rows are objects; none of them holds a text of the set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.rows = [json.loads(line) for line in lines if line.endswith("}")]  # the last may be cut short

    def add(self, **row: Any) -> None:
        """Keep a row."""
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def has(self, **fields: Any) -> bool:
        """Whether there is a row with these fields."""
        return any(fields.items() <= row.items() for row in self.rows)
