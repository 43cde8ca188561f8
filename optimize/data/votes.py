"""Several people's labels of one answer as one label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError
from faith_dspy.scoring.annotators import rating, vote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_words(settings: Iterable[str]) -> dict[str, bool]:
    """Parse the meaning of label words, written as ``grounded=true``, ``made up=false``."""
    words = {}
    for setting in settings:
        word, equals, truth = (part.strip() for part in setting.rpartition("="))
        if not equals or not word or truth.lower() not in _TRUTH:
            raise InputError(f"{setting!r} says no label's meaning; expected WORD=true or WORD=false, e.g. FAIL=false.")
        words[word.casefold()] = _TRUTH[truth.lower()]
    return words


def meaning(label: Any, words: Mapping[str, bool], top: float = 1.0) -> bool | None:
    """Whether a label means faithful: by ``words``, else as `annotators.vote` reads it; None if neither knows it."""
    return words.get(str(label).strip().casefold(), vote(label, top))


def best_rating(labels: Iterable[Any]) -> float:
    """The highest rating among labels, at least 1; only that rating means faithful."""
    return max([1.0, *(r for label in labels if (r := rating(label)) is not None)])


def majority(votes: Iterable[bool | None]) -> bool | None:
    """The label of more than half of the votes that are not None; None at a tie, or without votes."""
    given = [v for v in votes if v is not None]
    margin = 2 * sum(given) - len(given)
    return None if margin == 0 else margin > 0
