"""Judge a file of records of any size: streamed, in order, and resumed where an earlier run stopped.

The output has one row per record. A row's ``record`` is the hash of its input line and ``judge`` the fingerprint of
the judge and its options, so that a run knows which records an output file already holds; ``line`` is the line number.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, tee
from typing import IO, TYPE_CHECKING, Any

from pydantic import ValidationError

from faith_dspy.errors import InputError
from faith_dspy.io.records import open_records
from faith_dspy.schema import Judgment, Unscored, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from faith_dspy.io.records import Record
    from faith_dspy.judge import Judge

MAX_SHOWN = 2_000
"""An HTML page holds so many answers; a larger one would not open."""
REPLIES_IN_MEMORY = 1_000


@dataclass
class Tally:
    """The counts of a run."""

    scored: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    """Rows by reason."""
    resumed: int = 0
    """Rows written by an earlier run; the other counts include them."""
    unreadable: int = 0
    """Lines that hold no record."""
    usage: Usage = field(default_factory=Usage)
    """Of this run alone."""
    seconds: float = 0.0
    """Wall time of this run."""
    shown: list[tuple[dict[str, Any], Judgment]] = field(default_factory=list)
    """The first records with their judgments, if the caller asked for them."""

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
            f"{u.calls:,} calls, {u.prompt_tokens:,} prompt tokens ({u.cached_tokens:,} cached), "
            f"{u.output_tokens:,} completion tokens",
            f"{self.seconds:.1f} s",
        ]
        return " · ".join(parts)

    def count(self, record: Record, score: float | None, reason: str | None) -> None:
        """Count one more row."""
        if score is None:
            self.unscored[str(reason)] += 1
        else:
            self.scored += 1
        self.unreadable += record.problem is not None


def run(
    judge: Judge,
    source: Path,
    out: Path | None = None,
    *,
    threads: int | None = None,
    show: bool = False,
    advance: Callable[[int], None] = lambda lines: None,
) -> Tally:
    """Judge the records of a JSON lines file; write a row for each, in order, to ``out`` or standard output.

    Memory does not grow with the number of records. Rows that ``out`` already holds are kept and not judged again; the
    half row of a killed run is replaced. A record that cannot be judged becomes an unscored row with the reason. With
    ``show`` the first judgments are kept for a page. ``advance`` receives how many more input lines are done.

    Raises `InputError` for a file that cannot be read or written, a file without records, or an ``out`` that belongs
    to another input or judge; `LMUnavailableError` when the endpoint is down, at the start or later: the rows written
    so far are good, and the same call resumes after them.
    """
    if out is not None and out.exists() and source.exists() and out.samefile(source):
        raise InputError(f"--out {out}: is the input itself. Give another --out.")
    started = time.monotonic()
    tally = Tally()
    fingerprint = judge.fingerprint
    at = end = 0
    with ExitStack() as stack:
        records = stack.enter_context(open_records(source))
        if out is not None and out.exists():
            for record, fields, row_end in finished(out, records, fingerprint):
                end = row_end
                tally.count(record, fields.get("score"), fields.get("unscored"))
                if show and len(tally.shown) < MAX_SHOWN:
                    tally.shown.append((_shown(record), _judgment(fields, out, tally.rows)))
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
        to_write, to_judge = tee(chain([first], records))
        judgments = judge.stream(map(_given, to_judge), threads)
        stack.callback(judgments.close)  # type: ignore[attr-defined]
        for record, judgment in zip(to_write, judgments, strict=True):
            if judgment.unscored is Unscored.LM_FAILED or any(s.error for s in judgment.statements):
                judge.preflight()  # a dead endpoint ends the run before a row records a judgment that is not one
            handle.write(_line(record, judgment, fingerprint))
            handle.flush()
            tally.count(record, judgment.score, judgment.unscored)
            tally.usage += judgment.usage
            if show and len(tally.shown) < MAX_SHOWN:
                tally.shown.append((_shown(record), judgment))
            advance(record.line - at)
            at = record.line
    tally.seconds = time.monotonic() - started
    return tally


def finished(out: Path, records: Iterator[Record], fingerprint: str) -> Iterator[tuple[Record, dict[str, Any], int]]:
    """The rows an output file already holds: the record (taken from ``records``), the fields, and the end in bytes.

    A last row without a line end was cut off: it is left out, and its record not taken. ``fingerprint`` is the
    judge's. Raises `InputError` when a row belongs to another record or judge.
    """
    end = 0
    advice = "so this run cannot be resumed from it. Give another --out, or remove the file."
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
                raise InputError(f"{out}: line {number} is not the judgment of record {number} of the input, {advice}")
            if fields.get("judge") != fingerprint:
                raise InputError(f"{out}: line {number} was judged by another judge or with other options, {advice}")
            end += len(line)
            yield record, fields, end


def limit_replies_in_memory(entries: int = REPLIES_IN_MEMORY) -> None:
    """Let DSPy keep this many replies in memory instead of a million, which take gigabytes; the disk cache stays.

    It changes DSPy's cache for the whole process, so only the owner of the process calls it: the command line, and a
    Spark worker.
    """
    import dspy

    dspy.configure_cache(enable_disk_cache=dspy.cache.enable_disk_cache, memory_max_entries=entries)


def _given(record: Record) -> dict[str, Any] | InputError:
    return record.row if record.problem is None else InputError(f"line {record.line}: {record.problem}")


def _shown(record: Record) -> dict[str, Any]:
    return record.row if record.problem is None else {"id": f"line {record.line}"}


def _line(record: Record, judgment: Judgment, fingerprint: str) -> bytes:
    row = record.row
    fields = {"id": row["id"]} if "id" in row else {}
    fields |= {"line": record.line, "question": row.get("question"), "answer": row.get("answer")}
    fields |= {"record": record.key, "judge": fingerprint, **judgment.model_dump(mode="json")}
    return json.dumps(fields, ensure_ascii=False).encode(errors="replace") + b"\n"  # an LM may write a lone surrogate


def _judgment(fields: dict[str, Any], out: Path, line: int) -> Judgment:
    try:
        return Judgment.model_validate({k: v for k, v in fields.items() if k in Judgment.model_fields})
    except ValidationError as exc:
        raise InputError(
            f"{out}:{line}: is not a judgment of this version ({exc.errors()[0]['msg']}). Give another --out."
        ) from exc


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
