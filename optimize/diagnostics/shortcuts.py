"""Whether the judge goes by the shape of an answer: what length alone tells, and what is left among answers alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faith_dspy.optimize.checks import LengthThird, ShortcutCheck
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.metrics import weighted_auroc
from faith_dspy.scoring.statistics import Estimate, from_draws, need, resample_weights
from faith_dspy.text.features import LENGTH_FEATURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.classifier.arrays import ClassifierExample
    from faith_dspy.scoring.statistics import Bools, Floats, Ints


def shortcut_check(
    examples: Sequence[ClassifierExample], probabilities: Sequence[float | None], *, seed: int = 0
) -> ShortcutCheck:
    """Check probabilities the judge gave to answers it had not seen; answers with None are left out.

    Thirds are by words, equally full; answers of one length stay together. `InputError` without any probability.
    """
    stats = need("scipy.stats", "Checking for shortcuts")
    at = [i for i, p in enumerate(probabilities) if p is not None]
    y = np.array([examples[i].label for i in at], dtype=bool)
    p = np.array([probabilities[i] for i in at], dtype=np.float64)
    groups = [examples[i].group for i in at]
    shapes = {n: np.array([examples[i].features[n] for i in at], dtype=np.float64) for n in LENGTH_FEATURES}
    words = np.rint(np.expm1(shapes["answer_words"])).astype(np.int64)
    third = np.searchsorted(np.sort(words), words) * 3 // max(1, len(words))

    def auroc(scores: Floats, rows: Bools) -> Estimate:
        kept = np.flatnonzero(rows).tolist()
        own = [groups[i] for i in kept]
        return measure(y[rows].tolist(), [True] * len(kept), scores[rows].tolist(), groups=own, seed=seed).auroc

    everyone = np.ones(len(at), dtype=bool)
    flat = np.ptp(p) == 0
    return ShortcutCheck(
        alone={n: auroc(x, everyone) for n, x in shapes.items()},
        correlation={
            n: None if flat or np.ptp(x) == 0 else float(stats.spearmanr(p, x).statistic) for n, x in shapes.items()
        },
        auroc=auroc(p, everyone),
        within=_within(y, p, third, groups, seed),
        thirds=tuple(
            LengthThird(
                shortest=int(words[rows].min()),
                longest=int(words[rows].max()),
                n=int(rows.sum()),
                faithful=int(y[rows].sum()),
                auroc=auroc(p, rows),
            )
            for k in np.unique(third)
            for rows in [third == k]
        ),
    )


def _within(y: Bools, p: Floats, third: Ints, groups: Sequence[str], seed: int) -> Estimate:
    """AUROC over pairs of one third: each third's, weighted by its pairs."""

    def value(w: Floats) -> Floats:
        won, pairs = np.zeros(len(w)), np.zeros(len(w))
        for k in np.unique(third):
            rows = third == k
            inside = w[:, rows]
            n = (inside @ y[rows]) * (inside @ ~y[rows])
            won += np.where(n > 0, n * np.nan_to_num(weighted_auroc(inside, y[rows], p[rows])), 0)
            pairs += n
        with np.errstate(invalid="ignore"):
            return won / pairs

    draws = np.concatenate([value(w) for w in resample_weights(len(y), groups, 1000, seed)])
    whole = float(value(np.ones((1, len(y))))[0])
    return from_draws(whole, draws, 0.95, "no third by length holds both labels")
