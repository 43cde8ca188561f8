"""Labels from elsewhere – tables, annotation tools, feedback in MLflow – as lines of a labels file.

``table``         CSV, TSV, JSON, JSON lines or Parquet, one row per answer (HaluBench, RAGTruth and the like)
``label-studio``  the JSON export of Label Studio
``argilla``       the records of an Argilla data set, as JSON
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from faith_dspy.errors import InputError, LabelsError, counted
from faith_dspy.io.files import write_file
from faith_dspy.io.labels import parse_example, rating, vote
from faith_dspy.io.records import COLUMNS, FIRST, LABELS, clean, log_columns, missing, open_records, parsed
from faith_dspy.io.records import columns as columns_of
from faith_dspy.schema import Verdict
from faith_dspy.text.sentences import carries_statement, sentences

FIELDS = {**{k: v for k, v in COLUMNS.items() if k != "conversation"}, **LABELS}
"""Fields of a labels file, and the columns they are read from by default; the first that exists counts."""
_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")


class ImportedLabels(BaseModel, extra="forbid", frozen=True):
    """Labelled answers, and what did not become one."""

    rows: list[dict[str, Any]]
    """Lines of a labels file."""
    split: list[str] = []
    """Ids of answers left out because their annotators are split."""
    unreadable: dict[str, str] = {}
    """Answers left out because they have no answer or no context: id, and what is wrong."""
    unknown: dict[str, int] = {}
    """Label words whose meaning is not known, and how often they were given."""
    unlabelled: int = 0
    """Rows left out because nobody labelled them."""
    top: float | None = None
    """The rating that alone means faithful, where labels are ratings."""

    @property
    def sentence(self) -> str:
        """What was imported and what was left out."""
        faithful = sum(bool(r.get("faithful")) for r in self.rows)
        rated = f" (rated {self.top:g}, the highest rating; others with --value RATING=true)" if self.top else ""
        first = next(iter(self.unreadable.values()), "").rstrip(".")
        named = ", ".join(f"{word!r} ({n})" for word, n in self.unknown.items())
        said = {
            f"{counted(len(self.rows), 'labelled answer')}, {faithful} faithful{rated}": True,
            f"{self.unlabelled} left out without a label": self.unlabelled,
            f"{len(self.split)} left out because people are split": self.split,
            f"{len(self.unreadable)} without answer or context, the first: {first}": self.unreadable,
            f"of unknown meaning: {named} – say it with --value WORD=true or WORD=false": self.unknown,
        }
        return "; ".join(text for text, there_is in said.items() if there_is) + "."


def write_labels(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as a labels file."""
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def parse_words(settings: Iterable[str]) -> dict[str, bool]:
    """Parse the meaning of label words, written as ``grounded=true``, ``made up=false``."""
    words = {}
    for setting in settings:
        word, _, said = (part.strip() for part in setting.rpartition("="))
        if not word or (faithful := vote(said)) is None:
            raise InputError(f"{setting!r} says no label's meaning; expected WORD=true or WORD=false, e.g. FAIL=false.")
        words[word.casefold()] = faithful
    return words


def meaning(label: Any, words: Mapping[str, bool], top: float | None = 1.0) -> bool | None:
    """Whether a label means faithful: by ``words``, else as `vote` reads it; None if neither knows it."""
    return words.get(str(label).strip().casefold(), vote(label, top))


def best_rating(labels: Iterable[Any]) -> float | None:
    """The highest rating among labels, at least 1; only that rating means faithful.

    None where words stand among the ratings: then they are no scale, and only 1 and 0 mean anything.
    """
    ratings = [rating(label) for label in labels if label is not None and not isinstance(label, bool)]
    best = max([1.0, *(r for r in ratings if r is not None)])
    return None if best > 1 and None in ratings else best


def by_annotator(annotators: Any) -> dict[str, Any]:
    """The labels of an answer's annotators; those of a list, or of one inside a list of one, are numbered."""
    given = parsed(annotators)
    if isinstance(given, list | tuple):
        given = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
        given = {f"person {i + 1}": label for i, label in enumerate(given)}
    return {k: v for k, v in clean(given).items() if v is not None} if isinstance(given, Mapping) else {}


def majority(votes: Iterable[bool | None]) -> bool | None:
    """The label of more than half of the votes that are not None; None at a tie, or without votes."""
    given = [v for v in votes if v is not None]
    margin = 2 * sum(given) - len(given)
    return None if margin == 0 else margin > 0


def parse_columns(settings: Iterable[str]) -> dict[str, str]:
    """Parse ``answer=response``: field of the labels file, then column; dots reach into objects."""
    columns = {}
    for setting in settings:
        field, _, column = (part.strip() for part in setting.partition("="))
        if field not in FIELDS or not column:
            raise InputError(
                f"{setting!r} maps no column; expected FIELD=COLUMN, e.g. answer=response. Fields are: "
                f"{', '.join(FIELDS)}."
            )
        columns[field] = column
    return columns


def import_labels(
    path: Path, kind: str = "table", columns: Mapping[str, str] | None = None, words: Mapping[str, bool] | None = None
) -> ImportedLabels:
    """The labelled answers of a file (``kind``: one of `KINDS`), as rows of a labels file.

    ``columns``: field → column. ``words``: the meaning of labels that are neither yes/no, true/false, a verdict nor a
    rating. A label that is a list of spans (objects with ``start`` and ``end``, as in RAGTruth) marks unsupported
    text: an answer without a span is faithful, and a sentence that overlaps one is labelled not supported. Rows without
    an answer, a context or a label are left out, and counted. `InputError` names the row and what is wrong with it, or
    the labels of unknown meaning, as numbers beside words are.
    """
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no format; expected one of {', '.join(KINDS)}.")
    found, unreadable = {}, {}
    given, named = _read_rows(path), columns or {}
    if kind == "table":
        guessed = {f: names for f, names in FIELDS.items() if f not in named}
        log_columns(given[:FIRST], str(path), guessed, (*FIELDS, *named.values()))
        for field, column in named.items():
            if given and all(_at(row, column) is None for row in given):
                raise LabelsError(f"{path}: got {', '.join(given[0])}, but no {column!r} for --map {field}={column}.")
    for i, row in enumerate(given, 1):
        try:
            found[i] = KINDS[kind](row, named)
        except InputError as exc:
            unreadable[f"row {i}"] = f"row {i}: {exc}"
    if not found:
        raise LabelsError(f"{path}, {next(iter(unreadable.values()))}" if unreadable else f"{path}: has no rows.")
    labels = [row.pop("faithful", None) for row in found.values()]
    people = [by_annotator(row.get("annotators")) for row in found.values()]
    spans = [_spans(label) for label in labels]
    single = [label for label, marked in zip(labels, spans, strict=True) if marked is None]
    top = best_rating([*single, *(v for votes in people for v in votes.values())])
    unknown: Counter[str] = Counter()

    def is_faithful(label: Any) -> bool | None:
        known = meaning(label, words or {}, top)
        if known is None:
            unknown[str(label)] += 1
        return known

    rows, split, unlabelled = [], [], 0
    for (i, row), label, votes, marked in zip(found.items(), labels, people, spans, strict=True):
        if marked is not None:
            row |= {"faithful": not marked, "statements": _statements(str(row.get("answer", "")), marked)}
        elif label is not None:
            row["faithful"] = is_faithful(label)
        elif votes:
            row["faithful"] = majority([is_faithful(v) for v in votes.values()])
            split += [str(row.get("id", i))] if row["faithful"] is None else []
        else:
            unlabelled += 1
        if row.get("faithful") is not None:
            parse_example(row, where=f"{path}, row {i}")  # raises, and says what is wrong with it
            rows.append(row)
    if unknown:
        strange = ", ".join(f"{word!r} ({n})" for word, n in unknown.most_common(8))
        raise LabelsError(f"{path}: labels of unknown meaning: {strange}. Say it with --value WORD=true or WORD=false.")
    return ImportedLabels(
        rows=rows,
        split=split,
        unreadable=unreadable,
        unlabelled=unlabelled,
        top=top if top != 1 else None,
    )


def _table(row: Mapping[str, Any], named: Mapping[str, str]) -> dict[str, Any]:
    values = {f: _at(row, c) for f, c in named.items()}
    values |= {f: row[c] for f, c in columns_of(row, {f: v for f, v in FIELDS.items() if f not in named}).items()}
    out = {f: values[f] for f in FIELDS if values.get(f) is not None}
    for field in ("context", "answer"):
        if field not in out:
            raise InputError(f"{missing(row, field)}. --map {field}=COLUMN names another column.")
    out |= {field: str(out[field]) for field in ("id", "group", "split") if field in out}
    context = parsed(out["context"])
    out["context"] = [context] if isinstance(context, str) else context
    return out


def _label_studio(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A task: ``data`` holds the texts, each annotation is one person's. ``columns["faithful"]`` names the choice."""
    named = columns.get("faithful")
    people = {}
    for i, annotation in enumerate(row.get("annotations") or ()):
        for result in annotation.get("result") or ():
            value = result.get("value") or {}
            choice = (value.get("choices") or [value.get("rating")])[0]
            if choice is not None and named in (None, result.get("from_name")):
                people[str(annotation.get("completed_by", f"person {i + 1}"))] = choice
    return _annotated({"id": row.get("id"), **(row.get("data") or {})}, columns, people)


def _argilla(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A record: ``fields`` hold the texts, ``responses`` the labels. ``columns["faithful"]`` names the question."""
    named = columns.get("faithful")
    people = {
        str(r.get("user_id", f"person {i + 1}")): r["value"]
        for question, responses in (row.get("responses") or {}).items()
        for i, r in enumerate(responses or ())
        if named in (None, question) and isinstance(r, Mapping) and r.get("value") is not None
    }
    texts = {"id": row.get("id"), **(row.get("metadata") or {}), **(row.get("fields") or {})}
    return _annotated(texts, columns, people)


def _annotated(texts: Mapping[str, Any], columns: Mapping[str, str], people: Mapping[str, Any]) -> dict[str, Any]:
    out = _table(texts, {k: v for k, v in columns.items() if k != "faithful"})
    out.pop("faithful", None)
    return {**out, "annotators": people} if people else out


KINDS: dict[str, Callable[[Mapping[str, Any], Mapping[str, str]], dict[str, Any]]] = {
    "table": _table,
    "label-studio": _label_studio,
    "argilla": _argilla,
}


def _read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix.lower() not in _ENDINGS:
        raise LabelsError(f"{path}: ends in {path.suffix or 'nothing'}; expected {', '.join(_ENDINGS)}.")
    with open_records(path) as records:
        found = list(records)
    if bad := next((r for r in found if r.problem is not None), None):
        raise LabelsError(f"{path}, {bad.problem}.")
    return [{k: None if v == "" else v for k, v in r.row.items()} for r in found]


def _at(row: Any, column: str) -> Any:
    """The value of a column, or, with dots, inside an object."""
    if isinstance(row, Mapping) and column in row:
        return row[column]
    first, _, rest = column.partition(".")
    return _at(row.get(first), rest) if rest and isinstance(row, Mapping) else None


def _spans(value: Any) -> list[Mapping[str, Any]] | None:
    """The spans of a label that is a list of spans; None for any other label."""
    found = parsed(value)
    is_spans = isinstance(found, list) and all(isinstance(s, Mapping) and {"start", "end"} <= s.keys() for s in found)
    return found if is_spans else None


def _statements(answer: str, spans: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    out = []
    for s in (s for s in sentences(answer) if carries_statement(s.text)):
        overlaps = any(int(x["start"]) < s.end and s.start < int(x["end"]) for x in spans)
        out.append({"text": s.text, "verdict": (Verdict.FULLY_SUPPORTED, Verdict.NOT_SUPPORTED)[overlaps].value})
    return out
