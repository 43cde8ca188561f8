"""What labels mean: which column holds them, and whether a word, a number or several people's votes mean faithful.

It is understood once for all rows of a file (`find_label`) and said back. A column whose name and words do not tell is
not guessed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any

from faith_dspy.io.documents import first_present, literal, mapping, parsed
from faith_dspy.io.inputs import columns, is_filled
from faith_dspy.io.names import TABLES, Fields, Names
from faith_dspy.io.readers import clean
from faith_dspy.schema import LabelledExample, Verdict

ORIGINAL = "original_row"
"""Where a row stands by itself whose columns the user maps to fields: a field may be another's column."""
LABELS: Names = TABLES["label_columns"]
"""Names of the columns with what people said."""
AMBIGUOUS = TABLES["ambiguous_label_columns"]
"""Names of columns that may hold the label, and do not tell what a yes means."""
_SPANS = frozenset(TABLES["spans"])
"""Names of an object that marks a part of the answer."""
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
Meanings = Mapping[str, bool | None]
"""By word whether it means faithful; None leaves such a label out."""
YES_OR_NO: dict[str, bool] = TABLES["yes_or_no"]
_WORDS: dict[str, bool] = TABLES["label_words"]
"""Words that tell by themselves whether an answer is faithful, whatever the column is called."""
_WORDS |= {verdict.value: verdict.is_supported for verdict in Verdict}


def meanings_of(
    yes: bool | None = True, flipped: bool = False
) -> dict[str, bool | None]:
    """Return by word whether it means faithful.

    Args:
        yes: whether a yes means faithful; None where nothing tells.
        flipped: whether words that tell mean the opposite.
    """
    meanings: dict[str, bool | None] = {
        word: means is not flipped for word, means in _WORDS.items()
    }
    if yes is not None:
        meanings |= {word: is_yes is yes for word, is_yes in YES_OR_NO.items()}
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
    meanings: Meanings = field(default_factory=meanings_of)
    """What words mean; those that do not tell are not in it."""
    negated: Set[str] = frozenset()
    """Words that mean the opposite of what they say."""
    cells: Sequence[Any] = ()
    """What it holds, row by row."""

    @property
    def shown(self) -> str:
        """Its name as the file has it."""
        return self.name.removeprefix(f"{ORIGINAL}.")

    def meaning(self, value: Any) -> bool | None:
        """Return whether a value means faithful, of several people's the majority's; None where it does not tell.

        A list of spans of unsupported text, or counts of them, means faithful where it is empty.
        """
        value = parsed(value)
        if len(_names_in(value)) > 1:
            return None
        words = [*map(label_word, labels_in(value))]
        if words and self.meanings.keys() >= {*words}:
            return majority(map(self.meanings.get, words))
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

    @cached_property
    def is_voted(self) -> bool:
        """Whether its lists hold people's labels, not spans: then an empty one is no label."""
        lists = [cell for cell in map(parsed, self.cells) if isinstance(cell, list)]
        return not all(map(self._is_span, chain.from_iterable(lists)))

    def summary(self) -> str:
        """Say what was understood: ``faithful: 120 yes, 54 no, from 'hallucination', negated``."""
        counts = Counter(self.meaning(cell) for cell in self.cells if cell is not None)
        negated = ", negated" if self.negates() else ""
        return f"faithful: {counts[True]} yes, {counts[False]} no, from {self.shown!r}{negated}"

    def negates(self) -> bool:
        """Tell whether any of its cells means the opposite of what it says."""
        return not self.negated.isdisjoint(count_words(self.cells))

    def doubt(self, *cells: Any) -> str | None:
        """Ask in one sentence what those of its cells, or of these, mean that do not tell; None where all do."""
        values = [cell for cell in cells or self.cells if self.meaning(cell) is None]
        about = dict.fromkeys(chain.from_iterable(map(_names_in, values)))
        if len(about) > 1:
            return (
                f"{self.shown!r} is about {', '.join(about)}; say which is the label, e.g. "
                f"`faith-dspy labels import FILE --map faithful={self.shown}.{next(iter(about))}`"
            )
        for label in chain.from_iterable(map(labels_in, values)):
            if isinstance(label, Mapping) and not _is_span(label):
                keys = [*map(str, label)]
                return (
                    f"{self.shown!r} holds objects with {', '.join(keys)}; name what holds the label, e.g. "
                    f"`faith-dspy labels import FILE --map faithful={self.shown}.{keys[-1]}`"
                )
        counts = count_words(values)
        for word in self.meanings:  # of a tie each tells
            counts.pop(word, None)
        if not counts:
            return None
        word = max(counts, key=lambda word: YES_OR_NO.get(word, False))
        what = "has other words"
        if counts.keys() <= YES_OR_NO.keys():
            what = "does not tell which of its values means faithful"
        return (
            f"{self.shown!r} {what}: {listed(counts)}. Say what each means: `faith-dspy labels import FILE --map "
            f"faithful={self.shown} --value {word}=unfaithful` (or {word}=faithful)"
        )


def count_words(values: Iterable[Any]) -> Counter[str]:
    labels = (labels_in(value) for value in values if value is not None)
    return Counter(map(label_word, chain.from_iterable(labels)))


def listed(counts: Counter[str]) -> str:
    words = [f"{word!r} ({count:,})" for word, count in counts.most_common(8)]
    return ", ".join(words)


def labels_in(value: Any) -> list[Any]:
    """Return the labels in a cell: itself, or what tools wrap labels in, a list and an object that has a value."""
    value = parsed(value)
    if isinstance(value, list | tuple):
        return [label for vote in _submitted(value) for label in labels_in(vote)]
    if isinstance(value, Mapping) and not _is_span(value):
        label = first_present(value, TABLES["votes"])
        if label is not None:
            return labels_in(label)
    return [value]


def _submitted(votes: Iterable[Any]) -> list[Any]:
    """Leave out the votes of people who discarded the answer, or have not finished it."""
    return [
        vote
        for vote in votes
        if not mapping(vote).get("was_cancelled")
        and mapping(vote).get("status") not in TABLES["unsubmitted"]
    ]


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
    """Return the labels of an answer's annotators; those of a list are numbered where they name nobody."""
    labels = parsed(annotators)
    if isinstance(labels, list | tuple):
        numbered = {f"person {i}": label for i, label in enumerate(labels, 1)}
        labels = by_name(labels) or numbered
    if not isinstance(labels, Mapping):
        return {}
    return {who: label for who, label in clean(labels).items() if label is not None}


def by_name(votes: Any) -> dict[str, Any]:
    """Return the votes in a list of objects by the annotators that they name."""
    named = {}
    for vote in _submitted(votes) if isinstance(votes, list | tuple) else ():
        column = annotator_column(mapping(vote), TABLES["voters"])
        if column:
            named[str(vote[column])] = vote
    return named


def annotator_column(row: Fields, further: Sequence[str] = ()) -> str | None:
    """Return the column that names who labelled the row, or gave the vote; it may have a ``further`` name."""
    names = {"annotator": [*LABELS["annotator"], *further]}
    return columns(row, names).get("annotator")


def label_meaning(
    label: Any,
    values: Meanings | None = None,
    top: float | None = None,
) -> bool | None:
    """Return whether a person's label means faithful; None where nothing tells.

    Args:
        label: A boolean, a verdict's name, yes or no, PASS or FAIL, 1 or 0.
        values: What else means faithful, or does not.
        top: The rating from which a number means faithful.
    """
    number = rating(label)
    if top is not None and number is not None and not isinstance(label, bool):
        return number >= top
    explained = {label_word(value): means for value, means in (values or {}).items()}
    return LabelColumn("", meanings=meanings_of() | explained).meaning(label)


def with_majority(
    example: LabelledExample, values: Meanings | None = None
) -> LabelledExample:
    """Give an example that has no other label the majority of its annotators'."""
    if example.label is not None:
        return example
    labels = by_annotator(example.annotators).values()
    faithful = majority(label_meaning(label, values) for label in labels)
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
    values: Meanings | None = None,
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
    name = column.lstrip("!") or _label_name(rows)
    if not name:
        return None
    about = dict.fromkeys(chain.from_iterable(_names_in(at(row, name)) for row in rows))
    telling = [one for one in about if named_meaning(one) is not None]
    if len(about) > 1 and len(telling) == 1:
        name = f"{name}.{telling[0]}"
    flipped = column.startswith("!")
    yes = False if flipped else named_meaning(name)
    meanings = meanings_of(yes, flipped)
    plain = YES_OR_NO | _WORDS
    negated = {word for word in meanings if meanings[word] is not plain[word]}
    explained = {label_word(value): means for value, means in (values or {}).items()}
    cells = [at(row, name) for row in rows]
    further = count_words(cells).keys() - YES_OR_NO.keys()
    if any(rating(word) is not None for word in further):
        meanings.pop("0", None)
        meanings.pop("1", None)
    else:
        for word in explained.keys() & YES_OR_NO.keys():
            if explained[word] is None:
                continue
            means_yes = YES_OR_NO[word] is explained[word]
            pair: dict[str, bool | None] = {
                other: yes is means_yes for other, yes in YES_OR_NO.items()
            }
            explained = pair | explained
    meanings |= explained
    return LabelColumn(name, yes, meanings, negated - explained.keys(), cells)


def _label_name(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the column that is taken for the label: one of ours, else one whose name tells, else one that may be."""
    filled: dict[str, None] = {}
    for row in rows:
        filled |= {name: None for name, value in row.items() if value is not None}
    if filled.keys() & {"faithful", "statements"}:
        return "faithful" if "faithful" in filled else None
    has_our_score = filled.keys() >= {"score", "context", "answer"}
    further = [] if has_our_score else _names_in_lists(rows)
    for name in (*filled, *further):
        if named_meaning(name) is not None:
            return name
    for row in rows:
        filled.pop(columns(row).get("answer", ""), None)
    by_spelling = {_snake_case(name): name for name in filled}
    names = [*AMBIGUOUS, *TABLES["further_ambiguous_label_columns"]]
    ambiguous = [by_spelling[name] for name in names if name in by_spelling]
    if has_our_score:  # beside it, a column counts only if its words tell
        ambiguous = [name for name in ambiguous if _has_label_words(rows, name)]
    return next(iter(ambiguous), None)


def _names_in(scores: Any) -> dict[str, None]:
    """Return what each score or feedback in a list is about."""
    scores = parsed(scores)
    items = scores if isinstance(scores, list) else ()
    names = [_name_of(item) for item in items if not _is_span(item)]
    return dict.fromkeys(str(name) for name in names if name)


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
    words = count_words(at(row, column) for row in rows)
    return bool(words) and words.keys() <= _WORDS.keys()


def at(row: Any, column: str) -> Any:
    """Return the value of a column, or, with dots, inside an object or the JSON text of one.

    In a list it is the object of that name, else what stands there in each.
    """
    row = literal(row)
    first, _, rest = column.partition(".")
    if isinstance(row, list):
        named = [item for item in row if _name_of(item) == first]
        values = named or [at(item, column) for item in _submitted(row)]
        return [value for value in values if value is not None] or None
    if not isinstance(row, Mapping):
        return None
    if column in row:
        return _with_voters(row, column) if is_filled(row[column]) else None
    if not rest:
        return None
    return at(row.get(first), rest)


def _with_voters(row: Fields, column: str) -> Any:
    """Return a cell; votes beside which Argilla writes who gave each, and whether it is submitted, as objects."""
    beside = [literal(row.get(f"{column}.{name}")) for name in ("status", "users")]
    votes = literal(row[column])
    if not isinstance(votes, list) or not isinstance(beside[0], list):
        return row[column]
    names = ("value", "status", "user")
    cells = zip_longest(votes, *(cell or () for cell in beside))
    return [dict(zip(names, vote, strict=True)) for vote in cells]


def _name_of(item: Any) -> Any:
    """Return what an object in a list of scores or of feedback is about."""
    return first_present(mapping(item), ("name", "key"))


def rating(label: Any) -> float | None:
    """Return a person's label as a finite number; None if it is not one."""
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
