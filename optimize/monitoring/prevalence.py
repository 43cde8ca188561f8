"""The share of faithful answers among those that nobody labelled, and whether the labels still fit them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import need
from faith_dspy.scoring.statistics import FaithfulShare, ppi_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

SIGNIFICANT = 0.01
"""p-value below which labelled and unlabelled answers are taken to have different scores."""


class Prevalence(BaseModel):
    """The share of faithful answers among unlabelled ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: FaithfulShare
    drift_p_value: float | None
    """Two-sample Kolmogorov–Smirnov test of the scores of labelled and of unlabelled answers."""
    labels_fit: bool
    sentence: str


def faithful_share(
    labels: Sequence[bool], scores: Sequence[float | None], unlabelled: Sequence[float | None]
) -> Prevalence:
    """Estimate the share by prediction-powered inference (`ppi_mean`), and check that the labels fit the traffic.

    ``labels`` and ``scores``: one per labelled answer; ``unlabelled``: scores of the others. None: unscored.
    """
    known, new = ([s for s in side if s is not None] for side in (scores, unlabelled))
    stats = need("scipy.stats", "Checking that the labels fit the traffic")
    p = float(stats.ks_2samp(known, new).pvalue) if known and new else None
    fit = p is None or p >= SIGNIFICANT
    return Prevalence(
        share=ppi_mean(scores, labels, unlabelled),
        drift_p_value=p,
        labels_fit=fit,
        sentence="The judge's scores do not suggest that the labels are unlike the traffic."
        if fit
        else f"The judge scores traffic unlike the labelled answers (p = {p:.2g}): the labels no longer fit it, and "
        "the estimate may be off. Label a random sample of the new traffic.",
    )
