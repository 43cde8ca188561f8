"""The rows that `faith_dspy.runner` writes and resumes from: JSON lines, or the input's table with columns of ours."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from faith_dspy.errors import InputError
from faith_dspy.io.inputs import AnswerInput, Record
from faith_dspy.io.readers import LONGEST
from faith_dspy.report.judgment import why_not_faithful
from faith_dspy.report.tables import csv_line
from faith_dspy.schema import Judgment

_SHORT = ("score", "faithful", "probability", "unscored")
_TURN, _REASON, _DETAILS = "judge_turn", "judge_reason", "judge_details"
_OURS = (_TURN, *(f"judge_{name}" for name in _SHORT), _REASON, _DETAILS)
"""Columns of a table, the first where each turn is judged; the last has what JSON lines would have."""
_OTHER_TABLES = (".tsv", ".parquet", ".xlsx")


class Rows:
    """How an output file holds judged records: a table if its name ends in ``.csv``, else JSON lines."""

    def __init__(self, out: Path | None, first: Iterable[Record]) -> None:
        """``first``: some records, whose columns come back in a table."""
        self.columns: list[str] = []
        self.header = b""
        suffix = "" if out is None else out.suffix.lower()
        if suffix in _OTHER_TABLES:
            raise InputError(
                f"--out {out}: {suffix} is not written. Name a .csv for a table, or a .jsonl for JSON lines."
            )
        if suffix == ".csv":
            names: dict[str, None] = {}
            has_turns = False
            for record in first:
                names |= dict.fromkeys(() if record.problem else record.row)
                has_turns |= record.turn is not None
            theirs = [name for name in names if name not in _OURS]
            ours = _OURS if has_turns else _OURS[1:]
            self.columns = [*theirs, *ours]
            self.header = csv_line(self.columns)

    def written(self, record: Record, judgment: Judgment, fingerprint: str) -> bytes:
        """Return what is written of a judgment."""
        fields = judgment.to_dict()
        row: dict[str, Any] = {}
        for name in ("id", "turn"):
            own = fields.pop(name)
            if own is not None:
                row[name] = own
        row["line"] = record.line
        if not self.header:
            input: AnswerInput = judgment.input
            row["question"] = input.question
            row["answer"] = None if input.problem else input.answer
        row |= {"record": record.key, "judge": fingerprint} | fields
        row |= judgment.model_dump(mode="json", include={"sentences"})
        if not self.header:
            return _json(row) + b"\n"
        cells = {} if record.problem else dict(record.row)
        shown = {*self.columns, _TURN}
        further = {name: v for name, v in cells.items() if name not in shown}
        if further:  # columns that the first records have not
            row["further_columns"] = further
        cells |= {f"judge_{name}": fields[name] for name in _SHORT}
        cells |= {
            _TURN: row.get("turn"),
            _REASON: why_not_faithful(judgment),
            _DETAILS: _json(row).decode(),
        }
        return csv_line(map(cells.get, self.columns))

    def read(self, handle: IO[bytes]) -> Iterator[tuple[bytes, int]]:
        """Yield the JSON of each whole row, and where the row ends, in bytes.

        Raises:
            ValueError: these are no rows of ours.
        """
        start = handle.read(len(self.header))
        if not self.header.startswith(start):
            raise ValueError("has other columns")
        end = len(start)

        def whole_lines() -> Iterator[bytes]:
            nonlocal end
            for line in handle:
                if not line.endswith(b"\n"):
                    return  # it was cut off
                end += len(line)
                yield line

        rows = whole_lines()
        if self.header:
            csv.field_size_limit(LONGEST)
            table = csv.reader(map(bytes.decode, rows), strict=True)
            rows = (cells[-1].encode() for cells in table)
        with suppress(csv.Error):  # the last row was cut off inside a quoted cell
            for row in rows:
                yield row, end


def _json(row: dict[str, Any]) -> bytes:
    text = json.dumps(row, ensure_ascii=False, default=str)
    return text.encode(errors="replace")  # an LM may write a lone surrogate
