"""The words that people label with."""

from __future__ import annotations

import math
from typing import Any

from faith_dspy.schema import Verdict

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
