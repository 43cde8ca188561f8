"""Answers to be judged, in whatever form they come: mappings, objects of other libraries, files, tables, frames."""

from __future__ import annotations

import ast
import csv
import hashlib
import io
import json
import logging
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, islice
from os import PathLike
from pathlib import Path
from typing import IO, Any

from faith_dspy.errors import InputError, in_short, need
from faith_dspy.io.conversation import from_conversation
from faith_dspy.schema import Chunk, Judgment

Names = Mapping[str, tuple[str, ...]]

NAMES: Names = {
    "id": ("id", "sample_id", "case_id", "uid"),
    "question": ("question", "user_input", "query", "input"),
    "context": (
        *("retrieved_contexts", "retrieved_context", "retrieval_context", "retrieved_content"),
        *("context_chunks", "contexts", "context"),
    ),
    "answer": ("answer", "response", "actual_output", "generated_answer", "output"),
    "conversation": ("conversation", "messages"),
}
"""Names of each field, those of RAGAS, DeepEval, axion, continuous-eval, rag_evals and Strands among them; the first
that has a value counts. DeepEval's ``context`` is the ideal one, so it is last."""
COLUMNS: Names = {
    **NAMES,
    "question": (*NAMES["question"], "prompt"),
    "context": (*NAMES["context"], "passage", "passages", "document", "documents", "source_info", "doc"),
    "answer": (*NAMES["answer"], "reply", "completion", "generation", "summary", "claim", "text"),
}
"""Names of a table's columns: those, and some that mean something else on an object. Only letters and digits count:
``Retrieved Contexts`` is ``retrieved_contexts``. A row with ``answer`` and ``context`` means those."""
LABELS: Names = {
    "faithful": ("faithful", "label", "labels", "is_faithful", "hallucination_labels", "verdict"),
    "group": ("group", "source_id"),
    "split": ("split",),
    "annotators": ("annotators",),
}
"""Names of the columns with what people said."""
_SOURCES = ("source", "url", "file_name", "name", "doc_uri", "id", "id_", "node_id")
_EMPTY = {"", "nan", "NaN", "NAN", "<NA>", "NaT", "#N/A", "null", "NULL"}
"""What pandas and spreadsheets have in a cell that holds nothing."""
_PARTS = {"validation": "dev", "valid": "dev", "val": "dev"}
STANDARD = Path("-")
"""Standard input or output."""
MAX_DEPTH, MAX_DIGITS = 100, 300
"""Nested brackets, and digits of a whole number, in what `read_json` takes."""
MAX_TEXT = 10_000_000
"""Characters of one answer with its question and context."""
FIRST = 20
"""Records by which the columns of a file or table are known."""

log = logging.getLogger(__name__)


# One record


@dataclass(frozen=True)
class Record:
    """One non-empty line of a file, or one row of a table."""

    line: int
    """Number of the line, or of the row, counted from 1."""
    row: Any
    """What stands there; an exception says why it is no object."""
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
        """The input in a record: a `Record`, or a mapping or an object with any of the usual `NAMES`."""
        if isinstance(record, Record):
            if record.problem is not None:
                return cls(problem=record.problem)
            record = record.row
        if isinstance(record, AnswerInput):
            return record
        fields = fields_of(record)
        found = fields.pop("id", None)
        key = found if isinstance(found, str | int) else None
        if not fields and not isinstance(record, Mapping):
            return cls(problem=f"record is {type(record).__name__}, expected a mapping with context and answer")
        if not {"answer", "conversation"} & fields.keys():
            error = value_of(record, "error")  # of a loader that could not read it
            given = record if isinstance(record, Mapping) else fields
            return cls(problem=error if isinstance(error, str) else missing(given, "answer"), id=key)
        try:
            return cls.make(**fields, id=key)
        except InputError as exc:
            return cls(problem=str(exc), id=key)

    @classmethod
    def make(
        cls, question: Any = None, context: Any = None, answer: Any = None, conversation: Any = None, id: Any = None
    ) -> AnswerInput:
        """The input of one call; ``conversation`` stands for context and answer. `InputError` says what is wrong."""
        if conversation is not None:
            if context is not None or answer is not None:
                raise InputError("give either conversation, or context and answer; got both")
            question, context, answer = from_conversation(conversation)
        if question is not None and not isinstance(question, str):
            raise InputError(f"question is {type(question).__name__}, expected text or None")
        if not isinstance(answer, str):
            raise InputError(f"answer is {type(answer).__name__}, expected text")
        chunks = as_chunks(context)
        check_texts(question or "", answer, *(c.text for c in chunks))
        return cls(question, chunks, answer, id)


def read_inputs(records: Any) -> list[AnswerInput]:
    """The inputs in a file, a table in memory, or an iterable of records. A mapping is one record."""
    if isinstance(records, str | PathLike) or is_table(records):
        check_records(records)
    with open_records(records) as found:
        return [AnswerInput.of(record) for record in found]


def check_texts(*texts: str) -> None:
    """`InputError` where the texts of one answer are no Unicode, or too long together to be judged in a minute."""
    together = "".join(texts)
    if len(together) > MAX_TEXT:
        raise InputError(
            f"got {len(together):,} characters of question, context and answer, expected at most {MAX_TEXT:,}"
        )
    try:
        together.encode()
    except UnicodeEncodeError as exc:
        raise InputError("the text has an unpaired surrogate, expected Unicode text") from exc


def as_chunks(context: Any) -> tuple[Chunk, ...]:
    """Context as given by a user – text, strings, `Chunk` objects, documents – with 0-based positions as ids."""
    if context is None:
        return ()
    if isinstance(context, str) or (not isinstance(context, dict) and document_of(context)):
        context = [context]
    if not isinstance(context, list | tuple):
        raise InputError(f"context is {type(context).__name__}, expected a list of texts or chunks")
    chunks = []
    for i, item in enumerate(context):
        found = (item or "", None) if item is None or isinstance(item, str) else document_of(item)
        if found is None:
            raise InputError(f"context[{i}] is {str(item)[:40]!r}, expected text or an object with 'text'")
        chunks.append(Chunk(id=i, text=found[0], source=found[1]))
    return tuple(chunks)


def document_of(item: Any) -> tuple[str, str | None] | None:
    """Text and source of a retrieved document; None for anything else.

    Reads mappings and objects with ``text``, ``page_content`` (LangChain) or ``content``, also inside a ``node``
    (LlamaIndex) or ``document``, and the source that they or their ``metadata`` name.
    """
    if item is None or isinstance(item, str):
        return None
    if isinstance(item, Chunk):
        return item.text, item.source
    if found := document_of(value_of(item, "node")) or document_of(value_of(item, "document")):
        return found
    texts = (value_of(item, name) for name in ("text", "page_content", "content"))
    text = next((t for t in texts if isinstance(t, str)), None)
    if text is None:
        return None
    sources = (value_of(holder, name) for name in _SOURCES for holder in (item, value_of(item, "metadata")))
    source = next((s for s in sources if isinstance(s, str | int) and s != ""), None)
    return text, None if source is None else str(source)


def value_of(item: Any, name: str) -> Any:
    """A mapping's value, or an object's attribute; None where there is none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


# Names of fields


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record (mapping or object) that have a value, by our names. A conversation counts where there is
    no answer."""
    if isinstance(record, Mapping):
        names = columns(record)
    else:
        given = {f: next((n for n in ns if value_of(record, n) is not None), None) for f, ns in NAMES.items()}
        names = {field: name for field, name in given.items() if name is not None}
    if "answer" in names and names.get("conversation") != "conversation":
        names.pop("conversation", None)
    return {field: value_of(record, name) for field, name in names.items()}


def columns(row: Mapping[str, Any], names: Names = COLUMNS) -> dict[str, str]:
    """The column of a row that each field is read from: the first of its ``names`` that holds anything."""
    found = _columns(tuple(row), tuple(names.items()))
    return {f: c for f, present in found.items() if (c := next((c for c in present if row[c] is not None), None))}


@lru_cache(maxsize=256)
def _columns(present: tuple[str, ...], names: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, list[str]]:
    spelt = {_spelling(column): column for column in reversed(present)}
    own = ("answer", "context") if spelt.keys() >= {"answer", "context"} else ()
    known = {field: (field,) if field in own else given for field, given in names}
    return {field: [spelt[s] for s in map(_spelling, given) if s in spelt] for field, given in known.items()}


def _spelling(name: object) -> str:
    return "".join(c for c in str(name).casefold() if c.isalnum())


def missing(row: Mapping[str, Any], field: str) -> str:
    """What to say of a row without that field: the columns it has, and the names that the field may have."""
    got = ", ".join(f"{name}{' (empty)' * (value is None)}" for name, value in row.items()) or "nothing"
    return f"it has no {field}: got {got}, expected {', '.join({**COLUMNS, **LABELS}[field])}"


def log_columns(
    rows: Sequence[Mapping[str, Any]], where: str, names: Names = COLUMNS, known: Iterable[str] = ()
) -> None:
    """Log which columns are read by another name than ours, and which ones that hold something are not read.

    ``known``: further columns that are read, by these names.
    """
    read = dict.fromkeys(pair for row in rows for pair in columns(row, names).items())
    said = [f"{field} is taken from {column!r}" for field, column in read if field != column]
    taken = {*known, *(column for _, column in read)}
    filled = dict.fromkeys(column for row in rows for column, value in row.items() if value is not None)
    if left := [repr(column) for column in filled if column not in taken]:
        said.append(f"not used: {', '.join(left)}")
    if said:
        _log_once(f"{where}: {', '.join(said)}")


@lru_cache(maxsize=256)
def _log_once(sentence: str) -> None:
    log.warning(sentence)


# Files


@contextmanager
def open_records(source: Any) -> Iterator[Iterator[Record]]:
    """The records of a file, of standard input (`STANDARD`), or of what is in memory: a table, or an iterable.

    A file's ending says what it is: .csv, .tsv, .parquet, .json; anything else is JSON lines. `InputError` if it cannot
    be opened.
    """
    if not isinstance(source, str | PathLike):
        yield (Record(number, row, kind="row") for number, row in enumerate(rows_of(source), 1))
        return
    path = Path(source)
    if path == STANDARD:
        yield read_records(sys.stdin.buffer)
        return
    try:
        handle = path.open("rb")
    except OSError as exc:
        raise _broken(path, (exc.strerror or str(exc)).lower()) from exc
    with handle:
        match path.suffix.lower():
            case ".csv" | ".tsv" as kind:
                yield _rows(path, _read_csv(handle, tab=kind == ".tsv"), numbered=True)
            case ".parquet":
                yield _rows(path, _read_parquet(handle))
            case ".json" if (found := _list_in(handle)) is not None:
                yield _rows(path, found)
            case _:
                yield read_records(handle)


def name_of(source: Any, otherwise: str = "labels") -> str:
    """The path of a file; ``otherwise`` for what is in memory."""
    return str(source) if isinstance(source, str | PathLike) else otherwise


def check_records(source: Any) -> None:
    """`log_columns` of the first records; `InputError` where none is an object, or they have no column for the answer
    or none for the context: before an LM is started. A pipe is not looked at, as it can be read only once."""
    path = Path(source) if isinstance(source, str | PathLike) else None
    if path == STANDARD or (path is not None and path.exists() and not path.is_file()):
        return
    with open_records(source) as records:
        first = list(islice(records, FIRST))
    rows = [record.row for record in first if record.problem is None]
    where = name_of(source, "records")
    if first and not rows:
        raise _broken(where, first[0].problem)
    log_columns(rows, where)
    found = {f for row in rows for f, present in _columns(tuple(row), tuple(COLUMNS.items())).items() if present}
    if not rows or "conversation" in found or any(row.get("error") for row in rows):
        return
    for needed in ("answer", "context"):
        if needed not in found:
            raise InputError(f"{where}: {missing(rows[0], needed)}.")


def count_lines(source: Path) -> int | None:
    """Number of lines of a file; None for tables and for what is not a file, as a pipe can be read only once."""
    if not source.is_file() or source.suffix.lower() in (".csv", ".tsv", ".parquet", ".json"):
        return None
    with source.open("rb") as handle:
        return sum(1 for _ in handle)


def read_records(handle: IO[bytes]) -> Iterator[Record]:
    """Each non-empty line, read as it is needed."""
    for number, line in enumerate(handle, 1):
        if text := (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip():
            try:
                value = read_json(text)
            except ValueError as exc:
                value = exc
            yield Record(number, value, _key(text))


def _rows(source: Path, rows: Iterable[Any], *, numbered: bool = False) -> Iterator[Record]:
    """Rows, or what is wrong with them; `InputError` where the file turns out to be no table. ``numbered``: each with
    its line."""
    try:
        for number, found in enumerate(rows, 1):
            file_line, row = found if numbered else (None, found)
            text = json.dumps(row, ensure_ascii=False, sort_keys=True, default=str)
            yield Record(number, row, _key(text.encode(errors="replace")), "row", file_line)
    except ValueError as exc:
        raise _broken(source, exc) from exc


def _key(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def _list_in(handle: IO[bytes]) -> list[Any] | None:
    """The list in a JSON file, by itself or in an object; None where it is JSON lines, which are still to be read."""
    try:
        found = read_json(handle.read().removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        found = None
    handle.seek(0)
    if isinstance(found, dict) and not {"answer", "conversation"} & columns(found).keys():
        found = next((v for v in found.values() if isinstance(v, list)), None)
    return found if isinstance(found, list) else None


def read_json(text: bytes) -> Any:
    """JSON that everything after can hold; `ValueError` says what is wrong with any other: NaN, what is not Unicode, a
    number beyond a float's range, brackets nested without end, all of which Python reads, and fails where it is used.
    """
    try:
        decoded = text.decode()
        depth = max(accumulate((c in "[{") - (c in "]}") for c in _STRING.sub("", decoded)), default=0)
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} brackets in each other")
        value = json.loads(decoded, parse_int=lambda digits: int(digits) if len(digits) <= MAX_DIGITS else math.inf)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as exc:
        raise ValueError(f"is no JSON in UTF-8 ({exc}): {text[:60].decode(errors='replace')!r}") from exc
    return value


_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def _read_csv(handle: IO[bytes], *, tab: bool) -> Iterator[tuple[int, dict[str, Any] | ValueError]]:
    """Line and content of the rows of a CSV or TSV file with a header, or what is wrong with a row; of CSV the
    separator may also be a semicolon."""
    text, line = io.TextIOWrapper(handle, "utf-8-sig", newline=""), 0
    csv.field_size_limit(2**31 - 1)  # a context may be longer than the 131,072 characters that csv takes
    try:
        first = text.readline()
        separator = "\t" if tab else max(",;\t", key=first.count)
        reader = csv.DictReader(chain([first], text), delimiter=separator, strict=True)
        names = [name for name in reader.fieldnames or () if name]
        if len(set(names)) < len(names):
            raise ValueError("two of its columns have the same name")
        line = reader.line_num
        for row in reader:
            line = reader.line_num
            if None in row:
                yield line, ValueError("has more cells than the header")
            elif any(row.values()):
                yield line, clean(row)
    except csv.Error as exc:
        raise ValueError(f"{exc}, in the row that begins in line {line + 1}: is a quotation mark not closed?") from exc


def _read_parquet(handle: IO[bytes]) -> Iterator[dict[str, Any]]:
    parquet = need("pyarrow.parquet", "Reading Parquet")
    try:
        for batch in parquet.ParquetFile(handle).iter_batches(batch_size=256):
            yield from map(clean, batch.to_pylist())
    except OSError as exc:
        raise ValueError(in_short(exc)) from exc


def _broken(source: object, why: object) -> InputError:
    kinds = "CSV, TSV, Parquet, JSON or JSON lines in UTF-8 (spreadsheets save it as “CSV UTF-8”)"
    return InputError(f"{source}: cannot be read ({why}); expected {kinds}.")


# Tables in memory


def is_table(data: Any) -> bool:
    """Whether it is a pandas frame or a Hugging Face `Dataset`."""
    return hasattr(data, "iloc") or all(hasattr(data, name) for name in ("column_names", "features", "__len__"))


def rows_of(data: Any) -> Iterable[Any]:
    """The rows of a table in memory as mappings, those of a `DatasetDict` with its parts as ``split``; a mapping as
    the only row; anything else as it is."""
    if isinstance(data, Mapping):
        if not data or not all(map(is_table, data.values())):
            return [data]
        return [{**row, "split": _PARTS.get(part, part)} for part, rows in data.items() for row in rows_of(rows)]
    if not is_table(data):
        if not isinstance(data, Iterable):
            raise InputError(f"got {type(data).__name__}, expected a file, a table, or records with context and answer")
        return data
    if not hasattr(data, "iloc"):
        return map(clean, data)
    rows = data.itertuples(index=False, name=None)
    return (clean(dict(zip(data.columns, cells, strict=True))) for cells in rows)


def clean(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A table's row as plain Python: nothing for empty cells, lists for arrays and for lists or a document that stand
    as text, but in the question and the answer."""
    found = {str(name): _plain(value) for name, value in row.items()}
    texts = [columns(found).get(field) for field in ("question", "answer")]
    return {name: value if name in texts else parsed(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [v if v == "" else _plain(v) for v in value]  # an empty chunk keeps its place
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if value is None or str(value).strip() in _EMPTY:
        return None
    return value if isinstance(value, str | int | float) else str(value)


def parsed(value: Any) -> Any:
    """A list written as text in a cell, in JSON or as a Python literal, or a single document as a list; anything else
    as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "{"):
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(found, list):
                return found
            if isinstance(found, Mapping) and document_of(found):
                return [found]
    return value


_ADDED = {
    **dict.fromkeys(("score", "probability", "threshold"), "Float64"),
    **dict.fromkeys(("faithful", "needs_review"), "boolean"),
    **dict.fromkeys(("level", "unscored", "detail", "statements"), "string"),
}
"""What a table gets of each judgment, and its type in pandas, each of which has a missing value."""


def with_judgments(table: Any, judgments: Sequence[Judgment]) -> Any:
    """The table with the columns ``judge_score`` …; what was not scored is missing there, never NaN."""
    import pandas

    rows = [judgment.to_dict() for judgment in judgments]
    for row in rows:
        row["statements"] = json.dumps(row["statements"], ensure_ascii=False)
    added = {f"judge_{name}": pandas.array([row[name] for row in rows], dtype=kind) for name, kind in _ADDED.items()}
    if hasattr(table, "iloc"):
        return table.assign(**added)
    import datasets

    kept = table.remove_columns([c for c in table.column_names if c in added])
    return datasets.concatenate_datasets([kept, datasets.Dataset.from_pandas(pandas.DataFrame(added))], axis=1)
