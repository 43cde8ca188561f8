"""What a judge says about traffic that nobody labelled, and whether the labels still fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from faith_dspy.scoring.statistics import FaithfulShare, need, ppi_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

DRIFT = 0.01
"""Below this p-value the labelled answers' scores and the traffic's are taken to come from different distributions."""


class TrafficReport(BaseModel):
    """The share of faithful answers in unlabelled traffic."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    share: FaithfulShare
    drift_p_value: float | None
    """Of a two-sample Kolmogorov–Smirnov test between the scores of labelled and of unlabelled answers."""
    labels_fit: bool
    sentence: str


def faithful_share(
    labels: Sequence[bool], scores: Sequence[float | None], traffic: Sequence[float | None]
) -> TrafficReport:
    """Prediction-powered share of faithful answers (`ppi_mean`), and a check that the labels come from this traffic.

    ``labels`` and ``scores``: one per labelled answer; ``traffic``: scores of the unlabelled ones; None: unscored.
    """
    share = ppi_mean(scores, labels, traffic)
    known, new = ([s for s in side if s is not None] for side in (scores, traffic))
    stats = need("scipy.stats", "Checking that the labels fit the traffic")
    p = float(stats.ks_2samp(known, new).pvalue) if known and new else None
    fit = p is None or p >= DRIFT
    sentence = (
        "The judge's scores give no sign that the labels do not fit the traffic."
        if fit
        else f"The judge scores the traffic otherwise than the labelled answers (p = {p:.2g}): the labels no longer "
        "fit it, and the estimate may be off. Label a random sample of the new traffic."
    )
    return TrafficReport(share=share, drift_p_value=p, labels_fit=fit, sentence=sentence)
