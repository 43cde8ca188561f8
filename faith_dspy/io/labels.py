"""Labels: JSON lines or a table in, labelled examples out, with the file and line of whatever is wrong.

Which column holds the label, and whether a yes in it means faithful, is understood once for all rows of a file
(`find_label`) and said back. A column whose name and words do not tell is not guessed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from pydantic import ValidationError

from faith_dspy.errors import InputError, LabelsError, counted, describe_invalid
from faith_dspy.io.documents import first_present, literal, mapping, parsed
from faith_dspy.io.inputs import (
    COLUMNS,
    NAMES,
    AnswerInput,
    Names,
    Record,
    close_pair,
    columns,
    fields_of,
    is_filled,
    log_columns,
    log_once,
    missing,
    second_answer,
)
from faith_dspy.io.names import TABLES, Fields
from faith_dspy.io.readers import FIRST, clean, name_of, open_records
from faith_dspy.schema import Chunk, LabelledExample, LabelledStatement, Verdict, digest

_FORMAT = (
    'One JSON object a line, or a row of a table: {"context": ["…"], "answer": "…"} and at least one of '
    '"faithful": true|false, "score": 0…1, "statements": [{"text": "…", "verdict": "fully_supported"}]; '
    '"question", "id", "annotators", "group" and "split" are optional. With other '
    "column names: faith-dspy labels import FILE --map answer=COLUMN."
)
LABELS: Names = TABLES["label_columns"]
"""Names of the columns with what people said."""
_FURTHER_COLUMNS: Names = {
    name: LABELS[name] for name in ("group", "split", "annotators", "labelled_by")
}
_AMBIGUOUS = TABLES["ambiguous_label_columns"]
"""Names of columns that may hold the label, and do not tell what a yes means."""
_LABEL_NAMES: Names = {"faithful": [*LABELS["faithful"], *_AMBIGUOUS]}
_SPANS = frozenset(TABLES["spans"])
"""Names of an object that marks a part of the answer."""
_ANNOTATOR: Names = {"annotator": LABELS["annotator"]}
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
_ROW = "original_row"
"""Where a label stands whose column the user maps to another field, too."""
_MOST = 10
"""Kinds of faults that are named at once."""
_TELLING_NAME = re.compile(
    r"(?:(?:is|are|has|have|contains?|includes?|any|human|gold|expert|answer|response|label|labels|a)_)*"
    r"(?P<not>(?:not|no|non|without|free_of)_?)?"
    r"(?:(?P<faithful>faithful(?:ness)?|(?:well_?)?grounded(?:ness)?|supported|factual(?:ity)?"
    r"|(?:factual(?:ly)?_)?consisten(?:t|cy)|attributable|attributed|truthful|entailed)"
    r"|hallucinat(?:ions?|ed|es|ing)|unfaithful(?:ness)?|unsupported|ungrounded|unattributable|untruthful"
    r"|(?:factual(?:ly)?_)?inconsisten(?:t|cy|cies)|fabricat(?:ions?|ed)|(?<=_)(?:factual_)?errors?)"
    r"(?P<free>_free)?(?:_(?:labels?|flag|binary|bool|detected|present|found|gold|human|spans?|annotations?|yn))*"
)
"""Names of a column that tell what a yes in it means, in snake case."""
_MODEL = re.compile(
    r"(?i)(?:an? )?(?:model|llm|lm|ai)\b|.*\b(?:gpt\b"
    r"|(?:gpt|claude|gemini|gemma|llama|mistral|qwen|deepseek|grok|phi|o)[-_ :.]?\d)"
)
"""In the name of who gave a label: it was a model."""
_YES_OR_NO: dict[str, bool] = TABLES["yes_or_no"]
_WORDS: dict[str, bool] = TABLES["label_words"]
"""Words that tell by themselves whether an answer is faithful, whatever the column is called."""
_WORDS |= {verdict.value: verdict.is_supported for verdict in Verdict}


def meanings_of(yes: bool | None = True, flipped: bool = False) -> dict[str, bool]:
    """Return by word whether it means faithful.

    Args:
        yes: whether a yes means faithful; None where nothing tells.
        flipped: whether words that tell mean the opposite.
    """
    meanings = {word: means is not flipped for word, means in _WORDS.items()}
    if yes is not None:
        meanings |= {word: is_yes is yes for word, is_yes in _YES_OR_NO.items()}
    if yes:
        del meanings["none"]  # no hallucinations, or no label
    return meanings


@dataclass(frozen=True)
class LabelColumn:
    """Where labels stand, and what they mean."""

    name: str
    """The column; with dots, inside an object."""
    yes: bool | None = True
    """Whether a yes, true or 1 means faithful; None where nothing tells."""
    meanings: Mapping[str, bool] = field(default_factory=meanings_of)
    """By word, whether it means faithful; words that do not tell are left out."""
    negated: Collection[str] = ()
    """Words that mean the opposite of what they say."""
    is_voted: bool = False
    """Whether its lists hold people's labels; else they hold spans."""

    def meaning(self, value: Any) -> bool | None:
        """Return whether a value means faithful, of several people's the majority's; None where it does not tell.

        A list of spans of unsupported text, or counts of them, means faithful where it is empty.
        """
        value = parsed(value)
        meanings = [self.meanings.get(label_word(label)) for label in labels_in(value)]
        if meanings and None not in meanings:
            return majority(meanings)
        if self.yes is True or self.is_voted:
            return None
        if isinstance(value, list):
            return not value if all(map(self._is_span, value)) else None
        if isinstance(value, Mapping) and self.yes is False:
            counts = value.values()
            are_counts = all(isinstance(count, int | float | list) for count in counts)
            return not any(counts) if are_counts else None
        return None

    def _is_span(self, mark: Any) -> bool:
        is_text = isinstance(mark, str) and label_word(mark) not in self.meanings
        return _is_span(mark) or (is_text and self.yes is False)

    def with_votes(self, values: Iterable[Any]) -> LabelColumn:
        """Return the column as it is where a list holds people's labels, not spans: then an empty one is no label."""
        lists = [value for value in map(parsed, values) if isinstance(value, list)]
        is_voted = any(not all(map(self._is_span, marks)) for marks in lists)
        return replace(self, is_voted=is_voted)

    def summary(self, values: Iterable[Any]) -> str:
        """Say what was understood: ``faithful: 120 yes, 54 no, from 'hallucination', negated``."""
        values = [value for value in values if value is not None]
        counts = Counter(map(self.meaning, values))
        is_negated = self.negates(values)
        negated = ", negated" if is_negated else ""
        return f"faithful: {counts[True]} yes, {counts[False]} no, from {self.name!r}{negated}"

    def negates(self, values: Iterable[Any]) -> bool:
        """Tell whether any of the values means the opposite of what it says."""
        words = _count_words(values).keys()
        return not words.isdisjoint(self.negated)

    def doubt(self, values: Iterable[Any]) -> str | None:
        """Ask in one sentence what the values that do not tell mean; None where all do."""
        values = [value for value in values if self.meaning(value) is None]
        for label in chain.from_iterable(map(labels_in, values)):
            if isinstance(label, Mapping) and not _is_span(label):
                names = [*map(str, label)]
                return (
                    f"{self.name!r} holds objects with {', '.join(names)}; name what holds the label, e.g. "
                    f"`faith-dspy labels import FILE --map faithful={self.name}.{names[-1]}`"
                )
        counts = _count_words(values)
        for word in self.meanings:  # of a tie each tells
            counts.pop(word, None)
        if not counts:
            return None
        word = max(counts, key=lambda word: _YES_OR_NO.get(word, False))
        what = "has other words"
        if counts.keys() <= _YES_OR_NO.keys():
            what = "does not tell which of its values means faithful"
        return (
            f"{self.name!r} {what}: {_listed(counts)}. Say what each means: `faith-dspy labels import FILE --map "
            f"faithful={self.name} --value {word}=unfaithful` (or {word}=faithful)"
        )


def _count_words(values: Iterable[Any]) -> Counter[str]:
    labels = (labels_in(value) for value in values if value is not None)
    return Counter(map(label_word, chain.from_iterable(labels)))


def _listed(counts: Counter[str]) -> str:
    words = [f"{word!r} ({count:,})" for word, count in counts.most_common(8)]
    return ", ".join(words)


def labels_in(value: Any) -> list[Any]:
    """Return the labels in a cell: itself, or what tools wrap labels in, a list and an object that has a value."""
    value = parsed(value)
    if isinstance(value, list | tuple):
        return [label for item in value for label in labels_in(item)]
    if isinstance(value, Mapping) and not _is_span(value):
        label = first_present(value, TABLES["votes"])
        if label is not None:
            return labels_in(label)
    return [value]


def _is_span(mark: Any) -> bool:
    """Return whether an object marks a part of the answer: it has offsets or a text."""
    names = map(_snake_case, mapping(mark))
    return not _SPANS.isdisjoint(names)


def majority(votes: Iterable[bool | None]) -> bool | None:
    """Return the label of more than half of the votes that are not None; None at a tie, or without votes."""
    counts = Counter(votes)
    if counts[True] == counts[False]:
        return None
    return counts[True] > counts[False]


def by_annotator(annotators: Any) -> dict[str, Any]:
    """Return the labels of an answer's annotators; those of a list, or of one inside a list of one, are numbered."""
    labels = parsed(annotators)
    if isinstance(labels, list | tuple):
        if len(labels) == 1 and isinstance(labels[0], list | tuple):
            labels = labels[0]
        labels = {f"person {i}": label for i, label in enumerate(labels, 1)}
    if not isinstance(labels, Mapping):
        return {}
    return {who: label for who, label in clean(labels).items() if label is not None}


def label_meaning(label: Any, values: Mapping[str, bool] | None = None) -> bool | None:
    """Return whether a person's label means faithful; None where neither it nor ``values`` tell."""
    meanings = meanings_of()
    for value, faithful in (values or {}).items():
        meanings[label_word(value)] = faithful
    return LabelColumn("faithful", meanings=meanings).meaning(label)


def votes_of(
    example: LabelledExample, values: Mapping[str, bool] | None = None
) -> list[bool | None]:
    """Return whether each annotator's label means faithful."""
    labels = by_annotator(example.annotators).values()
    return [label_meaning(label, values) for label in labels]


def with_majority(
    example: LabelledExample, values: Mapping[str, bool] | None = None
) -> LabelledExample:
    """Give an example that has no other label the majority of its annotators'."""
    if example.label is not None:
        return example
    faithful = majority(votes_of(example, values))
    return example.model_copy(update={"faithful": faithful})


def label_word(value: Any) -> str:
    """Return a label as a word to look up: lower case, ``_`` for spaces and hyphens, ``1`` for 1.0."""
    number = rating(value)
    if number is not None and not isinstance(value, bool):
        return f"{number:g}"
    text = str(value).strip().casefold()
    return re.sub(r"[\s-]+", "_", text)


def named_meaning(column: str) -> bool | None:
    """Return whether a yes in a column of that name means faithful; None where the name does not tell."""
    *_, last = str(column).removesuffix(".responses").split(".")
    name = _snake_case(last)
    match = _TELLING_NAME.fullmatch(name.strip("_"))
    if match is None:
        return None
    negations = [not match["faithful"], match["not"], match["free"]]
    count = sum(map(bool, negations))
    return count % 2 == 0


def _snake_case(name: object) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^\w]+", "_", str(name))
    return words.casefold()


def find_label(
    rows: Sequence[Fields],
    column: str = "",
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
    name = column.lstrip("!") if column else _label_name(rows)
    if name is None:
        return None
    flipped = column.startswith("!")
    yes = named_meaning(name)
    if flipped:
        yes = False
    meanings = meanings_of(yes, flipped)
    explained = {
        label_word(value): faithful for value, faithful in (values or {}).items()
    }
    words = _count_words(at(row, name) for row in rows).keys()
    further = words - _YES_OR_NO.keys()
    if any(rating(word) is not None for word in further):
        meanings.pop("0", None)
        meanings.pop("1", None)
    else:
        for word in explained.keys() & _YES_OR_NO.keys():
            means_yes = _YES_OR_NO[word] is explained[word]
            pair = {other: yes is means_yes for other, yes in _YES_OR_NO.items()}
            explained = pair | explained
    plain = _YES_OR_NO | _WORDS
    negated = {word for word in meanings if meanings[word] is not plain[word]}
    label = LabelColumn(
        name=name,
        yes=yes,
        meanings=meanings | explained,
        negated=negated - explained.keys(),
    )
    return label.with_votes(at(row, name) for row in rows)


def _label_name(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the column that is taken for the label: one of ours, else one whose name tells, else one that may be."""
    filled: dict[str, None] = {}
    for row in rows:
        filled |= {name: None for name, value in row.items() if value is not None}
    if filled.keys() & {"faithful", "statements"}:
        return "faithful" if "faithful" in filled else None
    telling = [name for name in filled if named_meaning(name) is not None]
    if telling:
        return telling[0]
    has_our_score = filled.keys() >= {"score", "context", "answer"}
    for row in rows:
        filled.pop(columns(row).get("answer", ""), None)
    by_spelling = {_snake_case(name): name for name in filled}
    names = [*_AMBIGUOUS, *TABLES["further_ambiguous_label_columns"]]
    ambiguous = [by_spelling[name] for name in names if name in by_spelling]
    if has_our_score:  # beside it, a column counts only if its words tell
        ambiguous = [name for name in ambiguous if _has_label_words(rows, name)]
    named = []
    if not has_our_score:
        named = [
            name for name in _names_in_lists(rows) if named_meaning(name) is not None
        ]
    return next(iter(ambiguous + named), None)


def _names_in_lists(rows: Iterable[Fields]) -> list[str]:
    """Return the path to each score or feedback in a list: ``scores.faithful``."""
    return [
        f"{column}.{_name_of(item)}"
        for row in rows
        for column, value in row.items()
        for item in (value if isinstance(value, list) else ())
        if not _is_span(item)
    ]


def _has_label_words(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    """Return whether a column has nothing but words like “PASS” and “unsupported”."""
    words = _count_words(at(row, column) for row in rows)
    return bool(words) and words.keys() <= _WORDS.keys()


def at(row: Any, column: str) -> Any:
    """Return the value of a column, or, with dots, inside an object or the JSON text of one.

    In a list it is the object of that name, else what stands there in each.
    """
    row = literal(row)
    first, _, rest = column.partition(".")
    if isinstance(row, list):
        named = [item for item in row if _name_of(item) == first]
        values = named or [at(item, column) for item in row]
        return [value for value in values if value is not None] or None
    if not isinstance(row, Mapping):
        return None
    if column in row:
        return row[column] if is_filled(row[column]) else None
    if not rest:
        return None
    return at(row.get(first), rest)


def _name_of(item: Any) -> Any:
    """Return what an object in a list of scores or of feedback is about."""
    return first_present(mapping(item), ("name", "key"))


def read_labels(
    source: Any,
    *,
    require_label: bool = True,
    columns: Mapping[str, str] | None = None,
    values: Mapping[str, bool] | None = None,
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
        columns: field → column, where names do not tell; ``"faithful": "!column"`` negates it.
        values: what a value of the label means: ``{"1": False}``.
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
        column = re.sub(r"^!?", rf"\g<0>{_ROW}.", column)
    with open_records(source) as opened:
        records = [_with_columns(record, columns, recorded) for record in opened]
    rows = [record.row for record in records if isinstance(record.row, Mapping)]
    _check_columns(rows, name, columns, texts)
    label = find_label(rows, column, values)
    _check_values(rows, name, label, column, values or {})
    summary = ""
    if label and label.name != "faithful":  # of ours each line is named
        labels = [at(row, label.name) for row in rows]
        doubt = label.doubt(labels)
        summary = "" if doubt else label.summary(labels)
        if doubt and (require_label or values or columns or unreadable is not None):
            raise LabelsError(f"{name}: {doubt}.")
    read = {
        *NAMES,
        *LABELS,
        *LABELS["annotator"],
        _ROW,
        *_READ,
        *_TAGS,
        *columns.values(),
        *further,
    }
    read.add(label.name if label else "")
    log_columns(rows[:FIRST], name, {**COLUMNS, **_FURTHER_COLUMNS}, read, summary)
    examples = _examples(records, name, label, not require_label, unreadable, texts)
    examples = [with_majority(example, values) for example in examples]
    if require_label:
        examples = [example for example in examples if example.label is not None]
    if not examples:
        why = None
        if label:
            why = label.doubt(at(row, label.name) for row in rows)
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
    row = {**record.row, _ROW: record.row} if columns else dict(record.row)
    for name in columns.keys() - {"faithful"}:
        row[name] = at(record.row, columns[name])
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
            got = ", ".join(map(str, rows[0]))
            likely = close_pair([column], [*rows[0]])
            hint = f"; did you mean {likely[1]!r}?" if likely else "."
            raise LabelsError(
                f"{name}: got {got}, but no {column!r} for --map {needed}={column}{hint}"
            )
    if not texts:
        return
    for row in rows:
        problem = second_answer(row)
        if problem and "answer" not in columns_by_field:
            raise LabelsError(
                f"{name}: {problem}. Say it with `faith-dspy labels import FILE --map answer=COLUMN`."
            )
    for needed in ("context", "answer"):
        if not any({needed, "conversation"} & fields_of(row).keys() for row in rows):
            raise LabelsError(f"{name}: {missing(rows[0], needed)}. {_FORMAT}")


def _check_values(
    rows: Sequence[Fields],
    name: str,
    label: LabelColumn | None,
    column: str,
    values: Mapping[str, bool],
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
    labels = [at(row, label.name) for row in rows]
    counts = _count_words(labels)
    for value in values:
        if label_word(value) not in counts:
            raise LabelsError(
                f"{name}: got --value {value}, but {label.name!r} has {_listed(counts)}; expected one of these."
            )
    if column.startswith("!") and not label.negates(labels):
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
    rows: list[_Row] = []
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
            example.columns.update(record.aside or {})
            rows.append(_Row.of(example, record, where))
        except LabelsError as exc:
            faults.append(str(exc))
    for row in _one_an_answer(rows, name):
        example = row.example
        if example.id in place_of:
            faults.append(
                f"{row.where}: is the answer at {place_of[example.id]} again, or has its id {example.id!r}. Keep one "
                "of the two (each person's own label can stand in 'annotators', or each row name its 'annotator'), "
                "or give each its own id."
            )
            continue
        place_of[example.id] = row.where
        examples.append(example)
    if unreadable is not None:
        unreadable += faults
    elif faults:
        raise LabelsError(_summary_of_faults(faults, form))
    return examples


@dataclass(frozen=True)
class _Row:
    """A row of a file with whoever labelled it."""

    example: LabelledExample
    line: int
    where: str
    key: Any
    """Equal for rows about one answer."""
    annotator: str | None

    @classmethod
    def of(cls, example: LabelledExample, record: Record, where: str) -> _Row:
        row = mapping(record.row)
        column = columns(row, _ANNOTATOR).get("annotator")
        annotator = None if column is None else str(row[column])
        key: Any = answer_key(example.question, example.context, example.answer)
        if annotator is None or not example.answer:
            key = key, example.id
        return cls(example, record.line, where, key, annotator)


def _one_an_answer(rows: Sequence[_Row], name: str) -> list[_Row]:
    """Join the rows of several people about one answer into one with ``annotators``.

    They name them, or their labels differ somewhere in the file; else a row is there twice.
    """
    rows_of: dict[Any, list[_Row]] = {}
    for row in rows:
        rows_of.setdefault(row.key, []).append(row)
    differ = any(len({r.example.label for r in same}) > 1 for same in rows_of.values())
    joined: list[_Row] = []
    for same in rows_of.values():
        labels = {
            row.annotator or f"person {i}": row.example.label
            for i, row in enumerate(same, 1)
        }
        is_by_several = differ or same[0].annotator is not None
        if len(same) == 1 or len(labels) < len(same) or not is_by_several:
            joined += same
            continue
        first = same[0].example
        shared = first.tags.items()
        tags = {
            k: v for k, v in shared if all(r.example.tags.get(k) == v for r in same)
        }
        labelled = {who: label for who, label in labels.items() if label is not None}
        fields: dict[str, Any] = {
            "annotators": labelled,
            "tags": tags,
            "faithful": None,
            "score": None,
            "statements": (),
        }
        joined.append(replace(same[0], example=first.model_copy(update=fields)))
    if len(joined) < len(rows):
        log_once(
            f"{name}: {len(rows):,} rows of several people about {counted(len(joined), 'answer')}; the majority counts"
        )
    return sorted(joined, key=lambda row: row.line)


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
    except InputError as exc:
        raise LabelsError(f"{where}: {str(exc).rstrip('.')}.") from exc
    except ValidationError as exc:
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
    row |= fields_of(source)
    for name, column in columns(source, _FURTHER_COLUMNS).items():
        row[name] = row[column]
        if name != "annotators":
            row[name] = str(row[column])
    if label is not None:
        row |= _label(row, label, lenient)
        if label.name == "score" and "faithful" in row:
            row.pop("score", None)
    read = _input(source, row) if texts else AnswerInput.of(source)
    fields = {name: row[name] for name in LabelledExample.model_fields if name in row}
    key = answer_key(read.question, read.chunks, read.answer)
    fields["id"] = str(row.get("id", key))
    fields["question"] = read.question
    fields["context"] = read.chunks
    fields["answer"] = read.answer
    fields["tags"] = _tags(row)
    fields["columns"] = _further(source, label)
    fields["statements"] = _statements(row.get("statements", []))
    example = LabelledExample(**fields)
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


def _input(source: Fields, row: Fields) -> AnswerInput:
    """Return what was judged; neither context nor answer is empty."""
    question, context, answer = map(row.get, ("question", "context", "answer"))
    if "conversation" in row and not isinstance(answer, str):
        read = AnswerInput.make(question, conversation=row["conversation"])
    else:
        for needed in ("context", "answer"):
            if needed not in row:
                raise InputError(missing(source, needed))
        read = AnswerInput.make(question, context, answer)
    if not any(chunk.text.strip() for chunk in read.chunks):
        raise InputError(
            "context is empty: a labelled example needs the text the answer was judged against"
        )
    if not read.answer.strip():
        raise InputError(f"answer is {read.answer!r}, expected text")
    return read


def _tags(row: Fields) -> dict[str, str]:
    meta = row.get("meta")
    fields = {**meta, **row} if isinstance(meta, dict) else row
    tags = {}
    for name in _TAGS:
        value = fields.get(name)
        if isinstance(value, str | int):
            tags[name] = str(value)
    return tags


def _statements(statements: Any) -> Any:
    """Return statements without fields of others."""
    if isinstance(statements, list):
        return list(map(_statements, statements))
    if not isinstance(statements, dict):
        return statements
    ours = statements.keys() & LabelledStatement.model_fields
    return {name: statements[name] for name in ours}


def _label(row: Fields, label: LabelColumn, lenient: bool) -> dict[str, bool]:
    """Return the label of a row as true or false; nothing where it has none."""
    value = at(row, label.name)
    if value is None:
        return {}
    faithful = label.meaning(value)
    if faithful is not None:
        return {"faithful": faithful}
    if label.is_voted and label.doubt([value]) is None:  # a tie, or nobody voted
        return {}
    if lenient and label.name != "faithful":
        return {}
    if label.yes is None or label_word(value) in _YES_OR_NO:  # a 1 beside a 2
        raise InputError(str(label.doubt([value])))
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
    if top is not None and not isinstance(label, bool):
        number = rating(label)
        if number is not None:
            return number >= top
    column = LabelColumn("annotators")
    return column.meaning(label)
