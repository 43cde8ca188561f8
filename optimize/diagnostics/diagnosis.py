"""A diagnosis of the champion from replies already paid for: no LM call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.optimize.checks import CalibrationCheck, Diagnosis, ReviewRangeCheck
from faith_dspy.optimize.classifier.review_range import measure_review_range
from faith_dspy.optimize.diagnostics.ablation import ablate
from faith_dspy.optimize.diagnostics.groups import by_group
from faith_dspy.optimize.diagnostics.shortcuts import shortcut_check
from faith_dspy.optimize.select.evaluate import classifier_example
from faith_dspy.scoring.agreement import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.optimize.select.evaluate import JudgedExample


def diagnose(
    fitted: FittedClassifier,
    fitted_on: Sequence[JudgedExample],
    test: Sequence[JudgedExample],
    rows: Sequence[PredictionRow],
    *,
    cascade: bool = False,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Diagnosis:
    """Threshold, review range, calibration, length shortcut, ablation and groups of the champion.

    ``fitted_on``: the answers its classifier was fitted on; ``test`` and ``rows``: the test answers and the champion's
    predictions of them, in the same order. In a ``cascade``, calibration and review range on test are about the answers
    that were escalated to this classifier. ``advance`` is called once per ablation.
    """
    examples = [classifier_example(e) for e in fitted_on]
    own = [lm_probability(e) for e in fitted_on]
    parts = {
        "cross-fitted": [
            (before, after, e.label, e.group)
            for before, after, e in zip(own, fitted.probabilities, examples, strict=True)
        ],
        "test": [
            (lm_probability(e._replace(raw_judgment=e.raw_judgment.last)), r.probability, r.label, r.group)
            for e, r in zip(test, rows, strict=True)
            if not cascade or e.raw_judgment.escalated is not None
        ],
    }
    classifier = fitted.classifier
    review_range: dict[str, ReviewRangeCheck] = {}
    calibration: dict[str, CalibrationCheck] = {}
    for part, judged in parts.items():
        if classifier.review_range is not None and judged:
            _, after, labels, groups = zip(*judged, strict=True)
            review_range[part] = measure_review_range(
                classifier.review_range, classifier.threshold, after, labels, groups=groups, seed=seed
            )
        known = [(b, a, label, group) for b, a, label, group in judged if b is not None and a is not None]
        if known:
            calibration[part] = calibration_check(*zip(*known, strict=True), seed=seed)
    return Diagnosis(
        threshold=fitted.threshold,
        review_range=review_range,
        calibration=calibration,
        shortcuts=shortcut_check(examples, fitted.probabilities, seed=seed),
        ablation=tuple(ablate(examples, fitted, seed=seed, advance=advance)),
        groups=by_group(rows, seed),
    )


def calibration_check(
    before: Sequence[float], after: Sequence[float], labels: Sequence[bool], groups: Sequence[str], *, seed: int = 0
) -> CalibrationCheck:
    """Calibration error of two probabilities of each answer; ``after`` of answers the classifier did not see."""
    first, second = (measure(labels, [p >= 0.5 for p in side], side, groups=groups, seed=seed).ece
                     for side in (before, after))  # fmt: skip
    return CalibrationCheck(n=len(labels), before=first, after=second)


def lm_probability(judged: JudgedExample) -> float | None:
    """The LM's own probability of its least supported statement; None where it gave none for one of them."""
    known = [v.probability for v in judged.raw_judgment.raw_verdicts]
    given = [p for p in known if p is not None]
    return min(given) if given and len(given) == len(known) and judged.unscored is None else None
