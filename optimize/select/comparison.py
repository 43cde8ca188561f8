"""Whether one judge is better than another on the same labelled answers, and how many answers it would take to tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import permutation_test

from faith_dspy.errors import counted
from faith_dspy.optimize.results import Comparison, Difference, Row, Verdict
from faith_dspy.report.tables import roughly
from faith_dspy.scoring.statistics import (
    SIGNIFICANT_FROM,
    BySource,
    Floats,
    by_source,
    label_sources,
    metric_values,
)

Metrics = Callable[[Floats], Sequence[Floats]]
"""Metrics of shape (draws,), NaN where undefined, from weights of shape (draws, n)."""

ALPHA = 0.05
RESAMPLES = 9999
"""Of the signs of sources; fewer where all combinations are fewer: then the test is exact."""
NO_DIFFERENCE = 0.005
"""Half a percentage point of balanced accuracy: below it no number of labels is worth asking for."""


def compare(
    a: Sequence[Row],
    b: Sequence[Row],
    names: tuple[str, str] = ("A", "B"),
    *,
    tested: bool = True,
) -> Comparison:
    """Judge A against judge B on the same answers in the same order; ``names`` are for the sentence.

    A is better, or worse, where both say so: the 95 % interval of the difference in balanced accuracy over sources
    (`by_source`), and `sign_flips`. With fewer than `SIGNIFICANT_FROM` sources of the rarer label nothing is
    significant, nor where the judges were chosen on these answers (not ``tested``).
    An answer a judge left unscored counts as wrong *for that judge*: in balanced accuracy as the wrong verdict, in
    AUROC as a score on the wrong side of all others, so that no judge gains by skipping hard answers.
    """
    n = len(a)
    sources = len({r.source for r in a})
    least = rarer_sources(a)
    balanced, auroc = paired(label_metrics(a), label_metrics(b), a)
    for name, rows in zip(names, (a, b), strict=True):
        if all(r.probability is None for r in rows):
            auroc = Difference(why=f"{name} gives no scores")
    p_value = sign_flips(a, b)
    verdict: Verdict = "inconclusive"
    if tested and least >= SIGNIFICANT_FROM and p_value is not None:
        verdict = _decide(balanced, p_value)
    place = f"on {counted(n, 'answer')} over {counted(sources, 'source')}"
    if not tested:
        place += " that the judge was chosen on"
    elif least < SIGNIFICANT_FROM:
        place += f"; it takes {SIGNIFICANT_FROM} sources of either label to decide, the rarer one is in {least}"
    sentence = _sentence(balanced, verdict, place, names)
    more_labels = more_sources = None
    share = _missing(balanced) if tested and verdict == "inconclusive" else None
    if share and balanced.value is not None:
        more_labels = max(1, math.ceil(n * share))
        more_sources = max(1, math.ceil(sources * share))
        sentence += (
            f" To decide a difference of {100 * abs(balanced.value):.1f} points takes {roughly(more_labels)} more "
            f"answers over {roughly(more_sources)} more contexts."
        )
    return Comparison(
        n=n,
        sources=sources,
        balanced_accuracy=balanced,
        auroc=auroc,
        p_value=p_value,
        verdict=verdict,
        more_labels=more_labels,
        more_sources=more_sources,
        sentence=sentence,
    )


def rarer_sources(rows: Sequence[Row]) -> int:
    """Return in how many sources the rarer label occurs."""
    sources = label_sources([r.label for r in rows], [r.source for r in rows])
    return min(sources.values())


def paired(a: Metrics, b: Metrics, rows: Sequence[Row]) -> list[Difference]:
    """Return each metric of A minus the same of B on the answers of ``rows``, with its interval over their sources."""

    def gains(w: Floats) -> dict[str, Floats]:
        pairs = zip(a(w), b(w), strict=True)
        return {str(i): one - other for i, (one, other) in enumerate(pairs)}

    sources = [r.source for r in rows]
    labels = [r.label for r in rows]
    by_metric = by_source(gains, len(rows), sources, labels)
    return [_difference(d) for d in by_metric.values()]


def sign_flips(a: Sequence[Row], b: Sequence[Row]) -> float | None:
    """Two-sided p of no difference in balanced accuracy, each source's part of it with its sign flipped at random.

    A source's part: the sum over its answers of ``(a is right) - (b is right)``, each over twice the answers of its
    label. None where a label is missing.
    """
    faithful = sum(r.label for r in a)
    answers_of = {True: faithful, False: len(a) - faithful}
    if not all(answers_of.values()):
        return None
    parts = []
    for one, other in zip(a, b, strict=True):
        gain = (one.predicted == one.label) - (other.predicted == other.label)
        parts.append(gain / (2 * answers_of[one.label]))
    source = np.unique([r.source for r in a], return_inverse=True)[1]
    of_source = np.bincount(source, weights=parts)
    moved = of_source[np.abs(of_source) > 1e-12]
    if len(moved) < 2:
        return 1.0

    def total_gain(one: Floats, other: Floats, axis: int = -1) -> Floats:
        return np.asarray((one - other).sum(axis=axis))

    test = permutation_test(
        (moved, np.zeros_like(moved)),
        total_gain,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def label_metrics(rows: Sequence[Row]) -> Metrics:
    """Balanced accuracy and AUROC of one judge over all answers, those it left unscored as wrong."""
    y = np.array([r.label for r in rows], dtype=bool)
    unscored = np.array([r.predicted is None for r in rows])
    passed = np.where(unscored, ~y, [bool(r.predicted) for r in rows])
    ranks = np.array([_rank_value(r) for r in rows])

    def metrics(w: Floats) -> Sequence[Floats]:
        values = metric_values(w, y, passed, ranks)
        return values["balanced_accuracy"], values["auroc"]

    return metrics


def _rank_value(row: Row) -> float:
    """Return what an answer is ranked by: an unscored one lies on the wrong side of all others."""
    if row.predicted is None or row.probability is None:
        return -math.inf if row.label else math.inf
    return row.probability


def _difference(d: BySource) -> Difference:
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


def _decide(d: Difference, p_value: float) -> Verdict:
    if d.low is None or d.high is None or p_value > ALPHA:
        return "inconclusive"
    if d.low > 0:
        return "better"
    if d.high < 0:
        return "worse"
    return "inconclusive"


def _missing(d: Difference) -> float:
    """Return what share of these answers must come on top for an even chance to decide a difference that stays as it
    is.

    An interval shrinks with the root of the sources. 0 where there is no interval, or nothing to decide.
    """
    if d.value is None or d.high is None or abs(d.value) < NO_DIFFERENCE:
        return 0.0
    half = d.high - d.value
    return (half / d.value) ** 2 - 1


def _sentence(
    d: Difference,
    verdict: Verdict,
    place: str,
    names: tuple[str, str],
) -> str:
    one, other = names
    if d.value is None:
        return f"{one} cannot be compared with {other}: {d.why}."
    interval = ""
    if d.low is not None and d.high is not None:
        interval = f" (95% interval {100 * d.low:+.1f} to {100 * d.high:+.1f})"
    facts = f"balanced accuracy {100 * d.value:+.1f} points{interval} {place}."
    if verdict != "inconclusive":
        return f"{one} is {verdict} than {other}: {facts}"
    return f"{one} against {other}: inconclusive, {facts}"
