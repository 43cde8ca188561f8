"""Labels that came from elsewhere – another tool's file, people's feedback in MLflow – as lines of a labels file.

What their words mean, several people's labels of one answer as one, and the file that is written.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from faith_dspy.errors import InputError, counted
from faith_dspy.io.files import write_file
from faith_dspy.io.words import rating, truth, vote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


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
    unused: str = ""
    """The columns that nothing was read from, in words."""

    @property
    def n(self) -> int:
        """Answers that people labelled, usable or not."""
        return len(self.rows) + len(self.split) + len(self.unreadable)

    @property
    def sentence(self) -> str:
        """What was imported and what was left out."""
        text = (
            f"{counted(len(self.rows), 'labelled answer')}, {sum(bool(r.get('faithful')) for r in self.rows)} faithful"
        )
        if self.top is not None:
            text += f" (rated {self.top:g}, the highest rating; others with --value RATING=true)"
        if self.unlabelled:
            text += f"; {self.unlabelled} left out without a label"
        if self.split:
            text += f"; {len(self.split)} left out because people are split"
        if self.unreadable:
            first = next(iter(self.unreadable.values()))
            text += f"; {len(self.unreadable)} without answer or context, the first: {first.rstrip('.')}"
        if self.unknown:
            named = ", ".join(f"{word!r} ({n})" for word, n in self.unknown.items())
            text += f"; of unknown meaning: {named} – say it with --value WORD=true or WORD=false"
        return f"{text}."


def write_labels(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as a labels file; `InputError` when there are none."""
    if not rows:
        raise InputError(f"there is no labelled answer to write to {path}.")
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def parse_words(settings: Iterable[str]) -> dict[str, bool]:
    """Parse the meaning of label words, written as ``grounded=true``, ``made up=false``."""
    words = {}
    for setting in settings:
        word, equals, truth = (part.strip() for part in setting.rpartition("="))
        if not equals or not word or truth.lower() not in _TRUTH:
            raise InputError(f"{setting!r} says no label's meaning; expected WORD=true or WORD=false, e.g. FAIL=false.")
        words[word.casefold()] = _TRUTH[truth.lower()]
    return words


def meaning(label: Any, words: Mapping[str, bool], top: float | None = 1.0) -> bool | None:
    """Whether a label means faithful: by ``words``, else as `vote` reads it (`truth` where ``top`` is None); None if
    neither knows it."""
    return words.get(str(label).strip().casefold(), truth(label) if top is None else vote(label, top))


def best_rating(labels: Iterable[Any]) -> float | None:
    """The highest rating among labels, at least 1; only that rating means faithful.

    None where words stand among the ratings: then they are no scale, and only 1 and 0 mean anything.
    """
    ratings = [rating(label) for label in labels if label is not None and not isinstance(label, bool)]
    best = max([1.0, *(r for r in ratings if r is not None)])
    return None if best > 1 and None in ratings else best


def majority(votes: Iterable[bool | None]) -> bool | None:
    """The label of more than half of the votes that are not None; None at a tie, or without votes."""
    given = [v for v in votes if v is not None]
    margin = 2 * sum(given) - len(given)
    return None if margin == 0 else margin > 0
