"""The cost–quality table: the champion, its cheaper modes and the other variants, and which of them is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.optimize.results import CostPoint, Difference
from faith_dspy.optimize.select.comparison import paired
from faith_dspy.optimize.select.evaluate import agreement
from faith_dspy.optimize.select.modes import Candidate, Modes, cheaper_modes
from faith_dspy.schema import Usage
from faith_dspy.scoring.statistics import metric_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.config import JudgeConfig
    from faith_dspy.optimize.results import PredictionRow, VariantResult
    from faith_dspy.optimize.select.comparison import Metrics
    from faith_dspy.scoring.statistics import Floats

MARGIN = 0.02
"""Two points of the figure that variants are chosen by: a cheaper one counts as not worse when it is shown, with 95 %
confidence, to lose at most this much."""
ENOUGH = 50
"""Answers of each label from which on a cheaper mode may be exported in the champion's place."""


def cost_table(
    name: str, config: JudgeConfig, modes: Modes, variants: Sequence[VariantResult], seed: int = 0
) -> tuple[CostPoint, ...]:
    """The champion called ``name`` in all modes on train and dev, other variants on dev, but for dropped ones."""
    champion = Candidate(name, modes.every.rows, ask_about=config.ask_about)
    others = [
        Candidate(v.name, v.predictions)
        for v in variants
        if v.name != name and v.kind != "baseline" and v.status == "done" and v.predictions
    ]
    return compare_costs([champion, *cheaper_modes(name, config, modes), *others], name, seed)


def compare_costs(candidates: Sequence[Candidate], reference: str, seed: int = 0) -> tuple[CostPoint, ...]:
    """All candidates as points, the cheapest first, each compared with the one named ``reference``."""
    standard = next(c for c in candidates if c.name == reference)
    points = [_point(c, standard, seed) for c in candidates]
    cheapest = min((p for p in points if p.reference or not_worse(p.difference)), key=lambda p: p.cost)
    points.sort(key=lambda p: (p.cost, p.name))
    return tuple(p.model_copy(update={"cheapest": p is cheapest}) for p in points)


def _point(candidate: Candidate, standard: Candidate, seed: int) -> CostPoint:
    rows, n = candidate.rows, max(1, len(candidate.rows))
    measured, total = agreement(rows, seed), sum((r.usage for r in rows), Usage())
    return CostPoint(
        name=candidate.name,
        n=len(rows),
        balanced_accuracy=measured.balanced_accuracy,
        auroc=measured.auroc,
        lm_share=sum(r.usage.calls > 0 for r in rows) / n,
        calls=total.calls / n,
        computed_tokens=total.computed_tokens / n,
        output_tokens=total.output_tokens / n,
        seconds=total.seconds / n,
        cheaper_mode=candidate.cheaper_mode,
        ask_about=candidate.ask_about,
        escalates_within=candidate.escalates_within,
        difference=difference(rows, standard.rows, seed),
        reference=candidate is standard,
    )


def not_worse(difference: Difference) -> bool:
    """Whether at most `MARGIN` is lost, by the lower end of the interval."""
    return difference.low is not None and difference.low >= -MARGIN


def choose_mode(points: Sequence[CostPoint], labels: Sequence[bool], prefer: str) -> CostPoint:
    """The mode in which the champion is exported.

    With ``prefer="cheapest"``: the cheapest that is not worse, even lexical features alone. Otherwise the cheapest that
    asks an LM and is within one standard error of the best (Breiman et al. 1984, *CART*, §3.4.3); the one that asks
    about everything where fewer than `ENOUGH` answers of a label were measured (``labels``: of all of them).
    """
    full = next(p for p in points if p.reference)
    modes = [p for p in points if p.cheaper_mode]
    if prefer == "cheapest":
        return min([full, *(p for p in modes if not_worse(p.difference))], key=lambda p: p.cost)
    enough = min(sum(labels), len(labels) - sum(labels)) >= ENOUGH
    asking = [full, *(p for p in modes if enough and p.lm_share and p.difference.value is not None)]
    best = max(p.difference.value or 0.0 for p in asking)
    fair = [p for p in asking if best - (p.difference.value or 0.0) <= (p.difference.standard_error or 0.0)]
    return min(fair, key=lambda p: p.cost)


def difference(rows: Sequence[PredictionRow], others: Sequence[PredictionRow], seed: int = 0) -> Difference:
    """The figure that variants are chosen by, of the first minus of the second, on the answers both have.

    Its interval is that of `paired`.
    """
    both = {r.id for r in rows} & {r.id for r in others}
    order = sorted({(r.group, r.id) for r in rows if r.id in both})
    if not order:
        return Difference(why="no answer was judged by both")
    one, other = (_selection_score([r for r in side if r.id in both], order) for side in (rows, others))
    groups = [group for group, _ in order]
    return paired(one, other, len(order), groups)[0]


def _selection_score(rows: Sequence[PredictionRow], order: Sequence[tuple[str, str]]) -> Metrics:
    """The mean of balanced accuracy and AUROC, times coverage; ``order``: (group, id) of each weighted answer."""
    import numpy as np

    place = {key: i for i, key in enumerate(order)}
    scored = [r for r in rows if r.predicted is not None]
    at = [place[r.group, r.id] for r in scored]
    labels = np.array([r.label for r in scored], dtype=bool)
    passed = np.array([r.predicted for r in scored], dtype=bool)
    ranks = np.array([np.nan if r.probability is None else r.probability for r in scored], dtype=np.float64)

    def metric(w: Floats) -> Sequence[Floats]:
        found = metric_values(w[:, at], labels, passed, ranks)
        coverage = w[:, at].sum(axis=1) / w.sum(axis=1)
        return [(found["balanced_accuracy"] + found["auroc"]) / 2 * coverage]

    return metric


def cost_sentences(points: Sequence[CostPoint]) -> tuple[str, ...]:
    """What a reader should take from the table."""
    full = next(p for p in points if p.reference)
    cheapest = next(p for p in points if p.cheapest)
    sentences = []
    mode = next((p for p in points if p.exported and p.cheaper_mode), None)
    if mode is not None:
        rest = f"; lexical features settle the other {1 - mode.lm_share:.0%}" if mode.escalates_within else ""
        part = ", and of these about the weakest uncovered statement" if mode.ask_about == "weakest" else ""
        asks = f"asks the LM about {mode.lm_share:.0%} of the answers{part}{rest}" if mode.lm_share else "asks no LM"
        sentences.append(
            f"The champion {asks}. Against asking about everything: {_points(mode.difference)} in the mean of balanced "
            f"accuracy and AUROC, cross-fitted on {full.n} answers."
        )
    less = f"shown to lose less than {100 * MARGIN:.0f} points to {full.name}"
    if cheapest is full:
        sentences.append(f"Nothing cheaper is {less}.")
    elif not cheapest.exported:
        sentences.append(
            f"The cheapest that is {less}: {cheapest.name}, {cheapest.computed_tokens:.0f} computed tokens per answer "
            f"instead of {full.computed_tokens:.0f} ({_points(cheapest.difference)}); `tune --prefer cheapest` exports "
            "it."
        )
    return tuple(sentences)


def _points(d: Difference) -> str:
    if d.value is None or d.low is None or d.high is None:
        return f"no interval, {d.why}"
    return f"{100 * d.value:+.1f} points, 95 % interval {100 * d.low:+.1f} to {100 * d.high:+.1f}"
