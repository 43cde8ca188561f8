"""What share of a judge's traffic is faithful: its own pass rate, corrected by a sample of labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, Field

from faith_dspy.errors import InputError, counted
from faith_dspy.optimize.results import Row
from faith_dspy.report.tables import Table, number, with_interval
from faith_dspy.scoring.statistics import BySource, Estimate, Floats, Ints, wilson

_NONE = 1e-12
"""Variances below are rounding."""


class FaithfulShare(BaseModel, extra="forbid", frozen=True):
    """The share of faithful answers in traffic that is labelled only in part."""

    powered: Estimate
    """From the labels and the judge's scores together (prediction-powered)."""
    labels_only: Estimate
    """From the labels alone: the scores help if `powered` is narrower."""
    weight: float = Field(ge=0, le=1)
    """Weight of the scores (λ of PPI++): 0 ignores them, 1 uses them fully."""
    labelled: int
    unlabelled: int
    unscored: int = 0
    """Of the unlabelled."""
    sources: int
    """Over which the labelled answers were given: what intervals are made from."""
    alike: bool = False
    """Whether each source has the same share of faithful labels, as pairs do and a random sample does not."""
    judge_rate: float | None = None
    """Share of the other answers that the judge itself passes."""


def estimate_share(
    labelled: Sequence[Row],
    scores: Sequence[float | None],
    sources: Sequence[str] | None = None,
    judge_rate: float | None = None,
) -> FaithfulShare:
    """Estimate the share of faithful answers in the traffic that labelled and unlabelled answers are a sample of.

    Valid when the labelled answers are a *random* sample of the same traffic and were not used to tune the judge. The
    scores need no calibration, since the labels correct their bias. An unscored answer enters with .5, which only
    widens the interval. Doubt the interval below ten labelled sources.

    With Y the labels, F the scores in [0, 1], n labelled and N other answers: ``mean(Y) + λ (mean_N(F) - mean_n(F))``,
    prediction-powered inference (Angelopoulos et al. 2023, *Science* 382) with power tuning (PPI++: Angelopoulos,
    Duchi, Zrnic 2023, arXiv:2311.01453). λ, cut to [0, 1], minimises the variance ``λ² V(F_N) + V(Y - λF)``, where V is
    the variance of a mean over G sources, ``G/(G-1) Σ_g (Σ_{i in g} r_i)² / n²`` of residuals r (Liang & Zeger 1986,
    *Biometrika* 73). The 95 % interval takes t with one degree of freedom less than there are labelled sources;
    where these do not differ and show no spread, it is `wilson`'s, each source one draw.

    Args:
        labelled: answers with their label, source and score; at least two sources.
        scores: of the other answers; None: unscored.
        sources: of the other answers; without them each is its own.
        judge_rate: the share of the other answers that the judge passes.

    Raises:
        InputError: There are fewer than two sources on a side.
    """
    y = np.array([row.label for row in labelled], dtype=np.float64)
    f = _or_half([row.probability for row in labelled])
    f_more = _or_half(scores)
    cluster, count = _clusters([row.source for row in labelled])
    own_sources = range(len(scores)) if sources is None else sources
    cluster_more, count_more = _clusters(own_sources)
    if count < 2 or count_more < 2:
        raise InputError(
            f"got labelled answers over {counted(count, 'source')} and unlabelled ones over {count_more}, expected at "
            "least 2 of each."
        )
    variance_more = _covariance(f_more, f_more, cluster_more)
    spread = _covariance(f, f, cluster) + variance_more
    weight = 0.0
    if spread > 0:
        best = _covariance(y, f, cluster) / spread
        weight = float(np.clip(best, 0, 1))
    of_labels = _covariance(y, y, cluster)
    labels_only = _interval(y.mean(), of_labels, count)
    powered = labels_only
    differ = bool(y.min() < y.max())
    if differ:
        rest = y - weight * f
        variance = weight**2 * variance_more + _covariance(rest, rest, cluster)
        shift = f_more.mean() - f.mean()
        powered = _interval(y.mean() + weight * shift, variance, count)
    return FaithfulShare(
        powered=powered,
        labels_only=labels_only,
        alike=differ and of_labels < _NONE,
        judge_rate=judge_rate,
        weight=weight,
        labelled=len(labelled),
        unlabelled=len(scores),
        unscored=sum(score is None for score in scores),
        sources=count,
    )


def _or_half(scores: Sequence[float | None]) -> Floats:
    return np.array([0.5 if score is None else score for score in scores])


def _clusters(sources: Sequence[object]) -> tuple[Ints, int]:
    """Return the number of each one's source, and of all sources."""
    names, numbers = np.unique([str(s) for s in sources], return_inverse=True)
    return numbers, len(names)


def _covariance(a: Floats, b: Floats, cluster: Ints) -> float:
    """Covariance of the means of two columns whose rows are drawn in clusters."""
    sums_a = np.bincount(cluster, a - a.mean())
    sums_b = np.bincount(cluster, b - b.mean())
    count = len(sums_a)
    return float(count / (count - 1) * (sums_a @ sums_b) / len(a) ** 2)


def _interval(value: float, variance: float, sources: int) -> Estimate:
    value = float(np.clip(value, 0, 1))
    if variance < _NONE:
        interval = wilson(round(value * sources), sources)
        return interval.model_copy(update={"value": value})
    return BySource(value, variance**0.5, sources - 1).estimate("")


def traffic_table(share: FaithfulShare) -> Table:
    """Return the share of faithful answers in the traffic."""
    unscored = f" ({share.unscored:,} unscored)" if share.unscored else ""
    sentence = (
        f"{with_interval(share.powered)} of the traffic is faithful, estimated from "
        f"{counted(share.labelled, 'label')} over {counted(share.sources, 'source')} and "
        f"{counted(share.unlabelled, 'unlabelled answer')}{unscored}. The labels alone say "
        f"{with_interval(share.labels_only)}"
    )
    if share.judge_rate is not None:
        sentence += f"; the judge passes {number(share.judge_rate)} of the unlabelled"
    notes = [f"{sentence}."]
    if share.alike:
        notes.append(
            "The same share of the labels is faithful in every source: they are no random sample of the traffic, and "
            "the estimate does not hold. Label one: faith-dspy labels push."
        )
    return Table("Traffic", notes=tuple(notes))
