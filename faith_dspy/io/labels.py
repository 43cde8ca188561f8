"""Labels: JSON lines or a table in, labelled examples out, with the file and line of whatever is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from faith_dspy.errors import InputError, LabelsError, counted, fault
from faith_dspy.io.records import (
    COLUMNS,
    FIRST,
    LABELS,
    NAMES,
    as_chunks,
    check_records,
    columns,
    fields_of,
    is_table_file,
    log_names,
    missing,
    open_records,
    rows_of,
    unused,
)
from faith_dspy.schema import Chunk, LabelledExample, LabelledStatement, Verdict, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_FORMAT = (
    'One JSON object a line, or a row of a table: {"context": ["…"], "answer": "…"} and at least one of '
    '"faithful": true|false, "score": 0…1, "statements": [{"text": "…", "verdict": "fully_supported"}]; '
    '"question", "id", "annotators", "group" and "split" are optional.'
)
_TAGS = ("source", "domain", "language", "kind", "level", "model")
FIELDS = (*NAMES, *LABELS, "score", "statements", "meta", *_TAGS)
"""Of a labels file, all of them optional but context and answer."""
_MOST = 10
"""Faults that are told at once."""
_OWN = {"statements", "score", "faithful"}
"""Labels of ours: a row with one of them has its label there, and in no other column."""


def read_labels(source: Any, *, require_label: bool = True) -> list[LabelledExample]:
    """All examples of a labels file, of a table in a file or in memory (pandas, Hugging Face), or of an iterable of
    rows or examples.

    Columns may have the names that others use (`faith_dspy.io.records`); unknown ones are ignored, ``null`` counts as
    absent. With ``require_label`` examples without any usable label are left out, and labels in which none has one are
    an error. So are rows with faults: the first ten are named together.
    """
    name = name_of(source)
    faults: list[str] = []
    out: list[LabelledExample] = []
    seen: dict[str, str] = {}
    rows, first = 0, None
    for place, row in _rows(source):
        rows, first = rows + 1, first or row
        where = f"{name}:{place}" if isinstance(place, int) else f"{name}, {place}"
        if len(faults) == _MOST:
            break
        if isinstance(row, str):
            faults.append(f"{where}: {row}.")
            continue
        if isinstance(row, LabelledExample):
            example = row
        else:
            log_names(row, name, COLUMNS | _label_names(row))
            try:
                example = parse_example(row, where=where, lenient=not require_label)
            except LabelsError as exc:
                faults.append(str(exc).removesuffix(f" {_FORMAT}"))
                continue
        if example.id in seen:
            faults.append(
                f"{where}: id {example.id!r} was already used {seen[example.id]}; give each example its own id, or "
                "none."
                if isinstance(row, LabelledExample) or row.get("id") is not None
                else f"{where}: has the question, context and answer of the example {seen[example.id]}; keep one of "
                "the two (each person's own label can stand in 'annotators'), or give both an id."
            )
            continue
        seen[example.id] = f"on line {place}" if isinstance(place, int) else f"in {place}"
        if example.label is not None or not require_label:
            out.append(example)
    if faults:
        raise LabelsError("\n".join(faults) + ("\n" if len(faults) > 1 else " ") + _FORMAT)
    if not rows:
        raise LabelsError(f"{name}: is empty. {_FORMAT}")
    if not out:
        wanting = missing(first, "faithful", EXPECTED)
        raise LabelsError(f"{name}: {counted(rows, 'line')}, none with a usable label: {wanting} {_FORMAT}")
    return out


def name_of(source: Any) -> str:
    """The path of labels in a file; ``labels`` for those in memory."""
    return str(source) if isinstance(source, str | PathLike) else "labels"


def unused_in_labels(source: Any) -> str:
    """The columns of labels that are not used, in words; nothing where all are."""
    if isinstance(source, str | PathLike):
        return check_records(Path(source), FIELDS)
    return unused([row for _, row in islice(_rows(source), FIRST) if isinstance(row, Mapping)], FIELDS)


def _rows(source: Any) -> Iterator[tuple[int | str, Any]]:
    """Rows, or what is wrong with them, with their places: line number, or ``row 3`` of a table."""
    if not isinstance(source, str | PathLike):
        for number, row in enumerate(rows_of(source), 1):
            if not isinstance(row, Mapping | LabelledExample):
                raise LabelsError(f"labels, row {number}: got {type(row).__name__}, expected a mapping. {_FORMAT}")
            yield f"row {number}", row
        return
    path = Path(source)
    try:
        with open_records(path) as records:
            for record in records:
                place = f"row {record.line}" if is_table_file(path) else record.line
                yield place, record.row if record.problem is None else record.problem
    except InputError as exc:
        raise exc if isinstance(exc, LabelsError) else LabelsError(str(exc)) from exc


def parse_example(row: Mapping[str, Any], *, where: str = "record", lenient: bool = False) -> LabelledExample:
    """One labels object as a `LabelledExample`; `LabelsError` says what is wrong with it.

    With ``lenient`` a word of unknown meaning, in a column that is only taken for the label, is no label.
    """
    try:
        given, row = row, _labelled({k: v for k, v in row.items() if v is not None} | fields_of(row), lenient)
        context = as_chunks(row.get("context"))
        if not any(chunk.text.strip() for chunk in context):
            empty = "context is empty: a labelled example needs the text the answer was judged against"
            raise InputError(empty if "context" in row else f"{empty}; {missing(given, 'context')}")
        answer = row.get("answer")
        if not isinstance(answer, str) or not answer.strip():
            fill = f"{missing(given)} Fill it, or take out the row, as `faith-dspy labels import` does"
            raise InputError(fill if answer is None else f"answer is {answer!r}, expected text")
        meta: dict[str, Any] = row["meta"] if isinstance(row.get("meta"), dict) else {}
        tags = {k: str(v) for k, v in {**meta, **row}.items() if k in _TAGS and isinstance(v, str | int | bool)}
        fields: dict[str, Any] = {
            k: row[k] for k in ("question", "faithful", "score", "annotators", "group", "split") if k in row
        }
        statements = row.get("statements", [])
        fields["statements"] = [_statement(s) for s in statements] if isinstance(statements, list) else statements
        key = answer_key(fields.get("question"), context, answer)
        example = LabelledExample.model_validate(
            {**fields, "id": str(row.get("id", key)), "context": context, "answer": answer, "tags": tags}
        )
        for i, statement in enumerate(example.statements):
            if bad := [c for c in statement.supporting_chunk_ids or () if not 0 <= c < len(context)]:
                raise InputError(
                    f"statements[{i}] names chunk {bad[0]}, but the context has {counted(len(context), 'chunk')}, "
                    "counted from 0"
                )
        return example
    except InputError as exc:
        raise LabelsError(f"{where}: {str(exc).rstrip('.')}. {_FORMAT}") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        raise LabelsError(f"{where}: {fault(first)} (got {repr(first.get('input'))[:200]}). {_FORMAT}") from exc


def _labelled(row: Mapping[str, Any], lenient: bool) -> Mapping[str, Any]:
    """The row with the label as true or false, from ``faithful`` or, without any label of ours, from another column."""
    taken = columns(row, _label_names(row))
    found = {f: str(row[c]) if f in ("group", "split") else row[c] for f, c in taken.items()}
    if "faithful" in found and (label := truth(found["faithful"])) is not None:
        found["faithful"] = label
    elif "faithful" in found and not (lenient and taken["faithful"] != "faithful"):
        raise InputError(
            f"{taken['faithful']} is {found['faithful']!r}, expected {EXPECTED}; `faith-dspy labels import` takes "
            "ratings, spans and other words (--value WORD=true)"
        )
    elif "faithful" in found:
        del found["faithful"]
    return {**row, **found}


def _label_names(row: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {"faithful": ("faithful",)} if row.keys() & _OWN else LABELS


def answer_key(question: str | None, context: Iterable[Chunk], answer: str) -> str:
    """Hash of an answer with its question and context, whatever its id and labels."""
    return digest([question, [c.text for c in context], answer])


def label_set_hash(examples: Sequence[LabelledExample]) -> str:
    """Hash of texts and labels; the order of the lines does not matter."""
    return digest(sorted(digest(e.model_dump(mode="json")) for e in examples))


def _statement(value: Any) -> Any:
    return {k: value[k] for k in LabelledStatement.model_fields if k in value} if isinstance(value, dict) else value


_TRUE = ("true", "yes", "faithful", "pass", "passed", "supported", "grounded", "consistent")
_FALSE = (
    *("false", "no", "unfaithful", "fail", "failed", "unsupported", "ungrounded", "inconsistent"),
    *("hallucinated", "hallucination", "not_faithful"),
)
_WORDS = {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False), **{v.value: v.is_supported for v in Verdict}}
EXPECTED = "true or false, 1 or 0, yes or no, PASS or FAIL, or a verdict"
"""What `truth` reads, in words."""


def rating(label: Any) -> float | None:
    """A person's label as a finite number; None if it is none."""
    try:
        return number if math.isfinite(number := float(label)) else None
    except (TypeError, ValueError):
        return None


def vote(label: Any, top: float = 1.0) -> bool | None:
    """Whether a person's label means faithful: a boolean, a verdict's name, yes/no, PASS/FAIL, or a rating of at least
    ``top``.

    None for any other label.
    """
    word = str(label).strip().lower().replace(" ", "_")
    if word in _WORDS:
        return _WORDS[word]
    return None if (number := rating(label)) is None else number >= top


def truth(label: Any) -> bool | None:
    """`vote` of a label that no others give a scale to: of numbers only 1 and 0 mean anything."""
    return vote(label) if rating(label) in (None, 0.0, 1.0) else None
