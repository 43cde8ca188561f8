"""Numbers with intervals: the estimate, the cluster bootstrap, Wilson's interval, and prediction-powered inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from faith_dspy.errors import InputError, need

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int_]

SHOWN_FROM = 10
"""Sources from which a difference may be called shown: with fewer, intervals do not hold."""
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


CONFUSION = ("faithful_passed", "faithful_failed", "unfaithful_passed", "unfaithful_failed")
"""The label, then the prediction."""
_BINS = 10
"""Bins of the expected calibration error."""


def confusion_counts(w: Floats, y: Bools, p: Bools) -> Floats:
    """Weighted counts in the order of `CONFUSION`, shape (resamples, 4), from weights of shape (resamples, n)."""
    return w @ np.column_stack([y & p, y & ~p, ~y & p, ~y & ~p]).astype(np.float64)


def weighted_auroc(w: Floats, y: Bools, s: Floats) -> Floats:
    """AUROC per resample, shape (resamples,): the Mann-Whitney statistic, ties one half; NaN with one class."""
    order = np.argsort(s, kind="stable")
    first = np.unique(s[order], return_index=True)[1]
    good = np.add.reduceat(w[:, order] * y[order], first, axis=1)
    bad = np.add.reduceat(w[:, order] * ~y[order], first, axis=1)
    won = good * (np.cumsum(bad, axis=1) - bad / 2)
    with np.errstate(invalid="ignore"):
        return np.asarray(won.sum(axis=1) / (good.sum(axis=1) * bad.sum(axis=1)))


def metric_values(w: Floats, y: Bools, p: Bools, s: Floats) -> dict[str, Floats]:
    """Every metric of `Agreement` for each row of weights, shape (resamples, n); NaN where undefined.

    ``y``, ``p`` and ``s``, each of shape (n,): labels, predictions, and scores (NaN where there is none).
    """
    fp, ff, up, uf = confusion_counts(w, y, p).T
    n = fp + ff + up + uf
    out: dict[str, Floats] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        out["recall_faithful"], out["recall_unfaithful"] = fp / (fp + ff), uf / (uf + up)
        out["balanced_accuracy"] = (out["recall_faithful"] + out["recall_unfaithful"]) / 2
        both = (fp + ff > 0) & (uf + up > 0)
        by_chance = ((fp + ff) * (fp + up) + (uf + up) * (uf + ff)) / n**2
        out["cohen_kappa"] = np.where(both, ((fp + uf) / n - by_chance) / (1 - by_chance), np.nan)
        root = np.sqrt((fp + ff) * (fp + up) * (uf + up) * (uf + ff))
        out["mcc"] = np.where(both, np.where(root > 0, (fp * uf - ff * up) / root, 0.0), np.nan)
        out["f1_unfaithful"] = 2 * uf / (2 * uf + ff + up)
        out["precision_unfaithful"] = uf / (uf + ff)
        has = ~np.isnan(s)
        w, y, s = w[:, has], y[has], s[has]
        out["auroc"] = out["ece"] = out["brier"] = np.full(len(w), np.nan)
        if len(s):
            out["auroc"] = weighted_auroc(w, y, s)
        if len(s) and s.min() >= 0 and s.max() <= 1:
            total = w.sum(axis=1)
            # Bins of the original answers, kept in every resample; equal scores share a bin.
            bins = np.searchsorted(np.sort(s), s) * _BINS // len(s)
            off = (y - s)[:, None] * (bins[:, None] == np.arange(_BINS))
            out["ece"] = np.abs(w @ off).sum(axis=1) / total
            out["brier"] = w @ (y - s) ** 2 / total
    return out


def weighted_kappa(w: Floats, a: Ints, b: Ints, levels: int) -> Floats:
    """κ with linear weights (Cohen 1968) of two ratings from 0 to ``levels - 1``, per row of weights.

    ``1 - observed / expected``, each the mean ``|a - b|``; NaN where both raters only use one and the same level.
    """
    cell = np.eye(levels * levels)[a * levels + b]  # shape (n, levels²)
    shares = (w @ cell).reshape(-1, levels, levels) / w.sum(axis=1)[:, None, None]
    distance = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels)))
    by_chance = shares.sum(axis=2)[:, :, None] * shares.sum(axis=1)[:, None, :]
    with np.errstate(invalid="ignore"):
        return np.asarray(1 - (shares * distance).sum(axis=(1, 2)) / (by_chance * distance).sum(axis=(1, 2)))


class BySource(NamedTuple):
    """A metric, and its standard error where each of ``sources`` is one draw; NaN where undefined."""

    value: float
    error: float
    sources: int

    @property
    def half(self) -> float:
        """Half of the 95 % interval: t(sources - 1) standard errors."""
        return t_quantile(self.sources - 1) * self.error


def by_source(
    metrics: Callable[[Floats], Mapping[str, Floats]], n: int, sources: Sequence[str] | None
) -> dict[str, BySource]:
    """Each metric of ``n`` items with its standard error over ``sources`` (without them every item is its own).

    ``metrics`` maps weights of shape (draws, n) to values of shape (draws,) by name. The error is the jackknife's, each
    source left out once (Efron & Tibshirani 1993, ch. 11): ``√((G-1)/G Σ (m₋g - mean m₋)²)``. With t(G - 1) it covers
    from about ten sources on, where resampling covers from about fifty (tests/benchmarks/SHOWN.md). It is undefined
    with fewer than three sources, and where a class is in one alone.
    """
    member = np.arange(n) if sources is None else np.unique(np.asarray(sources, dtype=str), return_inverse=True)[1]
    g = int(member.max()) + 1
    step = max(1, _BLOCK // n)
    blocks = [
        metrics((np.arange(start, min(start + step, g))[:, None] != member).astype(np.float64))
        for start in range(0, g, step)
    ]
    out = {}
    for name, value in metrics(np.ones((1, n))).items():
        left = np.concatenate([b[name] for b in blocks])
        error = np.sqrt((g - 1) / g * ((left - left.mean()) ** 2).sum()) if g > 2 else math.nan
        out[name] = BySource(float(value[0]), float(error), g)
    return out


def t_quantile(df: int) -> float:
    """The 97.5 % quantile of Student's t, within 1 % from 2 degrees of freedom on (Abramowitz & Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * df)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * df**4)
    )
