"""What is to be known of a fitted head, from replies already paid for: no LM call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from faith_dspy.optimize.diagnostics.ablation import ablate
from faith_dspy.optimize.classifier.review_range import measure_band
from faith_dspy.optimize.diagnostics.reliability import calibration_check
from faith_dspy.optimize.results import HeadReport
from faith_dspy.optimize.diagnostics.shortcuts import shortcut_check
from faith_dspy.optimize.diagnostics.transfer import leave_one_source_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.optimize.select.evaluate import Observed
    from faith_dspy.optimize.classifier.fitting import FittedHead
    from faith_dspy.optimize.classifier.arrays import HeadExample
    from faith_dspy.optimize.results import PredictionRow


def head_report(
    examples: Sequence[HeadExample],
    seen: Sequence[Observed],
    fitted: FittedHead,
    test: Sequence[Observed],
    rows: Sequence[PredictionRow],
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> HeadReport:
    """Ablation, shortcuts, calibration, band and transfer of a head.

    ``examples`` are what it was fitted on, made from ``seen``; ``rows`` are what the judge with it said of ``test``.
    All but the parts named ``test`` are cross-fitted.
    """
    head = fitted.head
    method: Literal["platt", "isotonic"] = "platt" if head.answer.isotonic is None else "isotonic"
    band = {}
    calibration = {}
    parts = {
        "cross-fitted": (seen, fitted.probabilities, [e.label for e in examples], [e.group for e in examples]),
        "test": (test, [r.probability for r in rows], [r.label for r in rows], [r.group for r in rows]),
    }
    for part, (observed, probabilities, labels, groups) in parts.items():
        if head.band is not None and labels:
            band[part] = measure_band(head.band, head.threshold, probabilities, labels, groups=groups, seed=seed)
        raw = [lm_probability(o) for o in observed]
        check = calibration_check(raw, probabilities, labels, method=method, groups=groups, seed=seed)
        if check is not None:
            calibration[part] = check
    sources = [o.example.tags.get("source", "") for o in seen]
    return HeadReport(
        cut=fitted.cut,
        band=band,
        calibration=calibration,
        shortcuts=shortcut_check(examples, fitted.probabilities, seed=seed),
        ablation=ablate(examples, fitted, seed=seed, advance=advance),
        transfer=leave_one_source_out(examples, sources, fitted, seed=seed),
    )


def lm_probability(o: Observed) -> float | None:
    """The LM's own probability of its least supported statement, no head; None where it gave none for one of them."""
    known = [f.probability for f in o.observation.findings]
    told = [p for p in known if p is not None]
    return min(told) if told and len(told) == len(known) and o.unscored is None else None
