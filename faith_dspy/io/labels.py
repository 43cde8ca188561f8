"""Labels: JSON lines or a table in, labelled examples out, with the file and line of whatever is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from faith_dspy.errors import InputError, LabelsError, counted, faults
from faith_dspy.io.records import (
    COLUMNS,
    FIRST,
    LABELS,
    NAMES,
    Names,
    as_chunks,
    check_texts,
    columns,
    fields_of,
    log_columns,
    missing,
    name_of,
    open_records,
)
from faith_dspy.schema import Chunk, LabelledExample, LabelledStatement, Verdict, digest

_FORMAT = (
    'One JSON object a line, or a row of a table: {"context": ["…"], "answer": "…"} and at least one of '
    '"faithful": true|false, "score": 0…1, "statements": [{"text": "…", "verdict": "fully_supported"}]; '
    '"question", "id", "annotators", "group" and "split" are optional. With other '
    "column names: faith-dspy labels import FILE --map answer=COLUMN."
)
_TAGS = ("source", "domain", "language", "kind", "level", "form", "model", "drawn")
_MOST = 10
"""Faults that are told at once."""


def read_labels(source: Any, *, require_label: bool = True) -> list[LabelledExample]:
    """All examples of a labels file, of a table in a file or in memory (pandas, Hugging Face), or of an iterable of
    rows or examples.

    Columns may have the names that others use (`faith_dspy.io.records`); unknown ones are ignored, ``null`` counts as
    absent. With ``require_label`` examples without any usable label are left out, and labels in which none has one are
    an error. So are rows with faults: the first ten are named together.
    """
    name = name_of(source)
    with open_records(source) as records:
        rows = list(records)
    first = [record.row for record in rows[:FIRST] if isinstance(record.row, Mapping)]
    known = {**COLUMNS, **_label_names(first[0] if first else {})}
    log_columns(first, name, known, (*NAMES, *LABELS, "score", "statements", "meta", "reasons", "reviewed", *_TAGS))
    faults: list[str] = []
    out: list[LabelledExample] = []
    seen: dict[str, str] = {}
    for record in rows:
        where = f"{name}, {record.place}"
        try:
            if record.problem:
                raise LabelsError(f"{name}, {record.problem}.")
            example = parse_example(record.row, where=where, lenient=not require_label)
            if example.id in seen:
                raise LabelsError(
                    f"{where}: is the answer at {seen[example.id]} again, or has its id {example.id!r}. Keep one of "
                    "the two (each person's own label can stand in 'annotators'), or give each its own id."
                )
        except LabelsError as exc:
            faults.append(str(exc))
            if len(faults) == _MOST:
                break
            continue
        seen[example.id] = where
        if example.label is not None or not require_label:
            out.append(example)
    if faults:
        raise LabelsError("\n".join(faults) + ("\n" if len(faults) > 1 else " ") + _FORMAT)
    if not out:
        why = f"none with a usable label: {missing(first[0], 'faithful')}" if first else "none with a usable label"
        raise LabelsError(f"{name}: {counted(len(rows), 'row')}, {why}. {_FORMAT}")
    return out


def parse_example(row: Any, *, where: str = "record", lenient: bool = False) -> LabelledExample:
    """One labels object as a `LabelledExample`, or an example as it is; `LabelsError` says what is wrong with it.

    With ``lenient`` a word of unknown meaning, in a column that is only taken for the label, is no label.
    """
    if isinstance(row, LabelledExample):
        return row
    try:
        if not isinstance(row, Mapping):
            raise InputError(f"got {type(row).__name__}, expected a mapping")
        return _example(row, lenient)
    except InputError as exc:
        raise LabelsError(f"{where}: {str(exc).rstrip('.')}.") from exc
    except ValidationError as exc:
        raise LabelsError(f"{where}: {faults(exc)}.") from exc


def _example(given: Mapping[str, Any], lenient: bool) -> LabelledExample:
    row = {k: v for k, v in given.items() if v is not None} | fields_of(given)
    row |= _label(row, lenient)
    for field in ("context", "answer"):
        if field not in row:
            raise InputError(missing(given, field))
    context, answer = as_chunks(row["context"]), row["answer"]
    if not any(chunk.text.strip() for chunk in context):
        raise InputError("context is empty: a labelled example needs the text the answer was judged against")
    if not isinstance(answer, str) or not answer.strip():
        raise InputError(f"answer is {answer!r}, expected text")
    check_texts(answer, *(chunk.text for chunk in context))
    meta = row["meta"] if isinstance(row.get("meta"), dict) else {}
    tags = {k: str(v) for k, v in {**meta, **row}.items() if k in _TAGS and isinstance(v, str | int | bool)}
    fields = {k: row[k] for k in ("question", "faithful", "score", "annotators", "group", "split") if k in row}
    if isinstance(statements := row.get("statements", []), list):
        known = LabelledStatement.model_fields
        statements = [{k: v for k, v in s.items() if k in known} if isinstance(s, dict) else s for s in statements]
    key = str(row.get("id", answer_key(fields.get("question"), context, answer)))
    example = LabelledExample.model_validate(
        {**fields, "id": key, "context": context, "answer": answer, "tags": tags, "statements": statements}
    )
    for i, statement in enumerate(example.statements):
        if bad := [c for c in statement.supporting_chunk_ids or () if not 0 <= c < len(context)]:
            raise InputError(
                f"statements[{i}] names chunk {bad[0]}, but the context has {counted(len(context), 'chunk')}, "
                "counted from 0"
            )
    return example


def _label(row: Mapping[str, Any], lenient: bool) -> dict[str, Any]:
    """The label of a row as true or false, with group, split and annotators, whichever columns they stand in."""
    taken = columns(row, _label_names(row))
    found = {f: str(row[c]) if f in ("group", "split") else row[c] for f, c in taken.items()}
    if (label := found.pop("faithful", None)) is not None:
        if (known := vote(label)) is not None:
            found["faithful"] = known
        elif not lenient or taken["faithful"] == "faithful":
            raise InputError(
                f"{taken['faithful']} is {label!r}, expected true or false, 1 or 0, yes or no, PASS or FAIL, or a "
                "verdict; `faith-dspy labels import` takes ratings, spans and other words (--value WORD=true)"
            )
    return found


def _label_names(row: Mapping[str, Any]) -> Names:
    """Where a row's labels stand: one with a label of ours has it there, and in no other column."""
    own = row.keys() & {"statements", "score", "faithful"}
    return {**LABELS, "faithful": ("faithful",)} if own else LABELS


def answer_key(question: str | None, context: Iterable[Chunk], answer: str) -> str:
    """Hash of an answer with its question and context, whatever its id and labels."""
    return digest([question, [c.text for c in context], answer])


def label_set_hash(examples: Sequence[LabelledExample]) -> str:
    """Hash of texts and labels; the order of the lines does not matter."""
    return digest(sorted(digest(e.model_dump(mode="json")) for e in examples))


_TRUE = ("true", "yes", "faithful", "pass", "passed", "supported", "grounded", "consistent")
_FALSE = (
    *("false", "no", "unfaithful", "fail", "failed", "unsupported", "ungrounded", "inconsistent"),
    *("hallucinated", "hallucination", "not_faithful"),
)
_WORDS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False), **{v.value: v.is_supported for v in Verdict}}


def rating(label: Any) -> float | None:
    """A person's label as a finite number; None if it is none."""
    try:
        return number if math.isfinite(number := float(label)) else None
    except (TypeError, ValueError):
        return None


def vote(label: Any, top: float | None = None) -> bool | None:
    """Whether a person's label means faithful: a boolean, a verdict's name, yes/no, PASS/FAIL, or a rating of at least
    ``top``; without one only the numbers 1 and 0 mean anything. None for any other label."""
    word = str(label).strip().lower().replace(" ", "_")
    if word in _WORDS:
        return _WORDS[word]
    number = rating(label)
    if number is None or (top is None and number not in (0.0, 1.0)):
        return None
    return number >= (1.0 if top is None else top)
