"""Numbers with intervals: the estimate, the cluster bootstrap, Wilson's interval, and prediction-powered inference."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from faith_dspy.errors import InputError, need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int_]

_BLOCK = 2_000_000
"""Weights that the bootstrap holds at once: 16 MB."""


class Estimate(BaseModel):
    """A number with its interval. What is undefined is None, and `why` gives the reason; it is never NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float | None = Field(default=None, allow_inf_nan=False)
    """None when undefined, such as an AUROC where all labels are the same."""
    low: float | None = Field(default=None, allow_inf_nan=False)
    high: float | None = Field(default=None, allow_inf_nan=False)
    """Ends of the interval, 95 % unless asked otherwise; None when the data allow none."""
    why: str | None = None
    """Why the value or its interval is None."""

    @model_validator(mode="after")
    def _explained(self) -> Estimate:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"low={self.low!r} without high={self.high!r}: give both ends or neither")
        if self.low is None and self.why is None:
            raise ValueError("an estimate without an interval needs why=, the reason")
        return self


class FaithfulShare(BaseModel, extra="forbid", frozen=True):
    """The share of faithful answers in traffic that is labelled only in part."""

    powered: Estimate
    """From the labels and the judge's scores together (prediction-powered)."""
    labels_only: Estimate
    """From the labels alone, with a Wilson interval: the scores help if `powered` is narrower."""
    weight: float = Field(ge=0, le=1)
    """Weight of the scores (λ of PPI++): 0 ignores them, 1 uses them fully."""
    labelled: int
    unlabelled: int


def check_labels(labels: Sequence[Any], **others: Sequence[Any] | None) -> None:
    """`InputError` unless there are labels, all of them True or False, and each of ``others`` is as long."""
    if not len(labels):
        raise InputError("got no labels, expected at least one")
    for i, label in enumerate(labels):
        if label not in (True, False):  # numpy's booleans pass
            raise InputError(f"got label {label!r} at position {i}, expected True (faithful) or False; drop unlabelled")
    for name, values in others.items():
        if values is not None and len(values) != len(labels):
            raise InputError(f"got {len(values)} {name} for {len(labels)} labels, expected one for each")


def check_scores(scores: Sequence[float | None]) -> None:
    """`InputError` naming the first score that is neither None nor a finite number."""
    for i, s in enumerate(scores):
        if s is not None and not math.isfinite(s):
            raise InputError(f"got score {s!r} at position {i}, expected a finite number, or None where unscored")


def resample_weights(n: int, groups: Sequence[str] | None, n_resamples: int, seed: int) -> Iterator[Floats]:
    """How often each of ``n`` items is drawn in each resample, in blocks of shape (resamples in the block, n).

    Draws whole groups with replacement, as many as there are, so that answers over one context stay together
    (cluster bootstrap: Field & Welsh 2007, *Bootstrapping clustered data*, JRSS-B 69; Davison & Hinkley 1997, §3.8).
    Without ``groups`` every item is its own group. With fewer than about 20 groups intervals come out too narrow.
    The draws depend on the seed and the sorted group names, not on the block size.
    """
    import numpy as np

    member = np.arange(n) if groups is None else np.unique(np.asarray(groups, dtype=str), return_inverse=True)[1]
    g = int(member.max()) + 1
    rng = np.random.default_rng(seed)
    step = max(1, _BLOCK // max(n, g))
    for start in range(0, n_resamples, step):
        counts = rng.multinomial(g, np.full(g, 1 / g), size=min(step, n_resamples - start))
        yield counts[:, member].astype(np.float64)


def bootstrap(
    metrics: Callable[[Floats], Mapping[str, Floats]],
    n: int,
    groups: Sequence[str] | None,
    undefined: Mapping[str, str],
    *,
    n_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Each metric of ``n`` items with its cluster bootstrap interval (`resample_weights`, `from_draws`).

    ``metrics`` maps weights of shape (resamples, n) to values of shape (resamples,) by name, NaN where undefined;
    ``undefined`` names the metrics to return, each with the reason to give when it is undefined.
    """
    import numpy as np

    values = metrics(np.ones((1, n)))
    blocks = [metrics(w) for w in resample_weights(n, groups, n_resamples, seed)]
    return {
        name: from_draws(float(values[name][0]), np.concatenate([b[name] for b in blocks]), why, basic=name == "ece")
        for name, why in undefined.items()
    }


def from_draws(value: float, draws: Floats, undefined: str, *, basic: bool = False) -> Estimate:
    """A value with the 95 % percentile interval of its resamples (Efron & Tibshirani 1993, ch. 13).

    ``value`` and ``draws`` (shape (resamples,)) are NaN where undefined; ``undefined`` is then the reason. Undefined
    resamples are skipped. There is no interval when more than half of them are undefined, or when all are equal: a
    perfect judge on few answers would get one of width 0. ``basic`` mirrors the draws about the value, cut at 0, for
    a statistic that resampling biases upwards (Davison & Hinkley 1997, §5.2); it is widened to hold the value.
    """
    import numpy as np

    if np.isnan(value):
        return Estimate(why=undefined)
    kept = draws[~np.isnan(draws)]
    if len(kept) <= len(draws) / 2:
        return Estimate(value=value, why="no interval: undefined in more than half of the resamples")
    if np.ptp(kept) < 1e-12:
        return Estimate(value=value, why="no interval: every resample gives the same value; label more answers")
    low, high = np.quantile(np.maximum(2 * value - kept, 0.0) if basic else kept, [0.025, 0.975])
    return Estimate(value=value, low=float(low), high=max(float(high), value) if basic else float(high))


def wilson(k: int, n: int) -> Estimate:
    """The share ``k / n`` with its 95 % score interval (Wilson 1927, JASA 22); undefined when ``n`` is 0."""
    if not n:
        return Estimate(why="there is nothing to take a share of")
    stats = need("scipy.stats", "The interval of a share")
    interval = stats.binomtest(k, n).proportion_ci(method="wilson")
    return Estimate(value=k / n, low=float(interval.low), high=float(interval.high))


def ppi_mean(
    labelled_scores: Sequence[float | None],
    labels: Sequence[bool],
    unlabelled_scores: Sequence[float | None],
) -> FaithfulShare:
    """The share of faithful answers in the traffic that the unlabelled answers are a sample of.

    ``labelled_scores`` are the judge's, in [0, 1], of n ≥ 2 answers with ``labels`` (True = faithful);
    ``unlabelled_scores`` the same judge's of N ≥ 2 others. Intervals are 95 %.

    Valid when the labelled answers are a *random* sample of the same traffic and were not used to tune the judge. The
    scores need no calibration, since the labels correct their bias. Unscored answers (None) enter with 0.5 on both
    sides, which only widens the interval. The interval is normal: doubt it below 30 labels.

    With Y labels, F scores: ``mean(Y) + λ (mean_N(F) - mean_n(F))``, variance ``λ² var_N(F)/N + var_n(Y - λF)/n``,
    ``λ = cov_n(Y, F) / ((1 + n/N) var(F))`` cut to [0, 1]: prediction-powered inference (Angelopoulos et al. 2023,
    *Science* 382) with power tuning (PPI++: Angelopoulos, Duchi, Zrnic 2023, arXiv:2311.01453).

    `InputError` when lengths differ, with fewer than 2 answers on a side, or for a score outside [0, 1].
    """
    need("scipy.stats", "The share of faithful answers")
    import numpy as np

    check_labels(labels, scores=labelled_scores)
    n, n_more = len(labels), len(unlabelled_scores)
    if n < 2 or n_more < 2:
        raise InputError(f"got {n} labelled and {n_more} unlabelled answers, expected at least 2 of each")
    if any(s is not None and not 0 <= s <= 1 for s in (*labelled_scores, *unlabelled_scores)):
        raise InputError("got a score outside [0, 1], expected numbers in [0, 1], or None where unscored")
    f, f_more = (np.array([0.5 if s is None else s for s in scores]) for scores in (labelled_scores, unlabelled_scores))
    y = np.asarray(labels, dtype=np.float64)
    spread = float(np.var(np.concatenate([f, f_more]), ddof=1))
    weight = float(np.clip(np.cov(y, f)[0, 1] / ((1 + n / n_more) * spread), 0, 1)) if spread > 0 else 0.0
    powered = Estimate(value=float(y.mean()), why="no interval: all labels are the same; see `labels_only`")
    if y.min() < y.max():
        value = y.mean() + weight * (f_more.mean() - f.mean())
        error = (weight**2 * f_more.var(ddof=1) / n_more + (y - weight * f).var(ddof=1) / n) ** 0.5
        half = NormalDist().inv_cdf(0.975) * error
        low, value, high = np.clip([value - half, value, value + half], 0, 1).tolist()
        powered = Estimate(value=value, low=low, high=high)
    labels_only = wilson(int(y.sum()), n)
    return FaithfulShare(powered=powered, labels_only=labels_only, weight=weight, labelled=n, unlabelled=n_more)
