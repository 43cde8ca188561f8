"""Whether one judge is better than another on the same labelled answers, and how many labels it would take to tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from faith_dspy.errors import counted
from faith_dspy.optimize.data.audit import roughly
from faith_dspy.optimize.results import Comparison, Difference, Row
from faith_dspy.scoring.statistics import SHOWN_FROM, BySource, Floats, by_source, metric_values

Metrics = Callable[[Floats], Sequence[Floats]]
"""Metrics of shape (draws,), NaN where undefined, from weights of shape (draws, n)."""

NO_DIFFERENCE = 0.005
"""Half a percentage point of balanced accuracy: below it no number of labels is worth asking for."""


class Side(NamedTuple):
    """What one judge found on n labelled answers."""

    predictions: Sequence[bool | None]
    """n verdicts, True = faithful; None where it left the answer unscored."""
    scores: Sequence[float | None]
    """n probabilities or raw scores, higher = more faithful; None where there is none."""


def compare_rows(
    rows: Sequence[Row], others: Sequence[Row], names: tuple[str, str], *, tested: bool = True
) -> Comparison:
    """`compare` for predictions of the same answers, in the same order."""
    a, b = (Side([r.predicted for r in side], [r.probability for r in side]) for side in (rows, others))
    return compare([r.label for r in rows], a, b, [r.source for r in rows], names=names, tested=tested)


def compare(
    labels: Sequence[bool],
    a: Side,
    b: Side,
    sources: Sequence[str] | None = None,
    *,
    names: tuple[str, str] = ("A", "B"),
    tested: bool = True,
) -> Comparison:
    """Judge ``a`` against judge ``b`` by balanced accuracy and AUROC; ``names`` are for the sentence.

    Intervals are 95 %, over ``sources`` (`by_source`). With fewer than `SHOWN_FROM` of them nothing is called shown,
    nor where the judges were chosen on these answers (not ``tested``).
    An answer a judge left unscored counts as wrong *for that judge*: in balanced accuracy as the wrong verdict, in
    AUROC as a score on the wrong side of all others, so that no judge gains by skipping hard answers.
    """
    balanced, auroc = paired(_all_answers(labels, a), _all_answers(labels, b), len(labels), sources)
    for name, side in zip(names, (a, b), strict=True):
        if all(s is None for s in side.scores):
            auroc = Difference(why=f"{name} gives no scores")
    g = len(set(sources)) if sources is not None else len(labels)
    verdict, more, sentence = _verdict(balanced, len(labels), g if tested else 0, names)
    return Comparison(
        n=len(labels),
        sources=g,
        balanced_accuracy=balanced,
        auroc=auroc,
        verdict=verdict,
        more_labels=more,
        sentence=sentence,
    )


def paired(a: Metrics, b: Metrics, n: int, sources: Sequence[str] | None) -> list[Difference]:
    """Each metric of A minus the same of B on the same ``n`` answers, with its interval over ``sources``."""

    def differences(w: Floats) -> dict[str, Floats]:
        return {str(i): one - other for i, (one, other) in enumerate(zip(a(w), b(w), strict=True))}

    return [_difference(d) for d in by_source(differences, n, sources).values()]


def _all_answers(labels: Sequence[bool], side: Side) -> Metrics:
    """Balanced accuracy and AUROC of one judge over all answers, those it left unscored as wrong."""
    y = np.array(labels, dtype=bool)
    passed = np.array([not y if p is None else p for y, p in zip(labels, side.predictions, strict=True)], dtype=bool)
    rows = zip(labels, side.predictions, side.scores, strict=True)
    ranks = np.array(
        [(-math.inf if y else math.inf) if p is None or s is None else s for y, p, s in rows], dtype=np.float64
    )

    def metrics(w: Floats) -> Sequence[Floats]:
        found = metric_values(w, y, passed, ranks)
        return found["balanced_accuracy"], found["auroc"]

    return metrics


def _difference(d: BySource) -> Difference:
    if math.isnan(d.value):
        return Difference(why="all answers have the same label, or none was scored")
    if math.isnan(d.error):
        return Difference(value=d.value, why="no interval: a label is in one source alone, or there are fewer than 3")
    return Difference(value=d.value, low=d.value - d.half, high=d.value + d.half, standard_error=d.error)


def _verdict(
    d: Difference, n: int, sources: int, names: tuple[str, str]
) -> tuple[Literal["better", "not shown better", "worse"], int | None, str]:
    """``sources``: of a test part. The labels it would take follow from the interval, which shrinks with their root."""
    one, other = names
    on = counted(n, "answer") + (f" over {counted(sources, 'source')}" if sources else "")
    if d.value is None:
        return "not shown better", None, f"{one} cannot be told from {other} on {on}: {d.why}."
    interval = "" if d.low is None or d.high is None else f" (95% interval {100 * d.low:+.1f} to {100 * d.high:+.1f})"
    facts = f"balanced accuracy {100 * d.value:+.1f} points{interval} on {on}"
    if sources < SHOWN_FROM or d.low is None or d.high is None or d.standard_error is None:
        why = f"it takes a test part of {SHOWN_FROM} sources to show one" if sources < SHOWN_FROM else d.why
        return "not shown better", None, f"{one} is not shown to be better than {other}: {facts}; {why}."
    if d.low > 0:
        return "better", None, f"{one} is better than {other}: {facts}."
    if d.high < 0:
        return "worse", None, f"{one} is worse than {other}: {facts}."
    start = f"{one} is not shown to be better than {other}: {facts}."
    if abs(d.value) < NO_DIFFERENCE:
        return "not shown better", None, f"{start} At a difference this close to 0 no number of labels would tell."
    more = max(1, math.ceil(n * ((d.high - d.value) / d.value) ** 2 - n))
    end = f"If the difference stays, {roughly(more)} more answers to test on have an even chance to tell."
    return "not shown better", more, f"{start} {end}"
