"""The champion: chosen among the candidates, where all the labels are.

Chosen is the best estimate; a cheaper candidate is chosen instead only where it is shown not to be worse. A
candidate's score is one minus the Brier score of its cross-fitted probabilities, both labels weighing the same. It is a
proper score, so it compares a judge that ranks with one that only tells verdicts; it is a mean over answers, so no
fold's zero can shift it; and of the criteria tried it chose best with few labels (optimize/LOG.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.fitting import BALANCED, OperatingPoint
from faith_dspy.optimize.compile.metric import EVIDENCE_WEIGHT
from faith_dspy.optimize.results import Difference, Row, costs
from faith_dspy.optimize.select.candidates import Candidate, cost_of
from faith_dspy.optimize.select.comparison import (
    Metric,
    accuracy_of,
    mean_by_label,
    paired,
    rarer_sources,
)
from faith_dspy.scoring.classifier import to_logit, to_probability
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM, Floats

MARGIN = 0.03
"""Balanced accuracy that a cheaper judge may lose at most: its 95 % interval has to stay above that loss
(`optimize/LOG.md`)."""


class Choice(NamedTuple):
    """The champion, and what it was chosen by."""

    champion: Candidate
    reason: str
    scores: dict[str, float]
    """Of all candidates, by name."""
    best: Candidate


def choose(candidates: Sequence[Candidate], point: OperatingPoint = BALANCED) -> Choice:
    """Choose the candidate to export.

    The best by score; of those that cost less, the cheapest that is not inferior: the interval of its loss in accuracy
    at the operating point, over sources, stays below `MARGIN`. A candidate that may be measured on a part of the
    answers only is compared there with the best of the others. Where labels name chunks, the F1 of the judge's chunk
    ids has `EVIDENCE_WEIGHT` of the score; who is behind in verdicts by more than one standard error does not win by
    ids.

    Raises:
        InputError: nothing could be measured.
    """
    verdicts = _scores(candidates, 0.0)
    if not verdicts:
        raise InputError(
            "no candidate could be measured: the answers have one label only, or none was scored."
        )
    by_name = {c.name: c for c in candidates}
    scores = verdicts
    best = by_name[max(verdicts, key=verdicts.__getitem__)]
    if any(row.evidence for row in best.answers):
        scores = _scores(candidates, EVIDENCE_WEIGHT)
        level = [
            name
            for name in scores
            if _within_one_error(difference(by_name[name].answers, best.answers, 0.0))
        ]
        best = by_name[max(level, key=scores.__getitem__)]
    took = [cost_of([a.raw.usage for a in c.answers], c.judge) for c in candidates]
    prices = dict(zip(by_name, costs(took), strict=True))
    cheaper = [name for name in scores if prices[name] < prices[best.name]]
    for name in sorted(cheaper, key=prices.__getitem__):
        if not_inferior(by_name[name].answers, best.answers, point):
            reason = f"it costs less than {best.name}, and is not inferior"
            return Choice(by_name[name], reason, scores, best)
    return Choice(best, "it has the best score", scores, best)


def _scores(
    candidates: Sequence[Candidate], evidence_weight: float
) -> dict[str, float]:
    """Return the score of each candidate that has one, all on one scale."""
    most = max(len(c.answers) for c in candidates)
    scores = {}
    for c in candidates:
        value = score(c.answers, evidence_weight)
        if value is not None and len(c.answers) == most:
            scores[c.name] = value
    if not scores:
        return scores
    leader = max(candidates, key=lambda c: scores.get(c.name, -1.0))
    for c in candidates:
        if len(c.answers) < most:
            ahead = difference(c.answers, leader.answers, evidence_weight).value
            if ahead is not None:
                scores[c.name] = scores[leader.name] + ahead
    return scores


def _within_one_error(d: Difference) -> bool:
    return d.value is not None and -d.value <= (d.standard_error or 0.0)


def not_inferior(
    rows: Sequence[Row], best: Sequence[Row], point: OperatingPoint = BALANCED
) -> bool:
    """Tell whether these verdicts are shown to lose less than `MARGIN` of accuracy against the best."""
    one, other = on_both(rows, best)
    if not one or rarer_sources(one) < SIGNIFICANT_FROM:
        return False
    cost = point.cost
    accuracy = paired(accuracy_of(one, cost), accuracy_of(other, cost), one)
    return accuracy.low is not None and accuracy.low > -MARGIN


def difference(
    rows: Sequence[Row],
    others: Sequence[Row],
    evidence_weight: float = 0.0,
) -> Difference:
    """Return the score of the first minus that of the second, on the answers both have, by source."""
    one, other = on_both(rows, others)
    if not one:
        return Difference(why="no answer was judged by both")
    first = _score_metric(one, evidence_weight, _base(rows))
    second = _score_metric(other, evidence_weight, _base(others))
    return paired(first, second, one)


def score(rows: Sequence[Row], evidence_weight: float = 0.0) -> float | None:
    """Return one minus the class-balanced Brier score, with the F1 of chunk ids; None where a label is missing."""
    metric = _score_metric(rows, evidence_weight, _base(rows))
    (value,) = metric(np.ones((1, len(rows)))).tolist()
    return None if math.isnan(value) else value


def on_both(rows: Sequence[Row], others: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Return those of the same answers, in the same order."""
    row_of = {r.id: r for r in rows}
    other_of = {r.id: r for r in others}
    both = sorted(row_of.keys() & other_of)
    return [row_of[i] for i in both], [other_of[i] for i in both]


def _base(rows: Sequence[Row]) -> float:
    """Return the log-odds of the base rate that these rows' probabilities were calibrated to."""
    return to_logit(sum(r.label for r in rows) / max(1, len(rows)))


def _score_metric(rows: Sequence[Row], evidence_weight: float, base: float) -> Metric:
    """Probabilities are moved to even odds; an answer that is unscored is as wrong as one can be."""
    y = np.array([r.label for r in rows], dtype=bool)
    errors = np.array([_squared_error(r, base) for r in rows])
    counts = np.array([r.evidence or (0, 0, 0) for r in rows], dtype=np.float64)
    weight = evidence_weight if counts.any() else 0.0

    def metric(w: Floats) -> Floats:
        verdicts = 1 - mean_by_label(w, y, errors)
        both, judge, people = (w @ counts).T
        f1 = 2 * both / np.maximum(judge + people, 1)
        return np.asarray((1 - weight) * verdicts + weight * f1)

    return metric


def _squared_error(row: Row, base: float) -> float:
    if row.predicted is None:
        return 1.0
    p = float(row.predicted) if row.probability is None else row.probability
    even = to_probability(to_logit(p) - base)
    return (even - row.label) ** 2
