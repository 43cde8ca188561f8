"""Whether the judge relies on an answer's length, which is not evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faith_dspy.optimize.checks import ShortcutCheck
from faith_dspy.scoring.metrics import weighted_auroc
from faith_dspy.scoring.statistics import bootstrap
from faith_dspy.text.features import LENGTH_FEATURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.classifier.arrays import ClassifierExample
    from faith_dspy.scoring.statistics import Floats


def shortcut_check(
    examples: Sequence[ClassifierExample], probabilities: Sequence[float | None], *, seed: int = 0
) -> ShortcutCheck:
    """Check probabilities the judge gave to answers it had not seen; answers with None are left out.

    ``within`` takes only pairs of answers from one third by words; answers of one length share a third.
    """
    at = [i for i, p in enumerate(probabilities) if p is not None]
    y = np.array([examples[i].label for i in at], dtype=bool)
    p = np.array([probabilities[i] for i in at], dtype=np.float64)
    shapes = {n: np.array([examples[i].features[n] for i in at], dtype=np.float64) for n in LENGTH_FEATURES}
    words = np.rint(np.expm1(shapes["answer_words"]))
    third = np.searchsorted(np.sort(words), words) * 3 // max(1, len(words))

    def within(w: Floats) -> Floats:
        """Each third's AUROC, weighted by its pairs of a faithful and an unfaithful answer."""
        won, pairs = np.zeros(len(w)), np.zeros(len(w))
        for k in np.unique(third):
            rows = third == k
            n = (w[:, rows] @ y[rows]) * (w[:, rows] @ ~y[rows])
            won += np.where(n > 0, n * np.nan_to_num(weighted_auroc(w[:, rows], y[rows], p[rows])), 0)
            pairs += n
        with np.errstate(invalid="ignore"):
            return won / pairs

    why = dict.fromkeys((*shapes, "judge"), "all answers have the same label")
    found = bootstrap(
        lambda w: {n: weighted_auroc(w, y, s) for n, s in {**shapes, "judge": p}.items()} | {"within": within(w)},
        len(at),
        [examples[i].group for i in at],
        {**why, "within": "no third by length has answers of both labels"},
        seed=seed,
    )
    return ShortcutCheck(alone={n: found[n] for n in shapes}, auroc=found["judge"], within=found["within"])
