"""Whether one judge is better than another on the same labelled answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from faith_dspy.errors import counted
from faith_dspy.optimize.results import (
    Comparison,
    Difference,
    Row,
    StudyResult,
    Verdict,
)
from faith_dspy.scoring.agreement import Agreement
from faith_dspy.scoring.statistics import (
    SIGNIFICANT_FROM,
    Bools,
    Floats,
    by_source,
    label_sources,
)

Metric = Callable[[Floats], Floats]
"""Values of shape (draws,), NaN where undefined, from weights of answers, shape (draws, n)."""
CHANCE = 0.5
"""Of balanced accuracy."""


def compare(
    a: Sequence[Row],
    b: Sequence[Row],
    names: tuple[str, str] = ("A", "B"),
    *,
    cost: float = 0.0,
) -> Comparison:
    """Judge A against judge B on the same answers in the same order; ``names`` are for the sentence.

    A is better, or worse, where the 95 % interval of the difference in balanced accuracy, over sources (`by_source`),
    says so. With fewer than `SIGNIFICANT_FROM` sources of the rarer label nothing is significant. An answer a judge
    left unscored counts as wrong *for that judge*, so that no judge gains by skipping hard answers. ``cost``:
    `OperatingPoint.cost`.
    """
    n = len(a)
    sources = len({r.source for r in a})
    least = rarer_sources(a)
    accuracy = paired(accuracy_of(a, cost), accuracy_of(b, cost), a)
    place = f"on {counted(n, 'answer')} over {counted(sources, 'source')}"
    verdict: Verdict = "inconclusive"
    if least < SIGNIFICANT_FROM:
        place += f"; it takes {SIGNIFICANT_FROM} sources of either label to decide, the rarer one is in {least}"
    else:
        verdict = _decide(accuracy)
    metric = f"accuracy at cost={cost:g}" if cost else "balanced accuracy"
    return Comparison(
        n=n,
        sources=sources,
        balanced_accuracy=accuracy,
        verdict=verdict,
        sentence=_sentence(accuracy, verdict, place, names, metric),
    )


def compare_champions(
    a: StudyResult, b: StudyResult, names: tuple[str, str] = ("A", "B")
) -> Comparison | None:
    """Compare study a's champion with study b's, paired; None where they were measured on different answers: other ids,
    groups or labels."""
    if measured_on(a) != measured_on(b):
        return None
    return compare(_rows(a), _rows(b), names)


def _rows(study: StudyResult) -> list[Row]:
    rows = study.measured.champion.rows
    return sorted(rows, key=lambda row: (row.id, row.source))


def measured_on(study: StudyResult) -> tuple[tuple[str, str, bool], ...]:
    """Return what a study was measured on; labels that were corrected since make other answers."""
    return tuple((row.id, row.source, row.label) for row in _rows(study))


def better_than_chance(agreement: Agreement) -> bool:
    """Return whether the interval of balanced accuracy shows it, over enough sources."""
    low = agreement.balanced_accuracy.low
    return not few_sources(agreement) and low is not None and low > CHANCE


def few_sources(agreement: Agreement) -> bool:
    """Return whether the rarer label is in too few to show anything."""
    least = agreement.least_sources
    return least is not None and least < SIGNIFICANT_FROM


def rarer_sources(rows: Sequence[Row]) -> int:
    """Return in how many sources the rarer label occurs."""
    sources = label_sources([r.label for r in rows], [r.source for r in rows])
    return min(sources.values())


def paired(a: Metric, b: Metric, rows: Sequence[Row]) -> Difference:
    """Return a metric of A minus that of B on the answers of ``rows``, with its interval over their sources."""

    def gain(w: Floats) -> dict[str, Floats]:
        return {"gain": a(w) - b(w)}

    sources = [r.source for r in rows]
    labels = [r.label for r in rows]
    d = by_source(gain, sources, labels)["gain"]
    if math.isnan(d.value):
        return Difference(why="all answers have the same label, or none was scored")
    if math.isnan(d.error):
        return Difference(
            value=d.value,
            why="no interval: a label is in one source alone, or there are fewer than 3",
        )
    return Difference(
        value=d.value,
        low=d.value - d.half,
        high=d.value + d.half,
        standard_error=d.error,
    )


def accuracy_of(rows: Sequence[Row], cost: float = 0.0) -> Metric:
    """Return the accuracy of one judge over all answers, those it left unscored as wrong.

    It is balanced; with a ``cost`` C, it is the share of what could be lost that is not: an unfaithful answer that
    passes loses C, a faithful one that fails 1.
    """
    y = np.array([r.label for r in rows], dtype=bool)
    right = np.array([r.predicted is r.label for r in rows])
    loss = np.where(y, 1.0, cost)

    def accuracy(w: Floats) -> Floats:
        if cost:
            return np.asarray(w @ (loss * right) / (w @ loss))
        return mean_by_label(w, y, right)

    return accuracy


def mean_by_label(w: Floats, y: Bools, values: Bools | Floats) -> Floats:
    """Return the mean of the values of each label, and of the two; NaN where a label is missing."""
    with np.errstate(invalid="ignore"):
        faithful = w @ (values * y) / (w @ y)
        unfaithful = w @ (values * ~y) / (w @ ~y)
    return np.asarray((faithful + unfaithful) / 2)


def _decide(d: Difference) -> Verdict:
    if (d.low or 0.0) > 0:
        return "better"
    if (d.high or 0.0) < 0:
        return "worse"
    return "inconclusive"


def _sentence(
    d: Difference,
    verdict: Verdict,
    place: str,
    names: tuple[str, str],
    metric: str,
) -> str:
    one, other = names
    if d.value is None:
        return f"{one} cannot be compared with {other}: {d.why}."
    interval = ""
    if d.low is not None and d.high is not None:
        interval = f" (95% interval {100 * d.low:+.1f} to {100 * d.high:+.1f})"
    facts = f"{metric} {100 * d.value:+.1f} points{interval} {place}."
    if verdict != "inconclusive":
        return f"{one} is {verdict} than {other}: {facts}"
    return f"{one} against {other}: inconclusive, {facts}"
