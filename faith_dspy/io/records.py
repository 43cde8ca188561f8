"""Records as others write them: names of columns and objects, files and tables, brought into the form judged."""

from __future__ import annotations

import ast
import csv
import hashlib
import io
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeVar

from faith_dspy.errors import InputError, counted, did_you_mean, in_short, need
from faith_dspy.io.conversation import from_conversation
from faith_dspy.schema import Chunk, Judgment

NAMES: dict[str, tuple[str, ...]] = {
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
COLUMNS = {
    **NAMES,
    "question": (*NAMES["question"], "prompt"),
    "context": (*NAMES["context"], "passage", "passages", "document", "documents", "source_info", "doc"),
    "answer": (*NAMES["answer"], "reply", "completion", "generation", "summary", "claim", "text"),
}
"""Names of a table's columns: those, and some that mean the same there and something else on an object. Letters and
digits count alone: ``Retrieved Contexts`` is ``retrieved_contexts``. A row with ``answer`` and ``context`` means those,
whatever stands beside them."""
LABELS = {
    "faithful": ("faithful", "label", "labels", "is_faithful", "hallucination_labels", "verdict"),
    "group": ("group", "source_id"),
    "split": ("split",),
    "annotators": ("annotators",),
}
"""Names of the columns with what people said."""
_OWN = ("answer", "context")
_IDEAL = {"expected", "reference", "ground", "truth", "gold", "ideal"}
"""Words in the names of columns that hold what should have been said."""
_SOURCES = ("source", "url", "file_name", "name", "doc_uri", "id", "id_", "node_id")

log = logging.getLogger(__name__)


def value_of(item: Any, name: str) -> Any:
    """A mapping's value, or an object's attribute; None where there is none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record (mapping or object) that have a value, by our names. A conversation counts where there is
    no answer."""
    if isinstance(record, Mapping):
        names = columns(record)
    else:
        given = ((f, next((n for n in ns if value_of(record, n) is not None), None)) for f, ns in NAMES.items())
        names = {field: name for field, name in given if name is not None}
    if "answer" in names and names.get("conversation") != "conversation":
        names.pop("conversation", None)
    return {field: value_of(record, name) for field, name in names.items()}


def columns(row: Mapping[str, Any], names: Mapping[str, tuple[str, ...]] = COLUMNS) -> dict[str, str]:
    """The column of a row that each field is read from: the first of its ``names`` that holds anything."""
    found = _columns(tuple(row), tuple(names.items()))
    return {f: c for f, there in found.items() if (c := next((c for c in there if row[c] is not None), None))}


@lru_cache(maxsize=256)
def _columns(there: tuple[str, ...], names: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, list[str]]:
    spelt = {_spelling(column): column for column in reversed(there)}
    own = spelt.keys() >= set(_OWN)
    known = {field: (field,) if own and field in _OWN else given for field, given in names}
    return {field: [spelt[s] for s in map(_spelling, given) if s in spelt] for field, given in known.items()}


def _spelling(name: object) -> str:
    return "".join(c for c in str(name).casefold() if c.isalnum())


def unused(rows: Sequence[Mapping[str, Any]], known: Iterable[str] = ()) -> str:
    """The columns of these rows that hold something and from which nothing is read, in words; nothing where all are.

    ``known``: further fields, which are used under these names; with them the rows are those of a labels file.
    """
    names = {**COLUMNS, **LABELS} if known else COLUMNS
    taken = {*known, *(column for row in rows for column in columns(row, names).values())}
    held = dict.fromkeys(column for row in rows for column, value in row.items() if value is not None)
    left = ", ".join(repr(column) for column in held if column not in taken)
    return f"Columns that are not used: {left}." if left else ""


def missing(record: Any, field: str = "answer") -> str:
    """What to say of a record without that field: its empty column, or what there is, and which one may be meant."""
    empty = _columns(tuple(record), tuple(COLUMNS.items()))[field] if isinstance(record, Mapping) else []
    if empty:
        return f"it has no {field}: {empty[0]!r} is empty."
    expected = ", ".join(NAMES[field])
    return f"it has no {field}: got {there(record)}, expected {expected}.{meant(record, field)}"


def there(record: Any) -> str:
    """The columns of a record, in words."""
    given = record if isinstance(record, Mapping) else {}
    return ", ".join(f"{name}{' (empty)' * (value is None)}" for name, value in given.items()) or "nothing"


def meant(record: Any, field: str) -> str:
    """The column of a record that may be meant by a field that it lacks, as a hint to be put after a message."""
    given = record if isinstance(record, Mapping) else {}
    names = {**COLUMNS, **LABELS}
    taken = columns(given, names).values()
    for column in (c for c in given if c not in taken):
        words = "".join(c if c.isalnum() else " " for c in str(column).casefold()).split()
        if not _IDEAL & set(words) and (set(words) & set(names[field]) or did_you_mean(str(column), names[field])):
            return f" Did you mean {column!r}? Rename it to {field!r}."
    return ""


_said: set[tuple[str, str, str]] = set()


def say_names(record: Any, where: str, names: Mapping[str, tuple[str, ...]] = COLUMNS) -> None:
    """Log, once, from which columns a record's fields are taken, where they have not our names."""
    if not isinstance(record, Mapping):
        return  # an object of a known library has no columns
    other = {f: name for f, name in columns(record, names).items() if f != name and (where, f, name) not in _said}
    if other:
        _said.update((where, field, name) for field, name in other.items())
        log.warning("%s: %s", where, ", ".join(f"{field} is taken from {name!r}" for field, name in other.items()))


def document_of(item: Any) -> tuple[str, str | None] | None:
    """Text and source of a retrieved document; None for anything else.

    Reads mappings and objects with ``text``, ``page_content`` (LangChain) or ``content``, also inside a ``node``
    (LlamaIndex) or ``document``, and the source that they or their ``metadata`` name.
    """
    if isinstance(item, str) or item is None:
        return None
    inner = next((v for name in ("node", "document") if (v := value_of(item, name)) is not None), None)
    if inner is not None and (found := document_of(inner)):
        return found
    texts = (value_of(item, name) for name in ("text", "page_content", "content"))
    text = next((t for t in texts if isinstance(t, str)), None)
    if text is None:
        return None
    metadata = value_of(item, "metadata")
    places = (
        value_of(place, name)
        for name in _SOURCES
        for place in (item, metadata if isinstance(metadata, Mapping) else {})
    )
    source = next((p for p in places if isinstance(p, str | int) and p != ""), None)
    return text, None if source is None else str(source)


TableT = TypeVar("TableT", bound="Table")
ADDED = ("score", "faithful", "probability", "level", "needs_review", "unscored", "detail")
"""Fields of a judgment that are added to a table, as columns ``judge_score`` …, and ``judge_statements`` as JSON."""
_EMPTY = {"", "nan", "NaN", "NAN", "<NA>", "NaT", "#N/A", "null", "NULL"}
"""What pandas and spreadsheets write into a cell of CSV that holds nothing."""
_PARTS = {"validation": "dev", "valid": "dev", "val": "dev"}
_LISTS = {**{f: COLUMNS[f] for f in ("context", "conversation")}, "annotators": LABELS["annotators"]}
_LISTS |= {"statements": ("statements",), "faithful": LABELS["faithful"]}


class Table(Protocol):
    """A pandas frame or a Hugging Face `Dataset`, as far as types go."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""


def read_csv(handle: IO[bytes], *, tab: bool = False) -> Iterator[dict[str, Any] | str]:
    """The rows of a CSV or TSV file with a header, or what is wrong with a row; of CSV the separator may also be a
    semicolon.

    `ValueError` says what is wrong with the file.
    """
    text = io.TextIOWrapper(handle, "utf-8-sig", newline="")
    csv.field_size_limit(2**31 - 1)  # a context may be longer than the 131,072 characters that csv takes
    try:
        first = text.readline()
        separator = "\t" if tab else max(",;\t", key=first.count)
        reader = csv.reader(chain([first], text), delimiter=separator, strict=True)
        header = next(reader, [])
        if twice := [name for name in header if name and header.count(name) > 1]:
            raise ValueError(f"has two columns {twice[0]!r}; rename one")
        for cells in filter(any, reader):
            if len(cells) > len(header):
                yield f"has {counted(len(cells), 'cell')}, expected {len(header)}"
            else:
                yield clean({k: None if v.strip() in _EMPTY else v for k, v in zip(header, cells, strict=False)})
    except csv.Error as exc:
        raise ValueError(f"is no table: {exc}") from exc
    except UnicodeDecodeError as exc:
        raise ValueError("is not UTF-8 text; save it as CSV in UTF-8") from exc


def read_parquet(handle: IO[bytes]) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file, read as they are needed. `ValueError` says what is wrong with the file."""
    parquet = need("pyarrow.parquet", "Reading Parquet")
    try:
        for batch in parquet.ParquetFile(handle).iter_batches(batch_size=256):
            yield from map(clean, batch.to_pylist())
    except OSError as exc:
        raise ValueError(in_short(exc)) from exc


def clean(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A table's row as plain Python: nothing for empty cells, lists for arrays and for lists that stand as text."""
    found = {str(name): _plain(value) for name, value in row.items()}
    lists = set(columns(found, _LISTS).values())
    return {name: parsed(value) if name in lists else value for name, value in found.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [v if v == "" else _plain(v) for v in value]  # an empty chunk keeps its place
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str | int):
        return value if value != "" else None
    if isinstance(value, float):
        return value if value == value else None  # NaN
    return None if value is None or str(value) in ("<NA>", "NaT") else str(value)


def parsed(value: Any) -> Any:
    """A list written as text in a cell, in JSON or as a Python literal; anything else as it is."""
    if isinstance(value, str) and value.strip()[:1] == "[":
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(value)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(found, list):
                return found
    return value


def is_table(data: Any) -> bool:
    """Whether it is a pandas frame or a Hugging Face `Dataset`."""
    return hasattr(data, "iloc") or all(hasattr(data, name) for name in ("column_names", "features", "__len__"))


def rows_of(data: Any) -> Iterable[Any]:
    """The rows of a table in memory as mappings; anything else as it is.

    Those of a `DatasetDict` come with its parts as ``split``.
    """
    if isinstance(data, Mapping) and all(map(is_table, data.values())):
        return [{**row, "split": _PARTS.get(part, part)} for part, rows in data.items() for row in rows_of(rows)]
    if not is_table(data):
        return data  # type: ignore[no-any-return]
    return map(clean, data.to_dict("records") if hasattr(data, "iloc") else data)


def with_judgments(table: Any, judgments: Sequence[Judgment]) -> Any:
    """The table with the columns `ADDED` and ``judge_statements``; what was not scored is missing there, never NaN."""
    values = {f"judge_{name}": [getattr(j, name) for j in judgments] for name in ADDED}
    values["judge_unscored"] = [j.unscored and j.unscored.value for j in judgments]
    values["judge_statements"] = [
        json.dumps([s.model_dump(mode="json", exclude={"features"}) for s in j.statements], ensure_ascii=False)
        for j in judgments
    ]
    kinds = {
        "judge_score": "float",
        "judge_probability": "float",
        "judge_faithful": "bool",
        "judge_needs_review": "bool",
    }
    if hasattr(table, "iloc"):
        pandas = need("pandas", "Adding judgments to a frame")
        types = {"float": "Float64", "bool": "boolean"}
        return table.assign(
            **{k: pandas.array(v, dtype=types.get(kinds.get(k, ""), "string")) for k, v in values.items()}
        )
    datasets = need("datasets", "Adding judgments to a data set")
    types = {"float": "float64", "bool": "bool"}
    features = {k: datasets.Value(types.get(kinds.get(k, ""), "string")) for k in values}
    kept = table.remove_columns([c for c in table.column_names if c in values])
    added = datasets.Dataset.from_dict(values, features=datasets.Features(features))
    return datasets.concatenate_datasets([kept, added], axis=1)


def broken(source: object, exc: Exception) -> InputError:
    """What to raise for a file that is not what its name says."""
    return InputError(f"{source}: cannot be read ({exc}); expected CSV, TSV, Parquet, JSON or JSON lines.")


STANDARD = Path("-")
"""Standard input or output."""
MAX_DEPTH, MAX_DIGITS = 100, 300
"""Brackets in each other, and digits of a whole number, in what `read_json` takes."""

FIRST = 20
"""Records by which a file is known to be one of records."""


@dataclass(frozen=True)
class Record:
    """One non-empty line, or one row of a table."""

    line: int
    """Number of the line, or of the row, counted from 1."""
    key: str
    """First 16 hex digits of the SHA-256 of the line, or of the row as JSON."""
    row: dict[str, Any] = field(default_factory=dict)
    """The object on the line."""
    problem: str | None = None
    """Why the line holds no object; None if it does."""


@contextmanager
def open_records(source: Path) -> Iterator[Iterator[Record]]:
    """The records of a file, or of standard input (`STANDARD`). `InputError` if it cannot be opened.

    The file's ending says what it is: .csv, .tsv, .parquet, .json; anything else is JSON lines.
    """
    if source == STANDARD:
        yield read_records(sys.stdin.buffer)
        return
    try:
        handle = source.open("rb")
    except OSError as exc:
        reason = "is a folder" if source.is_dir() else (exc.strerror or str(exc)).lower()
        raise InputError(f"{source}: cannot be read ({reason}); expected a JSON lines file or a table.") from exc
    with handle:
        match source.suffix.lower():
            case ".csv" | ".tsv" as kind:
                yield _rows(source, read_csv(handle, tab=kind == ".tsv"))
            case ".parquet":
                yield _rows(source, read_parquet(handle))
            case ".json":
                text = handle.read()
                found = _list(text)
                yield read_records(io.BytesIO(text)) if found is None else _rows(source, found)
            case _:
                yield read_records(handle)


def is_table_file(source: Path) -> bool:
    """Whether the records of a file are rows, not lines."""
    return source.suffix.lower() in (".csv", ".tsv", ".parquet", ".json")


def _rows(source: Path, rows: Iterable[dict[str, Any] | str]) -> Iterator[Record]:
    """Rows, or what is wrong with them, as records; `InputError` where the file turns out to be no table."""
    try:
        for number, row in enumerate(rows, 1):
            text = json.dumps(row, ensure_ascii=False, sort_keys=True).encode(errors="replace")
            key = hashlib.sha256(text).hexdigest()[:16]
            yield Record(number, key, problem=row) if isinstance(row, str) else Record(number, key, row)
    except ValueError as exc:
        raise broken(source, exc) from exc


def _list(text: bytes) -> list[dict[str, Any] | str] | None:
    """The rows of a JSON file that holds a list, by itself or in an object; None where it is JSON lines."""
    try:
        found = read_json(text.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        return None
    if isinstance(found, dict) and not {"answer", "conversation"} & columns(found).keys():
        found = next((v for v in found.values() if isinstance(v, list)), None)
    return [r if isinstance(r, dict) else _no_object(r) for r in found] if isinstance(found, list) else None


def check_records(source: Path, known: Iterable[str] = ()) -> str:
    """The columns of a file that are not used, in words (see `faith_dspy.io.records.unused`).

    `InputError` when it is no table and no JSON lines, and as `check_columns`: that is to be known before an LM is
    started. Nothing is known of what is no file, as a pipe can be read only once.
    """
    if source == STANDARD or (source.exists() and not source.is_file() and not source.is_dir()):
        return ""
    with open_records(source) as records:
        first = list(islice(records, FIRST))
    if not first:
        return ""
    good = [r.row for r in first if r.problem is None]
    if not good:
        raise broken(source, ValueError(f"{'row' if is_table_file(source) else 'line'} 1 {first[0].problem}"))
    check_columns(good, str(source))
    return unused(good, known)


def check_columns(rows: Sequence[Mapping[str, Any]], where: str) -> None:
    """`InputError` when the first rows of a table have no column for the answer, or misspell that of the context."""
    held = {name for row in rows for name in columns(row)}
    if not rows or "conversation" in held or any(row.get("error") for row in rows):
        return
    if "answer" not in held:
        raise InputError(f"{where}: {missing(rows[0])}")
    if "context" not in held and meant(rows[0], "context"):
        raise InputError(f"{where}: {missing(rows[0], 'context')}")


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
    return row if isinstance(row, dict) else _no_object(row)


def _no_object(value: Any) -> str:
    return f"got {type(value).__name__}, expected an object"


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
    """Number of lines of a file; None for tables and for what is not a file, as a pipe can be read only once."""
    if source == STANDARD or not source.is_file() or is_table_file(source):
        return None
    with source.open("rb") as handle:
        return sum(1 for _ in handle)


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
        if isinstance(item, Chunk):
            chunks.append(item.model_copy(update={"id": i}))
        elif item is None or isinstance(item, str):
            chunks.append(Chunk(id=i, text=item or ""))
        elif found := document_of(item):
            chunks.append(Chunk(id=i, text=found[0], source=found[1]))
        else:
            raise InputError(f"context[{i}] is {str(item)[:40]!r}, expected text or an object with 'text'")
    return tuple(chunks)


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
