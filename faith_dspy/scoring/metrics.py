"""Metrics of agreement on weighted items, vectorised over the rows of weights that a bootstrap draws.

Weights ``w`` have the shape (resamples, n); labels ``y``, predictions ``p`` and scores ``s`` the shape (n,). Each
metric has the shape (resamples,) and is NaN where undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faith_dspy.scoring.statistics import Bools, Floats, Ints

CONFUSION = ("faithful_passed", "faithful_failed", "unfaithful_passed", "unfaithful_failed")
"""The label, then the prediction."""
_BINS = 10
"""Bins of the expected calibration error."""


def confusion_counts(w: Floats, y: Bools, p: Bools) -> Floats:
    """Weighted counts in the order of `CONFUSION`, shape (resamples, 4), from weights of shape (resamples, n)."""
    import numpy as np

    return w @ np.column_stack([y & p, y & ~p, ~y & p, ~y & ~p]).astype(np.float64)


def weighted_auroc(w: Floats, y: Bools, s: Floats) -> Floats:
    """AUROC per resample, shape (resamples,): the Mann-Whitney statistic, ties one half; NaN with one class."""
    import numpy as np

    order = np.argsort(s, kind="stable")
    first = np.unique(s[order], return_index=True)[1]
    good = np.add.reduceat(w[:, order] * y[order], first, axis=1)
    bad = np.add.reduceat(w[:, order] * ~y[order], first, axis=1)
    won = good * (np.cumsum(bad, axis=1) - bad / 2)
    with np.errstate(invalid="ignore"):
        return np.asarray(won.sum(axis=1) / (good.sum(axis=1) * bad.sum(axis=1)))


def metric_values(w: Floats, y: Bools, p: Bools, s: Floats) -> dict[str, Floats]:
    """Every metric of `Agreement` for each row of weights, shape (resamples, n); NaN where undefined.

    ``y``, ``p`` and ``s``, each of shape (n,): labels, predictions, and scores (NaN where there is none).
    """
    import numpy as np

    fp, ff, up, uf = confusion_counts(w, y, p).T
    n = fp + ff + up + uf
    out: dict[str, Floats] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        out["recall_faithful"], out["recall_unfaithful"] = fp / (fp + ff), uf / (uf + up)
        out["balanced_accuracy"] = (out["recall_faithful"] + out["recall_unfaithful"]) / 2
        both = (fp + ff > 0) & (uf + up > 0)
        by_chance = ((fp + ff) * (fp + up) + (uf + up) * (uf + ff)) / n**2
        out["cohen_kappa"] = np.where(both, ((fp + uf) / n - by_chance) / (1 - by_chance), np.nan)
        root = np.sqrt((fp + ff) * (fp + up) * (uf + up) * (uf + ff))
        out["mcc"] = np.where(both, np.where(root > 0, (fp * uf - ff * up) / root, 0.0), np.nan)
        out["f1_unfaithful"] = 2 * uf / (2 * uf + ff + up)
        out["precision_unfaithful"] = uf / (uf + ff)
        has = ~np.isnan(s)
        w, y, s = w[:, has], y[has], s[has]
        out["auroc"] = out["ece"] = out["brier"] = np.full(len(w), np.nan)
        if len(s):
            out["auroc"] = weighted_auroc(w, y, s)
        if len(s) and s.min() >= 0 and s.max() <= 1:
            total = w.sum(axis=1)
            # Bins of the original answers, kept in every resample; equal scores share a bin.
            bins = np.searchsorted(np.sort(s), s) * _BINS // len(s)
            off = (y - s)[:, None] * (bins[:, None] == np.arange(_BINS))
            out["ece"] = np.abs(w @ off).sum(axis=1) / total
            out["brier"] = w @ (y - s) ** 2 / total
    return out


def weighted_kappa(w: Floats, a: Ints, b: Ints, levels: int) -> Floats:
    """κ with linear weights (Cohen 1968) of two ratings from 0 to ``levels - 1``, per row of weights.

    ``1 - observed / expected``, each the mean ``|a - b|``; NaN where both raters only use one and the same level.
    """
    import numpy as np

    cell = np.eye(levels * levels)[a * levels + b]  # shape (n, levels²)
    shares = (w @ cell).reshape(-1, levels, levels) / w.sum(axis=1)[:, None, None]
    distance = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels)))
    by_chance = shares.sum(axis=2)[:, :, None] * shares.sum(axis=1)[:, None, :]
    with np.errstate(invalid="ignore"):
        return np.asarray(1 - (shares * distance).sum(axis=(1, 2)) / (by_chance * distance).sum(axis=(1, 2)))
