"""One answer to be judged, whatever form and names it comes in: mappings, objects of other libraries, chunks."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from faith_dspy.errors import InputError
from faith_dspy.io.conversation import (
    CONVERSATION_KEYS,
    answers_in,
    from_conversation,
    is_conversation,
)
from faith_dspy.io.documents import (
    Document,
    document_of,
    literal,
    mapping,
    parsed,
    value_of,
)
from faith_dspy.io.names import COLUMNS, NAMES, TABLES, Fields, Names
from faith_dspy.schema import Chunk, LabelledExample

_ANSWERS: Names = {name: [name] for name in ("answer", *TABLES["model_answers"])}
_LABEL_WORDS = {
    word.replace("_", "") for word in (*TABLES["yes_or_no"], *TABLES["label_words"])
}
MAX_TEXT = 10_000_000
"""Characters of one answer with its question and context."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """One non-empty line of a file, or one row of a table."""

    line: int
    """Number of the line, or of the row, counted from 1."""
    row: Any
    """What stands there; an exception says why it is not an object."""
    key: str = ""
    """First 16 hex digits of the SHA-256 of the line, or of the row as JSON; empty for what is in memory."""
    kind: str = "line"
    aside: Fields | None = None
    """Columns that were taken out of the row: what recorded judges said."""
    turn: AnswerInput | None = None
    """One answer of its conversation, where each is judged."""

    @property
    def place(self) -> str:
        """``line 3``, or ``row 3`` of a table."""
        return f"{self.kind} {self.line}"

    @property
    def problem(self) -> str | None:
        """Why a line or row of a file holds no object; None if it does."""
        if isinstance(self.row, ValueError):
            return f"{self.place}: {self.row}"
        if isinstance(self.row, Mapping) or not self.key:
            return None
        return f"{self.place}: got {type(self.row).__name__}, expected an object"


@dataclass(frozen=True)
class AnswerInput:
    """What one judgment is about."""

    question: str | None = None
    chunks: tuple[Chunk, ...] = ()
    answer: str = ""
    id: str | int | None = None
    problem: str | None = None
    """Why the record cannot be judged; None if it can."""
    turn: int | None = None
    """Of several answers in a conversation the number of this one's message, from 0."""
    row: Any = dataclasses.field(default=None, repr=False, compare=False)
    """Where its further columns stand, such as what other judges said."""

    @classmethod
    def turns_of(cls, record: Any) -> list[AnswerInput]:
        """Read each answer of the conversation in a record; of any other record the one that it has."""
        last = cls.of(record)
        fields = fields_of(record.row if isinstance(record, Record) else record)
        conversation = _loaded(fields.get("conversation"))
        if last.problem or conversation is None or "answer" in fields_of(conversation):
            return [last]
        return [
            replace(cls.make(*read, id=last.id), turn=turn)
            for turn, read in answers_in(conversation).items()
        ]

    @classmethod
    def of(cls, record: Any) -> AnswerInput:
        """Read the input in a record: a `Record`, or a mapping or an object with any of the usual `NAMES`."""
        if isinstance(record, Record):
            if record.problem is not None:
                return cls(problem=record.problem)
            record = record.turn or record.row
        if isinstance(record, AnswerInput):
            return record
        fields = fields_of(record)
        key = _id_of(fields.pop("id", None))
        problem = second_answer(mapping(record))
        if problem is not None:
            return cls(problem=problem, id=key)
        if not fields.keys() & {"answer", "conversation"}:
            return cls(problem=_problem_of(record, fields), id=key)
        try:
            input = cls.make(**fields, id=key)
        except InputError as exc:
            return cls(problem=str(exc), id=key)
        is_labelled = isinstance(record, LabelledExample)
        return replace(input, row=record.columns if is_labelled else record)

    @classmethod
    def make(
        cls,
        question: Any = None,
        context: Any = None,
        answer: Any = None,
        conversation: Any = None,
        id: Any = None,
    ) -> AnswerInput:
        """Make the input of one call; ``conversation`` stands for context and answer, and asks what no question does.

        Raises:
            InputError: it says what is wrong.
        """
        try:
            if conversation is not None:
                if context is not None or answer is not None:
                    raise InputError(
                        "give either conversation, or context and answer; got both"
                    )
                asked, context, answer = _turn(conversation)
                question = question or asked
            chunks = as_chunks(context)
        except RecursionError as exc:
            raise InputError(
                "conversation or context is nested too deeply, or within itself; expected messages, texts or documents"
            ) from exc
        if not isinstance(question, str | None):
            kind = type(question).__name__
            raise InputError(f"question is {kind}, expected text or None")
        if not isinstance(answer, str):
            raise InputError(f"answer is {type(answer).__name__}, expected text")
        texts = (question or "", answer, *(chunk.text for chunk in chunks))
        length = sum(map(len, texts))
        if length > MAX_TEXT:
            raise InputError(
                f"got {length:,} characters of question, context and answer, expected at most {MAX_TEXT:,}"
            )
        question = question and plain_text(question)
        return cls(question, chunks, plain_text(answer), id)


def _problem_of(record: Any, fields: Fields) -> str:
    """Say why a record without an answer has none; a loader that could not read it has said so as its ``error``."""
    error = value_of(record, "error")
    if isinstance(error, str):
        return error
    row = record if isinstance(record, Mapping) else fields
    if row or row is record:
        return missing(row, "answer")
    kind = type(record).__name__
    return f"record is {kind}, expected a mapping with context and answer"


def _turn(conversation: Any) -> tuple[Any, Any, Any]:
    """Return question, context and answer of a conversation, or of a record that has an answer by itself."""
    conversation = _loaded(conversation)
    if isinstance(conversation, Mapping):
        fields = fields_of(conversation)
        if "answer" in fields:
            return fields.get("question"), fields.get("context"), fields["answer"]
    return from_conversation(conversation)


def _loaded(conversation: Any) -> Any:
    """Return a conversation written as JSON as what it stands for."""
    if isinstance(conversation, str):
        with suppress(ValueError):  # the conversation says what it expected
            return json.loads(conversation)
    return conversation


def _id_of(value: Any) -> str | int | None:
    """Return an id as text or a whole number; pandas writes ids beside a gap as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str | int):
        return value
    return None


_BYTES = re.compile(
    r"(data:[\w.+-]++/[\w.+-]++[^,\s]{0,100},)[^\s)\"'<>]{40,}"
    r"|(?<![A-Za-z0-9+/])(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*[0-9])"
    r"(?:[A-Za-z0-9+/]{200,}+|(?:[A-Za-z0-9+/]{50,}+\r?\n){3,}+[A-Za-z0-9+/]*+)={0,2}"
)
"""A file in a text: an address that holds it, or some 200 characters of base64, in one line or several."""


def plain_text(text: str) -> str:
    """Return a text without the bytes of files and surrogates that have no partner, which no request can hold."""
    units = text.encode("utf-16-le", "surrogatepass")
    text, files = _BYTES.subn(r"\1…", units.decode("utf-16-le", "replace"))
    if files:
        log_once("files inside texts (base64) are left out: their bytes are no text")
    return text


def as_chunks(context: Any) -> tuple[Chunk, ...]:
    """Number the chunks of a context as a user writes it: a text or a document, or a list of either."""
    if context is None:
        return ()
    if hasattr(context, "tolist"):  # of numpy
        context = context.tolist()
    items = parsed(context)  # a list may be written as text
    if isinstance(items, list) and all(
        isinstance(i, str) or document_of(i) for i in items
    ):
        context = items
    if isinstance(context, str) or document_of(context):
        context = [context]
    if not isinstance(context, list | tuple):
        raise InputError(
            f"context is {type(context).__name__}, expected a list of texts or chunks"
        )
    chunks = []
    for number, item in enumerate(context):
        document = document_of(item)
        if isinstance(item, str | None):
            document = Document(item or "")
        if document is None:
            raise InputError(
                f"context[{number}] is {str(item)[:40]!r}, expected text or an object with 'text'"
            )
        text, source = document
        source = source and plain_text(source)
        chunk = Chunk(id=number, text=plain_text(text), source=source)
        chunks.append(chunk)
    return tuple(chunks)


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record (mapping or object) that have a value, by our names.

    A conversation counts where there is no answer in words; a record that holds messages is one as a whole.
    """
    row = record if isinstance(record, Mapping) else _attributes(record)
    named = columns(row)
    fields = {field: row[name] for field, name in named.items()}
    answer = fields.get("answer")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        number = _id_of(answer)
        fields["answer"] = str(answer if number is None else number)
    if isinstance(fields.get("answer"), str):
        if named.get("conversation") != "conversation":
            fields.pop("conversation", None)
    elif row is record and is_conversation(row):
        beside = ("id", "question")
        fields = {n: fields[n] for n in beside if isinstance(fields.get(n), str | int)}
        fields["conversation"] = row
    return fields


def _attributes(record: Any) -> dict[str, Any]:
    """Return those attributes of an object that hold anything and have a name of a field."""
    values = {}
    for names in NAMES.values():
        for name in names:
            value = value_of(record, name)
            if value is not None:
                values[name] = value
    return values


def columns(row: Fields, names: Names = COLUMNS) -> dict[str, str]:
    """Return the column of a row that each field is read from: the first of its ``names`` that holds anything."""
    filled = {}
    for field, present in columns_named(row, names).items():
        for column in reversed(present):
            is_guess = field == "question" != column
            if is_guess and isinstance(row[column], Mapping):
                continue
            if is_filled(row[column]):
                filled[field] = column
    return filled


def is_filled(value: Any) -> bool:
    """Tell whether a field holds anything; a gap of pandas is NaN."""
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def columns_named(
    present: Iterable[str], names: Names = COLUMNS
) -> dict[str, list[str]]:
    """Return by field those of the columns that have one of its names, filled or not."""
    by_spelling = {_spelling(column): column for column in reversed([*present])}
    are_own = by_spelling.keys() >= {"answer", "context"}
    named = {}
    for field, options in names.items():
        if are_own and field in ("answer", "context"):
            options = [field]
        elif field == "answer" and "sourcedocuments" in by_spelling:  # RetrievalQA's
            options = [*options, "result"]
        spellings = map(_spelling, options)
        named[field] = [by_spelling[s] for s in spellings if s in by_spelling]
    return named


@lru_cache(maxsize=1024)
def _spelling(name: object) -> str:
    folded = str(name).casefold()
    return re.sub(r"[\W_]", "", folded)


def second_answer(row: Fields) -> str | None:
    """Ask which answer is to be judged where another one stands beside ``answer``, which may be the reference; None
    where there is one only."""
    named = columns(row, _ANSWERS)
    own = named.pop("answer", "")
    for column in named.values():
        texts = row.get(own), row[column]
        if not all(isinstance(text, str) for text in texts):
            continue
        answer, other = map(str.strip, texts)
        if other not in ("", answer) and _spelling(other) not in _LABEL_WORDS:
            return (
                f"it has {own!r} and {column!r}, which differ, and one may be a reference: "
                "keep the one that is to be judged as 'answer', and name the other 'reference'"
            )
    return None


def problem_of(rows: Sequence[Fields], is_named: bool = False) -> str | None:
    """Say what none of the rows of a file can be judged for: no column for the answer or the context, or two that may
    be the answer, unless the user has named it; None if they can."""
    present: set[str] = set()
    for row in rows:
        problem = second_answer(row)
        if problem and not is_named:
            return problem
        present |= fields_of(row).keys()
        present |= {field for field, named in columns_named(row).items() if named}
    for needed in ("answer", "context"):
        if not present & {needed, "conversation"}:
            return missing(rows[0], needed)
    return None


def missing(row: Fields, field: str, names: Names = COLUMNS) -> str:
    """Say that a row lacks a field: the columns it has, the likeliest misspelling, and the names it may have."""
    if row.keys() >= {"role", "content"}:
        return 'it is one message: put a whole conversation in a record, as {"messages": […]}'
    noun = "label" if field == "faithful" else field
    present = [str(name) for name in row if name]
    for name in present:
        if row[name] is None and name.casefold() in names[field]:
            return f"its {noun} is empty"
    got = ", ".join(present) or "nothing"
    others = {*TABLES["label_columns"]["annotator"]}
    likely = close_pair([n for n in present if n not in others], names[field])
    close = likely[0] if likely else None
    column = _inner_column(row, [close] if close else present, field) or close
    if column is None:
        return f"it has no {noun}: got {got}, expected {', '.join(names[field])}"
    command = f"faith-dspy labels import FILE --map {field}={column}"
    return f"it has no {noun}: got {got}. If it is {column!r}, rename that to {field!r}; labels: {command}"


def _inner_column(row: Fields, outer: Iterable[str], field: str) -> str | None:
    """Return where an object, or the JSON of one, in one of the columns ``outer`` holds a field; None without one."""
    for name in outer:
        inner = columns(mapping(literal(row[name])))
        if field in inner:
            return f"{name}.{inner[field]}"
    return None


def close_pair(
    present: Iterable[str], expected: Sequence[str]
) -> tuple[str, str] | None:
    """Return a misspelt name of ``present`` with the one that it is close to of ``expected``; None without one."""
    for column in present:
        likely = get_close_matches(column.casefold(), expected, n=1, cutoff=0.75)
        if likely and likely[0] != column:
            return column, likely[0]
    return None


def log_columns(
    rows: Sequence[Fields],
    where: str,
    names: Names = COLUMNS,
    read: Iterable[str] = (),
    label: str = "",
) -> None:
    """Log which columns are read by another name than ours, what was understood, and which columns are not read.

    Args:
        rows: the first rows.
        where: name of the file or table.
        names: names of the fields that are read.
        read: further columns that are read, by these names.
        label: what was understood of the labels.
    """
    used = {*read}
    filled: list[str] = []
    notes: list[str] = []
    for row in rows:
        filled += [name for name in row if name and row[name] is not None]
        if fields_of(row).get("conversation") is row:
            notes.append("each row is read as a conversation")
            used |= CONVERSATION_KEYS
        for field, column in columns(row, names).items():
            if column not in {field, *used}:
                notes.append(f"{field} is taken from {column!r}")
            used.add(column)
    notes.append(label)
    unused = [repr(column) for column in dict.fromkeys(filled) if column not in used]
    if unused:
        notes.append(f"not used: {', '.join(unused)}")
    summary = ", ".join(filter(None, dict.fromkeys(notes)))
    if summary:
        log_once(f"{where}: {summary}")


@lru_cache(maxsize=256)
def log_once(sentence: str) -> None:
    log.warning(sentence)
