"""Which candidate is exported: the best estimate, or a cheaper one that is shown not to be worse.

A candidate's score is one minus the Brier score of its cross-fitted probabilities, both labels weighing the same. It is
a proper score, so it compares a judge that ranks with one that only tells verdicts; it is a mean over answers, so no
fold's zero can shift it; and of the criteria tried it chose best with few labels (optimize/LOG.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.optimize.plan import Prefer
from faith_dspy.optimize.results import Difference, JudgeResult, Row, costs
from faith_dspy.optimize.select.candidates import Candidate
from faith_dspy.optimize.select.comparison import Metrics, balanced_accuracy, paired
from faith_dspy.scoring.classifier import to_logit, to_probability
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM, Floats, label_sources

MARGIN = 0.03
"""Balanced accuracy that a cheaper judge may lose at most: its 95 % interval has to stay above that loss."""


class Choice(NamedTuple):
    """The champion, and all candidates on the pool, each with how far it is behind the best."""

    champion: Candidate
    compared: list[JudgeResult]
    reason: str


def choose(candidates: Sequence[Candidate], prefer: Prefer) -> Choice:
    """Choose the candidate to export.

    The best by score; of those that cost less, the cheapest that is not inferior: the interval of its loss in balanced
    accuracy over sources stays below `MARGIN`. With ``prefer="cheapest"`` the cheapest within one standard error of the
    best score (Breiman et al. 1984, *CART*, §3.4.3). Candidates are compared on the answers that both may be measured
    on. `InputError` where nothing could be measured.
    """
    price_of = dict(
        zip(
            (c.result.name for c in candidates),
            costs([c.result for c in candidates]),
            strict=True,
        )
    )
    scored = [c for c in candidates if score(c.result.rows) is not None]
    if not scored:
        raise InputError(
            "no candidate could be measured: the answers have one label only, or none was scored."
        )
    ordered = sorted(scored, key=lambda c: price_of[c.result.name])
    best = ordered[0]
    for other in ordered[1:]:
        if (difference(other.result.rows, best.result.rows).value or 0.0) > 0:
            best = other
    behind = {
        c.result.name: difference(c.result.rows, best.result.rows)
        for c in scored
        if c is not best
    }
    champion, reason = best, "it has the best score on the pool"
    for c in ordered:
        if c is best or price_of[c.result.name] >= price_of[best.result.name]:
            break
        if prefer == "cheapest" and _within_one_error(behind[c.result.name]):
            champion, reason = (
                c,
                f"it is the cheapest within one standard error of {best.result.name}",
            )
            break
        if prefer == "agreement" and not_inferior(c.result.rows, best.result.rows):
            champion, reason = (
                c,
                f"it costs less than {best.result.name}, and is shown not to be worse",
            )
            break
    compared = [_compared(c.result, behind.get(c.result.name)) for c in candidates]
    return Choice(champion, compared, reason)


def _compared(result: JudgeResult, behind: Difference | None) -> JudgeResult:
    return result.model_copy(update={"score": score(result.rows), "behind": behind})


def _within_one_error(d: Difference) -> bool:
    return d.value is not None and -d.value <= (d.standard_error or 0.0)


def not_inferior(rows: Sequence[Row], best: Sequence[Row]) -> bool:
    """Whether these verdicts are shown to lose less than `MARGIN` of balanced accuracy against the best."""
    one, other = _on_both(rows, best)
    labels, sources = [r.label for r in one], [r.source for r in one]
    if min(label_sources(labels, sources).values()) < SIGNIFICANT_FROM:
        return False
    (d,) = paired(balanced_accuracy(one), balanced_accuracy(other), sources, labels)
    return d.low is not None and d.low > -MARGIN


def difference(rows: Sequence[Row], others: Sequence[Row]) -> Difference:
    """The score of the first minus that of the second, on the answers both have, by source."""
    one, other = _on_both(rows, others)
    if not one:
        return Difference(why="no answer was judged by both")
    (d,) = paired(
        _score_of(one),
        _score_of(other),
        [r.source for r in one],
        [r.label for r in one],
    )
    return d


def score(rows: Sequence[Row]) -> float | None:
    """One minus the class-balanced Brier score; None where a label is missing."""
    value = float(_score_of(rows)(np.ones((1, len(rows))))[0][0])
    return None if np.isnan(value) else value


def _on_both(rows: Sequence[Row], others: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    both = {r.id for r in rows} & {r.id for r in others}
    one, other = (
        sorted((r for r in side if r.id in both), key=lambda r: r.id)
        for side in (rows, others)
    )
    return one, other


def _score_of(rows: Sequence[Row]) -> Metrics:
    """Probabilities are moved to even odds; an answer that is unscored is as wrong as one can be."""
    y = np.array([r.label for r in rows], dtype=bool)
    base = to_logit(float(y.mean()))
    off = np.array([_off(r, base) for r in rows])

    def metric(w: Floats) -> Sequence[Floats]:
        with np.errstate(invalid="ignore"):
            of_label = [
                (w @ (off * part)) / (w @ part)
                for part in (y.astype(float), (~y).astype(float))
            ]
        return [1 - (of_label[0] + of_label[1]) / 2]

    return metric


def _off(row: Row, base: float) -> float:
    """The squared error of one answer's probability."""
    if row.predicted is None:
        return 1.0
    p = float(row.predicted) if row.probability is None else row.probability
    even = to_probability(to_logit(p) - base)
    return (even - row.label) ** 2
