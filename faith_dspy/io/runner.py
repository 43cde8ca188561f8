"""A file of records through a judge: streamed, in order, and going on where an earlier run was stopped.

The output has one row per record. A row's ``record`` is a hash of the line it was made from and ``judge`` one of the
judge with its options, so that a run can tell which records an output file already holds; ``line`` is the line's number.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, tee
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pydantic import ValidationError

from faith_dspy.errors import InputError
from faith_dspy.schema import Judgment, Unscored, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faith_dspy.judge import Judge

MAX_LINE = 16 * 2**20
"""Bytes of one record. A longer line is skipped and reported: it would fill the memory, and no LM reads it."""
MAX_SHOWN = 2_000
MAX_SHOWN_BYTES = 64 * 2**20
"""A page for people holds the first answers up to these limits; a larger one would not open."""
STANDARD = Path("-")
"""Standard input or output."""
_REPLIES = 1_000


@dataclass(frozen=True)
class Record:
    """One non-empty line of the input."""

    line: int
    """Counted from 1."""
    size: int
    """Bytes."""
    key: str
    """Hash of the line."""
    given: dict[str, Any] | InputError
    """The object it holds, or what is wrong with it."""

    @property
    def row(self) -> dict[str, Any]:
        """The object; of a line that holds none, only where it was."""
        return {"id": f"line {self.line}"} if isinstance(self.given, InputError) else self.given


@dataclass
class Tally:
    """What a run came to."""

    scored: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    """Rows by reason."""
    resumed: int = 0
    """Rows that were there before the run; they are in the other counts too."""
    unreadable: int = 0
    """Lines that hold no record."""
    usage: Usage = field(default_factory=Usage)
    """Of this run alone."""
    seconds: float = 0.0
    """Wall time of this run."""
    shown: list[tuple[dict[str, Any], Judgment]] = field(default_factory=list)
    """The first records with their judgments, where they are wanted for a page."""
    _shown_bytes: int = 0

    @property
    def rows(self) -> int:
        """Rows of the output."""
        return self.scored + sum(self.unscored.values())

    def __str__(self) -> str:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.unscored.most_common())
        u = self.usage
        parts = [
            f"{self.rows:,} judged: {self.scored:,} scored, {self.rows - self.scored:,} unscored"
            + (f" ({reasons})" if reasons else ""),
            *([f"{self.resumed:,} of them by an earlier run"] if self.resumed else []),
            f"{u.calls:,} calls, {u.computed_tokens:,} tokens read, {u.cached_tokens:,} from the prefix cache, "
            f"{u.output_tokens:,} written",
            f"{self.seconds:.1f} s",
        ]
        return " · ".join(parts)

    def count(self, record: Record, score: float | None, reason: str | None) -> None:
        """One more row."""
        if score is None:
            self.unscored[str(reason)] += 1
        else:
            self.scored += 1
        self.unreadable += isinstance(record.given, InputError)

    def show(self, record: Record, judgment: Judgment) -> None:
        """Keep a judgment for the page, if it still has room."""
        if not self.full:
            self.shown.append((record.row, judgment))
            self._shown_bytes += record.size

    @property
    def full(self) -> bool:
        """Whether the page has no more room."""
        return len(self.shown) >= MAX_SHOWN or self._shown_bytes >= MAX_SHOWN_BYTES


def run(
    judge: Judge,
    source: Path,
    out: Path | None = None,
    *,
    threads: int | None = None,
    show: bool = False,
    advance: Callable[[int], None] = lambda lines: None,
) -> Tally:
    """Judge the records of a JSON lines file; write a row for each, in their order, to ``out`` or standard output.

    Any number of records runs in the same memory. Rows that ``out`` already holds are kept and not judged again; a row
    that was cut off when an earlier run was killed is. A record that cannot be judged is a row that says why. With
    ``show`` the first judgments are kept for a page. ``advance`` is told how many more lines of the input are done.

    Raises `InputError` for a file that cannot be read or written, that has no records, or when ``out`` belongs to
    another input or judge; `LMUnavailableError` when the endpoint is not there, at the start or later: all rows written
    so far are good, and the same call goes on after them.
    """
    if out is not None and out.exists() and source.exists() and out.samefile(source):
        raise InputError(f"--out {out}: is the input itself. Give another --out.")
    started = time.monotonic()
    tally = Tally()
    made_by = judge.fingerprint
    at = end = 0
    with ExitStack() as stack:
        records = stack.enter_context(_records(source))
        if out is not None and out.exists():
            for record, fields, row_end in finished(out, records, made_by):
                end = row_end
                tally.count(record, fields.get("score"), fields.get("unscored"))
                if show and not tally.full:
                    tally.show(record, _judgment(fields, out, tally.rows))
                advance(record.line - at)
                at = record.line
            tally.resumed = tally.rows
        first = next(records, None)
        if first is None:
            if not tally.rows:
                raise InputError(f"{source}: has no records. Expected one JSON object a line with context and answer.")
            return tally
        judge.preflight()
        handle = sys.stdout.buffer if out is None else stack.enter_context(_appending(out, end))
        stack.enter_context(few_replies_in_memory())
        ours, theirs = tee(chain([first], records))
        judgments = judge.stream((r.given for r in theirs), threads)
        stack.callback(judgments.close)  # type: ignore[attr-defined]
        for record, judgment in zip(ours, judgments, strict=True):
            if judgment.unscored is Unscored.LM_FAILED or any(s.error for s in judgment.statements):
                judge.preflight()  # an endpoint that has gone ends the run, before a row says what is not known
            handle.write(_line(record, judgment, made_by))
            handle.flush()
            tally.count(record, judgment.score, judgment.unscored)
            tally.usage += judgment.usage
            if show:
                tally.show(record, judgment)
            advance(record.line - at)
            at = record.line
    tally.seconds = time.monotonic() - started
    return tally


def _line(record: Record, judgment: Judgment, made_by: str) -> bytes:
    row = {} if isinstance(record.given, InputError) else record.given
    fields = {"id": row["id"]} if "id" in row else {}
    fields |= {"line": record.line, "question": row.get("question"), "answer": row.get("answer")}
    fields |= {"record": record.key, "judge": made_by, **judgment.model_dump(mode="json")}
    return json.dumps(fields, ensure_ascii=False).encode(errors="replace") + b"\n"  # an LM may say half a character


def _judgment(fields: dict[str, Any], out: Path, line: int) -> Judgment:
    try:
        return Judgment.model_validate({k: v for k, v in fields.items() if k in Judgment.model_fields})
    except ValidationError as exc:
        raise InputError(
            f"{out}:{line}: is not a judgment of this version ({exc.errors()[0]['msg']}). Give another --out."
        ) from exc


# Reading


def count_lines(source: Path) -> int | None:
    """Lines of a file, without reading them as text; None of what is no file: a pipe can be read once."""
    if source == STANDARD or not source.is_file():
        return None
    count, last = 0, b"\n"
    with source.open("rb") as handle:
        while block := handle.read(2**20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


@contextmanager
def _records(source: Path) -> Iterator[Iterator[Record]]:
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
    """Each non-empty line as a `Record`; a line that holds no object is one too, and says what is wrong with it."""
    number = 0
    while line := handle.readline(MAX_LINE):
        number += 1
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        size = len(line)
        given: dict[str, Any] | InputError
        if size == MAX_LINE and not line.endswith(b"\n"):
            hashed = hashlib.sha256(line)
            while line and not line.endswith(b"\n"):
                line = handle.readline(MAX_LINE)
                hashed.update(line)
                size += len(line)
            given = InputError(f"line {number}: has {size:,} bytes, expected {MAX_LINE:,} at most")
            yield Record(number, 0, hashed.hexdigest()[:16], given)
        elif line := line.strip():
            yield Record(number, size, hashlib.sha256(line).hexdigest()[:16], _given(line, number))


def _given(line: bytes, number: int) -> dict[str, Any] | InputError:
    try:
        row = json.loads(line.decode())
        json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeDecodeError as exc:
        what = f"is not UTF-8 text ({exc.reason} at byte {exc.start})"
    except json.JSONDecodeError as exc:
        what = f"not JSON ({exc.msg} at column {exc.colno}): {line[:60].decode(errors='replace')!r}"
    except UnicodeEncodeError:
        what = "holds half a character (an unpaired \\ud… escape)"
    except RecursionError:
        what = "is nested too deeply"
    except ValueError as exc:  # NaN, Infinity, numbers of thousands of digits
        what = f"holds a number that is none ({exc})"
    else:
        if isinstance(row, dict):
            return row
        what = f"got {type(row).__name__}, expected an object with context and answer"
    return InputError(f"line {number}: {what}")


# Going on


def finished(out: Path, records: Iterator[Record], made_by: str) -> Iterator[tuple[Record, dict[str, Any], int]]:
    """The rows an output file already holds: their record, taken from ``records``, their fields, and where they end.

    A last row without its line end was cut off: it is left out, and its record not taken. ``made_by`` is the judge's
    fingerprint. Raises `InputError` when a row belongs to another record or judge.
    """
    end = 0
    try:
        handle = out.open("rb")
    except OSError as exc:
        raise _cannot_write(out, exc) from exc
    with handle:
        for number, line in enumerate(handle, 1):
            if not line.endswith(b"\n"):
                return
            record, fields = next(records, None), _object(line)
            if record is None or fields.get("record") != record.key:
                raise InputError(
                    f"{out}: line {number} is not the judgment of record {number} of the input, so this run cannot go "
                    "on from it. Give another --out, or remove the file."
                )
            if fields.get("judge") != made_by:
                raise InputError(
                    f"{out}: line {number} was judged by another judge or with other options, so this run cannot go on "
                    "from it. Give another --out, or remove the file."
                )
            end += len(line)
            yield record, fields, end


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _appending(out: Path, end: int) -> Iterator[IO[bytes]]:
    """The file, cut after its last whole row."""
    try:
        with out.open("ab") as handle:
            handle.truncate(end)
            yield handle
    except OSError as exc:
        raise _cannot_write(out, exc) from exc


def _cannot_write(out: Path, exc: OSError) -> InputError:
    return InputError(f"--out {out}: cannot be written ({(exc.strerror or str(exc)).lower()}).")


@contextmanager
def few_replies_in_memory() -> Iterator[None]:
    """Of the replies that DSPy keeps in memory, a million otherwise, the last thousand. Those on disk stay."""
    import dspy
    from cachetools import LRUCache

    before = dspy.cache.memory_cache
    dspy.cache.memory_cache = LRUCache(_REPLIES)
    try:
        yield
    finally:
        dspy.cache.memory_cache = before
