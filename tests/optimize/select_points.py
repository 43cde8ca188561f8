"""Points of a cost–quality table for the tests."""

from __future__ import annotations

from faith_dspy.optimize.results import CostPoint, Difference
from faith_dspy.scoring.statistics import Estimate

GOOD = Estimate(value=0.8, low=0.7, high=0.9)


def point(name: str, *, value: float = 0.0, **more) -> CostPoint:
    """A point with only what is given set to something of interest."""
    given = {
        "n": 200, "balanced_accuracy": GOOD, "auroc": GOOD, "lm_share": 1.0, "calls": 1.0,
        "computed_tokens": 100.0, "output_tokens": 1.0, "seconds": 1.0,
        "difference": Difference(value=value, low=value - 0.01, high=value + 0.01, standard_error=0.005),
    }  # fmt: skip
    return CostPoint(name=name, **{**given, **more})


HALF = point(
    "lexical, then sentence 50%",
    value=-0.004,
    lm_share=0.5,
    computed_tokens=50.0,
    cheaper_mode=True,
    escalates_within=(0.3, 0.7),
    ask_about="weakest",
)
