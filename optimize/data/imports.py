"""Labels from elsewhere – tables, annotation tools, feedback in MLflow – as lines of a labels file.

``table``         CSV, TSV, JSON, JSON lines, Parquet or a folder of `datasets`, one row per answer; the columns of
                  RAGAS, DeepEval and others are known
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

from faith_dspy.errors import InputError, LabelsError, counted, in_short, need
from faith_dspy.eval_sets.public import of_spans
from faith_dspy.io.files import write_file
from faith_dspy.io.inputs import COLUMNS, log_columns, missing
from faith_dspy.io.inputs import columns as columns_of
from faith_dspy.io.labels import LABELS, parse_example, rating, vote
from faith_dspy.io.readers import FIRST, clean, open_records, parsed, rows_of
from faith_dspy.schema import LabelledExample, Verdict

FIELDS = {
    **{k: v for k, v in COLUMNS.items() if k != "conversation"},
    **LABELS,
    "faithful": (*LABELS["faithful"], "is_faithful", "hallucination_labels"),
}
"""Fields of a labels file, and the columns they are read from by default; the first that exists counts."""
_ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")


class ImportedLabels(BaseModel, extra="forbid", frozen=True):
    """Labelled answers, and what did not become one."""

    rows: list[dict[str, Any]]
    """Lines of a labels file."""
    split: list[str] = []
    """Ids of answers without a label because their annotators are split."""
    unreadable: dict[str, str] = {}
    """What was left out because it could not be read: its row or id, and what is wrong with it."""
    unknown: dict[str, int] = {}
    """Label words whose meaning is not known, and how often they were given."""
    unlabelled: int = 0
    """Rows left out because nobody labelled them."""
    unfinished: int = 0
    """Reviews that are still to be done."""
    top: float | None = None
    """The rating that alone means faithful, where labels are ratings."""

    @property
    def examples(self) -> list[LabelledExample]:
        """The rows that have a label."""
        return [e for row in self.rows if (e := parse_example(row)).label is not None]

    @property
    def sentence(self) -> str:
        """What was imported and what was left out."""
        labels = [r["faithful"] for r in self.rows if r.get("faithful") is not None]
        rated = f" (rated {self.top:g}, the highest rating; others with --value RATING=true)" if self.top else ""
        first = next(iter(self.unreadable.values()), "").rstrip(".")
        named = ", ".join(f"{word!r} ({n})" for word, n in self.unknown.items())
        said = {
            f"{counted(len(labels), 'labelled answer')}, {sum(map(bool, labels))} faithful{rated}": True,
            f"{self.unlabelled} left out without a label": self.unlabelled,
            f"{len(self.split)} without one because people are split": self.split,
            f"{len(self.unreadable)} could not be read, the first: {first}": self.unreadable,
            f"{counted(self.unfinished, 'review')} unfinished": self.unfinished,
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
    scale = any(r not in (None, 0, 1) for r in ratings)
    return None if scale and None in ratings else max([1.0, *(r for r in ratings if r is not None)])


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
    path: Path,
    kind: str = "table",
    columns: Mapping[str, str] | None = None,
    words: Mapping[str, bool] | None = None,
    *,
    dry_run: bool = False,
) -> ImportedLabels:
    """The labelled answers of a file (``kind``: one of `KINDS`), as rows of a labels file.

    ``columns``: field → column. ``words``: the meaning of labels that are neither yes/no, true/false, a verdict nor a
    rating. A label that is a list of spans (objects with ``start`` and ``end``, as in RAGTruth) marks unsupported
    text: an answer without a span is faithful, and a sentence that overlaps one is labelled not supported. Rows without
    a label are left out and counted, those that cannot be read are named one by one. Labels of unknown meaning, as
    numbers beside words are, are an `InputError`, and in a ``dry_run`` named like the others.
    """
    if kind not in KINDS:
        raise InputError(f"{kind!r} is no format; expected one of {', '.join(KINDS)}.")
    found: dict[str, dict[str, Any]] = {}
    unreadable: dict[str, str] = {}
    named = columns or {}
    given = _read_rows(path, unreadable)
    if kind == "table":
        guessed = {f: names for f, names in FIELDS.items() if f not in named}
        rows_given = list(given.values())
        log_columns(rows_given[:FIRST], str(path), guessed, (*FIELDS, *named.values()))
        for field, column in named.items():
            if given and all(_at(row, column) is None for row in rows_given):
                got = ", ".join(rows_given[0])
                raise LabelsError(f"{path}: got {got}, but no {column!r} for --map {field}={column}.")
    for place, row in given.items():
        try:
            found[place] = KINDS[kind](row, named)
        except InputError as exc:
            unreadable[place] = f"{place}: {exc}"
    if not found:
        raise LabelsError(f"{path}, {next(iter(unreadable.values()))}" if unreadable else f"{path}: has no rows.")
    labels = labelled(found, unreadable, words)
    if labels.unknown and not dry_run:
        strange = ", ".join(f"{word!r} ({n})" for word, n in Counter(labels.unknown).most_common(8))
        raise LabelsError(f"{path}: labels of unknown meaning: {strange}. Say it with --value WORD=true or WORD=false.")
    if unreadable and not labels.rows and not dry_run:
        raise LabelsError(f"{path}, {next(iter(unreadable.values()))}")
    return labels


def labelled(
    found: Mapping[str, dict[str, Any]], unreadable: dict[str, str], words: Mapping[str, bool] | None = None
) -> ImportedLabels:
    """Rows by where they stand, each with its label as ``faithful``: its own, its spans', or its annotators' majority.

    What is wrong with a row goes to ``unreadable``. Words of unknown meaning are counted, and are no label.
    """
    said: dict[str, list[Any]] = {}
    for place, row in found.items():
        label = row.pop("faithful", None)
        said[place] = [*by_annotator(row.get("annotators")).values()] if label is None else [label]
    top = best_rating(v for labels in said.values() for v in labels if _spans(v) is None)
    unknown: Counter[str] = Counter()
    rows, split, unlabelled = [], [], 0
    for place, row in found.items():
        if not said[place]:
            unlabelled += 1
            continue
        if (marked := _spans(said[place][0])) is not None:
            marks = [(int(s["start"]), int(s["end"]), Verdict.NOT_SUPPORTED.value, "") for s in marked]
            row |= {"faithful": not marked, "statements": of_spans(str(row.get("answer", "")), marks)}
        else:
            votes = [(str(v), meaning(v, words or {}, top)) for v in said[place]]
            strange = [word for word, known in votes if known is None]
            unknown.update(strange)
            row["faithful"] = majority(known for _, known in votes)
            if len(strange) == len(votes):
                unreadable[place] = (
                    f"{place}: the label is {strange[0]!r}. Say what it means: --value '{strange[0]}=true'"
                )
                continue
            if row["faithful"] is None:
                split.append(str(row.get("id", place)))
                continue
        try:
            parse_example(row, where=place)  # raises, and says what is wrong with it
            rows.append(row)
        except LabelsError as exc:
            unreadable[place] = str(exc)
    return ImportedLabels(
        rows=rows,
        split=split,
        unreadable=unreadable,
        unknown=unknown,
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


def _read_rows(path: Path, unreadable: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The rows of a file or of a folder of `datasets`, by where they stand; what is no row goes to ``unreadable``."""
    source: Any = path
    if path.is_dir():
        datasets = need("datasets", "Reading a folder of datasets")
        try:
            source = rows_of(datasets.load_from_disk(str(path)))
        except Exception as exc:  # whatever a folder holds
            raise LabelsError(f"{path}: is no folder that `datasets` saved ({in_short(exc)}).") from exc
    elif path.suffix.lower() not in _ENDINGS:
        raise LabelsError(f"{path}: ends in {path.suffix or 'nothing'}; expected {', '.join(_ENDINGS)}.")
    found: dict[str, dict[str, Any]] = {}
    with open_records(source) as records:
        for record in records:
            place = record.place + (f" (line {record.file_line})" if record.file_line else "")
            if record.problem is None and isinstance(record.row, Mapping):
                found[place] = {k: None if v == "" else v for k, v in record.row.items()}
            else:
                unreadable[place] = place + str(record.problem).removeprefix(record.place)
    return found


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
