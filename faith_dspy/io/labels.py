"""Labels: JSON lines or a table in, labelled examples out, with the file and line of whatever is wrong.

Which column holds the label, and whether a yes in it means faithful, is understood once for all rows of a file
(`find_label`) and said back. A column whose name and words do not tell is not guessed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from faith_dspy.errors import InputError, LabelsError, counted, faults
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
from faith_dspy.io.readers import FIRST, name_of, open_records
from faith_dspy.schema import Chunk, LabelledExample, LabelledStatement, Verdict, digest

_FORMAT = (
    'One JSON object a line, or a row of a table: {"context": ["…"], "answer": "…"} and at least one of '
    '"faithful": true|false, "score": 0…1, "statements": [{"text": "…", "verdict": "fully_supported"}]; '
    '"question", "id", "annotators", "group" and "split" are optional. With other '
    "column names: faith-dspy labels import FILE --map answer=COLUMN."
)
LABELS: Names = {
    "faithful": (
        "faithful",
        "label",
        "labels",
        "verdict",
        "target",
        "class",
        "annotation",
        "human_label",
        "gold",
    ),
    "group": ("group", "source_id"),
    "split": ("split",),
    "annotators": ("annotators",),
}
"""Names of the columns with what people said. Those of ``faithful`` but the first do not tell what a yes means."""
_UNTOLD = (
    *LABELS["faithful"][1:],
    "score",
    "rating",
    "judgment",
    "judgement",
    "result",
)
_TAGS = ("source", "domain", "language", "kind", "level", "form", "model", "drawn")
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
_YES = frozenset(["1", "true", "yes", "y", "t"])
_NO = frozenset(["0", "false", "no", "n", "f", "none"])
_FAITHFUL = (
    "faithful pass passed supported grounded consistent factual entailed entailment attributable truthful "
    "no_hallucination not_hallucinated non_hallucinated not_hallucination factually_consistent"
)
_UNFAITHFUL = (
    "unfaithful fail failed unsupported ungrounded inconsistent hallucinated hallucination not_faithful "
    "not_grounded not_entailed not_entailment not_consistent non_factual nonfactual not_attributable contradiction "
    "contradicted fabricated factually_inconsistent"
)
_WORDS = {
    **dict.fromkeys(_FAITHFUL.split(), True),
    **dict.fromkeys(_UNFAITHFUL.split(), False),
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

    def meaning(self, value: Any) -> bool | None:
        """Return whether a value means faithful; None where it does not tell.

        A list of spans of unsupported text, or counts of them, means faithful where it is empty.
        """
        if isinstance(value, list | tuple | Mapping):
            return self._meaning_of_marks(value)
        word = label_word(value)
        if word in self.words:
            return self.words[word]
        if word in _WORDS:
            return _WORDS[word] is not self.flipped
        if self.yes is None or word not in _YES | _NO:
            return None
        return (word in _YES) is self.yes

    def _meaning_of_marks(self, value: Any) -> bool | None:
        """Return whether a list of spans of unsupported text, or their numbers by kind, means faithful."""
        items = [*value.values()] if isinstance(value, Mapping) else value
        if self.yes or (
            self.yes is None and not all(isinstance(item, Mapping) for item in items)
        ):
            return None
        return not any(items)

    def summary(self, values: Iterable[Any]) -> str:
        """Say what was understood: ``faithful: 120 yes, 54 no, from 'hallucination', negated``."""
        counts = Counter(self.meaning(value) for value in values if value is not None)
        negated = ", negated" if self.flipped or self.yes is False else ""
        return f"faithful: {counts[True]} yes, {counts[False]} no, from {self.name!r}{negated}"

    def doubt(self, values: Iterable[Any]) -> str | None:
        """Ask in one sentence what the values that do not tell mean; None where all do."""
        counts = Counter(
            label_word(value)
            for value in values
            if value is not None and self.meaning(value) is None
        )
        if not counts:
            return None
        named = ", ".join(f"{word!r} ({n:,})" for word, n in counts.most_common(8))
        word = next((word for word in counts if word in _YES), next(iter(counts)))
        what = (
            "does not tell which of its values means faithful"
            if counts.keys() <= _YES | _NO
            else "has other words"
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
    snake = (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^\w]+", "_", str(column).rsplit(".", 1)[-1])
        .casefold()
        .strip("_")
    )
    match = _NAMED.fullmatch(snake)
    if match is None:
        return None
    negations = [
        match["faithful"] is None,
        match["not"] is not None,
        match["free"] is not None,
    ]
    return sum(negations) % 2 == 0


def find_label(
    rows: Sequence[Mapping[str, Any]],
    column: str | None = None,
    values: Mapping[str, bool] | None = None,
) -> LabelColumn | None:
    """Find the column with the label of whole answers, and what its values mean.

    Args:
        rows: rows of one file.
        column: the column, as the user names it; ``!column`` means the opposite of what it says.
        values: value → whether it means faithful, as the user says; one of yes and no, or 1 and 0, tells the other.

    Returns:
        None where no column holds a label.
    """
    words = {label_word(value): faithful for value, faithful in (values or {}).items()}
    flipped = column is not None and column.startswith("!")
    name = column.lstrip("!") if column else _label_name(rows)
    if name is None:
        return None
    yes = not flipped if flipped else named_meaning(name)
    for word, faithful in words.items():
        if word in _YES | _NO:
            yes = (word in _YES) is faithful
    return LabelColumn(name, yes, flipped, words)


def _label_name(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the column that is taken for the label: one of ours, else one whose name tells, else one that may be."""
    filled = dict.fromkeys(
        name for row in rows for name, value in row.items() if value is not None
    )
    if filled.keys() & {"faithful", "statements"}:
        return "faithful" if "faithful" in filled else None
    telling = [name for name in filled if named_meaning(name) is not None]
    if telling:
        return telling[0]
    own_score = "score" in filled and filled.keys() >= {"context", "answer"}
    spelt = {re.sub(r"\W+", "_", str(name)).casefold(): name for name in filled}
    untold = [spelt[name] for name in _UNTOLD if name in spelt]
    return None if own_score or not untold else untold[0]


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
    with open_records(source) as opened:
        records = [_with_columns(record, columns or {}) for record in opened]
    rows = [record.row for record in records if isinstance(record.row, Mapping)]
    _check_columns(rows, name, columns or {})
    label = find_label(rows, (columns or {}).get("faithful"), values)
    labels = [at(row, label.name) for row in rows] if label else []
    doubt = (
        label.doubt(labels) if label and label.name != "faithful" else None
    )  # ours names the line
    if doubt and (require_label or values or columns or unreadable is not None):
        raise LabelsError(f"{name}: {doubt}. {_FORMAT}")
    summary = (
        label.summary(labels)
        if label and label.name != "faithful" and not doubt
        else ""
    )
    read = (
        *NAMES,
        *LABELS,
        "score",
        "statements",
        "meta",
        "reasons",
        "reviewed",
        *_TAGS,
        label.name if label else "",
    )
    log_columns(
        rows[:FIRST],
        name,
        {**COLUMNS, **{k: v for k, v in LABELS.items() if k != "faithful"}},
        read,
        summary,
    )
    examples = _examples(
        records, name, label, lenient=not require_label, unreadable=unreadable
    )
    usable = [
        example
        for example in examples
        if example.label is not None or not require_label
    ]
    if not usable:
        why = f": {missing(rows[0], 'faithful', LABELS)}" if rows else ""
        raise LabelsError(
            f"{name}: {counted(len(records), 'row')}, none with a usable label{why}. {_FORMAT}"
        )
    return usable


def _with_columns(record: Record, columns: Mapping[str, str]) -> Record:
    """Return the record with the fields that the user reads from other columns; the label is found by itself."""
    moved = {name: column for name, column in columns.items() if name != "faithful"}
    if not moved or not isinstance(record.row, Mapping):
        return record
    row = {
        **record.row,
        **{name: at(record.row, column) for name, column in moved.items()},
    }
    return Record(record.line, row, record.key, record.kind, record.file_line)


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
        if not any(needed in fields_of(row) for row in rows):
            raise LabelsError(f"{name}: {missing(rows[0], needed)}. {_FORMAT}")


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
    for record in records:
        where = f"{name}, {record.place}"
        try:
            if record.problem:
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
            if unreadable is not None:
                unreadable.append(str(exc))
                continue
            kind = re.sub(r"'[^']*'|\d+", "", str(exc))
            faults_by_kind.setdefault(kind, []).append(str(exc))
        else:
            place_of[example.id] = where
            examples.append(example)
    if faults_by_kind:
        raise LabelsError(_told(list(faults_by_kind.values())))
    return examples


def _told(faults_alike: Sequence[Sequence[str]]) -> str:
    """Name the first of each kind of fault, and how many more there are of it."""
    lines = []
    for alike in faults_alike[:_MOST]:
        more = (
            f" ({counted(len(alike) - 1, 'row')} more like it.)"
            if len(alike) > 1
            else ""
        )
        lines.append(alike[0] + more)
    return "\n".join(lines) + ("\n" if len(lines) > 1 else " ") + _FORMAT


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
        raise LabelsError(f"{where}: {faults(exc)}.") from exc


def _example(
    source: Mapping[str, Any], label: LabelColumn | None, lenient: bool
) -> LabelledExample:
    row = {k: v for k, v in source.items() if v is not None} | fields_of(source)
    for name, column in columns(
        source, {k: v for k, v in LABELS.items() if k != "faithful"}
    ).items():
        row[name] = row[column] if name == "annotators" else str(row[column])
    if label is not None:
        row |= _label(row, label, lenient)
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
    tags = {
        k: str(v)
        for k, v in {**meta, **row}.items()
        if k in _TAGS and isinstance(v, str | int | bool)
    }
    fields = {name: row[name] for name in _OPTIONAL if name in row}
    if label is not None and label.name == "score" and "faithful" in row:
        fields.pop("score", None)
    key = row.get("id", answer_key(fields.get("question"), context, answer))
    example = LabelledExample.model_validate(
        {
            **fields,
            "id": str(key),
            "context": context,
            "answer": unicode_text(answer),
            "tags": tags,
            "statements": _statements(row.get("statements", [])),
        }
    )
    for i, statement in enumerate(example.statements):
        outside = [
            c for c in statement.supporting_chunk_ids or () if not 0 <= c < len(context)
        ]
        if outside:
            raise InputError(
                f"statements[{i}] names chunk {outside[0]}, but the context has {counted(len(context), 'chunk')}, "
                "counted from 0"
            )
    return example


def _statements(statements: Any) -> Any:
    """Return statements without fields of others."""
    if not isinstance(statements, list):
        return statements
    ours = LabelledStatement.model_fields
    return [
        {k: v for k, v in s.items() if k in ours} if isinstance(s, dict) else s
        for s in statements
    ]


def _label(
    row: Mapping[str, Any], label: LabelColumn, lenient: bool
) -> dict[str, bool]:
    """Return the label of a row as true or false; nothing where it has none."""
    value = at(row, label.name)
    if value is None:
        return {}
    faithful = label.meaning(value)
    if faithful is not None:
        return {"faithful": faithful}
    if lenient and label.name != "faithful":
        return {}
    raise InputError(
        f"{label.name} is {value!r}, expected true or false, 1 or 0, yes or no, PASS or FAIL, or a verdict; "
        "`faith-dspy labels import` takes ratings, spans and other words (--value WORD=true)"
        if label.yes is not None
        else f"{label.doubt([value])}"
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
