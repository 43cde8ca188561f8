"""Judge a file of records of any size: streamed, in order, and resumed where an earlier run stopped.

The output has one row per record. A row's ``record`` is the hash of its input line and ``judge`` the fingerprint of
the judge and its options, so that a run knows which records an output file already holds; ``line`` is the line number.
`faith_dspy.report.rows` writes and reads them.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, tee
from os.path import samestat
from pathlib import Path
from typing import IO, Any

from faith_dspy.errors import InputError, describe_invalid
from faith_dspy.io.files import cannot_write, check_writable, owned, sync
from faith_dspy.io.inputs import AnswerInput, Record
from faith_dspy.io.readers import FIRST, each_turn, open_records, read_json
from faith_dspy.judge import Judge
from faith_dspy.report.judgment import spent
from faith_dspy.report.rows import Rows
from faith_dspy.schema import Judgment, Unscored, Usage

MAX_SHOWN = 2_000
"""An HTML page holds so many answers; a larger one would not open."""
REPLIES_IN_MEMORY = 1_000


@dataclass
class RunSummary:
    """The counts of a run."""

    faithful: int = 0
    unfaithful: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    """Rows by reason."""
    resumed: int = 0
    """Rows of an earlier run, among the others."""
    unreadable: int = 0
    why: str = ""
    """Why the first unscored row is unscored."""
    usage: Usage = field(default_factory=Usage)
    """Paid in this run alone."""
    replayed: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    shown: list[tuple[Any, Judgment]] = field(default_factory=list)
    """The first records with their judgments, if the caller asked for them."""

    @property
    def scored(self) -> int:
        """Rows with a verdict."""
        return self.faithful + self.unfaithful

    @property
    def rows(self) -> int:
        """Rows of the output."""
        return self.scored + self.unscored.total()

    def __str__(self) -> str:
        line = (
            f"{self.rows:,} judged: {self.faithful:,} faithful, {self.unfaithful:,} not faithful, "
            f"{self.unscored.total():,} unscored"
        )
        if self.unscored:
            reasons = [f"{n:,} {reason}" for reason, n in self.unscored.most_common()]
            line += f" ({', '.join(reasons)})"
        parts = [line]
        if self.resumed:
            parts.append(f"{self.resumed:,} of them by an earlier run")
        parts += spent(self.usage, self.replayed)
        return " · ".join([*parts, f"{self.seconds:.1f} s"])

    def count(self, record: Record, judgment: Judgment, show: bool) -> None:
        """Count one more row, and keep it for the page if it is among the first."""
        if judgment.unscored is None:
            self.faithful += bool(judgment.faithful)
            self.unfaithful += not judgment.faithful
        else:
            self.unscored[judgment.unscored.value] += 1
            self.why = self.why or judgment.detail or ""
        self.unreadable += record.problem is not None
        if show and len(self.shown) < MAX_SHOWN:
            row = {"id": record.place} if record.problem else record.turn or record.row
            self.shown.append((row, judgment))


def run(
    judge: Judge,
    source: Path,
    out: Path | None = None,
    *,
    threads: int | None = None,
    show: bool = False,
    all_turns: bool = False,
    kept: int = 0,
    advance: Callable[[int], None] = lambda lines: None,
) -> RunSummary:
    """Judge the records of a file (`open_records`); write a row for each, in order, to ``out`` or standard output.

    A record that cannot be judged becomes an unscored row with the reason. Rows that ``out`` already holds are kept up
    to the first that the LM failed on, or that was cut off: there the file is cut, and judging goes on; replies that
    were paid for are in DSPy's cache. With ``show`` the first judgments are kept for a page. With ``all_turns`` each
    answer of a conversation has a row. ``kept`` rows are kept even where the LM failed: those of `judged_before`.
    ``advance`` receives how many more input lines are done.

    Raises `InputError` for a file that cannot be read or written, a file without records, an ``out`` that belongs to
    another input or judge, that another process is writing, or that goes meanwhile; `LMUnavailableError` when the
    endpoint is down, at the start or later: the same call resumes there.
    """
    started = time.monotonic()
    tally, fingerprint = RunSummary(), judge.fingerprint
    with ExitStack() as stack:
        records = stack.enter_context(open_records(source))
        if all_turns:
            records = each_turn(records)
        head: list[Record] = []
        if out is not None:
            check_writable(out, source)
            stack.enter_context(owned(out))
            head = list(islice(records, FIRST))
            records = chain(head, records)
        rows = Rows(out, head)
        at = end = 0
        if out is not None:
            for record, judgment, row_end in finished(out, records, fingerprint, rows):
                has_failed = judgment.unscored is Unscored.LM_FAILED
                if has_failed and tally.rows >= kept:
                    records = chain([record], records)
                    break
                tally.count(record, judgment, show)
                advance(record.line - at)
                at, end = record.line, row_end
            tally.resumed = tally.rows
        first = next(records, None)
        if first is None:
            if not tally.rows:
                raise InputError(
                    f"{source}: has no records. Expected answers with their context, one a row or a line."
                )
            return tally
        judge.preflight()
        records, ahead = tee(chain([first], records))
        inputs = map(AnswerInput.of, ahead)
        handle = stack.enter_context(_opened(out, end))
        if not end:
            handle.write(rows.header)
        with closing(judge.stream(inputs, threads)) as judgments:
            for record, judgment in zip(records, judgments, strict=True):
                if judgment.unscored is Unscored.LM_FAILED:
                    judge.preflight()  # a dead endpoint ends the run before a row says so
                tally.count(record, judgment, show)
                tally.usage += judgment.usage
                tally.replayed += judgment.replayed
                handle.write(rows.written(record, judgment, fingerprint))
                handle.flush()
                advance(record.line - at)
                at = record.line
    tally.seconds = time.monotonic() - started
    return tally


def judged_before(judge: Judge, source: Path, out: Path) -> int:
    """Return how many rows at the beginning of ``out`` a batch keeps: all, but for failed ones at an unfinished end.

    A row behind which others came says what the provider refused for good; those others would be bought again.
    """
    with open_records(source) as records:
        head = list(islice(records, FIRST))
        rows = Rows(out, head)
        records = chain(head, records)
        count = last_scored = 0
        for _, judgment, _ in finished(out, records, judge.fingerprint, rows):
            count += 1
            if judgment.unscored is not Unscored.LM_FAILED:
                last_scored = count
        return count if next(records, None) is None else last_scored


def finished(
    out: Path, records: Iterator[Record], fingerprint: str, rows: Rows
) -> Iterator[tuple[Record, Judgment, int]]:
    """Yield the rows that an output file holds, if it is there, and where they end, in bytes; their records are taken
    from ``records``.

    A last row that was cut off is left out, and its record not taken. Raises `InputError` when a row belongs to another
    record or judge, or is none of ours.
    """
    if not out.exists():
        return
    number = 0
    try:
        with out.open("rb") as handle:
            for number, (row, end) in enumerate(rows.read(handle), 1):
                record = next(records, None)
                fields = read_json(row)
                key = fields.get("record") if isinstance(fields, dict) else None
                if record is None or key != record.key:
                    raise ValueError(
                        f"is not the judgment of record {number} of the input"
                    )
                if fields.get("judge") != fingerprint:
                    raise ValueError(
                        "was judged by another judge or with other options"
                    )
                own = {k: v for k, v in fields.items() if k in Judgment.model_fields}
                yield record, Judgment.model_validate(own), end
    except OSError as exc:
        raise cannot_write(f"--out {out}", exc) from exc
    except ValueError as exc:
        why = describe_invalid(exc)
        raise InputError(
            f"{out}: row {max(number, 1)} {why}, so this run cannot be resumed from it. Give another --out, or remove "
            "the file."
        ) from exc


def limit_replies_in_memory(entries: int = REPLIES_IN_MEMORY) -> None:
    """Let DSPy keep this many replies in memory instead of a million, which take gigabytes; the disk cache stays.

    It changes DSPy's cache for the whole process, so only the owner of the process calls it: the command line, and a
    Spark worker.
    """
    import dspy

    dspy.configure_cache(
        enable_disk_cache=dspy.cache.enable_disk_cache, memory_max_entries=entries
    )


@contextmanager
def _opened(out: Path | None, end: int) -> Iterator[IO[bytes]]:
    """Yield where rows go: standard output, or a file, cut after its last good row."""
    try:
        if out is None:
            yield sys.stdout.buffer
            return
        with out.open("ab") as handle:
            handle.truncate(end)
            yield handle
            sync(handle)
            if not (out.exists() and samestat(out.stat(), os.fstat(handle.fileno()))):
                raise InputError(
                    f"--out {out}: was removed or replaced while it was written. Run the same command again: the LM's "
                    "replies are kept."
                )
    except BrokenPipeError:
        raise  # whoever reads has enough
    except OSError as exc:
        what = cannot_write("standard output" if out is None else f"--out {out}", exc)
        raise InputError(
            f"{what} The rows there are good, and the LM's replies are kept: make room, and run the same command again."
        ) from exc
