"""A study's figures, by the names of MLflow's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import Usage
    from faith_dspy.scoring.agreement import Agreement

MAIN = ("balanced_accuracy", "auroc", "cohen_kappa")
MORE = ("mcc", "f1_unfaithful", "recall_unfaithful", "recall_faithful", "ece", "brier")
_DOLLARS = "dollars_per_1000_answers"


def agreement(prefix: str, a: Agreement | None, names: Sequence[str] = MAIN) -> dict[str, float | None]:
    """Figures of an agreement, balanced accuracy with its interval."""
    if a is None:
        return {}
    out = {f"{prefix}_{name}": getattr(a, name).value for name in names}
    e = a.balanced_accuracy
    return out | {
        f"{prefix}_balanced_accuracy_low": e.low,
        f"{prefix}_balanced_accuracy_high": e.high,
        f"{prefix}_coverage": a.coverage,
    }


def usage(found: Usage, name: str, per: int) -> dict[str, float | None]:
    """Figures of a usage by ``per`` answers; nothing by none. Prompt tokens are the computed and the cached ones."""
    if not per:
        return {}
    fields = ("calls", "cached_tokens", "computed_tokens", "output_tokens", "seconds")
    return {name.format(field): getattr(found, field) / per for field in fields}


def dollars(found: Usage, answers: int) -> dict[str, float | None]:
    """The price of a thousand answers, where it is known: that of one would be all zeros."""
    known = answers and found.dollars is not None
    return {_DOLLARS: 1000 * (found.dollars or 0.0) / answers} if known else {}
