"""Whether one judge is better than another on the same labelled answers, and how many labels it would take to tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from faith_dspy.errors import counted
from faith_dspy.optimize.data.audit import roughly
from faith_dspy.optimize.results import Comparison, Difference, Row
from faith_dspy.scoring.statistics import SHOWN_FROM, BySource, Floats, by_source, metric_values

Metrics = Callable[[Floats], Sequence[Floats]]
"""Metrics of shape (draws,), NaN where undefined, from weights of shape (draws, n)."""

NO_DIFFERENCE = 0.005
"""Half a percentage point of balanced accuracy: below it no number of labels is worth asking for."""


def compare(
    a: Sequence[Row], b: Sequence[Row], names: tuple[str, str] = ("A", "B"), *, tested: bool = True
) -> Comparison:
    """Judge A against judge B on the same answers in the same order; ``names`` are for the sentence.

    Intervals are 95 %, over sources (`by_source`). With fewer than `SHOWN_FROM` of them nothing is called shown, nor
    where the judges were chosen on these answers (not ``tested``).
    An answer a judge left unscored counts as wrong *for that judge*: in balanced accuracy as the wrong verdict, in
    AUROC as a score on the wrong side of all others, so that no judge gains by skipping hard answers.
    """
    sources = [r.source for r in a]
    balanced, auroc = paired(_all_answers(a), _all_answers(b), sources)
    for name, side in zip(names, (a, b), strict=True):
        if all(r.probability is None for r in side):
            auroc = Difference(why=f"{name} gives no scores")
    g = len(set(sources))
    verdict, more, sentence = _verdict(balanced, len(a), g if tested else 0, names)
    return Comparison(
        n=len(a),
        sources=g,
        balanced_accuracy=balanced,
        auroc=auroc,
        verdict=verdict,
        more_labels=more,
        sentence=sentence,
    )


def paired(a: Metrics, b: Metrics, sources: Sequence[str]) -> list[Difference]:
    """Each metric of A minus the same of B on the same answers, with its interval over their ``sources``."""

    def differences(w: Floats) -> dict[str, Floats]:
        return {str(i): one - other for i, (one, other) in enumerate(zip(a(w), b(w), strict=True))}

    return [_difference(d) for d in by_source(differences, len(sources), sources).values()]


def _all_answers(rows: Sequence[Row]) -> Metrics:
    """Balanced accuracy and AUROC of one judge over all answers, those it left unscored as wrong."""
    y = np.array([r.label for r in rows], dtype=bool)
    passed = np.array([(not r.label) if r.predicted is None else r.predicted for r in rows], dtype=bool)
    worst = [-math.inf if r.label else math.inf for r in rows]
    found = [None if r.predicted is None else r.probability for r in rows]
    ranks = np.array([w if p is None else p for w, p in zip(worst, found, strict=True)], dtype=np.float64)

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
