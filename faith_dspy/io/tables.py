"""Rows of tables: CSV, TSV and Parquet files, pandas frames, Hugging Face data sets."""

from __future__ import annotations

import ast
import csv
import io
import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeVar

from faith_dspy.errors import InputError, counted, in_short, need
from faith_dspy.io.names import COLUMNS, LABELS, columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faith_dspy.schema import Judgment

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
