"""What each signal adds: the classifier fitted anew without it, on the same folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from faith_dspy.optimize.checks import Ablated, Difference
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.select.comparison import paired_bootstrap
from faith_dspy.scoring.statistics import resample_weights
from faith_dspy.text.features import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.optimize.classifier.arrays import ClassifierExample
    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.scoring.statistics import Floats

_RESAMPLES = 1000


def ablate(
    examples: Sequence[ClassifierExample],
    fitted: FittedClassifier,
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Ablated]:
    """Leave out the LM, the words, and each signal by itself; most missed first among the single ones.

    The prior widths stay those of ``fitted``, so that only the signal differs. Differences are on the answers
    ``fitted`` was fitted on, ``examples``, each judged by a classifier that did not see its group. Empty where there is no
    statement classifier, or a single signal: nothing would be left.
    """
    names = fitted.classifier.statement.names if fitted.classifier.statement else ()
    words = tuple(n for n in names if n in DIRECTIONS)
    wholes = {"the LM": tuple(n for n in names if n not in DIRECTIONS), "lexical features": words}
    singles = {n: (n,) for n in names}
    found = []
    for without, left_out in [*wholes.items(), *singles.items()]:
        rest = [n for n in names if n not in left_out]
        if rest and left_out:
            other = fit_classifier(examples, names=rest, prior_widths=fitted.prior_widths, seed=seed)
            found.append(_difference(without, left_out, examples, fitted, other, seed))
        advance(1)
    whole, single = [a for a in found if a.without in wholes], [a for a in found if a.without not in wholes]
    return [*whole, *sorted(single, key=lambda a: a.log_loss.value or 0.0)]


def _difference(
    without: str,
    left_out: tuple[str, ...],
    examples: Sequence[ClassifierExample],
    full: FittedClassifier,
    less: FittedClassifier,
    seed: int,
) -> Ablated:
    labels, groups = [e.label for e in examples], [e.group for e in examples]
    first, second = (
        [None if p is None else p >= f.classifier.threshold for p in f.probabilities] for f in (full, less)
    )

    def by(metric: Literal["balanced_accuracy", "auroc"]) -> Difference:
        return paired_bootstrap(
            labels, first, second, full.probabilities, less.probabilities, groups, metric,
            n_resamples=_RESAMPLES, seed=seed,
        )  # fmt: skip

    return Ablated(
        without=without,
        features=left_out,
        balanced_accuracy=by("balanced_accuracy"),
        auroc=by("auroc"),
        log_loss=_log_loss(labels, groups, full.probabilities, less.probabilities, seed),
    )


def _log_loss(
    labels: Sequence[bool],
    groups: Sequence[str],
    full: Sequence[float | None],
    less: Sequence[float | None],
    seed: int,
) -> Difference:
    at = [i for i, (a, b) in enumerate(zip(full, less, strict=True)) if a is not None and b is not None]
    y = np.array([labels[i] for i in at], dtype=bool)
    first, second = (_losses(np.array([side[i] for i in at], dtype=np.float64), y) for side in (full, less))
    each = first - second
    blocks = resample_weights(len(at), [groups[i] for i in at], _RESAMPLES, seed)
    draws = np.concatenate([w @ each / w.sum(axis=1) for w in blocks])
    low, high = np.quantile(draws, [0.025, 0.975]).tolist()
    return Difference(value=float(each.mean()), low=low, high=high, standard_error=float(draws.std(ddof=1)))


def _losses(p: Floats, y: Floats) -> Floats:
    return np.asarray(-np.log(np.where(y, p, 1 - p)))
