"""What choosing among many does to the numbers: the winner's optimism on dev, and Holm's correction on test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.optimize.checks import Comparison, Optimism
from faith_dspy.scoring.metrics import metric_values
from faith_dspy.scoring.statistics import Estimate, need, resample_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import PredictionRow, VariantResult
    from faith_dspy.scoring.statistics import Floats

PRIMARY = "untuned"
"""The comparison a study is made for; those with the baselines are secondary."""
_ALPHA = 0.05


def measure_optimism(
    variants: Sequence[VariantResult], champion: str, *, tie: float, seed: int = 0, n_resamples: int = 1000
) -> Optimism | None:
    """Bootstrap the choice of the champion; None when fewer than two variants competed.

    Each resample of dev's groups chooses by the same rule as the study – best mean of balanced accuracy and AUROC times
    coverage, the cheapest within ``tie`` – and the chosen one is measured on the groups that were not drawn. The mean
    of that is the corrected figure: BBC-CV (Tsamardinos, Greasidou, Borboudakis 2018, *Machine Learning* 107), on
    predictions that are cross-fitted already. It errs low by what a third fewer answers cost the choice.
    """
    need("numpy", "The champion's optimism")
    import numpy as np

    candidates = [v for v in variants if v.kind != "baseline" and v.selection_score is not None and v.predictions]
    order = sorted({(r.group, r.id) for v in candidates for r in v.predictions})
    if len(candidates) < 2 or all(v.name != champion for v in candidates):
        return None
    winner = next(v for v in candidates if v.name == champion)
    apparent = winner.agreement.balanced_accuracy if winner.agreement else Estimate(why="not measured")
    drawn = np.concatenate(list(resample_weights(len(order), [g for g, _ in order], n_resamples, seed)))
    left = (drawn == 0).astype(np.float64)
    figures, honest = zip(*(_figures(v.predictions, order, drawn, left) for v in candidates), strict=True)
    by, out = np.column_stack(figures), np.column_stack(honest)
    usable = ~np.isnan(by).any(axis=1)
    by, out = by[usable], out[usable]
    cost = np.array([v.cost for v in candidates])
    near = by >= by.max(axis=1, keepdims=True) - tie if len(by) else by
    chosen = np.where(near, cost, np.inf).argmin(axis=1) if len(by) else np.zeros(0, dtype=int)
    shares = {v.name: float((chosen == k).mean()) if len(chosen) else 0.0 for k, v in enumerate(candidates)}
    draws = out[np.arange(len(out)), chosen]
    draws = draws[~np.isnan(draws)]
    if len(draws) <= n_resamples / 2 or apparent.value is None:
        why = "dev is too small: most resamples leave out all answers of one label"
        corrected, optimism = Estimate(why=why), None
        text = f"How much of the dev figure is the luck of choosing among {len(candidates)} is unknown: {why}."
    else:
        low, high = np.quantile(draws, [0.025, 0.975]).tolist()
        corrected = Estimate(value=float(draws.mean()), low=low, high=high)
        optimism = apparent.value - float(draws.mean())
        figure = f"{draws.mean():.2f} [{low:.2f}, {high:.2f}]"
        said = f"corrected for choosing {figure}" if optimism > 0 else f"not flattered by choosing ({figure} without)"
        text = (
            f"Chosen among {len(candidates)}: on dev {apparent.value:.2f}, {said}; on {shares[champion]:.0%} of resampled "
            "devsets it is chosen again."
        )
    return Optimism(
        candidates=len(candidates),
        apparent=apparent,
        corrected=corrected,
        value=optimism,
        chosen=shares,
        sentence=text,
    )


def selection_scores(rows: Sequence[PredictionRow], order: Sequence[tuple[str, str]], drawn: Floats) -> Floats:
    """Per resample, the figure that variants are chosen by: the mean of balanced accuracy and AUROC, times coverage.

    ``drawn``: how often each answer of ``order``, (group, id), was drawn, shape (resamples, answers). NaN where a label
    is missing.
    """
    return _figures(rows, order, drawn, drawn[:0])[0]


def _figures(
    rows: Sequence[PredictionRow], order: Sequence[tuple[str, str]], drawn: Floats, left: Floats
) -> tuple[Floats, Floats]:
    """Per resample: the figure a variant is chosen by, on what was drawn; its balanced accuracy on what was not."""
    import numpy as np

    place = {key: i for i, key in enumerate(order)}
    scored = [r for r in rows if r.predicted is not None]
    if not scored:
        return np.full(len(drawn), np.nan), np.full(len(drawn), np.nan)
    at = [place[r.group, r.id] for r in scored]
    y = np.array([r.label for r in scored], dtype=bool)
    p = np.array([r.predicted for r in scored], dtype=bool)
    s = np.array([np.nan if r.probability is None else r.probability for r in scored], dtype=np.float64)
    on, off = metric_values(drawn[:, at], y, p, s), metric_values(left[:, at], y, p, np.full(len(y), np.nan))
    coverage = drawn[:, at].sum(axis=1) / drawn.sum(axis=1)
    return (on["balanced_accuracy"] + on["auroc"]) / 2 * coverage, off["balanced_accuracy"]


def holm(comparisons: Mapping[str, Comparison], primary: str = PRIMARY) -> dict[str, Comparison]:
    """The same comparisons, all but the primary one corrected for their number (Holm 1979).

    The primary comparison stands as it is: it was named before. Of the others the k-th smallest p is multiplied by
    ``m - k + 1`` and never less than the one before; a verdict that does not hold at 5 % after that becomes *not shown
    better*. Comparisons without a p value stay as they are.
    """
    others = {k: p for k, c in comparisons.items() if k != primary and (p := c.balanced_accuracy.p_value) is not None}
    corrected: dict[str, float] = {}
    least = 0.0
    for i, (name, p) in enumerate(sorted(others.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, p * (len(others) - i)))
        corrected[name] = least
    return {k: _corrected(c, corrected.get(k), len(others)) for k, c in comparisons.items()}


def _corrected(c: Comparison, p: float | None, m: int) -> Comparison:
    if p is None or m < 2:
        return c
    update: dict[str, object] = {"p_holm": p}
    if c.verdict != "not shown better" and p < _ALPHA:
        update["sentence"] = f"{c.sentence} Corrected for {m} such comparisons it still is (Holm: p = {p:.2g})."
    elif c.verdict != "not shown better":
        said = f" is {c.verdict} than "
        start = c.sentence.replace(said, f" is not shown to be {c.verdict} than ", 1)
        update["verdict"] = "not shown better"
        update["sentence"] = (
            f"{start} Its interval alone would show it; corrected for {m} such comparisons it does not "
            f"(Holm: p = {p:.2g})."
        )
    return c.model_copy(update=update)
