"""Labels: JSON lines or a table in, labelled examples out, with the file and line of whatever is wrong.

What the labels mean, `faith_dspy.io.meanings` says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from faith_dspy.errors import InputError, LabelsError, counted, describe_invalid
from faith_dspy.io.documents import mapping
from faith_dspy.io.inputs import (
    AnswerInput,
    Record,
    close_pair,
    columns,
    fields_of,
    is_filled,
    log_columns,
    log_once,
    missing,
    problem_of,
)
from faith_dspy.io.meanings import (
    AMBIGUOUS,
    LABELS,
    ORIGINAL,
    YES_OR_NO,
    LabelColumn,
    Meanings,
    annotator_column,
    at,
    by_name,
    count_words,
    find_label,
    label_word,
    listed,
    with_majority,
)
from faith_dspy.io.names import COLUMNS, NAMES, Fields, Names
from faith_dspy.io.readers import FIRST, name_of, open_records
from faith_dspy.schema import Chunk, LabelledExample, digest

_FORMAT = (
    'One JSON object a line, or a row of a table: {"context": ["…"], "answer": "…"} and at least one of '
    '"faithful": true|false, "score": 0…1, "statements": [{"text": "…", "verdict": "fully_supported"}]; '
    '"question", "id", "annotators", "group" and "split" are optional. With other '
    "column names: faith-dspy labels import FILE --map context=COLUMN --map answer=COLUMN."
)
_FURTHER_COLUMNS: Names = {
    name: LABELS[name] for name in ("group", "split", "annotators", "labelled_by")
}
_LABEL_NAMES: Names = {"faithful": [*LABELS["faithful"], *AMBIGUOUS]}
_TAGS = (
    "source",
    "domain",
    "language",
    "kind",
    "level",
    "form",
    "model",
    "drawn",
    "labelled_by",
)
_READ = ("score", "statements", "meta", "reasons", "reviewed")
_DECISIONS = {"accept", "reject", "ignore"}
_MOST = 10
"""Kinds of faults that are named at once."""
_MODEL = re.compile(
    r"(?i)(?:an? )?(?:model|llm|lm|ai)\b|.*\b(?:gpt\b"
    r"|(?:gpt|claude|gemini|gemma|llama|mistral|qwen|deepseek|grok|phi|o)[-_ :.]?\d)"
)
"""In the name of who gave a label: it was a model."""


def read_labels(
    source: Any,
    *,
    require_label: bool = True,
    columns: Mapping[str, str] | None = None,
    values: Meanings | None = None,
    unreadable: list[str] | None = None,
    recorded: Collection[str] = (),
    further: Sequence[str] = (),
    texts: bool = True,
) -> list[LabelledExample]:
    """Read all examples of labels, and log what was understood of other names than ours.

    Args:
        source: a file, a table in memory (pandas, Hugging Face), or an iterable of rows or examples. Columns may have
            the names that others use (`faith_dspy.io.inputs`); unknown ones are ignored, ``null`` counts as absent.
        require_label: leave examples without a usable label out, and demand one with.
        columns: field → column, where names do not tell; ``"faithful": "!column"`` negates it, and ``annotators.ann``
            is what Ann said.
        values: what a value of the label means: ``{"1": False}``; None leaves such labels out.
        unreadable: leave wrong rows out, and add here what is wrong with each.
        recorded: columns with what other judges said: they are no labels, whatever they are called, and stand in
            `LabelledExample.columns`.
        further: columns that are read from there, too, and are not named as unused.
        texts: demand context and answer; else a row without an id has its place.

    Raises:
        LabelsError: rows are wrong (each kind of fault is named once), or no example has a label, or a column that
            looks like the label does not tell which of its values means faithful.
    """
    name = name_of(source)
    columns = columns or {}
    if "faithful" in recorded:
        raise LabelsError(
            f"{name}: got --scores faithful, which is the column of people's labels; expected one that a judge filled."
        )
    column = columns.get("faithful", "")
    if column.lstrip("!").split(".")[0] in columns:  # which is read from another
        column = re.sub(r"^!?", rf"\g<0>{ORIGINAL}.", column)
    with open_records(source) as opened:
        records = [_with_columns(record, columns, recorded) for record in opened]
    rows = [record.row for record in records if isinstance(record.row, Mapping)]
    _check_columns(rows, name, columns, texts)
    label = find_label(rows, column, values)
    _check_values(rows, name, label, column, values or {})
    summary = ""
    if label and label.name != "faithful":  # of ours each line is named
        doubt = label.doubt()
        summary = "" if doubt else label.summary()
        if doubt and (require_label or values or columns or unreadable is not None):
            raise LabelsError(f"{name}: {doubt}.")
    read = {
        *NAMES,
        *LABELS,
        *LABELS["annotator"],
        ORIGINAL,
        *_READ,
        *_TAGS,
        *columns.values(),
        *further,
    }
    if label:
        read |= {f"{label.shown}{part}" for part in ("", ".status", ".users")}
    read |= {column.partition(".")[0] for column in read}
    log_columns(rows[:FIRST], name, {**COLUMNS, **_FURTHER_COLUMNS}, read, summary)
    examples = _examples(records, name, label, not require_label, unreadable, texts)
    examples = [with_majority(example, values) for example in examples]
    if require_label:
        examples = [example for example in examples if example.label is not None]
    if not examples:
        why = None
        if label:
            why = label.doubt()
        elif rows:
            why = missing(rows[0], "faithful", _LABEL_NAMES)
        if unreadable and why is None:
            why = unreadable[0].rstrip(".")
        why = f": {why}" if why else ""
        raise LabelsError(
            f"{name}: {counted(len(records), 'row')}, none with a usable label{why}. {_FORMAT}"
        )
    return examples


def _with_columns(
    record: Record, columns: Mapping[str, str], recorded: Collection[str]
) -> Record:
    """Return the record with the fields that the user reads from other columns, and recorded verdicts aside; the label
    is found by itself."""
    if not isinstance(record.row, Mapping):
        return record
    row = {**record.row, ORIGINAL: record.row} if columns else dict(record.row)
    for name, column in columns.items():
        if name == "faithful":
            continue
        field, _, person = name.partition(".")
        value = at(record.row, column)
        row[field] = {**mapping(row.get(field)), person: value} if person else value
    aside = {name: row.pop(name, None) for name in recorded}
    return replace(record, row=row, aside=aside)


def _check_columns(
    rows: Sequence[Fields],
    name: str,
    columns_by_field: Mapping[str, str],
    texts: bool,
) -> None:
    """Raise `LabelsError` where a column that the user names, or one that every row needs, is in none."""
    if not rows:
        return
    for needed, column in columns_by_field.items():
        column = column.lstrip("!")
        if all(at(row, column) is None for row in rows):
            names = [str(one) for one in rows[0] if one != ORIGINAL]
            likely = close_pair([column], names)
            hint = f"; did you mean {likely[1]!r}?" if likely else "."
            raise LabelsError(
                f"{name}: got {', '.join(names)}, but no {column!r} for --map {needed}={column}{hint}"
            )
    if not texts:
        return
    answers = {label_word(row.get("answer")) for row in rows}
    if "answer" not in columns_by_field and answers <= _DECISIONS:
        raise LabelsError(
            f"{name}: 'answer' has a person's decisions, as Prodigy's exports do. Say it with `faith-dspy labels "
            "import FILE --map answer=text --map faithful=answer --value accept=faithful --value reject=unfaithful "
            "--value ignore=none`."
        )
    problem = problem_of(rows, is_named="answer" in columns_by_field)
    if problem is not None:
        raise LabelsError(f"{name}: {problem}. {_FORMAT}")


def _check_values(
    rows: Sequence[Fields],
    name: str,
    label: LabelColumn | None,
    column: str,
    values: Meanings,
) -> None:
    """Raise `LabelsError` where what the user says of the label's values has no effect."""
    if not values or any(
        "annotators" in columns(row, _FURTHER_COLUMNS) for row in rows
    ):
        return
    if label is None:
        raise LabelsError(
            f"{name}: got --value {next(iter(values))}, but no column with labels; name it with --map faithful=COLUMN."
        )
    counts = count_words(label.cells)
    for value, means in values.items():
        if means is not None and label_word(value) not in counts:
            raise LabelsError(
                f"{name}: got --value {value}, but {label.name!r} has {listed(counts)}; expected one of these."
            )
    if column.startswith("!") and not label.negates():
        raise LabelsError(
            f"{name}: got --map faithful=!{label.name}, but --value says what each of its values means; leave out "
            "the “!”, or the --value."
        )


def _examples(
    records: Iterable[Record],
    name: str,
    label: LabelColumn | None,
    lenient: bool,
    unreadable: list[str] | None,
    texts: bool,
) -> list[LabelledExample]:
    rows_of: dict[Any, list[_Row]] = {}
    examples: list[LabelledExample] = []
    place_of: dict[str, str] = {}
    faults: list[str] = []
    form = ""
    for record in records:
        where = f"{name}, {record.place}"
        try:
            if record.problem:
                form = _FORMAT
                raise LabelsError(f"{name}, {record.problem}.")
            example = parse_example(
                record.row if texts else _with_id(record),
                where=where,
                lenient=lenient,
                label=label,
                texts=texts,
            )
        except LabelsError as exc:
            faults.append(str(exc))
            continue
        example.columns.update(record.aside or {})
        row = mapping(record.row)
        column = annotator_column(row)
        annotator = None if column is None else str(row[column])
        is_by_id = annotator is None or not example.answer
        key = answer_key(example.question, example.context, example.answer)
        rows = rows_of.setdefault((key, example.id if is_by_id else None), [])
        rows.append(_Row(example, where, annotator))
    for example, where, _ in _one_an_answer([*rows_of.values()], name):
        if example.id in place_of:
            faults.append(
                f"{where}: is the answer at {place_of[example.id]} again, or has its id {example.id!r}. Keep one "
                "of the two (each person's own label can stand in 'annotators', or each row name its 'annotator'), "
                "or give each its own id."
            )
            continue
        place_of[example.id] = where
        examples.append(example)
    if unreadable is not None:
        unreadable += faults
    elif faults:
        raise LabelsError(_summary_of_faults(faults, form))
    return examples


class _Row(NamedTuple):
    """A row of a file with whoever labelled it."""

    example: LabelledExample
    where: str
    annotator: str | None


def _one_an_answer(answers: Sequence[Sequence[_Row]], name: str) -> list[_Row]:
    """Join the rows of several people about one answer into one with ``annotators``.

    They name them, or their labels differ somewhere in the file; else a row is there twice.
    """
    at_odds = sum(
        len({row.example.label for row in rows}) > 1
        for rows in answers
        if rows[0].annotator is None
    )
    joined: list[_Row] = []
    for rows in answers:
        labels = {
            row.annotator or f"person {i}": row.example.label
            for i, row in enumerate(rows, 1)
        }
        is_by_several = at_odds or rows[0].annotator is not None
        if len(rows) == 1 or len(labels) < len(rows) or not is_by_several:
            joined += rows
            continue
        tags = [set(row.example.tags.items()) for row in rows]
        columns = dict(rows[0].example.columns)
        columns.pop(annotator_column(columns) or "", None)
        fields: dict[str, Any] = {
            "annotators": {who: v for who, v in labels.items() if v is not None},
            "tags": dict(sorted(set.intersection(*tags))),
            "columns": columns,
            "faithful": None,
            "score": None,
            "statements": (),
        }
        example = rows[0].example.model_copy(update=fields)
        joined.append(rows[0]._replace(example=example))
    count = sum(map(len, answers))
    if len(joined) < count:
        whose, odds = " of several people", ""
        if at_odds:
            whose, odds = "", f", {at_odds:,} with labels at odds"
        number = counted(len(joined), "answer")
        log_once(
            f"{name}: {count:,} rows{whose} about {number}{odds}; the majority counts, and a tie is no label"
        )
    return joined


def _summary_of_faults(faults: Iterable[str], form: str) -> str:
    """Name the first of each kind of fault, how many more there are of it, and last the form that is expected."""
    lines = []
    by_kind: dict[str, list[str]] = {}
    for fault in faults:
        kind = re.sub(r"'[^']*'|\d+", "", fault)
        by_kind.setdefault(kind, []).append(fault)
    for first, *others in [*by_kind.values()][:_MOST]:
        more = f" ({counted(len(others), 'row')} more like it.)" if others else ""
        lines.append(first + more)
    separator = "\n" if len(lines) > 1 else " "
    summary = "\n".join(lines) + separator + form
    return summary.strip()


def parse_example(
    row: Any,
    *,
    where: str = "record",
    lenient: bool = False,
    label: LabelColumn | None = None,
    texts: bool = True,
) -> LabelledExample:
    """Parse one labels object; an example is returned as it is.

    Args:
        row: a mapping.
        where: where it stands, for the message.
        lenient: let a label that does not tell be none, unless it stands in ``faithful``.
        label: what is known of the label's column; None: it is found in the row.
        texts: demand context and answer.

    Raises:
        LabelsError: it says what is wrong.
    """
    if isinstance(row, LabelledExample):
        return row
    try:
        if not isinstance(row, Mapping):
            raise InputError(f"got {type(row).__name__}, expected a mapping")
        return _example(row, label or find_label([row]), lenient, texts)
    except (InputError, ValidationError) as exc:
        raise LabelsError(f"{where}: {describe_invalid(exc)}.") from exc


def _with_id(record: Record) -> Any:
    """Return a row with its place as its id where it has no other."""
    if isinstance(record.row, Mapping) and "id" not in columns(record.row):
        return {**record.row, "id": record.place}
    return record.row


def _example(
    source: Fields, label: LabelColumn | None, lenient: bool, texts: bool
) -> LabelledExample:
    row = {name: value for name, value in source.items() if is_filled(value)}
    fields = fields_of(source)
    row |= fields
    for name, column in columns(source, _FURTHER_COLUMNS).items():
        row[name] = row[column]
        if name != "annotators":
            row[name] = str(row[column])
    if label is not None:
        row |= _label(row, label, lenient)
        if label.name == "score" and "faithful" in row:
            row.pop("score", None)
    read = _input(source, fields) if texts else AnswerInput.of(source)
    key = answer_key(read.question, read.chunks, read.answer)
    row |= {
        "id": str(row.get("id", key)),
        "question": read.question,
        "context": read.chunks,
        "answer": read.answer,
        "tags": _tags(row),
        "columns": _further(source, label),
    }
    ours = row.keys() & LabelledExample.model_fields
    example = LabelledExample(**{name: row[name] for name in ours})
    for i, statement in enumerate(example.statements):
        for chunk_id in statement.supporting_chunk_ids or ():
            if not 0 <= chunk_id < len(read.chunks):
                chunks = counted(len(read.chunks), "chunk")
                raise InputError(
                    f"statements[{i}] names chunk {chunk_id}, but the context has {chunks}, counted from 0"
                )
    return example


def _further(source: Fields, label: LabelColumn | None) -> dict[str, Any]:
    """Return the short values that are read as nothing else."""
    read = {*_READ, *columns(source, {**COLUMNS, **_FURTHER_COLUMNS}).values()}
    if label is not None:
        read.add(label.name)
    return {
        name: value
        for name, value in source.items()
        if name not in read
        and is_filled(value)
        and isinstance(value, str | int | float)
    }


def _input(source: Fields, fields: dict[str, Any]) -> AnswerInput:
    """Return what was judged, by the ``fields`` of a row; neither context nor answer is empty."""
    if "answer" in fields:
        fields.pop("conversation", None)
    for needed in ("context", "answer"):
        if not fields.keys() & {needed, "conversation"}:
            raise InputError(missing(source, needed))
    read = AnswerInput.make(**fields)
    if not any(chunk.text.strip() for chunk in read.chunks):
        raise InputError(
            "context is empty: a labelled example needs the text the answer was judged against"
        )
    if not read.answer.strip():
        raise InputError(f"answer is {read.answer!r}, expected text")
    return read


def _tags(row: Fields) -> dict[str, str]:
    fields = {**mapping(row.get("meta")), **row}
    values = {name: fields.get(name) for name in _TAGS}
    return {name: str(v) for name, v in values.items() if isinstance(v, str | int)}


def _label(row: Fields, label: LabelColumn, lenient: bool) -> dict[str, Any]:
    """Return the label of a row as true or false, and each voter's; nothing where it has none."""
    value = at(row, label.name)
    if value is None:
        return {}
    faithful = label.meaning(value)
    votes = by_name(value) if label.is_voted else {}
    read: dict[str, Any] = {}
    if votes:
        read["annotators"] = {who: label.meaning(vote) for who, vote in votes.items()}
    if faithful is not None:
        return read | {"faithful": faithful}
    is_left_out = label_word(value) in label.meanings
    if (label.is_voted or is_left_out) and label.doubt(value) is None:
        return read  # a tie, or nobody voted
    if lenient and label.name != "faithful":
        return {}
    if label.yes is None or label_word(value) in YES_OR_NO:  # a 1 beside a 2
        raise InputError(str(label.doubt(value)))
    raise InputError(
        f"{label.name} is {value!r}, expected true or false, 1 or 0, yes or no, PASS or FAIL, or a verdict; "
        "`faith-dspy labels import` takes ratings, spans and other words (--value WORD=true)"
    )


def answer_key(question: str | None, context: Iterable[Chunk], answer: str) -> str:
    """Hash an answer with its question and context as written, whatever its id and labels."""
    texts = [chunk.text for chunk in context]
    return digest([question, texts, answer])


def is_model(labelled_by: str) -> bool:
    """Return whether a model gave the label: ``model``, ``model: NAME``, or a name like ``openai/gpt-4o``."""
    return _MODEL.match(labelled_by) is not None


def labellers(examples: Iterable[LabelledExample]) -> dict[str, int]:
    """Count labels by who gave them, the most first; nothing where no answer says."""
    counts = Counter(e.labelled_by for e in examples)
    if counts.keys() <= {None}:
        return {}
    return {who or "not said": n for who, n in counts.most_common()}


def whose_labels(labelled_by: Mapping[str, int]) -> str:
    """Return what agreement with labels is called, by the counts of `labellers`: people's, unless a model gave them."""
    by_models = sum(n for who, n in labelled_by.items() if is_model(who))
    if not by_models:
        return "people"
    if by_models < sum(labelled_by.values()):
        return "partly model-made labels"
    return "model-made labels"


def label_set_hash(examples: Sequence[LabelledExample]) -> str:
    """Hash texts and labels; the order of the lines does not matter."""
    hashes = [digest(example.model_dump(mode="json")) for example in examples]
    return digest(sorted(hashes))
