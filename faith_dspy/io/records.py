"""Records: JSON lines, one object a line, from files of any size, pipes and broken files alike; and rows of tables."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from faith_dspy.errors import InputError
from faith_dspy.io.names import columns, meant, missing, unused
from faith_dspy.io.tables import broken, read_csv, read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

STANDARD = Path("-")
"""Standard input or output."""
MAX_DEPTH, MAX_DIGITS = 100, 300
"""Brackets in each other, and digits of a whole number, in what `read_json` takes."""

FIRST = 20
"""Records by which a file is known to be one of records."""


@dataclass(frozen=True)
class Record:
    """One non-empty line, or one row of a table."""

    line: int
    """Number of the line, or of the row, counted from 1."""
    key: str
    """First 16 hex digits of the SHA-256 of the line, or of the row as JSON."""
    row: dict[str, Any] = field(default_factory=dict)
    """The object on the line."""
    problem: str | None = None
    """Why the line holds no object; None if it does."""


@contextmanager
def open_records(source: Path) -> Iterator[Iterator[Record]]:
    """The records of a file, or of standard input (`STANDARD`). `InputError` if it cannot be opened.

    The file's ending says what it is: .csv, .tsv, .parquet, .json; anything else is JSON lines.
    """
    if source == STANDARD:
        yield read_records(sys.stdin.buffer)
        return
    try:
        handle = source.open("rb")
    except OSError as exc:
        reason = "is a folder" if source.is_dir() else (exc.strerror or str(exc)).lower()
        raise InputError(f"{source}: cannot be read ({reason}); expected a JSON lines file or a table.") from exc
    with handle:
        match source.suffix.lower():
            case ".csv" | ".tsv" as kind:
                yield _rows(source, read_csv(handle, tab=kind == ".tsv"))
            case ".parquet":
                yield _rows(source, read_parquet(handle))
            case ".json":
                text = handle.read()
                found = _list(text)
                yield read_records(io.BytesIO(text)) if found is None else _rows(source, found)
            case _:
                yield read_records(handle)


def is_table_file(source: Path) -> bool:
    """Whether the records of a file are rows, not lines."""
    return source.suffix.lower() in (".csv", ".tsv", ".parquet", ".json")


def _rows(source: Path, rows: Iterable[dict[str, Any] | str]) -> Iterator[Record]:
    """Rows, or what is wrong with them, as records; `InputError` where the file turns out to be no table."""
    try:
        for number, row in enumerate(rows, 1):
            text = json.dumps(row, ensure_ascii=False, sort_keys=True).encode(errors="replace")
            key = hashlib.sha256(text).hexdigest()[:16]
            yield Record(number, key, problem=row) if isinstance(row, str) else Record(number, key, row)
    except ValueError as exc:
        raise broken(source, exc) from exc


def _list(text: bytes) -> list[dict[str, Any] | str] | None:
    """The rows of a JSON file that holds a list, by itself or in an object; None where it is JSON lines."""
    try:
        found = read_json(text.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        return None
    if isinstance(found, dict) and not {"answer", "conversation"} & columns(found).keys():
        found = next((v for v in found.values() if isinstance(v, list)), None)
    return [r if isinstance(r, dict) else _no_object(r) for r in found] if isinstance(found, list) else None


def check_records(source: Path, known: Iterable[str] = ()) -> str:
    """The columns of a file that are not used, in words (see `faith_dspy.io.names.unused`).

    `InputError` when it is no table and no JSON lines, and as `check_columns`: that is to be known before an LM is
    started. Nothing is known of what is no file, as a pipe can be read only once.
    """
    if source == STANDARD or (source.exists() and not source.is_file() and not source.is_dir()):
        return ""
    with open_records(source) as records:
        first = list(islice(records, FIRST))
    if not first:
        return ""
    good = [r.row for r in first if r.problem is None]
    if not good:
        raise broken(source, ValueError(f"{'row' if is_table_file(source) else 'line'} 1 {first[0].problem}"))
    check_columns(good, str(source))
    return unused(good, known)


def check_columns(rows: Sequence[Mapping[str, Any]], where: str) -> None:
    """`InputError` when the first rows of a table have no column for the answer, or misspell that of the context."""
    held = {name for row in rows for name in columns(row)}
    if not rows or "conversation" in held or any(row.get("error") for row in rows):
        return
    if "answer" not in held:
        raise InputError(f"{where}: {missing(rows[0])}")
    if "context" not in held and meant(rows[0], "context"):
        raise InputError(f"{where}: {missing(rows[0], 'context')}")


def read_records(handle: IO[bytes]) -> Iterator[Record]:
    """Each non-empty line as a `Record`, read as it is needed; a line without an object says what is wrong with it."""
    for number, line in enumerate(handle, 1):
        if text := (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip():
            found = _parse(text)
            row, problem = ({}, found) if isinstance(found, str) else (found, None)
            yield Record(number, hashlib.sha256(text).hexdigest()[:16], row, problem)


def _parse(line: bytes) -> dict[str, Any] | str:
    """The object on a line, or what is wrong with it."""
    try:
        row = read_json(line)
    except ValueError as exc:
        return str(exc)
    return row if isinstance(row, dict) else _no_object(row)


def _no_object(value: Any) -> str:
    return f"got {type(value).__name__}, expected an object"


def read_json(text: bytes) -> Any:
    """JSON that whatever works on it can hold; `ValueError` says what is wrong with any other.

    No NaN, no text that is not Unicode, no number beyond a float's range, and only so many brackets in each other:
    Python reads all of these, and fails where they are used.
    """
    try:
        value = json.loads(text.decode(), parse_int=_int)
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH and _is_deep(value):
            raise RecursionError
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeDecodeError as exc:
        raise ValueError(f"is not UTF-8 text ({exc.reason} at byte {exc.start})") from exc
    except json.JSONDecodeError as exc:
        shown = text[:60].decode(errors="replace")
        raise ValueError(f"not JSON ({exc.msg} at column {exc.colno}): {shown!r}") from exc
    except UnicodeEncodeError as exc:
        raise ValueError("holds an unpaired surrogate (a \\ud… escape), expected Unicode text") from exc
    except RecursionError as exc:
        raise ValueError(f"is nested too deeply, more than {MAX_DEPTH} brackets in each other") from exc
    except ValueError as exc:
        raise ValueError(f"holds a number that is not allowed in JSON ({exc})") from exc
    return value


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits")
    return int(digits)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        inside = (v for outer in level for v in (outer.values() if isinstance(outer, dict) else outer))
        level = [v for v in inside if isinstance(v, dict | list)]
    return bool(level)


def count_lines(source: Path) -> int | None:
    """Number of lines of a file; None for tables and for what is not a file, as a pipe can be read only once."""
    if source == STANDARD or not source.is_file() or is_table_file(source):
        return None
    with source.open("rb") as handle:
        return sum(1 for _ in handle)
