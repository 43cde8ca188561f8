"""Judge a file of records of any size: streamed, in order, and resumed where an earlier run stopped.

The output has one row per record. A row's ``record`` is the hash of its input line and ``judge`` the fingerprint of
the judge and its options, so that a run knows which records an output file already holds; ``line`` is the line number.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, tee
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from faith_dspy.errors import FaithDspyError, InputError, counted, fault
from faith_dspy.io.files import cannot_write, owned, replacing, sync
from faith_dspy.io.records import fields_of, given, open_records
from faith_dspy.schema import Judgment, Unscored, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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
    why: str = ""
    """Why the first unscored row is unscored."""
    usage: Usage = field(default_factory=Usage)
    """Paid in this run alone."""
    replayed: Usage = field(default_factory=Usage)
    """Replies taken from the cache."""
    seconds: float = 0.0
    """Wall time of this run."""
    shown: dict[int, tuple[dict[str, Any], Judgment]] = field(default_factory=dict)
    """The first records with their judgments, by line, if the caller asked for them."""

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
            f"{counted(u.calls, 'call')}, {counted(u.prompt_tokens, 'prompt token')} ({u.cached_tokens:,} cached), "
            f"{counted(u.output_tokens, 'completion token')}",
            *([f"{counted(self.replayed.calls, 'reply')} from the cache"] if self.replayed.calls else []),
            f"{self.seconds:.1f} s",
        ]
        return " · ".join(parts)

    def count(self, record: Record, judgment: Judgment, show: bool) -> None:
        """Count one more row, and `show` it."""
        if judgment.unscored is None:
            self.scored += 1
        else:
            self.unscored[judgment.unscored.value] += 1
            self.why = self.why or judgment.detail or ""
        self.unreadable += record.problem is not None
        self.show(record, judgment, show)

    def show(self, record: Record, judgment: Judgment, show: bool = True) -> None:
        """Keep it for the page if it is among the first, in the place of an earlier one of the same record."""
        if show and (record.line in self.shown or len(self.shown) < MAX_SHOWN):
            self.shown[record.line] = ({"id": f"line {record.line}"} if record.problem else record.row, judgment)


def run(
    judge: Judge,
    source: Path,
    out: Path | None = None,
    *,
    threads: int | None = None,
    show: bool = False,
    advance: Callable[[int], None] = lambda lines: None,
) -> Tally:
    """Judge the records of a file (`open_records`); write a row for each, in order, to ``out`` or standard output.

    A record that cannot be judged becomes an unscored row with the reason. Rows that ``out`` already holds are kept,
    but for those that the LM failed on: they are asked about again and replaced where they stand. The half row of a
    killed run is replaced, too. Memory grows with the rows to replace, not with the others. With ``show`` the first
    judgments are kept for a page. ``advance`` receives how many more input lines are done. An ``out`` that is a pipe or
    a device is written to like standard output.

    Raises `InputError` for a file that cannot be read or written, a file without records, an ``out`` that belongs to
    another input or judge, or that another process is writing; `LMUnavailableError` when the endpoint is down, at the
    start or later: the rows written so far are good, and the same call resumes after them.
    """
    if out is not None and out.exists() and source.exists() and out.samefile(source):
        raise InputError(f"--out {out}: is the input itself. Give another --out.")
    started = time.monotonic()
    tally, fingerprint = Tally(), judge.fingerprint
    file = out if out is not None and (out.is_file() or not out.exists()) else None

    def judged(records: Iterable[Record]) -> Iterator[tuple[Record, bytes]]:
        """Records with their new rows, counted."""
        to_write, to_judge = tee(records)
        with closing(judge.stream(map(given, to_judge), threads)) as judgments:  # type: ignore[type-var]
            for record, judgment in zip(to_write, judgments, strict=True):
                if _ask_again(judgment):
                    judge.preflight()  # a dead endpoint ends the run before a row records a judgment that is not one
                tally.count(record, judgment, show)
                tally.usage += judgment.usage
                tally.replayed += judgment.replayed
                yield record, _line(record, judgment, fingerprint)

    with ExitStack() as stack:
        records = stack.enter_context(open_records(source))
        failed: list[_Row] = []
        at = end = 0
        if file is not None:
            stack.enter_context(owned(file))
        if file is not None and file.exists():
            for row in finished(file, records, fingerprint):
                if _ask_again(row.judgment):
                    failed.append(row)
                    tally.show(row.record, row.judgment, show)  # keeps its place
                else:
                    tally.count(row.record, row.judgment, show)
                    advance(row.record.line - at)
                at, end = row.record.line, row.end
            tally.resumed = tally.rows
        first = next(records, None)
        if first is None and not failed:
            if not tally.rows:
                raise InputError(f"{source}: has no records. Expected one JSON object a line with context and answer.")
            return tally
        judge.preflight()
        if first is not None:
            with _rows_of(out, end) as handle:
                for record, line in judged(chain([first], records)):
                    handle.write(line)
                    handle.flush()
                    advance(record.line - at)
                    at = record.line
        if file is not None and failed:
            _replace(file, failed, judged(row.record for row in failed), advance)
    tally.seconds = time.monotonic() - started
    return tally


class _Row(NamedTuple):
    """A row of an output file, and where it stands there, in bytes."""

    record: Record
    judgment: Judgment
    start: int
    end: int


def finished(out: Path, records: Iterator[Record], fingerprint: str) -> Iterator[_Row]:
    """The rows an output file already holds; their records are taken from ``records``.

    A last row without a line end was cut off: it is left out, and its record not taken. ``fingerprint`` is the
    judge's. Raises `InputError` when a row belongs to another record or judge.
    """
    end = 0
    advice = "so this run cannot be resumed from it. Give another --out, or remove the file."
    try:
        handle = out.open("rb")
    except OSError as exc:
        raise cannot_write(f"--out {out}", exc) from exc
    with handle:
        for number, line in enumerate(handle, 1):
            if not line.endswith(b"\n"):
                return
            record, fields = next(records, None), _object(line)
            if record is None or fields.get("record") != record.key:
                raise InputError(f"{out}: line {number} is not the judgment of record {number} of the input, {advice}")
            if fields.get("judge") != fingerprint:
                raise InputError(f"{out}: line {number} was judged by another judge or with other options, {advice}")
            start, end = end, end + len(line)
            yield _Row(record, _judgment(fields, out, number), start, end)


def _replace(
    out: Path, failed: list[_Row], judged: Iterator[tuple[Record, bytes]], advance: Callable[[int], None]
) -> None:
    """Put new rows in the places of failed ones; when ``judged`` raises, as many as there are."""
    stopped: BaseException | None = None
    with replacing(out) as new, out.open("rb") as old:
        try:
            for row, (_, line) in zip(failed, judged, strict=True):
                while old.tell() < row.start:
                    new.write(old.readline())
                old.seek(row.end)
                new.write(line)
                advance(1)
        except (FaithDspyError, KeyboardInterrupt) as exc:
            stopped = exc
        shutil.copyfileobj(old, new)
    if stopped is not None:
        raise stopped


def _ask_again(judgment: Judgment) -> bool:
    """Whether the LM failed on the answer or on a statement; a record that cannot be read has none."""
    return judgment.unscored is Unscored.LM_FAILED or any(s.error for s in judgment.statements)


def limit_replies_in_memory(entries: int = REPLIES_IN_MEMORY) -> None:
    """Let DSPy keep this many replies in memory instead of a million, which take gigabytes; the disk cache stays.

    It changes DSPy's cache for the whole process, so only the owner of the process calls it: the command line, and a
    Spark worker.
    """
    import dspy

    dspy.configure_cache(enable_disk_cache=dspy.cache.enable_disk_cache, memory_max_entries=entries)


def _line(record: Record, judgment: Judgment, fingerprint: str) -> bytes:
    row = fields_of(record.row)
    fields = {"id": row["id"]} if "id" in row else {}
    fields |= {"line": record.line, "question": row.get("question"), "answer": row.get("answer")}
    fields |= {"record": record.key, "judge": fingerprint, **judgment.model_dump(mode="json", exclude={"id"})}
    text = json.dumps(fields, ensure_ascii=False, default=str)
    return text.encode(errors="replace") + b"\n"  # an LM may write a lone surrogate


def _judgment(fields: dict[str, Any], out: Path, line: int) -> Judgment:
    try:
        return Judgment.model_validate({k: v for k, v in fields.items() if k in Judgment.model_fields})
    except ValidationError as exc:
        raise InputError(
            f"{out}:{line}: is not a judgment of this version ({fault(exc.errors()[0])}). Give another --out."
        ) from exc


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _rows_of(out: Path | None, end: int) -> Iterator[IO[bytes]]:
    """Where rows go: standard output, a pipe or a device, or a file, cut after its last whole row."""
    try:
        if out is None:
            yield sys.stdout.buffer
            return
        with out.open("wb" if out.exists() and not out.is_file() else "ab") as handle:
            if handle.mode == "ab":
                handle.truncate(end)
            yield handle
            sync(handle)
    except BrokenPipeError:
        raise  # whoever reads has enough
    except OSError as exc:
        told = cannot_write("standard output" if out is None else f"--out {out}", exc)
        raise InputError(
            f"{told} The rows there are good, and the LM's replies are kept: make room, and run the same command again."
        ) from exc
