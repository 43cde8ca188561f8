"""One answer to be judged, whatever form and names it comes in: mappings, objects of other libraries, chunks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from faith_dspy.errors import InputError
from faith_dspy.io.conversation import from_conversation
from faith_dspy.schema import Chunk

Names = Mapping[str, tuple[str, ...]]


def _names(**fields: str) -> Names:
    return {field: tuple(names.split()) for field, names in fields.items()}


_CONTEXT = "retrieved_contexts retrieved_context retrieval_context retrieved_content context_chunks contexts context"
NAMES = _names(
    id="id sample_id case_id uid",
    question="question user_input query input",
    context=_CONTEXT,
    answer="answer response actual_output generated_answer output",
    conversation="conversation messages",
)
"""Names of each field, those of RAGAS, DeepEval, axion, continuous-eval, rag_evals and Strands among them; the first
that has a value counts. DeepEval's ``context`` is the ideal one, so it is last."""
COLUMNS: Names = {
    **NAMES,
    **_names(
        question="question user_input query input prompt",
        context=f"{_CONTEXT} passage passages document documents source_info doc",
        answer="answer response actual_output generated_answer output reply completion generation summary claim text",
    ),
}
"""Names of a table's columns: those, and some that mean something else on an object. Only letters and digits count:
``Retrieved Contexts`` is ``retrieved_contexts``. A row with ``answer`` and ``context`` means those."""
_SOURCES = ("source", "url", "file_name", "name", "doc_uri", "id", "id_", "node_id")
_TEXTS = ("text", "page_content", "content")
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
    file_line: int | None = None
    """Where a row of a CSV or TSV file ends, counted from 1 with the header."""

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

    @classmethod
    def of(cls, record: Any) -> AnswerInput:
        """Read the input in a record: a `Record`, or a mapping or an object with any of the usual `NAMES`."""
        if isinstance(record, Record):
            if record.problem is not None:
                return cls(problem=record.problem)
            record = record.row
        if isinstance(record, AnswerInput):
            return record
        fields = fields_of(record)
        key = _key(fields.pop("id", None))
        if not fields and not isinstance(record, Mapping):
            return cls(
                problem=f"record is {type(record).__name__}, expected a mapping with context and answer"
            )
        if not {"answer", "conversation"} & fields.keys():
            error = value_of(record, "error")  # of a loader that could not read it
            if not isinstance(error, str):
                error = missing(
                    record if isinstance(record, Mapping) else fields, "answer"
                )
            return cls(problem=error, id=key)
        try:
            return cls.make(**fields, id=key)
        except InputError as exc:
            return cls(problem=str(exc), id=key)

    @classmethod
    def make(
        cls,
        question: Any = None,
        context: Any = None,
        answer: Any = None,
        conversation: Any = None,
        id: Any = None,
    ) -> AnswerInput:
        """Make the input of one call; ``conversation`` stands for context and answer.

        Raises:
            InputError: it says what is wrong.
        """
        if conversation is not None:
            if context is not None or answer is not None:
                raise InputError(
                    "give either conversation, or context and answer; got both"
                )
            question, context, answer = from_conversation(conversation)
        if question is not None and not isinstance(question, str):
            raise InputError(
                f"question is {type(question).__name__}, expected text or None"
            )
        if not isinstance(answer, str):
            raise InputError(f"answer is {type(answer).__name__}, expected text")
        chunks = as_chunks(context)
        check_length(question or "", answer, *(c.text for c in chunks))
        return cls(
            question and unicode_text(question), chunks, unicode_text(answer), id
        )


def _key(value: Any) -> str | int | None:
    """Return an id as text or a whole number; pandas writes ids beside a gap as floats."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int) else None


def check_length(*texts: str) -> None:
    """Raise `InputError` where the texts of one answer are too long together to be judged in a minute."""
    length = sum(map(len, texts))
    if length > MAX_TEXT:
        raise InputError(
            f"got {length:,} characters of question, context and answer, expected at most {MAX_TEXT:,}"
        )


def unicode_text(text: str) -> str:
    """Replace surrogates that have no partner, which no file and no request can hold."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def as_chunks(context: Any) -> tuple[Chunk, ...]:
    """Number the chunks of a context as a user writes it: a text or a document, or a list of either."""
    if context is None:
        return ()
    if isinstance(context, str) or document_of(context):
        context = [context]
    if not isinstance(context, list | tuple):
        raise InputError(
            f"context is {type(context).__name__}, expected a list of texts or chunks"
        )
    chunks = []
    for i, item in enumerate(context):
        document = (
            (item or "", None)
            if item is None or isinstance(item, str)
            else document_of(item)
        )
        if document is None:
            raise InputError(
                f"context[{i}] is {str(item)[:40]!r}, expected text or an object with 'text'"
            )
        text, source = document
        chunks.append(
            Chunk(id=i, text=unicode_text(text), source=source and unicode_text(source))
        )
    return tuple(chunks)


def document_of(item: Any) -> tuple[str, str | None] | None:
    """Return text and source of a retrieved document; None for anything else.

    Reads mappings and objects with ``text``, ``page_content`` (LangChain) or ``content``, also inside a ``node``
    (LlamaIndex) or ``document``, and the source that they or their ``metadata`` name.
    """
    if item is None or isinstance(item, str):
        return None
    if isinstance(item, Chunk):
        return item.text, item.source
    inner = document_of(value_of(item, "node")) or document_of(
        value_of(item, "document")
    )
    if inner:
        return inner
    text = next(
        (t for t in (value_of(item, name) for name in _TEXTS) if isinstance(t, str)),
        None,
    )
    if text is None:
        return None
    for name in _SOURCES:
        for holder in (item, value_of(item, "metadata")):
            source = value_of(holder, name)
            if isinstance(source, str | int) and source != "":
                return text, str(source)
    return text, None


def value_of(item: Any, name: str) -> Any:
    """Return a mapping's value, or an object's attribute; None where there is none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record (mapping or object) that have a value, by our names.

    A conversation counts where there is no answer.
    """
    if isinstance(record, Mapping):
        names = columns(record)
    else:
        names = {}
        for field, known_as in NAMES.items():
            present = [name for name in known_as if value_of(record, name) is not None]
            if present:
                names[field] = present[0]
    if "answer" in names and names.get("conversation") != "conversation":
        names.pop("conversation", None)
    return {field: value_of(record, name) for field, name in names.items()}


def columns(row: Mapping[str, Any], names: Names = COLUMNS) -> dict[str, str]:
    """Return the column of a row that each field is read from: the first of its ``names`` that holds anything."""
    filled = {}
    for field, present in columns_named(tuple(row), tuple(names.items())).items():
        column = next((c for c in present if row[c] is not None), None)
        if column is not None:
            filled[field] = column
    return filled


@lru_cache(maxsize=256)
def columns_named(
    present: tuple[str, ...],
    names: tuple[tuple[str, tuple[str, ...]], ...] = tuple(COLUMNS.items()),
) -> dict[str, list[str]]:
    """Return by field those of the columns that have one of its names, filled or not."""
    by_spelling = {_spelling(column): column for column in reversed(present)}
    own = ("answer", "context") if by_spelling.keys() >= {"answer", "context"} else ()
    named = {}
    for field, known_as in names:
        spellings = map(_spelling, (field,) if field in own else known_as)
        named[field] = [by_spelling[s] for s in spellings if s in by_spelling]
    return named


def _spelling(name: object) -> str:
    return "".join(c for c in str(name).casefold() if c.isalnum())


def missing(row: Mapping[str, Any], field: str, names: Names = COLUMNS) -> str:
    """Say that a row lacks a field: the columns it has, the likeliest misspelling, and the names it may have."""
    present = [
        f"{name} (empty)" if value is None else str(name) for name, value in row.items()
    ]
    return f"it has no {field}: got {', '.join(present) or 'nothing'}{nearest(row, names[field])}"


def nearest(present: Iterable[str], expected: Sequence[str]) -> str:
    """Return the misspelt one of ``present`` beside what is expected, or else what is expected."""
    for column in present:
        likely = get_close_matches(str(column).casefold(), expected, n=1, cutoff=0.75)
        if likely and likely[0] != column:
            return f" ({column} → {likely[0]}?)"
    return f", expected {', '.join(expected)}"


def log_columns(
    rows: Sequence[Mapping[str, Any]],
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
    pairs = dict.fromkeys(pair for row in rows for pair in columns(row, names).items())
    notes = [
        f"{field} is taken from {column!r}"
        for field, column in pairs
        if field != column
    ]
    if label:
        notes.append(label)
    used = {*read, *(column for _, column in pairs)}
    filled = dict.fromkeys(
        column for row in rows for column, value in row.items() if value is not None
    )
    unused = [repr(column) for column in filled if column not in used]
    if unused:
        notes.append(f"not used: {', '.join(unused)}")
    if notes:
        _log_once(f"{where}: {', '.join(notes)}")


@lru_cache(maxsize=256)
def _log_once(sentence: str) -> None:
    log.warning(sentence)
