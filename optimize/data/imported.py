"""Labels that came from elsewhere – another tool's file, people's feedback in MLflow – as lines of a labels file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from faith_dspy.errors import InputError
from faith_dspy.io.files import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ImportedLabels(BaseModel, extra="forbid", frozen=True):
    """Labelled answers, and what did not become one."""

    rows: list[dict[str, Any]]
    """Lines of a labels file."""
    split: list[str] = []
    """Ids of answers left out because their annotators are split."""
    unreadable: dict[str, str] = {}
    """Answers left out because they have no answer or no context: id, and what is wrong."""
    unknown: dict[str, int] = {}
    """Label words whose meaning is not known, and how often they were given."""

    @property
    def n(self) -> int:
        """Answers that people labelled, usable or not."""
        return len(self.rows) + len(self.split) + len(self.unreadable)

    @property
    def sentence(self) -> str:
        """What was imported and what was left out."""
        text = f"{len(self.rows)} labelled answers"
        if self.split:
            text += f"; {len(self.split)} left out because people are split"
        if self.unreadable:
            first = next(iter(self.unreadable.values()))
            text += f"; {len(self.unreadable)} without answer or context, the first: {first}"
        if self.unknown:
            named = ", ".join(f"{word!r} ({n})" for word, n in self.unknown.items())
            text += f"; of unknown meaning: {named} – say it with --value WORD=true or WORD=false"
        return f"{text}."


def write_labels(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as a labels file; `InputError` when there are none."""
    if not rows:
        raise InputError(f"there is no labelled answer to write to {path}.")
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
