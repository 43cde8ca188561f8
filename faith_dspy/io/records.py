"""JSON lines: one object a line, from files of any size, pipes and broken files alike."""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from faith_dspy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDARD = Path("-")
"""Standard input or output."""
MAX_DEPTH, MAX_DIGITS = 100, 300
"""Brackets in each other, and digits of a whole number, in what `read_json` takes."""


@dataclass(frozen=True)
class Record:
    """One non-empty line."""

    line: int
    """Counted from 1."""
    key: str
    """First 16 hex digits of the line's SHA-256."""
    row: dict[str, Any] = field(default_factory=dict)
    """The object on the line."""
    problem: str | None = None
    """Why the line holds no object; None if it does."""


@contextmanager
def open_records(source: Path) -> Iterator[Iterator[Record]]:
    """The records of a file, or of standard input (`STANDARD`). `InputError` if it cannot be opened."""
    if source == STANDARD:
        yield read_records(sys.stdin.buffer)
        return
    try:
        handle = source.open("rb")
    except OSError as exc:
        reason = "is a folder" if source.is_dir() else (exc.strerror or str(exc)).lower()
        raise InputError(f"{source}: cannot be read ({reason}); expected a JSON lines file.") from exc
    with handle:
        yield read_records(handle)


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
    return row if isinstance(row, dict) else f"got {type(row).__name__}, expected an object"


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
    """Number of lines of a file; None for anything that is not a file, as a pipe can be read only once."""
    if source == STANDARD or not source.is_file():
        return None
    with source.open("rb") as handle:
        return sum(1 for _ in handle)
