"""Whether one judge is better than another on the same labelled answers, and how many answers it would take to tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

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
    sources, labels = [r.source for r in a], [r.label for r in a]
    balanced, auroc = paired(_all_answers(a), _all_answers(b), sources, labels)
    for name, side in zip(names, (a, b), strict=True):
        if all(r.probability is None for r in side):
            auroc = Difference(why=f"{name} gives no scores")
    least = min(label_sources(labels, sources).values())
    p_value = sign_flips(a, b)
    verdict = _verdict(balanced, p_value, least if tested else 0)
    more = (
        _more(balanced, len(a), len(set(sources)))
        if tested and verdict == "inconclusive"
        else More()
    )
    return Comparison(
        n=len(a),
        sources=len(set(sources)),
        balanced_accuracy=balanced,
        auroc=auroc,
        p_value=p_value,
        verdict=verdict,
        more_labels=more.answers,
        more_sources=more.sources,
        sentence=_sentence(balanced, verdict, more, _place(a, least, tested), names),
    )


def paired(
    a: Metrics, b: Metrics, sources: Sequence[str], labels: Sequence[bool] | None = None
) -> list[Difference]:
    """Each metric of A minus the same of B on the same answers, with its interval over their ``sources``."""

    def differences(w: Floats) -> dict[str, Floats]:
        pairs = zip(a(w), b(w), strict=True)
        return {str(i): one - other for i, (one, other) in enumerate(pairs)}

    return [
        _difference(d)
        for d in by_source(differences, len(sources), sources, labels).values()
    ]


def sign_flips(a: Sequence[Row], b: Sequence[Row]) -> float | None:
    """Two-sided p of no difference in balanced accuracy, each source's part of it with its sign flipped at random.

    A source's part: the sum over its answers of ``(a is right) - (b is right)``, each over twice the answers of its
    label. None where a label is missing.
    """
    labels = np.array([r.label for r in a], dtype=bool)
    if labels.all() or not labels.any():
        return None
    right = [
        np.array([r.predicted == r.label for r in side], dtype=np.float64)
        for side in (a, b)
    ]
    parts = (right[0] - right[1]) / (
        2 * np.where(labels, labels.sum(), (~labels).sum())
    )
    member = np.unique([r.source for r in a], return_inverse=True)[1]
    of_source = np.bincount(member, weights=parts)
    moved = of_source[np.abs(of_source) > 1e-12]
    if len(moved) < 2:
        return 1.0

    def difference(one: Floats, other: Floats, axis: int = -1) -> Floats:
        return np.asarray((one - other).sum(axis=axis))

    test = permutation_test(
        (moved, np.zeros_like(moved)),
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def balanced_accuracy(rows: Sequence[Row]) -> Metrics:
    """Balanced accuracy of one judge over all answers, those it left unscored as wrong."""
    both = _all_answers(rows)
    return lambda w: both(w)[:1]


def _all_answers(rows: Sequence[Row]) -> Metrics:
    """Balanced accuracy and AUROC of one judge over all answers, those it left unscored as wrong."""
    y = np.array([r.label for r in rows], dtype=bool)
    passed = np.array(
        [(not r.label) if r.predicted is None else r.predicted for r in rows],
        dtype=bool,
    )
    ranks = np.array([rank_of(r) for r in rows], dtype=np.float64)

    def metrics(w: Floats) -> Sequence[Floats]:
        values = metric_values(w, y, passed, ranks)
        return values["balanced_accuracy"], values["auroc"]

    return metrics


def rank_of(row: Row) -> float:
    """What an answer is ranked by: an unscored one lies on the wrong side of all others."""
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


def _verdict(d: Difference, p_value: float | None, least: int) -> Verdict:
    """``least``: sources of the rarer label in a test part."""
    if (
        least < SIGNIFICANT_FROM
        or d.low is None
        or d.high is None
        or p_value is None
        or p_value > ALPHA
    ):
        return "inconclusive"
    if d.low > 0:
        return "better"
    return "worse" if d.high < 0 else "inconclusive"


class More(NamedTuple):
    """Answers, and contexts that they are over, with an even chance to decide a difference that stays as it is."""

    answers: int | None = None
    sources: int | None = None

    def __str__(self) -> str:
        return f"{roughly(self.answers or 0)} more answers over {roughly(self.sources or 0)} more contexts"


def _more(d: Difference, n: int, sources: int) -> More:
    """An interval shrinks with the root of the sources."""
    if d.value is None or d.high is None or abs(d.value) < NO_DIFFERENCE:
        return More()
    factor = ((d.high - d.value) / d.value) ** 2 - 1
    return More(max(1, math.ceil(n * factor)), max(1, math.ceil(sources * factor)))


def _place(rows: Sequence[Row], least: int, tested: bool) -> str:
    text = f"on {counted(len(rows), 'answer')} over {counted(len({r.source for r in rows}), 'source')}"
    if not tested:
        return f"{text} that the judge was chosen on"
    if least < SIGNIFICANT_FROM:
        return f"{text}; it takes {SIGNIFICANT_FROM} sources of either label to decide, the rarer one is in {least}"
    return text


def _sentence(
    d: Difference, verdict: Verdict, more: More, place: str, names: tuple[str, str]
) -> str:
    one, other = names
    if d.value is None:
        return f"{one} cannot be compared with {other}: {d.why}."
    interval = (
        ""
        if d.low is None or d.high is None
        else f" (95% interval {100 * d.low:+.1f} to {100 * d.high:+.1f})"
    )
    facts = f"balanced accuracy {100 * d.value:+.1f} points{interval} {place}"
    if verdict != "inconclusive":
        return f"{one} is {verdict} than {other}: {facts}."
    end = ""
    if more.answers is not None and more.sources is not None:
        end = (
            f" To decide a difference of {100 * abs(d.value):.1f} points takes {more}."
        )
    return f"{one} against {other}: inconclusive, {facts}.{end}"
