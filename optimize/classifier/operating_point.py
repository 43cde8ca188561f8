"""The operating point a user asks for, the threshold that reaches it, and the review range around that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

import numpy as np

from faith_dspy.errors import ConfigError, InputError, counted

REVIEWED = 0.2
"""Share of the answers in the review range."""


class OperatingPoint(NamedTuple):
    """What the threshold is chosen for. Written ``balanced``, ``recall=0.9`` or ``cost=5``."""

    kind: Literal["balanced", "recall", "cost"] = "balanced"
    value: float | None = None
    """Of ``recall`` the share of unfaithful answers to catch, above 0 and below 1; of ``cost`` how many times worse it
    is to pass an unfaithful answer than to fail a faithful one, above 0; None for ``balanced``."""

    @classmethod
    def parse(cls, text: str) -> OperatingPoint:
        """Read ``balanced``, ``recall=R`` or ``cost=C``; `ConfigError` saying what each means."""
        kind, _, number = text.strip().lower().partition("=")
        if text.strip().lower() == "balanced":
            return BALANCED
        with suppress(ValueError):
            if 0 < float(number) < {"recall": 1.0, "cost": math.inf}.get(kind, 0.0):
                return cls(kind, float(number))  # type: ignore[arg-type]  # checked
        raise ConfigError(
            f"got operating point {text!r}, expected one of balanced; recall=0.9, the share of unfaithful answers to "
            "catch, above 0 and below 1; cost=5, how many times worse it is to pass an unfaithful answer than to fail "
            "a faithful one."
        )

    def __str__(self) -> str:
        return self.kind if self.value is None else f"{self.kind}={self.value:g}"


BALANCED = OperatingPoint()


def threshold_for(
    point: OperatingPoint, probabilities: Sequence[float], labels: Sequence[bool]
) -> float:
    """The threshold t for ``point``; an answer passes when its probability is at least t.

    - ``balanced``: the share of faithful answers, the best for calibrated probabilities.
    - ``cost=C``: C / (1 + C), where passing and failing cost the same on average (Elkan 2001, *The foundations of
      cost-sensitive learning*).
    - ``recall=R``: above the ⌈(n + 1) R⌉-th lowest of the n unfaithful answers (split conformal prediction: Vovk et al.
      2005; Angelopoulos & Bates 2023, §1), so that the share R of new ones is caught on average, not of these.

    ``probabilities`` (cross-fitted) and ``labels`` (True = faithful) are of the same answers, with both labels.
    `InputError` where these are too few for R.
    """
    p, y = np.array(probabilities), np.array(labels, dtype=bool)
    if point.kind == "balanced" or point.value is None:
        return float(y.mean())
    if point.kind == "cost":
        return point.value / (1 + point.value)
    unfaithful = np.sort(p[~y])
    check_recall(point, len(unfaithful))
    last = float(unfaithful[_rank(point.value, len(unfaithful)) - 1])
    return (last + float(p[p > last].min(initial=1.0))) / 2


def _rank(recall: float, n: int) -> int:
    return math.ceil((n + 1) * recall - 1e-9)


def check_recall(point: OperatingPoint, unfaithful: int) -> None:
    """`InputError` where so many unfaithful answers are too few for a threshold that catches the share asked for."""
    if (
        point.kind == "recall"
        and point.value is not None
        and _rank(point.value, unfaithful) > unfaithful
    ):
        least = math.ceil(point.value / (1 - point.value) - 1e-9)
        raise InputError(
            f"operating point {point}: got {counted(unfaithful, 'unfaithful answer')} to fit on, expected at least "
            f"{least}; label more of them, or ask for less."
        )


def review_range(
    probabilities: Sequence[float], threshold: float
) -> tuple[float, float]:
    """The range (low, high) around ``threshold`` that holds the share `REVIEWED` of the answers, those nearest to it.

    ``probabilities``: cross-fitted.
    """
    reach = float(np.quantile(np.abs(np.array(probabilities) - threshold), REVIEWED))
    return max(0.0, threshold - reach), min(1.0, threshold + reach)
