"""Other people's labels as a labels file: tables, lines of JSON, and exports of annotation tools.

``table``         CSV, TSV, JSON, JSON lines or Parquet, a row an answer (HaluBench, RAGTruth and the like)
``label-studio``  the JSON export of Label Studio
``argilla``       the records of an Argilla data set, as JSON
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError, LabelsError
from faith_dspy.integrations.datum import NAMES
from faith_dspy.io.labels import parse_example, read_jsonl
from faith_dspy.optimize.data.votes import best_rating, majority, meaning
from faith_dspy.optimize.tracking.feedback import Pulled
from faith_dspy.schema import Verdict
from faith_dspy.scoring.statistics import need
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

FIELDS = {
    "id": ("id",),
    "question": (*NAMES["question"], "prompt"),
    "context": (*NAMES["context"], "passage", "document", "documents", "source_info", "doc"),
    "answer": (*NAMES["answer"], "claim", "text"),
    "faithful": ("faithful", "label", "labels", "is_faithful", "hallucination_labels"),
    "group": ("group", "source_id"),
    "split": ("split",),
    "annotators": ("annotators",),
}
"""Fields of a labels file, and the columns taken for them where no other is named; the first that is there counts."""


def parse_columns(settings: Iterable[str]) -> dict[str, str]:
    """Columns written as ``answer=response``: field of the labels file, then column; dots reach into objects."""
    columns = {}
    for setting in settings:
        field, equals, column = (part.strip() for part in setting.partition("="))
        if not equals or field not in FIELDS or not column:
            raise InputError(
                f"{setting!r} maps no column; expected FIELD=COLUMN, e.g. answer=response. Fields are: "
                f"{', '.join(FIELDS)}."
            )
        columns[field] = column
    return columns


def read_foreign(
    path: Path, kind: str = "table", columns: Mapping[str, str] | None = None, words: Mapping[str, bool] | None = None
) -> Pulled:
    """Labelled answers of a file of another kind (`KINDS`), as lines of a labels file.

    ``columns``: field → column; ``words``: what labels mean that are neither yes/no, true/false, a verdict nor a
    rating. A label that is a list of spans (objects with ``start`` and ``end``, as in RAGTruth) marks what is not
    supported: no span is a faithful answer, and sentences that touch one are labelled not supported.

    `InputError` names the row and what it lacks, or the label words whose meaning is not known.
    """
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no format; expected one of {', '.join(KINDS)}.")
    columns, words = columns or {}, words or {}
    found = [KINDS[kind](row, columns) for row in _rows(path)]
    if not found:
        raise LabelsError(f"{path}: has no rows.")
    top = best_rating(v for row in found for v in [row.get("faithful"), *_people(row).values()] if not _spans(v))
    rows, split = [], []
    unknown: Counter[str] = Counter()
    for i, row in enumerate(found, 1):
        where = f"{path}, row {i}"
        given, people = row.pop("faithful", None), _people(row)
        if given is None and not people:
            continue
        spans = _spans(given)
        if spans is not None:
            label: bool | None = not spans
            row["statements"] = _statements(str(row.get("answer", "")), spans)
        elif given is not None:
            label = meaning(given, words, top)
            unknown.update([str(given)] if label is None else [])
        else:
            votes = [(v, meaning(v, words, top)) for v in people.values()]
            unknown.update(str(v) for v, m in votes if m is None)
            label = majority(m for _, m in votes)
            if label is None:
                split.append(str(row.get("id", i)))
                continue
        row["faithful"] = label
        if label is not None:
            parse_example(row, where=where)  # raises, and says what is wrong with it
            rows.append(row)
    if unknown:
        named = ", ".join(f"{word!r} ({n})" for word, n in unknown.most_common(8))
        raise LabelsError(f"{path}: labels of unknown meaning: {named}. Say it with --value WORD=true or WORD=false.")
    return Pulled(rows=rows, split=split)


def _table(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    unknown = [c for c in columns.values() if _at(row, c) is None and c.partition(".")[0] not in row]
    if unknown:
        raise InputError(f"there is no column {unknown[0]!r}; there are: {', '.join(map(str, row))}.")
    out = {}
    for field, names in FIELDS.items():
        names = (columns[field],) if field in columns else names
        value = next((v for n in names if (v := _at(row, n)) is not None), None)
        if value is not None:
            out[field] = value
    missing = [f for f in ("context", "answer") if f not in out]
    if missing:
        raise InputError(
            f"no column is taken for {missing[0]}; there are: {', '.join(map(str, row))}. Name it with --map "
            f"{missing[0]}=COLUMN."
        )
    context = _parsed(out["context"])
    out["context"] = [context] if isinstance(context, str) else context
    out |= {k: str(out[k]) for k in ("id", "group", "split") if k in out}
    return out


def _label_studio(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A task: what is shown is ``data``; each annotation is one person's. ``faithful`` names the choice, or any."""
    named = columns.get("faithful")
    people = {}
    for i, annotation in enumerate(row.get("annotations") or ()):
        for result in annotation.get("result") or ():
            said = result.get("value") or {}
            choice = (said.get("choices") or [said.get("rating")])[0]
            if choice is not None and named in (None, result.get("from_name")):
                people[str(annotation.get("completed_by", f"person {i + 1}"))] = choice
    return _annotated({"id": row.get("id"), **(row.get("data") or {})}, columns, people)


def _argilla(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A record: what is shown is ``fields``; ``responses`` are by question. ``faithful`` names the question, or any."""
    named = columns.get("faithful")
    people = {
        str(r.get("user_id", f"person {i + 1}")): r["value"]
        for question, responses in (row.get("responses") or {}).items()
        for i, r in enumerate(responses or ())
        if named in (None, question) and isinstance(r, Mapping) and r.get("value") is not None
    }
    shown = {"id": row.get("id"), **(row.get("metadata") or {}), **(row.get("fields") or {})}
    return _annotated(shown, columns, people)


def _annotated(shown: Mapping[str, Any], columns: Mapping[str, str], people: Mapping[str, Any]) -> dict[str, Any]:
    out = _table(shown, {k: v for k, v in columns.items() if k != "faithful"})
    out.pop("faithful", None)
    return {**out, "annotators": dict(people)} if people else out


KINDS: dict[str, Callable[[Mapping[str, Any], Mapping[str, str]], dict[str, Any]]] = {
    "table": _table,
    "label-studio": _label_studio,
    "argilla": _argilla,
}


def _rows(path: Path) -> list[dict[str, Any]]:
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        return [row for _, row in read_jsonl(path)]
    if not path.is_file():
        raise LabelsError(f"{path}: is not a file; expected CSV, TSV, JSON, JSON lines or Parquet.")
    if suffix == ".json":
        try:
            read = json.loads(path.read_text(encoding="utf-8-sig"))
        except ValueError as exc:
            raise LabelsError(f"{path}: not JSON ({exc}).") from exc
        rows = next((v for v in read.values() if isinstance(v, list)), None) if isinstance(read, dict) else read
        if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
            raise LabelsError(f"{path}: expected a list of objects.")
        return rows
    if suffix not in (".csv", ".tsv", ".parquet"):
        raise LabelsError(f"{path}: ends in {suffix or 'nothing'}; expected .csv, .tsv, .json, .jsonl or .parquet.")
    pandas = need("pandas", f"Reading {suffix} files")
    try:
        if suffix == ".parquet":
            frame = pandas.read_parquet(path)
        else:
            frame = pandas.read_csv(path, dtype=str, sep="\t" if suffix == ".tsv" else ",")
    except Exception as exc:
        raise LabelsError(f"{path}: cannot be read ({str(exc).strip().splitlines()[0]}).") from exc
    return [{k: v for k, v in row.items() if not _empty(v)} for row in json.loads(frame.to_json(orient="records"))]


def _empty(value: Any) -> bool:
    return value is None or value == ""


def _at(row: Any, column: str) -> Any:
    """The value of a column, or, with dots, inside an object."""
    if isinstance(row, Mapping) and column in row:
        return row[column]
    classifier, _, rest = column.partition(".")
    return _at(row.get(classifier), rest) if rest and isinstance(row, Mapping) else None


def _parsed(value: Any) -> Any:
    """Lists that stand in a cell as text, in JSON or as Python writes them."""
    if isinstance(value, str) and value.strip()[:1] == "[":
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(value)
            except (ValueError, SyntaxError):
                continue
            if isinstance(found, list):
                return found
    return value


def _people(row: Mapping[str, Any]) -> dict[str, Any]:
    given = _parsed(row.get("annotators"))
    if isinstance(given, list):
        return {f"person {i + 1}": label for i, label in enumerate(given)}
    return dict(given) if isinstance(given, Mapping) else {}


def _spans(value: Any) -> list[Mapping[str, Any]] | None:
    """A label that is a list of spans; None for any other."""
    found = _parsed(value)
    if isinstance(found, list) and all(isinstance(s, Mapping) and {"start", "end"} <= s.keys() for s in found):
        return found
    return None


def _statements(answer: str, spans: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for s in sentences(answer):
        if carries_statement(s.text):
            touched = any(int(x["start"]) < s.end and s.start < int(x["end"]) for x in spans)
            out.append(
                {"text": s.text, "verdict": (Verdict.NOT_SUPPORTED if touched else Verdict.FULLY_SUPPORTED).value}
            )
    return out
