"""Results as they come: one JSON line per system and answer."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

from faith_dspy.schema import Usage, digest
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from pathlib import Path

    from faith_dspy.schema import LabelledExample

    from .answers import AnswerSet
    from .served import Served
    from .systems import RawVerdict
    from .worker import Worker

PACKAGES = ("faith_dspy", "dspy", "ragas", "deepeval", "mlflow", "openai", "xllamacpp")


class Row(BaseModel):
    """One system's turn on one answer. Holds no text of the set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    set: str
    system: str
    made_by: str
    """Hash of the system's fingerprint: rows of an older judge or library do not count."""
    answer: str
    """Its id."""
    group: str
    label: bool
    passes: bool | None
    score: float | None
    why: str | None
    """Why there is no verdict."""
    usage: Usage
    """As the proxy counted; ``seconds`` with a call under way."""
    seconds: float
    """From giving it the answer to its verdict."""

    @classmethod
    def of(
        cls, name: str, example: LabelledExample, worker: Worker, verdict: RawVerdict, usage: Usage, seconds: float
    ) -> Self:
        """The row of that set."""
        return cls(
            set=name,
            system=worker.name,
            made_by=digest(worker.fingerprint),
            answer=example.id,
            group=example.group_key,
            label=bool(example.label),
            usage=usage,
            seconds=seconds,
            **verdict.model_dump(),
        )


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

    def has(self, set_name: str, system: str, answer: str, fingerprint: str) -> bool:
        """Whether this very system has judged that answer."""
        row = self.rows.get((set_name, system, answer))
        return row is not None and row.made_by == digest(fingerprint)

    def judged(self, set_name: str) -> dict[str, list[Row]]:
        """Rows by system, of the answers on which all systems of the run had their turn, in the run's order."""
        run = self.run["sets"][set_name]
        counted: dict[str, list[Row]] = {name: [] for name in run["systems"]}
        for answer in run["order"]:
            turn = {name: self.rows.get((set_name, name, answer)) for name in counted}
            if all(row is not None and row.made_by == run["systems"][name] for name, row in turn.items()):
                for name, row in turn.items():
                    counted[name].append(row)  # type: ignore[arg-type]  # none is None here
        return counted

    def add(self, row: Row) -> None:
        """Keep a row, on disk at once. A later row for the same place replaces the one before."""
        self.rows[row.set, row.system, row.answer] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(row.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())

    def begin(self, one: AnswerSet, workers: dict[str, Worker], absent: dict[str, str], server: Served) -> None:
        """Note what the run works on: machine, versions, systems, the order of the answers, and the least tokens."""
        known: dict[str, Any] = self.run["sets"].get(one.name, {})
        contexts, baseline = known.get("contexts", {}), known.get("baseline", {})
        for e in one.answers:
            if e.context_key not in contexts:
                contexts[e.context_key] = server.tokens("\n".join(c.text for c in e.context))
            if e.id not in baseline:
                statements = sum(carries_statement(s.text) for s in sentences(e.answer))
                told = {"answer_tokens": server.tokens(e.answer), "statements": statements}
                baseline[e.id] = {"context": e.context_key, **told}
        self.run["sets"][one.name] = {
            "order": [e.id for e in one.answers],
            # A later run may leave systems out; those of the runs before stay.
            "systems": known.get("systems", {}) | {name: digest(w.fingerprint) for name, w in workers.items()},
            "absent": {k: v for k, v in (known.get("absent", {}) | absent).items() if k not in workers},
            "contexts": contexts,
            "baseline": baseline,
        }
        self.run |= {
            "model": server.model,
            "window": server.num_ctx,
            "date": datetime.date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}",
            "versions": {name: v for name in PACKAGES if (v := _version(name))},
        }
        self.run_file.write_text(json.dumps(self.run, indent=1) + "\n", encoding="utf-8")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
