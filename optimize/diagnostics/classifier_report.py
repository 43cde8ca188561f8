"""What is to be known of a fitted classifier, from replies already paid for: no LM call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from faith_dspy.optimize.classifier.review_range import measure_band
from faith_dspy.optimize.diagnostics.ablation import ablate
from faith_dspy.optimize.diagnostics.reliability import calibration_check
from faith_dspy.optimize.diagnostics.shortcuts import shortcut_check
from faith_dspy.optimize.diagnostics.transfer import leave_one_source_out
from faith_dspy.optimize.results import ClassifierReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.optimize.classifier.arrays import ClassifierExample
    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.optimize.select.evaluate import JudgedExample


def classifier_report(
    examples: Sequence[ClassifierExample],
    seen: Sequence[JudgedExample],
    fitted: FittedClassifier,
    test: Sequence[JudgedExample],
    rows: Sequence[PredictionRow],
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> ClassifierReport:
    """Ablation, shortcuts, calibration, review_range and transfer of a classifier.

    ``examples`` are what it was fitted on, made from ``seen``; ``rows`` are what the judge with it said of ``test``.
    All but the parts named ``test`` are cross-fitted.
    """
    classifier = fitted.classifier
    method: Literal["platt", "isotonic"] = "platt" if classifier.answer.isotonic is None else "isotonic"
    review_range = {}
    calibration = {}
    parts = {
        "cross-fitted": (seen, fitted.probabilities, [e.label for e in examples], [e.group for e in examples]),
        "test": (test, [r.probability for r in rows], [r.label for r in rows], [r.group for r in rows]),
    }
    for part, (observed, probabilities, labels, groups) in parts.items():
        if classifier.review_range is not None and labels:
            review_range[part] = measure_band(
                classifier.review_range, classifier.threshold, probabilities, labels, groups=groups, seed=seed
            )
        raw = [lm_probability(o) for o in observed]
        check = calibration_check(raw, probabilities, labels, method=method, groups=groups, seed=seed)
        if check is not None:
            calibration[part] = check
    sources = [o.example.tags.get("source", "") for o in seen]
    return ClassifierReport(
        cut=fitted.cut,
        review_range=review_range,
        calibration=calibration,
        shortcuts=shortcut_check(examples, fitted.probabilities, seed=seed),
        ablation=ablate(examples, fitted, seed=seed, advance=advance),
        transfer=leave_one_source_out(examples, sources, fitted, seed=seed),
    )


def lm_probability(o: JudgedExample) -> float | None:
    """The LM's own probability of its least supported statement, no classifier; None where it gave none for one of them."""
    known = [f.probability for f in o.raw_judgment.raw_verdicts]
    told = [p for p in known if p is not None]
    return min(told) if told and len(told) == len(known) and o.unscored is None else None
