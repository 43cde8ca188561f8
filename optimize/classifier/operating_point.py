"""The operating point a user asks for, the threshold that reaches it, and the review range around that: probabilities
so close to it that a person should look at the answer.

Both are chosen on cross-fitted probabilities. Their figures there are slightly optimistic, since they were chosen by
them; the testset shows how well they hold.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from faith_dspy.errors import ConfigError, InputError, counted
from faith_dspy.optimize.results import ThresholdChoice
from faith_dspy.report.tables import percent, points
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.classifier import to_logit, to_probability
from faith_dspy.scoring.statistics import wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import Difference
    from faith_dspy.scoring.agreement import Agreement
    from faith_dspy.scoring.statistics import Bools, Floats

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
        kind, equals, number = text.strip().lower().partition("=")
        if kind == "balanced" and not equals:
            return BALANCED
        if kind not in _EXPECTED:
            raise ConfigError(
                f"got operating point {text!r}, expected one of balanced; recall=0.9 (stop nine in ten "
                "of the unfaithful answers); cost=5 (passing an unfaithful answer is five times worse than stopping a "
                "faithful one)."
            )
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0 < value < (1 if kind == "recall" else math.inf):
            raise ConfigError(f"got operating point {text!r}; {_EXPECTED[kind]}.")
        return cls(kind, value)  # type: ignore[arg-type]  # checked above

    def __str__(self) -> str:
        return self.kind if self.value is None else f"{self.kind}={self.value:g}"


_EXPECTED = {
    "recall": "recall takes the share of unfaithful answers to stop, above 0 and below 1, such as recall=0.9",
    "cost": "cost takes how many times worse it is to pass an unfaithful answer than to stop a faithful one, such as "
    "cost=5",
}
BALANCED = OperatingPoint()
THRESHOLD_PRIOR = 200
"""Labels that their base rate weighs as a threshold: a few labels say little about it (`optimize/LOG.md`)."""


def threshold_for(
    operating_point: OperatingPoint,
    probabilities: Sequence[float | None],
    labels: Sequence[bool],
    *,
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> ThresholdChoice:
    """The threshold t for ``operating_point``; an answer passes when its probability is at least t.

    - ``balanced``: best balanced accuracy, shrunk towards the share of faithful answers (`balanced_threshold`).
    - ``recall=R``: the lowest t that stops ``ceil(R (n + 1))`` of the n unfaithful answers. On new answers it then
      stops R of them on average over draws of the labels (split conformal prediction: Vovk, Gammerman & Shafer 2005;
      the finite-sample term: Lei et al. 2018, JASA 113); a single draw may do worse, see the interval. With fewer than
      R / (1-R) unfaithful answers no t guarantees it: t then stops all of them, and ``note`` says so.
    - ``cost=C``: least ``(C · unfaithful passed + faithful stopped) / n``, smoothed likewise, at the labels' share of
      faithful answers.

    ``probabilities`` (cross-fitted), ``labels`` (True = faithful) and ``groups`` are of the same answers; answers with
    None are left out. Intervals resample groups. `InputError` without a probability for answers of both labels.
    """
    at = [i for i, p in enumerate(probabilities) if p is not None]
    p = np.array([probabilities[i] for i in at], dtype=np.float64)
    y = np.array([bool(labels[i]) for i in at], dtype=bool)
    kept = [str(i) for i in at] if groups is None else [groups[i] for i in at]
    if not y.any() or y.all():
        raise InputError(f"got {y.sum()} faithful and {(~y).sum()} unfaithful scored answers, expected both kinds")
    n, value = int((~y).sum()), operating_point.value
    wanted_recall = value if operating_point.kind == "recall" else None
    notes = []
    if wanted_recall is not None:
        wanted = math.ceil(wanted_recall * (n + 1) - 1e-9)
        if wanted > n:
            needed = math.ceil(wanted_recall / (1 - wanted_recall) - 1e-9)
            notes.append(
                f"Recall {wanted_recall:g} cannot be guaranteed with {counted(n, 'labelled unfaithful answer')}: "
                f"it takes {needed}."
            )
        t = _threshold_that_stops(min(wanted, n), p, y)
    else:
        t = stable_threshold(p, y, value) if operating_point.kind == "cost" else balanced_threshold(p, y)
    passed = p >= t
    found = measure(y.tolist(), passed.tolist(), [None] * len(at), groups=kept)
    recall = found.recall_unfaithful
    if recall.low is None:  # every resample gives the same value: the bootstrap has no interval
        recall = wilson(int((~passed[~y]).sum()), n)
    if wanted_recall is not None and recall.low is not None and recall.low < wanted_recall:
        notes.append(f"On new answers it may be as low as {recall.low:.2f}: {n} unfaithful ones were labelled.")
    return ThresholdChoice(
        operating_point=str(operating_point),
        threshold=t,
        recall_unfaithful=recall,
        recall_faithful=found.recall_faithful,
        note=" ".join(notes) or None,
    )


def balanced_threshold(p: Floats, y: Bools | Floats) -> float:
    """The threshold of best balanced accuracy (`stable_threshold`), shrunk in log-odds towards the share of ``y``.

    That share is the best threshold for probabilities that are well calibrated. ``p`` and ``y`` have shape (n,); 0.5
    when one class is missing.
    """
    found, share, n = stable_threshold(p, y), float(y.mean()), len(y)
    if share in (0.0, 1.0):
        return found
    return to_probability((n * to_logit(found) + THRESHOLD_PRIOR * to_logit(share)) / (n + THRESHOLD_PRIOR))


def stable_threshold(probabilities: Floats, y: Bools | Floats, cost: float | None = None) -> float:
    """The threshold with the best balanced accuracy, averaged over neighbouring thresholds.

    The average reaches a tenth of the labels to either side, so that a plateau wins over a single lucky threshold.
    With ``cost`` the threshold of least cost instead, where a 0 at or above it costs ``cost`` and a 1 below it costs 1.
    ``probabilities`` and ``y`` (1 or 0) have shape (n,). 0.5 when one class is missing.
    """
    if y.all() or not y.any():
        return 0.5
    order = np.argsort(probabilities, kind="stable")
    p, sorted_y = probabilities[order], y[order].astype(np.float64)
    n1 = float(sorted_y.sum())
    gain0, gain1 = (1 / (len(p) - n1), 1 / n1) if cost is None else (cost, 1.0)
    below0, below1 = (np.concatenate([[0.0], np.cumsum(x)]) for x in (1 - sorted_y, sorted_y))
    reach = max(1, len(p) // 10)
    padded = np.pad(gain0 * below0 - gain1 * below1, reach, mode="edge")
    kernel = np.concatenate([np.arange(1, reach + 2), np.arange(reach, 0, -1)]).astype(np.float64)
    smooth = np.convolve(padded, kernel / kernel.sum(), mode="valid")
    thresholds = np.concatenate([[p[0]], (p[1:] + p[:-1]) / 2, [p[-1]]])
    allowed = np.concatenate([[True], p[1:] > p[:-1], [True]])
    smooth[~allowed] = -np.inf
    best = np.flatnonzero(smooth >= smooth.max() - 1e-12)
    return float(thresholds[best[len(best) // 2]])


def _threshold_that_stops(wanted: int, p: Floats, y: Bools) -> float:
    """The lowest threshold that stops so many unfaithful answers: the middle between one's probability and the next."""
    low = float(np.sort(p[~y])[wanted - 1])
    high = float(p[p > low].min(initial=1.0))
    if low >= high:
        raise InputError(f"got unfaithful answers with the score {low:g}: no threshold stops {wanted} unfaithful ones")
    middle = low + (high - low) / 2
    return middle if middle > low else high


def review_range_for(
    probabilities: Sequence[float | None], labels: Sequence[bool], threshold: float
) -> tuple[float, float]:
    """The narrowest range (low, high) around ``threshold`` outside of which the share `SURE` of verdicts is right.

    Each side is chosen by itself: of the answers with at least ``high``, the share `SURE` is faithful; of those below
    ``low``, unfaithful. Where no bound reaches that share, the one that comes closest is taken. At least 5 answers, and
    a twentieth of all, stay outside on each side; a side with fewer answers is all inside (its bound is 0 or 1).
    Answers whose probability is None are left out.
    """
    known = [(p, y) for p, y in zip(probabilities, labels, strict=True) if p is not None]
    p, y = np.array([p for p, _ in known]), np.array([y for _, y in known], dtype=bool)
    passed, least = p >= threshold, max(5, len(p) // 20)
    above = _distance_to_be_sure(p[passed] - threshold, y[passed], least)
    below = _distance_to_be_sure(threshold - p[~passed], ~y[~passed], least)
    return (
        0.0 if below is None else max(0.0, threshold - below),
        1.0 if above is None else min(1.0, threshold + above),
    )


def _distance_to_be_sure(beyond: Floats, right: Bools, least: int) -> float | None:
    """The least distance from the threshold from which on the share `SURE` of the verdicts is right, or the best one.

    ``beyond``: distances from the threshold; ``right``: whether the verdict was. None with fewer than ``least``.
    """
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


def review_range_sentence(
    review_range: tuple[float, float], probabilities: Sequence[float | None], labels: Sequence[bool]
) -> str:
    """The share of answers inside a review range, and how often the judge is right on the others (Wilson's intervals).

    Answers whose probability is None are left out.
    """
    low, high = review_range
    known = [(p, y) for p, y in zip(probabilities, labels, strict=True) if p is not None]
    inside = sum(low <= p < high for p, _ in known) / max(1, len(known))
    text = f"{inside:.0%} of the answers, those between {low:.2f} and {high:.2f}"
    sides = {
        ("passed", "faithful"): [y for p, y in known if p >= high],
        ("stopped", "unfaithful"): [not y for p, y in known if p < low],
    }
    if not any(sides.values()):
        return f"{text}: no other is left."
    told = [
        f"{percent(wilson(sum(right), len(right)))} of the {verdict} are {label}" if right else f"none is {verdict}"
        for (verdict, label), right in sides.items()
    ]
    return f"{text}. Of the others {' and '.join(told)}."


def operating_point_sentence(point: OperatingPoint, champion: Agreement, untuned: Agreement, auroc: Difference) -> str:
    """What a threshold that is not for balanced accuracy reaches on test, beside the untuned judge."""
    sides = (champion, untuned)
    stops, passes = ([percent(getattr(a, k)) for a in sides] for k in ("recall_unfaithful", "recall_faithful"))
    text = (
        f"The threshold is for the operating point “{point}”, not for balanced accuracy: on test it stops {stops[0]} "
        f"of the unfaithful answers (untuned: {stops[1]}) and passes {passes[0]} of the faithful "
        f"(untuned: {passes[1]})."
    )
    if point.kind == "cost" and point.value is not None:
        costs = [
            (point.value * a.confusion["unfaithful_passed"] + a.confusion["faithful_failed"]) / max(1, a.scored)
            for a in sides
        ]
        text += (
            f" The mean cost of an answer, in faithful answers stopped, is {costs[0]:.2f} (untuned: {costs[1]:.2f})."
        )
    if auroc.value is not None:
        text += f" AUROC, which no threshold changes, differs by {points(auroc)} points from the untuned judge's."
    return text
