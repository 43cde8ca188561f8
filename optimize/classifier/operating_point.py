"""The operating point a user asks for, the threshold that reaches it, and the review range around that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from faith_dspy.errors import ConfigError
from faith_dspy.report.tables import NONE
from faith_dspy.scoring.agreement import Agreement

if TYPE_CHECKING:
    from faith_dspy.scoring.statistics import Bools, Estimate, Floats

SURE = 0.9
"""How often the judge should be right on either side of the review range."""


class OperatingPoint(NamedTuple):
    """What the threshold is chosen for. Written ``balanced``, ``recall=0.9`` or ``cost=5``."""

    kind: Literal["balanced", "recall", "cost"] = "balanced"
    value: float | None = None
    """Of ``recall`` the share of unfaithful answers to stop, above 0 and below 1; of ``cost`` how many times worse it
    is to pass an unfaithful answer than to stop a faithful one, above 0; None for ``balanced``."""

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
            "stop, above 0 and below 1; cost=5, how many times worse it is to pass an unfaithful answer than to stop a "
            "faithful one."
        )

    def __str__(self) -> str:
        return self.kind if self.value is None else f"{self.kind}={self.value:g}"


BALANCED = OperatingPoint()


def threshold_for(point: OperatingPoint, probabilities: Sequence[float], labels: Sequence[bool]) -> float:
    """The threshold t for ``point``; an answer passes when its probability is at least t.

    - ``balanced``: the share of faithful answers, the best for calibrated probabilities.
    - ``cost=C``: C / (1 + C), where passing and stopping cost the same on average (Elkan 2001, *The foundations of
      cost-sensitive learning*).
    - ``recall=R``: the lowest t that stops the share R of these unfaithful answers. How many it stops of others, the
      test shows.

    ``probabilities`` (cross-fitted) and ``labels`` (True = faithful) are of the same answers, with both labels.
    """
    p, y = np.array(probabilities), np.array(labels, dtype=bool)
    if point.kind == "balanced" or point.value is None:
        return float(y.mean())
    if point.kind == "cost":
        return point.value / (1 + point.value)
    wanted = math.ceil(point.value * (~y).sum() - 1e-9)
    last = float(np.sort(p[~y])[wanted - 1])
    return (last + float(p[p > last].min(initial=1.0))) / 2


def review_range_for(probabilities: Sequence[float], labels: Sequence[bool], threshold: float) -> tuple[float, float]:
    """The narrowest range (low, high) around ``threshold`` outside of which, on each side, the share `SURE` of verdicts
    is right, or else the one that comes closest.

    At least 5 answers, and a twentieth of all, stay outside on each side; a side with fewer is all inside (its bound is
    0 or 1).
    """
    p, y = np.array(probabilities), np.array(labels, dtype=bool)
    passed, least = p >= threshold, max(5, len(p) // 20)
    above = _distance_to_be_sure(p[passed] - threshold, y[passed], least)
    below = _distance_to_be_sure(threshold - p[~passed], ~y[~passed], least)
    return (
        0.0 if below is None else max(0.0, threshold - below),
        1.0 if above is None else min(1.0, threshold + above),
    )


def _distance_to_be_sure(beyond: Floats, right: Bools, least: int) -> float | None:
    """The least distance from the threshold from which on the share `SURE` of the verdicts is ``right``, or the best
    one; None with fewer than ``least``."""
    order = np.argsort(beyond, kind="stable")
    distance, ok = beyond[order], right[order]
    n = len(distance)
    if n < least:
        return None
    share = np.cumsum(ok[::-1])[::-1] / np.arange(n, 0, -1)
    starts = [i for i in range(n - least + 1) if i == 0 or distance[i] > distance[i - 1]]
    i = next((i for i in starts if share[i] >= SURE - 1e-9), None)
    if i is None:
        i = max(starts, key=lambda j: (share[j], -j))
    return 0.0 if i == 0 else float(distance[i - 1] + distance[i]) / 2


def operating_point_sentence(point: OperatingPoint, champion: Agreement, untuned: Agreement) -> list[str]:
    """What a threshold that is not for balanced accuracy reaches on test, beside the untuned judge."""
    if point == BALANCED:
        return []
    stops, passes = (
        [_percent(getattr(a, k)) for a in (champion, untuned)] for k in ("recall_unfaithful", "recall_faithful")
    )
    return [
        f"The threshold is for the operating point “{point}”, not for balanced accuracy: on test it stops {stops[0]} "
        f"of the unfaithful answers (untuned: {stops[1]}) and passes {passes[0]} of the faithful "
        f"(untuned: {passes[1]})."
    ]


def _percent(e: Estimate) -> str:
    """A share with its interval in per cent: ``75% [67%, 82%]``."""
    if e.value is None:
        return NONE
    return f"{e.value:.0%}" + ("" if e.low is None or e.high is None else f" [{e.low:.0%}, {e.high:.0%}]")
