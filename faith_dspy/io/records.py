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
        row = json.loads(line.decode())
        json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeDecodeError as exc:
        return f"is not UTF-8 text ({exc.reason} at byte {exc.start})"
    except json.JSONDecodeError as exc:
        return f"not JSON ({exc.msg} at column {exc.colno}): {line[:60].decode(errors='replace')!r}"
    except UnicodeEncodeError:
        return "holds an unpaired surrogate (a \\ud… escape), expected Unicode text"
    except RecursionError:
        return "is nested too deeply"
    except ValueError as exc:  # NaN, Infinity, numbers of thousands of digits
        return f"holds a number that is not allowed in JSON ({exc})"
    return row if isinstance(row, dict) else f"got {type(row).__name__}, expected an object"


def count_lines(source: Path) -> int | None:
    """Number of lines of a file; None for anything that is not a file, as a pipe can be read only once."""
    if source == STANDARD or not source.is_file():
        return None
    with source.open("rb") as handle:
        return sum(1 for _ in handle)
