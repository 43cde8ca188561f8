"""Whether a classifier holds on answers of another kind: fitted on some sources, measured on one it never saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.scoring.agreement import Agreement, measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.classifier.arrays import ClassifierExample
    from faith_dspy.optimize.classifier.fitting import FittedClassifier


class Transfer(BaseModel):
    """A classifier on answers of a source none of its labels came from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fitted_on: tuple[str, ...]
    tested_on: str
    n_fitted: int
    """Answers it was fitted on."""
    away: Agreement | None = None
    """On the source it never saw; None when it could not be fitted, and `note` says why."""
    home: Agreement | None = None
    """On the same answers, cross-fitted by a classifier that had other labels of that source too."""
    note: str | None = None


def transfer(
    fitted_on: Sequence[ClassifierExample],
    tested_on: Sequence[ClassifierExample],
    *,
    names: Sequence[str] | None = None,
    prior_widths: tuple[float, float] | None = None,
    seed: int = 0,
) -> Agreement:
    """Fit a classifier on some answers and measure it, threshold included, on others.

    ``names`` and ``prior_widths`` as in `fit_classifier`, which raises `InputError` when the first cannot be split.
    """
    classifier = fit_classifier(fitted_on, names=names, prior_widths=prior_widths, seed=seed).classifier
    return _agreement(
        tested_on, [classifier.probability(e.statements, e.features) for e in tested_on], classifier.threshold, seed
    )


def leave_one_source_out(
    examples: Sequence[ClassifierExample], sources: Sequence[str], fitted: FittedClassifier, *, seed: int = 0
) -> list[Transfer]:
    """For each source that holds both labels: `transfer` from all others to it, the worst first.

    ``sources`` has one name an example, ``fitted`` is the classifier of all ``examples``, whose features and prior widths are
    kept. Empty with fewer than two such sources. `InputError` when the lengths differ.
    """
    if len(sources) != len(examples):
        raise InputError(f"got {len(sources)} sources for {len(examples)} answers, expected one for each")
    kinds = sorted(set(sources))
    both = [s for s in kinds if len({e.label for e, own in zip(examples, sources, strict=True) if own == s}) == 2]
    if len(both) < 2:
        return []
    names = fitted.classifier.statement.names if fitted.classifier.statement else ()
    found = []
    for source in both:
        others = [e for e, own in zip(examples, sources, strict=True) if own != source]
        at = [i for i, own in enumerate(sources) if own == source]
        there = [examples[i] for i in at]
        away, note = None, None
        try:
            away = transfer(others, there, names=names, prior_widths=fitted.prior_widths, seed=seed)
        except InputError as exc:
            note = str(exc)
        found.append(
            Transfer(
                fitted_on=tuple(s for s in kinds if s != source),
                tested_on=source,
                n_fitted=len(others),
                away=away,
                home=_agreement(there, [fitted.probabilities[i] for i in at], fitted.classifier.threshold, seed),
                note=note,
            )
        )
    return sorted(found, key=lambda t: (t.away.balanced_accuracy.value if t.away else None) or 0.0)


def _agreement(
    examples: Sequence[ClassifierExample], probabilities: Sequence[float | None], threshold: float, seed: int
) -> Agreement:
    passed = [None if p is None else p >= threshold for p in probabilities]
    groups = [e.group for e in examples]
    return measure([e.label for e in examples], passed, probabilities, groups=groups, seed=seed)
