"""Labels: JSON lines or a table in, labelled examples out, with the file and line of whatever is wrong.

Which column holds the label, and whether a yes in it means faithful, is understood once for all rows of a file
(`find_label`) and said back. A column whose name and words do not tell is not guessed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from faith_dspy.errors import InputError, LabelsError, counted, describe_invalid
from faith_dspy.io.conversation import from_conversation
from faith_dspy.io.inputs import (
    COLUMNS,
    NAMES,
    Names,
    Record,
    as_chunks,
    check_length,
    columns,
    fields_of,
    log_columns,
    missing,
    nearest,
    unicode_text,
)
from faith_dspy.io.names import TABLES
from faith_dspy.io.readers import FIRST, name_of, open_records, parsed
from faith_dspy.schema import Chunk, LabelledExample, LabelledStatement, Verdict, digest

_FORMAT = (
    'One JSON object a line, or a row of a table: {"context": ["…"], "answer": "…"} and at least one of '
    '"faithful": true|false, "score": 0…1, "statements": [{"text": "…", "verdict": "fully_supported"}]; '
    '"question", "id", "annotators", "group" and "split" are optional. With other '
    "column names: faith-dspy labels import FILE --map answer=COLUMN."
)
LABELS: Names = TABLES["label_columns"]
"""Names of the columns with what people said."""
_BESIDE: Names = {name: LABELS[name] for name in ("group", "split", "annotators")}
_UNTOLD = (*LABELS["faithful"][1:], *TABLES["further_label_columns"])
"""Names of columns that may hold the label, and do not tell what a yes means."""
_TAGS = ("source", "domain", "language", "kind", "level", "form", "model", "drawn")
_READ = ("score", "statements", "meta", "reasons", "reviewed")
_OPTIONAL = ("question", "faithful", "score", "annotators", "group", "split")
_MOST = 10
"""Kinds of faults that are named at once."""
_NAMED = re.compile(
    r"(?:(?:is|are|has|have|contains?|includes?|any|human|gold|expert|answer|response|label|labels|a)_)*"
    r"(?P<not>(?:not|no|non|without|free_of)_?)?"
    r"(?:(?P<faithful>faithful(?:ness)?|(?:well_?)?grounded(?:ness)?|supported|factual(?:ity)?"
    r"|(?:factual(?:ly)?_)?consisten(?:t|cy)|attributable|attributed|truthful|entailed)"
    r"|hallucinat(?:ions?|ed|es|ing)|unfaithful(?:ness)?|unsupported|ungrounded|unattributable|untruthful"
    r"|(?:factual(?:ly)?_)?inconsisten(?:t|cy|cies)|fabricat(?:ions?|ed)|(?<=_)(?:factual_)?errors?)"
    r"(?P<free>_free)?(?:_(?:labels?|flag|binary|bool|detected|present|found|gold|human|spans?|annotations?|yn))*"
)
"""Names of a column that tell what a yes in it means, in snake case."""
_LABEL_WORDS = TABLES["label_words"]
_YES_OR_NO = {
    **dict.fromkeys(_LABEL_WORDS["yes"], True),
    **dict.fromkeys(_LABEL_WORDS["no"], False),
}
_WORDS = {
    **dict.fromkeys(_LABEL_WORDS["faithful"], True),
    **dict.fromkeys(_LABEL_WORDS["unfaithful"], False),
    **{verdict.value: verdict.is_supported for verdict in Verdict},
}
"""Words that tell by themselves whether an answer is faithful, whatever the column is called."""


@dataclass(frozen=True)
class LabelColumn:
    """Where labels stand, and what they mean."""

    name: str
    """The column; with dots, inside an object."""
    yes: bool | None = True
    """Whether a yes, true or 1 means faithful; None where nothing tells."""
    flipped: bool = False
    """Whether words that tell mean the opposite, too, as the user says."""
    words: Mapping[str, bool] = field(default_factory=dict)
    """What further values mean, as the user says."""
    graded: bool = False
    """Whether there are other numbers than 0 and 1, so that these do not tell, either."""

    def meaning(self, value: Any) -> bool | None:
        """Return whether a value means faithful; None where it does not tell.

        A list of spans of unsupported text, or counts of them, means faithful where it is empty.
        """
        value = parsed(value)
        if isinstance(value, list | tuple | Mapping):
            return self._meaning_of_marks(value)
        word = label_word(value)
        if word in self.words:
            return self.words[word]
        if word in _WORDS:
            return _WORDS[word] is not self.flipped
        if self.yes is None or word not in _YES_OR_NO:
            return None
        if self.graded and word in ("0", "1"):
            return None
        if self.yes and word == "none":  # no hallucinations, or no label
            return None
        return _YES_OR_NO[word] is self.yes

    def _meaning_of_marks(self, value: Any) -> bool | None:
        """Return whether a list of spans of unsupported text, or their numbers by kind, means faithful."""
        items = [*value.values()] if isinstance(value, Mapping) else value
        are_spans = all(isinstance(item, Mapping) for item in items)
        if self.yes or (self.yes is None and not are_spans):
            return None
        return not any(items)

    def negates(self, value: Any) -> bool:
        """Tell whether a value means the opposite of what it says."""
        word = label_word(value)
        if word in _WORDS:
            return self.flipped and word not in self.words
        return self.yes is False and word in _YES_OR_NO and word not in self.words

    def summary(self, values: Sequence[Any]) -> str:
        """Say what was understood: ``faithful: 120 yes, 54 no, from 'hallucination', negated``."""
        counts = Counter(self.meaning(value) for value in values if value is not None)
        negated = ", negated" if any(map(self.negates, values)) else ""
        return f"faithful: {counts[True]} yes, {counts[False]} no, from {self.name!r}{negated}"

    def doubt(self, values: Iterable[Any]) -> str | None:
        """Ask in one sentence what the values that do not tell mean; None where all do."""
        unclear = (v for v in values if v is not None and self.meaning(v) is None)
        counts = Counter(map(label_word, unclear))
        if not counts:
            return None
        named = ", ".join(f"{word!r} ({n:,})" for word, n in counts.most_common(8))
        what = "has other words"
        if counts.keys() <= _YES_OR_NO.keys():
            what = "does not tell which of its values means faithful"
        word = next(
            (word for word in counts if _YES_OR_NO.get(word)), next(iter(counts))
        )
        return (
            f"{self.name!r} {what}: {named}. Say it with `faith-dspy labels import FILE --value {word}=unfaithful` "
            f"(or {word}=faithful)"
        )


def label_word(value: Any) -> str:
    """Return a label as a word to look up: lower case, ``_`` for spaces and hyphens, ``1`` for 1.0."""
    number = rating(value)
    if number is not None and not isinstance(value, bool):
        return f"{number:g}"
    return re.sub(r"[\s-]+", "_", str(value).strip().casefold())


def named_meaning(column: str) -> bool | None:
    """Return whether a yes in a column of that name means faithful; None where the name does not tell."""
    name = str(column).rsplit(".", 1)[-1]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^\w]+", "_", name).casefold()
    match = _NAMED.fullmatch(snake.strip("_"))
    if match is None:
        return None
    negations = [not match["faithful"], match["not"], match["free"]]
    return sum(map(bool, negations)) % 2 == 0


def find_label(
    rows: Sequence[Mapping[str, Any]],
    column: str | None = None,
    values: Mapping[str, bool] | None = None,
) -> LabelColumn | None:
    """Find the column with the label of whole answers, and what its values mean.

    Args:
        rows: rows of one file.
        column: the column, as the user names it; ``!column`` means the opposite of what it says.
        values: value → whether it means faithful, as the user says; one of yes and no, or 1 and 0, tells the other,
            unless the column has further numbers.

    Returns:
        None where no column holds a label.
    """
    words = {label_word(value): faithful for value, faithful in (values or {}).items()}
    flipped = column is not None and column.startswith("!")
    name = column.lstrip("!") if column else _label_name(rows)
    if name is None:
        return None
    yes = False if flipped else named_meaning(name)
    present = {
        label_word(value) for row in rows if (value := at(row, name)) is not None
    }
    graded = any(rating(word) is not None for word in present - _YES_OR_NO.keys())
    pairs = [] if graded else [word for word in words if word in _YES_OR_NO]
    for word in pairs:
        means_yes = _YES_OR_NO[word] is words[word]
        words = {**{w: _YES_OR_NO[w] is means_yes for w in _YES_OR_NO}, **words}
    return LabelColumn(name, yes, flipped, words, graded)


def _label_name(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the column that is taken for the label: one of ours, else one whose name tells, else one that may be."""
    filled = dict.fromkeys(
        name for row in rows for name, value in row.items() if value is not None
    )
    if filled.keys() & {"faithful", "statements"}:
        return "faithful" if "faithful" in filled else None
    telling = [name for name in filled if named_meaning(name) is not None]
    answers = {columns(row).get("answer") for row in rows}
    spelt = {
        re.sub(r"\W+", "_", str(name)).casefold(): name
        for name in filled
        if name not in answers
    }
    untold = [spelt[name] for name in _UNTOLD if name in spelt]
    if filled.keys() >= {"score", "context", "answer"}:  # one of ours
        untold = []
    return next(iter([*telling, *untold]), None)


def at(row: Any, column: str) -> Any:
    """Return the value of a column, or, with dots, inside an object."""
    if isinstance(row, Mapping) and column in row:
        return row[column]
    first, _, rest = column.partition(".")
    return at(row.get(first), rest) if rest and isinstance(row, Mapping) else None


def read_labels(
    source: Any,
    *,
    require_label: bool = True,
    columns: Mapping[str, str] | None = None,
    values: Mapping[str, bool] | None = None,
    unreadable: list[str] | None = None,
) -> list[LabelledExample]:
    """Read all examples of labels, and log what was understood of other names than ours.

    Args:
        source: a file, a table in memory (pandas, Hugging Face), or an iterable of rows or examples. Columns may have
            the names that others use (`faith_dspy.io.inputs`); unknown ones are ignored, ``null`` counts as absent.
        require_label: leave examples without a usable label out, and demand one with.
        columns: field → column, where names do not tell; ``"faithful": "!column"`` negates it.
        values: what a value of the label means: ``{"1": False}``.
        unreadable: leave wrong rows out, and add here what is wrong with each.

    Raises:
        LabelsError: rows are wrong (each kind of fault is named once), or no example has a label, or a column that
            looks like the label does not tell which of its values means faithful.
    """
    name = name_of(source)
    columns = columns or {}
    with open_records(source) as opened:
        records = [_with_columns(record, columns) for record in opened]
    rows = [record.row for record in records if isinstance(record.row, Mapping)]
    _check_columns(rows, name, columns)
    label = find_label(rows, columns.get("faithful"), values)
    _check_values(rows, name, label, values or {})
    summary = ""
    if label and label.name != "faithful":  # of ours each line is named
        labels = [at(row, label.name) for row in rows]
        doubt = label.doubt(labels)
        summary = "" if doubt else label.summary(labels)
        if doubt and (require_label or values or columns or unreadable is not None):
            raise LabelsError(f"{name}: {doubt}.")
    read = {*NAMES, *LABELS, *_READ, *_TAGS, label.name if label else ""}
    log_columns(rows[:FIRST], name, {**COLUMNS, **_BESIDE}, read, summary)
    examples = _examples(records, name, label, not require_label, unreadable)
    if require_label:
        examples = [example for example in examples if example.label is not None]
    if not examples:
        why = f": {missing(rows[0], 'faithful', LABELS)}" if rows else ""
        raise LabelsError(
            f"{name}: {counted(len(records), 'row')}, none with a usable label{why}. {_FORMAT}"
        )
    return examples


def _with_columns(record: Record, columns: Mapping[str, str]) -> Record:
    """Return the record with the fields that the user reads from other columns; the label is found by itself."""
    if not columns or not isinstance(record.row, Mapping):
        return record
    row = dict(record.row)
    for name, column in columns.items():
        if name != "faithful":
            row[name] = at(record.row, column)
    return replace(record, row=row)


def _check_columns(
    rows: Sequence[Mapping[str, Any]], name: str, columns_by_field: Mapping[str, str]
) -> None:
    """Raise `LabelsError` where a column that the user names, or one that every row needs, is in none."""
    if not rows:
        return
    for needed, column in columns_by_field.items():
        column = column.lstrip("!")
        if all(at(row, column) is None for row in rows):
            got = ", ".join(map(str, rows[0]))
            raise LabelsError(
                f"{name}: got {got}, but no {column!r} for --map {needed}={column}{nearest([column], [*rows[0]])}."
            )
    for needed in ("context", "answer"):
        if not any({needed, "conversation"} & fields_of(row).keys() for row in rows):
            raise LabelsError(f"{name}: {missing(rows[0], needed)}. {_FORMAT}")


def _check_values(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    label: LabelColumn | None,
    values: Mapping[str, bool],
) -> None:
    """Raise `LabelsError` where what the user says of the label's values has no effect."""
    if not values or any("annotators" in columns(row, _BESIDE) for row in rows):
        return
    if label is None:
        raise LabelsError(
            f"{name}: got --value {next(iter(values))}, but no column with labels; name it with --map faithful=COLUMN."
        )
    labels = [at(row, label.name) for row in rows]
    counts = Counter(label_word(value) for value in labels if value is not None)
    for value in values:
        if label_word(value) not in counts:
            named = ", ".join(f"{w!r} ({n:,})" for w, n in counts.most_common(8))
            raise LabelsError(
                f"{name}: got --value {value}, but {label.name!r} has {named}; expected one of these."
            )
    if label.flipped and not any(map(label.negates, labels)):
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
) -> list[LabelledExample]:
    examples: list[LabelledExample] = []
    place_of: dict[str, str] = {}
    faults_by_kind: dict[str, list[str]] = {}
    form = ""
    for record in records:
        where = f"{name}, {record.place}"
        try:
            if record.problem:
                form = _FORMAT
                raise LabelsError(f"{name}, {record.problem}.")
            example = parse_example(
                record.row, where=where, lenient=lenient, label=label
            )
            if example.id in place_of:
                raise LabelsError(
                    f"{where}: is the answer at {place_of[example.id]} again, or has its id {example.id!r}. Keep one "
                    "of the two (each person's own label can stand in 'annotators'), or give each its own id."
                )
        except LabelsError as exc:
            kind = re.sub(r"'[^']*'|\d+", "", str(exc))
            faults_by_kind.setdefault(kind, []).append(str(exc))
            if unreadable is not None:
                unreadable.append(str(exc))
        else:
            place_of[example.id] = where
            examples.append(example)
    if faults_by_kind and unreadable is None:
        raise LabelsError(_summary_of_faults([*faults_by_kind.values()], form))
    return examples


def _summary_of_faults(faults_alike: Sequence[Sequence[str]], form: str) -> str:
    """Name the first of each kind of fault, how many more there are of it, and last the form that is expected."""
    lines = []
    for first, *others in faults_alike[:_MOST]:
        more = f" ({counted(len(others), 'row')} more like it.)" if others else ""
        lines.append(first + more)
    separator = "\n" if lines[1:] else " "
    return ("\n".join(lines) + separator + form).strip()


def parse_example(
    row: Any,
    *,
    where: str = "record",
    lenient: bool = False,
    label: LabelColumn | None = None,
) -> LabelledExample:
    """Parse one labels object; an example is returned as it is.

    Args:
        row: a mapping.
        where: where it stands, for the message.
        lenient: let a label that does not tell be none, unless it stands in ``faithful``.
        label: what is known of the label's column; None: it is found in the row.

    Raises:
        LabelsError: it says what is wrong.
    """
    if isinstance(row, LabelledExample):
        return row
    try:
        if not isinstance(row, Mapping):
            raise InputError(f"got {type(row).__name__}, expected a mapping")
        return _example(row, label or find_label([row]), lenient)
    except InputError as exc:
        raise LabelsError(f"{where}: {str(exc).rstrip('.')}.") from exc
    except ValidationError as exc:
        raise LabelsError(f"{where}: {describe_invalid(exc)}.") from exc


def _example(
    source: Mapping[str, Any], label: LabelColumn | None, lenient: bool
) -> LabelledExample:
    row = {k: v for k, v in source.items() if v is not None} | fields_of(source)
    if "conversation" in row and not isinstance(row.get("answer"), str):
        row["question"], row["context"], row["answer"] = from_conversation(
            row["conversation"]
        )
    for name, column in columns(source, _BESIDE).items():
        row[name] = row[column] if name == "annotators" else str(row[column])
    if label is not None:
        row |= _label(row, label, lenient)
        if label.name == "score" and "faithful" in row:
            row.pop("score", None)
    for needed in ("context", "answer"):
        if needed not in row:
            raise InputError(missing(source, needed))
    context, answer = as_chunks(row["context"]), row["answer"]
    if not any(chunk.text.strip() for chunk in context):
        raise InputError(
            "context is empty: a labelled example needs the text the answer was judged against"
        )
    if not isinstance(answer, str) or not answer.strip():
        raise InputError(f"answer is {answer!r}, expected text")
    check_length(answer, *(chunk.text for chunk in context))
    meta = row["meta"] if isinstance(row.get("meta"), dict) else {}
    fields = {name: row[name] for name in _OPTIONAL if name in row}
    fields["id"] = str(row.get("id", answer_key(row.get("question"), context, answer)))
    fields["tags"] = _tags({**meta, **row})
    fields["statements"] = _statements(row.get("statements", []))
    example = LabelledExample(context=context, answer=unicode_text(answer), **fields)
    for i, statement in enumerate(example.statements):
        for chunk_id in statement.supporting_chunk_ids or ():
            if not 0 <= chunk_id < len(context):
                raise InputError(
                    f"statements[{i}] names chunk {chunk_id}, but the context has {counted(len(context), 'chunk')}, "
                    "counted from 0"
                )
    return example


def _tags(row: Mapping[str, Any]) -> dict[str, str]:
    tags = {name: row[name] for name in _TAGS if isinstance(row.get(name), str | int)}
    return {name: str(value) for name, value in tags.items()}


def _statements(statements: Any) -> Any:
    """Return statements without fields of others."""
    if isinstance(statements, list):
        return list(map(_statements, statements))
    if not isinstance(statements, dict):
        return statements
    ours = statements.keys() & LabelledStatement.model_fields
    return {name: statements[name] for name in ours}


def _label(
    row: Mapping[str, Any], label: LabelColumn, lenient: bool
) -> dict[str, bool]:
    """Return the label of a row as true or false; nothing where it has none."""
    value = at(row, label.name)
    faithful = None if value is None else label.meaning(value)
    if faithful is not None:
        return {"faithful": faithful}
    if value is None or (lenient and label.name != "faithful"):
        return {}
    if label.yes is None:
        raise InputError(str(label.doubt([value])))
    raise InputError(
        f"{label.name} is {value!r}, expected true or false, 1 or 0, yes or no, PASS or FAIL, or a verdict; "
        "`faith-dspy labels import` takes ratings, spans and other words (--value WORD=true)"
    )


def answer_key(question: str | None, context: Iterable[Chunk], answer: str) -> str:
    """Hash an answer with its question and context, whatever its id and labels."""
    return digest([question, [c.text for c in context], answer])


def label_set_hash(examples: Sequence[LabelledExample]) -> str:
    """Hash texts and labels; the order of the lines does not matter."""
    return digest(sorted(digest(e.model_dump(mode="json")) for e in examples))


def rating(label: Any) -> float | None:
    """Return a person's label as a finite number; None if it is not one."""
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def vote(label: Any, top: float | None = None) -> bool | None:
    """Return whether an annotator's label means faithful.

    A boolean, a verdict's name, yes/no, PASS/FAIL mean something; and a rating of at least ``top``, or without one
    only the numbers 1 and 0. None for any other label.
    """
    number = None if isinstance(label, bool) else rating(label)
    if top is not None and number is not None:
        return number >= top
    return LabelColumn("annotators").meaning(label)
