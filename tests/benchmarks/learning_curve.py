"""The learning curve of the agreement benchmark: agreement by number of a family's own labels, as table and picture."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.report.plots import BLUE, DARK
from faith_dspy.scoring.statistics import Estimate, metric_values

from .default_classifier import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from faith_dspy.optimize.results import JudgedAnswer
    from faith_dspy.scoring.classifier import Classifier

SEED = 0
SIZES, DRAWS = (10, 25, 50, 100, 200), 10
"""Numbers of labels on the learning curve, and draws of each."""


def learning(known: Sequence[JudgedAnswer], names: Sequence[str], prior: Classifier) -> dict[int, list[list[float]]]:
    """Agreement of classifiers fitted to 0 (the default's), 10, 25, … and all labels, on a third that is held out.

    `DRAWS` times by number of labels: a random third of the contexts is held out, and labels drawn from the rest;
    ``-1``: all. ``names``: the features; ``prior``: the default classifier.
    """
    found: dict[int, list[list[float]]] = {}
    contexts = sorted({e.source for e in known})
    for draw in range(DRAWS):
        rng = random.Random(draw)
        held = set(rng.sample(contexts, len(contexts) // 3))
        test, pool = [e for e in known if e.source in held], [e for e in known if e.source not in held]
        rng.shuffle(pool)
        labels = np.array([e.label for e in test])
        for n in (0, *(n for n in SIZES if n < len(pool)), -1):
            classifier = prior
            if n:
                try:
                    fitted = fit_classifier(pool[:n] if n > 0 else pool, names, prior=prior, seed=SEED)
                except InputError:  # one label only
                    found.setdefault(n, []).append([math.nan] * len(METRICS))
                    continue
                classifier = fitted.classifier
            p = np.array([classifier.probability(e.features) for e in test], dtype=np.float64)
            values = metric_values(np.ones((1, len(p))), labels, p >= classifier.threshold, p)
            found.setdefault(n, []).append([float(values[m][0]) for m in METRICS.values()])
    return found


def draw_curves(
    curves: Mapping[str, Sequence[Mapping[int, list[list[float]]]]], path: Path
) -> list[tuple[str, str, Estimate, Estimate]]:
    """The learning curves by title, each the mean over families; the picture, and by title and labels both metrics."""
    figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
    rows = []
    for ax, (title, families) in zip(figure.subplots(1, len(curves), sharey=True), curves.items(), strict=True):
        sizes = sorted(set.intersection(*map(set, families)), key=lambda n: (n < 0, n))
        values = np.array([np.nanmean([f[n] for f in families], axis=0) for n in sizes])  # (sizes, draws, metrics)
        low, high = np.nanquantile(values, [0.025, 0.975], axis=1)
        middle = np.nanmean(values, axis=1)
        names = ["all" if n < 0 else str(n) for n in sizes]
        for i, (metric, colour) in enumerate(zip(METRICS, (BLUE, DARK), strict=True)):
            ax.plot(names, middle[:, i], "o-", color=colour, markersize=4, label=metric)
            ax.fill_between(names, low[:, i], high[:, i], color=colour, alpha=0.15, linewidth=0)
        ax.set_title(title, fontsize=10, loc="left", color=DARK)
        ax.set(xlabel="labels of one's own (0: the default judge)")
        ax.spines[["top", "right"]].set_visible(False)
        for j, name in enumerate(names):
            spread = [Estimate(value=v, low=a, high=b) for v, a, b in zip(middle[j], low[j], high[j], strict=True)]
            rows.append((title, name, *spread))
    figure.axes[0].set(ylabel="agreement; bands: 95 % of the draws")
    figure.axes[0].legend(loc="lower right", frameon=False, fontsize=9)
    figure.savefig(path)
    return rows
