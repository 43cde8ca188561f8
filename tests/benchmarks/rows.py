"""Results as they come: one JSON line per system and answer."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from faith_dspy.schema import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PACKAGES = ("faith_dspy", "dspy", "ragas", "deepeval", "mlflow", "openai", "xllamacpp")


class Row(BaseModel):
    """One system's turn on one answer. Holds no text of the set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    set: str
    system: str
    made_by: str
    """Hash of all that the system's verdicts depend on: rows of an older judge or library do not count."""
    answer: str
    """Its id."""
    group: str
    label: bool
    passes: bool | None
    score: float | None
    why: str | None
    """Why there is no verdict."""
    usage: Usage
    """Calls and tokens, as the proxy counted."""
    seconds: float
    """From giving it the answer to its verdict."""


class Book:
    """The file of rows, and beside it what is known of the run (``run.json``)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_file = path.with_name("run.json")
        self.rows: dict[tuple[str, str, str], Row] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                if line.endswith("}"):  # a last line may have been cut short
                    row = Row.model_validate_json(line)
                    self.rows[row.set, row.system, row.answer] = row
        known = self.run_file.read_text(encoding="utf-8") if self.run_file.is_file() else '{"sets": {}}'
        self.run: dict[str, Any] = json.loads(known)

    def has(self, set_name: str, system: str, answer: str, made_by: str) -> bool:
        """Whether this very system has judged that answer."""
        row = self.rows.get((set_name, system, answer))
        return row is not None and row.made_by == made_by

    def judged(self, set_name: str) -> dict[str, list[Row]]:
        """Rows by system, of the answers on which all systems of the run had their turn, in the run's order."""
        run = self.run["sets"][set_name]
        systems: dict[str, str] = run["systems"]
        all_had = [a for a in run["order"] if all(self.has(set_name, s, a, made_by) for s, made_by in systems.items())]
        return {s: [self.rows[set_name, s, a] for a in all_had] for s in systems}

    def add(self, row: Row) -> None:
        """Keep a row, on disk at once. A later row for the same place replaces the one before."""
        self.rows[row.set, row.system, row.answer] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(row.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())

    def begin(
        self,
        set_name: str,
        least: Mapping[str, int],
        systems: Mapping[str, str],
        absent: Mapping[str, str],
        **model: Any,
    ) -> None:
        """Note what the run works on: the least tokens by answer, in the answers' order; who takes part, made by what;
        who does not and why; the model, machine and versions. Systems that a later run leaves out stay."""
        known: dict[str, Any] = self.run["sets"].get(set_name, {})
        self.run["sets"][set_name] = {
            "order": list(least),
            "least": dict(least),
            "systems": known.get("systems", {}) | dict(systems),
            "absent": {k: v for k, v in (known.get("absent", {}) | dict(absent)).items() if k not in systems},
        }
        self.run |= {
            **model,
            "date": datetime.date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}",
            "versions": {name: v for name in PACKAGES if (v := version_of(name))},
        }
        self.run_file.write_text(json.dumps(self.run, indent=1) + "\n", encoding="utf-8")


def version_of(package: str) -> str | None:
    """Its version, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
