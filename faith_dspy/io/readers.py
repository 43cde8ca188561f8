"""Records out of files and tables: JSON lines, JSON, CSV, TSV, Parquet and Excel files, pandas and Hugging Face tables.

What a file is, its content says; its ending decides only between a table with separators and lines of JSON.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import IO, Any

from pydantic_core import from_json

from faith_dspy.errors import (
    InputError,
    import_optional,
    install_command,
    short_message,
)
from faith_dspy.io.documents import parsed
from faith_dspy.io.inputs import (
    AnswerInput,
    Record,
    columns,
    columns_named,
    fields_of,
    log_columns,
    problem_of,
)
from faith_dspy.io.names import Fields
from faith_dspy.schema import Judgment

_EMPTY = {
    "",
    "nan",
    "NaN",
    "NAN",
    "<NA>",
    "NaT",
    "#N/A",
    "null",
    "NULL",
}
"""What pandas and spreadsheets have in a cell that holds nothing."""
_PARTS = {"validation": "dev", "valid": "dev", "val": "dev"}
_TABLES = (".csv", ".tsv", ".txt")
_WRAPPERS = ("data", "rows", "records", "examples", "items", "results")
STANDARD = Path("-")
"""Standard input or output."""
FIRST = 20
"""Records by which the columns of a file or table are known."""
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_OTHERS = {
    b"<": "it is a web page: save its table as CSV",
    b"PK\x03\x04": "it is a zip archive, or a spreadsheet that is not named .xlsx: save its table as “CSV UTF-8”",
    b"%PDF": "it is a PDF document: save its table as CSV",
    b"\xd0\xcf\x11\xe0": "it is a file of an old spreadsheet program: save it as “CSV UTF-8”",
    b"SQLite format": "it is a database: export the table as CSV",
    b"\x1f\x8b": "it is compressed: unpack it first",
}
"""How files begin that are not read, and what to do."""
LONGEST = 2**31 - 1
"""Characters of a cell: a context may be longer than the 131,072 that csv takes."""
_EXCEL = f"it is an Excel file: save it as “CSV UTF-8”, or {install_command('tune')}"
_COLUMNS = 'it holds columns, not rows: write it with to_json(path, orient="records", lines=True)'


@contextmanager
def open_records(source: Any) -> Iterator[Iterator[Record]]:
    """Open the records of a file, of standard input (`STANDARD`), or of what is in memory: a table, or an iterable.

    Raises:
        InputError: it cannot be opened, or is of a kind that is not read.
    """
    if not isinstance(source, str | PathLike):
        rows = enumerate(rows_of(source), 1)
        yield (Record(number, row, kind="row") for number, row in rows)
        return
    path = Path(source)
    if path == STANDARD:
        yield read_records(sys.stdin.buffer)
        return
    try:
        handle = path.open("rb")
    except OSError as exc:
        raise _unreadable(path, (exc.strerror or str(exc)).lower()) from exc
    with handle:
        try:
            records = _records_in(path, handle)
        except ValueError as exc:
            raise _unreadable(path, exc) from exc
        yield records


def _records_in(path: Path, handle: IO[bytes]) -> Iterator[Record]:
    if not handle.seekable():  # a pipe holds lines of JSON
        return read_records(handle)
    suffix = path.suffix.lower()
    start = _start_of(handle)
    if start.startswith(b"PAR1") or suffix == ".parquet":
        return _rows(path, _read_parquet(handle))
    if suffix == ".xlsx":
        return _rows(path, _read_excel(path))
    for beginning, advice in _OTHERS.items():
        if start.startswith(beginning):
            raise ValueError(advice)
    if start.startswith(_UTF16):
        content = handle.read().decode("utf-16")
        handle = io.BytesIO(content.encode())
        start = _start_of(handle)
    is_json = start.startswith((b"{", b"["))
    if suffix in _TABLES and not (is_json and suffix == ".txt"):
        return _rows(path, _read_csv(handle, tab=suffix == ".tsv"))
    rows = None
    if is_json:
        rows = _list_in(handle, wrapped=suffix == ".json")
    if rows is None:
        return read_records(handle)
    return _rows(path, rows)


def _start_of(handle: IO[bytes]) -> bytes:
    """Return the beginning of a file, without what may stand before its content."""
    start = handle.read(64).removeprefix(_BOM)
    handle.seek(0)
    return start.lstrip()


def name_of(source: Any, otherwise: str = "labels") -> str:
    """Return the path of a file; ``otherwise`` for what is in memory."""
    return str(source) if isinstance(source, str | PathLike) else otherwise


def read_inputs(
    records: Any, further: Iterable[str] = (), turns: str = "last"
) -> list[AnswerInput]:
    """Read the inputs in a file, a table in memory, or an iterable of records. A mapping is one record.

    Args:
        records: the records.
        further: columns that are read, too.
        turns: ``all`` reads each answer of a conversation.
    """
    if isinstance(records, str | PathLike) or is_table(records):
        check_records(records, further)
    with open_records(records) as opened:
        if turns == "all":
            opened = each_turn(opened)
        return [AnswerInput.of(record) for record in opened]


def each_turn(records: Iterable[Record]) -> Iterator[Record]:
    """Yield a record for each answer of a conversation."""
    for record in records:
        for one in AnswerInput.turns_of(record):
            if one.turn is None:
                yield record
            else:
                key = record.key and f"{record.key}-{one.turn}"
                yield replace(record, turn=one, key=key)


def check_records(source: Any, read: Iterable[str] = ()) -> None:
    """Look at the first records before an LM is started, and log their columns; ``read``: others that are used, too. A
    pipe can be read only once.

    Raises:
        InputError: none is an object, or they have no column for the answer or none for the context.
    """
    if isinstance(source, str | PathLike):
        path = Path(source)
        is_pipe = path.exists() and not path.is_file()
        if is_pipe or path == STANDARD:
            return
    with open_records(source) as records:
        first = list(islice(records, FIRST))
    rows = [record.row for record in first if record.problem is None]
    where = name_of(source, "records")
    if first and not rows:
        raise _unreadable(where, first[0].problem)
    log_columns(rows, where, read=read)
    if not rows or any(row.get("error") for row in rows):
        return
    problem = problem_of(rows)
    if problem is not None:
        raise InputError(f"{where}: {problem}.")


def count_lines(source: Path) -> int | None:
    """Count the lines of a file of JSON lines; None for others, and for a pipe, which can be read only once."""
    if not source.is_file() or source.suffix.lower() not in (".jsonl", ".ndjson", ""):
        return None
    with source.open("rb") as handle:
        return sum(1 for _ in handle)


def read_records(handle: IO[bytes]) -> Iterator[Record]:
    """Yield each non-empty line, read as it is needed."""
    for number, line in enumerate(handle, 1):
        if number == 1:
            line = line.removeprefix(_BOM)
        text = line.strip()
        if not text:
            continue
        try:
            value = read_json(text)
        except ValueError as exc:
            value = exc
        yield Record(number, value, _key(text))


def _rows(source: Path, rows: Iterable[Any]) -> Iterator[Record]:
    """Yield rows, or what is wrong with them.

    Raises:
        InputError: the file turns out not to be a table.
    """
    try:
        for number, row in enumerate(rows, 1):
            text = json.dumps(row, ensure_ascii=False, sort_keys=True, default=str)
            key = _key(text.encode(errors="replace"))
            yield Record(number, row, key, "row")
    except ValueError as exc:
        raise _unreadable(source, exc) from exc


def _key(text: bytes) -> str:
    digits = hashlib.sha256(text).hexdigest()
    return digits[:16]


def _list_in(handle: IO[bytes], *, wrapped: bool) -> list[Any] | None:
    """Return the list in a JSON file, by itself or in an object, or its one record, if that takes several lines; None
    for JSON lines, which are still to be read.

    ``wrapped``: whether any list in an object counts, or only one of a usual name.
    """
    first, *more = islice(handle, 2)
    handle.seek(0)
    if b"".join(more).strip() and isinstance(_json_or_none(first), dict):
        return None
    value = _json_or_none(handle.read())
    handle.seek(0)
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    if _is_record(value):
        return [value] if more else None
    for name, part in value.items():
        is_usual = wrapped or name in _WRAPPERS
        rows = part if isinstance(part, list) else []
        if is_usual and rows and isinstance(rows[0], dict):
            return rows
    if not any(isinstance(part, str) for part in value.values()):
        raise ValueError(_COLUMNS)
    return None


def _is_record(value: Fields) -> bool:
    fields = fields_of(value)
    has_answer = isinstance(fields.get("answer"), str)
    return has_answer or "conversation" in fields


def _json_or_none(text: bytes) -> Any:
    try:
        return read_json(text.removeprefix(_BOM).strip())
    except ValueError:
        return None


def read_json(text: bytes) -> Any:
    """Read JSON that everything after can hold.

    Raises:
        ValueError: it is not JSON in UTF-8, or has NaN, a number beyond a float's range, brackets nested without end,
            half a character, or a key twice in one object.
    """
    try:
        from_json(text, allow_inf_nan=False)
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_number, parse_float=_number
        )
    except ValueError as exc:
        raise ValueError(
            f"is not JSON in UTF-8 ({exc}): {text[:60].decode(errors='replace')!r}"
        ) from exc


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"{key!r} is there twice")
        values[key] = value
    return values


def _number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is out of range")
    return int(digits) if digits.lstrip("-").isdigit() else number


def _read_csv(handle: IO[bytes], *, tab: bool) -> Iterator[dict[str, Any] | ValueError]:
    """Yield the rows of a table with a header, or what is wrong with a row.

    The separator of a CSV file is what its header has most of: comma, semicolon or tab.
    """
    text = io.TextIOWrapper(handle, "utf-8-sig", newline="")
    line = 1
    csv.field_size_limit(LONGEST)
    try:
        first = text.readline()
        separator = "\t" if tab else ""
        if first.startswith("sep="):  # of Excel
            separator = first[4:5]
            first = text.readline()
        separator = separator or max(",;\t", key=first.count)
        reader = csv.DictReader(chain([first], text), delimiter=separator, strict=True)
        names = [name for name in reader.fieldnames or () if name]
        if len(set(names)) < len(names):
            raise ValueError("two of its columns have the same name")
        for row in reader:
            line = reader.line_num
            if None in row:
                yield ValueError("has more cells than the header")
            elif any(row.values()):
                yield clean(row)
    except csv.Error as exc:
        raise ValueError(
            f"{exc}, in the row that begins in line {line + 1}: is a quotation mark not closed?"
        ) from exc
    finally:
        text.close()


def _read_parquet(handle: IO[bytes]) -> Iterator[dict[str, Any]]:
    parquet = import_optional("pyarrow.parquet", "Reading Parquet")
    try:
        table = parquet.ParquetFile(handle)
        for batch in table.iter_batches(batch_size=256):
            yield from map(clean, batch.to_pylist())
    except OSError as exc:
        raise ValueError(short_message(exc)) from exc


def _read_excel(path: Path) -> Iterator[Any]:
    """Yield the rows of an Excel file's first sheet with answers, if pandas and openpyxl are installed."""
    try:
        import pandas

        sheets = pandas.read_excel(path, sheet_name=None, dtype=object)
    except ImportError as exc:
        raise ValueError(_EXCEL) from exc
    except Exception as exc:  # whatever a zip archive holds
        raise ValueError(
            f"it is not an Excel file with a table ({short_message(exc)})"
        ) from exc
    has_answers = [sheet for sheet in sheets.values() if columns_named(sheet)["answer"]]
    yield from rows_of([*has_answers, *sheets.values()][0])


def _unreadable(source: object, why: object) -> InputError:
    kinds = "CSV, TSV, Excel, Parquet, JSON or JSON lines in UTF-8 (spreadsheets save it as “CSV UTF-8”)"
    return InputError(f"{source}: cannot be read ({why}); expected {kinds}.")


# Tables in memory


def is_table(data: Any) -> bool:
    """Tell whether it is a pandas frame or a Hugging Face `Dataset`."""
    return hasattr(data, "iloc") or all(
        hasattr(data, name) for name in ("column_names", "features", "__len__")
    )


def rows_of(data: Any) -> Iterable[Any]:
    """Return the rows of a table in memory as mappings, those of a `DatasetDict` with its parts as ``split``.

    A mapping is the only row; anything else is returned as it is.
    """
    if isinstance(data, Mapping):
        if not data or not all(map(is_table, data.values())):
            return [data]
        rows = []
        for name, part in data.items():
            split = _PARTS.get(name, name)
            rows += [{**row, "split": split} for row in rows_of(part)]
        return rows
    if hasattr(data, "iloc"):
        cells = data.itertuples(index=False, name=None)
        return (clean(dict(zip(data.columns, row, strict=True))) for row in cells)
    if is_table(data):
        return map(clean, data)
    if isinstance(data, Iterable):
        return data
    raise InputError(
        f"got {type(data).__name__}, expected a file, a table, or records with context and answer"
    )


def clean(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Turn a table's row into plain Python.

    Empty cells hold nothing; arrays become lists, as do lists and a document written as text, but not in the question
    and the answer.
    """
    plain = {}
    for name, value in row.items():
        plain[str(name)] = _plain(value)
    named = columns(plain)
    texts = (named.get("question"), named.get("answer"))
    for name in plain.keys() - texts:
        plain[name] = parsed(plain[name])
    return plain


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, list | tuple):  # an empty chunk keeps its place
        return [_plain(item) if str(item) else "" for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    text = str(value)
    if value is None or text.strip() in _EMPTY:
        return None
    if isinstance(value, int | float):
        return value
    return text


_ADDED = {
    "score": "Float64",
    "probability": "Float64",
    "threshold": "Float64",
    "faithful": "boolean",
    "needs_review": "boolean",
    "level": "string",
    "unscored": "string",
    "detail": "string",
    "statements": "string",
}
"""What a table gets of each judgment, and its type in pandas, each of which has a missing value."""


def with_judgments(table: Any, judgments: Sequence[Judgment]) -> Any:
    """Add the columns ``judge_score`` … to a table; what was not scored is missing there, never NaN."""
    import pandas

    rows = [judgment.to_dict() for judgment in judgments]
    for row in rows:
        row["statements"] = json.dumps(row["statements"], ensure_ascii=False)
    added = {}
    for name, kind in _ADDED.items():
        values = [row[name] for row in rows]
        added[f"judge_{name}"] = pandas.array(values, dtype=kind)
    if hasattr(table, "iloc"):
        return table.assign(**added)
    import datasets

    replaced = [name for name in table.column_names if name in added]
    others = table.remove_columns(replaced)
    frame = pandas.DataFrame(added)
    judged = datasets.Dataset.from_pandas(frame)
    return datasets.concatenate_datasets([others, judged], axis=1)
