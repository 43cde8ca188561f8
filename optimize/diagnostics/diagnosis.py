"""A diagnosis of the champion from replies already paid for: no LM call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.optimize.checks import CalibrationCheck, Diagnosis, ReviewRangeCheck
from faith_dspy.optimize.classifier.review_range import measure_review_range
from faith_dspy.optimize.diagnostics.ablation import ablate
from faith_dspy.optimize.diagnostics.groups import by_group
from faith_dspy.optimize.diagnostics.reliability import calibration_check
from faith_dspy.optimize.diagnostics.shortcuts import shortcut_check
from faith_dspy.optimize.select.evaluate import classifier_example

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
    last = [
        (e._replace(raw_judgment=e.raw_judgment.last), r)
        for e, r in zip(test, rows, strict=True)
        if not cascade or e.raw_judgment.escalated is not None
    ]
    classifier = fitted.classifier
    review_range: dict[str, ReviewRangeCheck] = {}
    calibration: dict[str, CalibrationCheck] = {}
    parts = {
        "cross-fitted": (fitted_on, fitted.probabilities, [e.label for e in examples], [e.group for e in examples]),
        "test": (
            [e for e, _ in last],
            [r.probability for _, r in last],
            [r.label for _, r in last],
            [r.group for _, r in last],
        ),
    }
    for part, (judged, probabilities, labels, groups) in parts.items():
        if classifier.review_range is not None and labels:
            review_range[part] = measure_review_range(
                classifier.review_range, classifier.threshold, probabilities, labels, groups=groups, seed=seed
            )
        own = [lm_probability(e) for e in judged]
        check = calibration_check(own, probabilities, labels, groups=groups, seed=seed)
        if check is not None:
            calibration[part] = check
    return Diagnosis(
        threshold=fitted.threshold,
        review_range=review_range,
        calibration=calibration,
        shortcuts=shortcut_check(examples, fitted.probabilities, seed=seed),
        ablation=tuple(ablate(examples, fitted, seed=seed, advance=advance)),
        groups=by_group(rows, seed),
    )


def lm_probability(judged: JudgedExample) -> float | None:
    """The LM's own probability of its least supported statement; None where it gave none for one of them."""
    known = [v.probability for v in judged.raw_judgment.raw_verdicts]
    given = [p for p in known if p is not None]
    return min(given) if given and len(given) == len(known) and judged.unscored is None else None
