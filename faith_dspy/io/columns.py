"""A column with what another judge said of each answer: a cell → a number, a higher one more faithful."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Self

from faith_dspy.errors import InputError
from faith_dspy.io.meanings import LabelColumn, at, meanings_of, named_meaning, rating

_PERCENT = re.compile(r"(-?\d+(?:\.\d+)?)\s*%")
_MEASURE = re.compile(r"_(?:scores?|prob(?:ability)?|rate)$")
"""Ends of a column's name that say nothing of its direction."""


class ScoreColumn(NamedTuple):
    """What is read of a column, by its name alone."""

    name: str
    is_upright: bool
    """Whether a higher value, or a yes, means more faithful."""
    verdict: LabelColumn

    @classmethod
    def of(cls, column: str) -> Self:
        """Return the column of that name; ``!`` before it turns round what the name tells of its direction."""
        name = column.removeprefix("!")
        is_flipped = name != column
        is_upright = _is_upright(name) is not is_flipped
        meanings = meanings_of(is_upright, is_flipped)
        return cls(name, is_upright, LabelColumn(name, is_upright, meanings))

    def number(self, cell: Any) -> float | None:
        """Return a cell as a number; None where it is none, or a share beyond 100 %."""
        percent = _PERCENT.fullmatch(str(cell).strip())
        if percent is None:
            return rating(cell)
        share = float(percent[1]) / 100
        return share if 0 <= share <= 1 else None

    def value(self, cell: Any) -> float | None:
        """Return what a cell says, a higher number more faithful, of a verdict 1 or 0; None where it says nothing."""
        number = self.number(cell)
        if number is not None:
            return number if self.is_upright else 1 - number
        is_faithful = None if cell is None else self.verdict.meaning(cell)
        return None if is_faithful is None else float(is_faithful)


score_column = lru_cache(maxsize=256)(ScoreColumn.of)


def read_scores(row: Any, columns: Iterable[str]) -> dict[str, float]:
    """Return by column what each says in a row; those that say nothing are left out."""
    values = {}
    for column in columns:
        judge = score_column(column)
        value = judge.value(at(row, judge.name))
        if value is not None:
            values[column] = value
    return values


def column_names(columns: str | Iterable[str]) -> tuple[str, ...]:
    """Return names of columns, each once, that stand in a list or with commas between; `InputError` where none does."""
    names = columns.split(",") if isinstance(columns, str) else columns
    stripped = dict.fromkeys(filter(None, map(str.strip, names)))
    if isinstance(columns, str) and not stripped:
        raise InputError(
            f"got --scores {columns!r}, expected names of columns with commas between."
        )
    return tuple(stripped)


def _is_upright(name: str) -> bool:
    words = _MEASURE.sub("", re.sub(r"\W+", "_", name).casefold()).split("_")
    for start in range(len(words)):  # deepeval_hallucination
        meaning = named_meaning("_".join(words[start:]))
        if meaning is not None:
            return meaning
    return True
