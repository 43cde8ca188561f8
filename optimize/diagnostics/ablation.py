"""What each feature adds: the classifier fitted anew without it, on the same folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from faith_dspy.optimize.checks import Ablated
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.select.comparison import paired_bootstrap
from faith_dspy.text.features import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.optimize.checks import Difference
    from faith_dspy.optimize.classifier.arrays import ClassifierExample
    from faith_dspy.optimize.classifier.fitting import FittedClassifier


def ablate(
    examples: Sequence[ClassifierExample],
    fitted: FittedClassifier,
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Ablated]:
    """Leave out the LM, the lexical features, and each feature by itself; of the latter, the most missed first.

    The prior widths stay those of ``fitted``, so that only the features differ. Differences are on ``examples``, the
    answers ``fitted`` was fitted on, each judged by a classifier that did not see its group. Empty where there is no
    statement classifier, or it has a single feature.
    """
    names = fitted.classifier.statement.names if fitted.classifier.statement else ()
    sources = {
        "the LM": tuple(n for n in names if n not in DIRECTIONS),
        "lexical features": tuple(n for n in names if n in DIRECTIONS),
    }
    found = []
    for without, left_out in {**sources, **{n: (n,) for n in names}}.items():
        rest = [n for n in names if n not in left_out]
        if rest and left_out:
            other = fit_classifier(examples, names=rest, prior_widths=fitted.prior_widths, seed=seed)
            found.append(_ablated(without, examples, fitted, other, seed))
        advance(1)
    return sorted(found, key=lambda a: (a.without not in sources, a.without in sources or -(a.auroc.value or 0.0)))


def _ablated(
    without: str, examples: Sequence[ClassifierExample], full: FittedClassifier, less: FittedClassifier, seed: int
) -> Ablated:
    labels, groups = [e.label for e in examples], [e.group for e in examples]
    first, second = (
        [None if p is None else p >= f.classifier.threshold for p in f.probabilities] for f in (full, less)
    )

    def lost(metric: Literal["balanced_accuracy", "auroc"]) -> Difference:
        return paired_bootstrap(
            labels, first, second, full.probabilities, less.probabilities, groups, metric, n_resamples=1000, seed=seed
        )

    return Ablated(without=without, balanced_accuracy=lost("balanced_accuracy"), auroc=lost("auroc"))
