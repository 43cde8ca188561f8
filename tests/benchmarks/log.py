"""Rows of a benchmark in a file of JSON lines, kept as they come: a run that is stopped goes on where it was."""

import json
from pathlib import Path
from typing import Any


class Log:
    """Its rows are objects; none of them holds a text of the set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # the last line was cut short
            path.write_text(whole, encoding="utf-8")
        self.rows = [json.loads(line) for line in whole.splitlines()]

    def add(self, **row: Any) -> None:
        """Keep a row."""
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def has(self, **fields: Any) -> bool:
        """Whether there is a row with these fields."""
        return any(fields.items() <= row.items() for row in self.rows)
