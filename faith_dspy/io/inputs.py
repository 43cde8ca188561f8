"""One answer to be judged, as users give it: checked, and brought into the form that a judge works on."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import InputError
from faith_dspy.io.conversation import from_conversation
from faith_dspy.io.labels import as_chunks
from faith_dspy.io.names import fields_of, missing, say_names, value_of
from faith_dspy.io.records import FIRST, check_columns, check_records, open_records
from faith_dspy.io.tables import is_table, rows_of

if TYPE_CHECKING:
    from faith_dspy.io.records import Record
    from faith_dspy.schema import Chunk


class AnswerInput(NamedTuple):
    """What one judgment is about."""

    question: str | None
    chunks: tuple[Chunk, ...]
    answer: str


def check_input(question: Any, context: Any, answer: Any, conversation: Any = None) -> AnswerInput:
    """The input of one judgment; ``conversation`` stands for context and answer. `InputError` says what is wrong."""
    if conversation is not None:
        if context is not None or answer is not None:
            raise InputError("give either conversation, or context and answer; got both")
        question, context, answer = from_conversation(conversation)
    if question is not None and not isinstance(question, str):
        raise InputError(f"question is {type(question).__name__}, expected text or None")
    if not isinstance(answer, str):
        raise InputError(f"answer is {type(answer).__name__}, expected text")
    chunks = as_chunks(context)
    try:
        "".join((question or "", answer, *(c.text for c in chunks))).encode()
    except UnicodeEncodeError as exc:
        raise InputError("the text has an unpaired surrogate, expected Unicode text") from exc
    return AnswerInput(question, chunks, answer)


def check_record(record: Any) -> AnswerInput:
    """The same of a record: a mapping or an object with any of the usual `NAMES`, or the `InputError` of whoever could
    not read it."""
    if isinstance(record, InputError):
        raise record
    fields = fields_of(record)
    say_names(record, "records")
    if not fields and not isinstance(record, Mapping):
        raise InputError(f"record is {type(record).__name__}, expected a mapping with context and answer")
    if not {"answer", "conversation"} & fields.keys():
        if isinstance(error := value_of(record, "error"), str):
            raise InputError(error)  # of a loader that could not read it
        raise InputError(missing(record).rstrip("."))
    return check_input(*(fields.get(name) for name in ("question", "context", "answer", "conversation")))


def list_inputs(records: Any) -> list[Any]:
    """The records of an iterable, a table in memory, or a file; an `InputError` for each line that holds none."""
    if not isinstance(records, str | PathLike):
        rows = list(rows_of(records))
        if is_table(records):
            check_columns(rows[:FIRST], "records")
        return rows
    check_records(Path(records))
    with open_records(Path(records)) as found:
        return [given(record) for record in found]


def given(record: Record) -> Mapping[str, Any] | InputError:
    """What a record holds, or what is wrong with it."""
    return record.row if record.problem is None else InputError(f"line {record.line}: {record.problem}")


def id_of(record: Any) -> str | int | None:
    """The id that a record has."""
    found = fields_of(record).get("id")
    return found if isinstance(found, str | int) else None


def by_context(records: list[Any]) -> list[int]:
    """Positions of the records, those over the same context next to each other, else in their order."""

    def key(i: int) -> int:
        context = fields_of(records[i]).get("context")
        return i if context is None else hash(repr(context))

    first: dict[int, int] = {}
    return sorted(range(len(records)), key=lambda i: first.setdefault(key(i), i))
