"""Numbers with intervals: the estimate, its interval over sources, and that of a share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from faith_dspy.errors import InputError, need

if TYPE_CHECKING:  # the base install has none
    import numpy as np
    from numpy.typing import NDArray

Bools: TypeAlias = "NDArray[np.bool_]"
Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int_]"

SIGNIFICANT_FROM = 10
"""Sources of the rarer label from which a difference may be called significant: with fewer, intervals do not hold
(`optimize/LOG.md`)."""
NO_ERROR = 1e-12
"""A standard error below it is none."""
_BLOCK = 2_000_000
"""Weights that are held at once: 16 MB."""
_FROM_MINUS_ONE = ("cohen_kappa", "mcc", "kappa")


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
            raise ValueError(
                f"low={self.low!r} without high={self.high!r}: give both ends or neither"
            )
        if self.low is None and self.why is None:
            raise ValueError("an estimate without an interval needs why=, the reason")
        return self


def check_labels(labels: Sequence[Any], **others: Sequence[Any] | None) -> None:
    """Raise `InputError` unless there are labels, all of them True or False, and each of ``others`` is as long."""
    if not len(labels):
        raise InputError("got no labels, expected at least one")
    for i, label in enumerate(labels):
        if label not in (True, False):  # numpy's booleans pass
            raise InputError(
                f"got label {label!r} at position {i}, expected True (faithful) or False; drop unlabelled"
            )
    for name, values in others.items():
        if values is not None and len(values) != len(labels):
            raise InputError(
                f"got {len(values)} {name} for {len(labels)} labels, expected one for each"
            )


class BySource(NamedTuple):
    """A metric, and its standard error where each source is one draw; NaN where undefined."""

    value: float
    error: float
    df: int
    """Degrees of freedom of the error: sources of the rarer label, less one."""

    @property
    def half(self) -> float:
        """Half of the 95 % interval: that many standard errors as t has."""
        t = need("scipy.stats", "An interval").t
        return float(t.ppf(0.975, self.df)) * self.error

    def estimate(self, undefined: str, lowest: float = 0.0) -> Estimate:
        """Return the metric, which lies between ``lowest`` and 1, with its interval; ``undefined``: why there is no
        value."""
        if math.isnan(self.value):
            return Estimate(why=undefined)
        if math.isnan(self.error):
            return Estimate(
                value=self.value,
                why="no interval: a label is in one source alone, or sources are few",
            )
        if (
            self.error < NO_ERROR
        ):  # a perfect judge on few answers would get an interval of width 0
            return Estimate(
                value=self.value,
                why="no interval: the same without any one source; label more answers",
            )
        low, high = self.value - self.half, self.value + self.half
        return Estimate(value=self.value, low=max(lowest, low), high=min(1.0, high))


def estimates(
    metrics: Callable[[Floats], Mapping[str, Floats]],
    sources: Sequence[Any],
    item: str,
    undefined: Mapping[str, str],
    labels: Sequence[bool] | None = None,
) -> dict[str, Estimate]:
    """Return the metrics that ``undefined`` names, over items of these ``sources`` (`by_source`); it has the reason to
    give where one is undefined, and ``item`` what was not scored where there are none."""
    if not sources:
        return dict.fromkeys(undefined, Estimate(why=f"no {item} was scored"))
    measured = by_source(metrics, len(sources), sources, labels)
    return {
        k: measured[k].estimate(why, -1.0 if k in _FROM_MINUS_ONE else 0.0)
        for k, why in undefined.items()
    }


def label_sources(labels: Sequence[bool], sources: Sequence[Any]) -> dict[bool, int]:
    """Return in how many sources each label occurs. The smaller number decides how much the answers can show."""
    pairs = set(zip(map(bool, labels), sources, strict=True))
    return {want: sum(label is want for label, _ in pairs) for want in (True, False)}


def by_source(
    metrics: Callable[[Floats], Mapping[str, Floats]],
    n: int,
    sources: Sequence[str] | None,
    labels: Sequence[bool] | None = None,
) -> dict[str, BySource]:
    """Return each metric of ``n`` items with its standard error over ``sources`` (without them every item is its own).

    ``metrics`` maps weights of shape (draws, n) to values of shape (draws,) by name. The error is the jackknife's, each
    source left out once (Efron & Tibshirani 1993, ch. 11): ``√((G-1)/G Σ (m₋g - mean m₋)²)``. It goes with t of
    (sources of the rarer of the ``labels`` - 1) degrees of freedom, of (G - 1) without labels: where a label is in few
    sources, it is those that vary. It is undefined with fewer than three sources, and where a class is in one alone.
    """
    import numpy as np

    member = np.arange(n)
    if sources is not None:
        names = np.asarray(sources, dtype=str)
        member = np.unique(names, return_inverse=True)[1]
    g = int(member.max()) + 1
    least = g
    if labels is not None:
        least = min(label_sources(labels, member.tolist()).values())
    step = max(1, _BLOCK // n)
    blocks = []
    for start in range(0, g, step):
        left_out = np.arange(start, min(start + step, g))[:, None]
        blocks.append(metrics((left_out != member).astype(np.float64)))
    out = {}
    for name, value in metrics(np.ones((1, n))).items():
        error = math.nan
        if g > 2 and least > 1:
            left = np.concatenate([block[name] for block in blocks])
            error = np.sqrt((g - 1) / g * ((left - left.mean()) ** 2).sum())
        out[name] = BySource(float(value[0]), float(error), least - 1)
    return out


def wilson(k: int, n: int) -> Estimate:
    """Return the share ``k / n`` with its 95 % score interval (Wilson 1927, JASA 22); undefined when ``n`` is 0."""
    if not n:
        return Estimate(why="there is nothing to take a share of")
    stats = need("scipy.stats", "The interval of a share")
    interval = stats.binomtest(k, n).proportion_ci(method="wilson")
    return Estimate(value=k / n, low=float(interval.low), high=float(interval.high))


def extreme_share(e: Estimate, sources: int) -> Estimate:
    """Return a share of 0 or 1 with `wilson`'s interval over its ``sources``, which do not vary; any other as it is."""
    if e.value in (0.0, 1.0) and e.low is None and sources:
        interval = wilson(round(e.value * sources), sources)
        return Estimate(value=e.value, low=interval.low, high=interval.high)
    return e


def mean_of_shares(e: Estimate, one: Estimate, other: Estimate) -> Estimate:
    """Return the mean ``e`` of two shares with an interval that is no narrower than theirs allow (Zou & Donner 2008).

    The jackknife sees no error in a share of 1; `extreme_share` does. Shares over the same sources are taken for
    independent.
    """
    ends = [one.low, one.high, other.low, other.high]
    if e.value is None or one.value is None or other.value is None or None in ends:
        return e
    below = (
        math.hypot(one.value - (one.low or 0.0), other.value - (other.low or 0.0)) / 2
    )
    above = (
        math.hypot((one.high or 0.0) - one.value, (other.high or 0.0) - other.value) / 2
    )
    low, high = max(0.0, e.value - below), min(1.0, e.value + above)
    if e.low is None or e.high is None:
        return Estimate(value=e.value, low=low, high=high)
    return Estimate(value=e.value, low=min(low, e.low), high=max(high, e.high))


CONFUSION = (
    "faithful_passed",
    "faithful_failed",
    "unfaithful_passed",
    "unfaithful_failed",
)
"""The label, then the prediction."""
_BINS = 10
"""Bins of the expected calibration error."""


def confusion_counts(w: Floats, y: Bools, p: Bools) -> Floats:
    """Return weighted counts in the order of `CONFUSION`, shape (draws, 4), from weights of shape (draws, n)."""
    import numpy as np

    return w @ np.column_stack([y & p, y & ~p, ~y & p, ~y & ~p]).astype(np.float64)


def ratios(
    parts: Mapping[str, tuple[Any, Any]],
) -> Callable[[Floats], dict[str, Floats]]:
    """Return metrics that are sums over sums: for each, what every item adds to numerator and denominator."""

    import numpy as np

    def metrics(w: Floats) -> dict[str, Floats]:
        with np.errstate(invalid="ignore"):
            return {
                name: (w @ over) / (w @ under) for name, (over, under) in parts.items()
            }

    return metrics


def weighted_auroc(w: Floats, y: Bools, s: Floats) -> Floats:
    """Return AUROC per row of weights, shape (draws,): the Mann-Whitney statistic, ties one half; NaN with one
    class."""
    import numpy as np

    order = np.argsort(s, kind="stable")
    first = np.unique(s[order], return_index=True)[1]
    good = np.add.reduceat(w[:, order] * y[order], first, axis=1)
    bad = np.add.reduceat(w[:, order] * ~y[order], first, axis=1)
    won = good * (np.cumsum(bad, axis=1) - bad / 2)
    with np.errstate(invalid="ignore"):
        return np.asarray(won.sum(axis=1) / (good.sum(axis=1) * bad.sum(axis=1)))


def metric_values(w: Floats, y: Bools, p: Bools, s: Floats) -> dict[str, Floats]:
    """Return every metric of `Agreement` for each row of weights, shape (draws, n); NaN where undefined.

    ``y``, ``p`` and ``s``, each of shape (n,): labels, predictions, and scores (NaN where there is none).
    """
    import numpy as np

    # Faithful is the positive class.
    tp, fn, fp, tn = confusion_counts(w, y, p).T
    faithful, unfaithful, passed, failed = tp + fn, fp + tn, tp + fp, fn + tn
    n = faithful + unfaithful
    both = (faithful > 0) & (unfaithful > 0)
    out: dict[str, Floats] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        out["recall_faithful"] = tp / faithful
        out["recall_unfaithful"] = tn / unfaithful
        recalls = out["recall_faithful"] + out["recall_unfaithful"]
        out["balanced_accuracy"] = recalls / 2
        by_chance = (faithful * passed + unfaithful * failed) / n**2
        kappa = ((tp + tn) / n - by_chance) / (1 - by_chance)
        out["cohen_kappa"] = np.where(both, kappa, np.nan)
        root = np.sqrt(faithful * passed * unfaithful * failed)
        mcc = np.where(root > 0, (tp * tn - fn * fp) / root, 0.0)
        out["mcc"] = np.where(both, mcc, np.nan)
        out["f1_unfaithful"] = 2 * tn / (2 * tn + fn + fp)
        out["precision_unfaithful"] = tn / failed
        has = ~np.isnan(s)
        w, y, s = w[:, has], y[has], s[has]
        out["auroc"] = out["ece"] = out["brier"] = np.full(len(w), np.nan)
        if len(s):
            out["auroc"] = weighted_auroc(w, y, s)
        if len(s) and s.min() >= 0 and s.max() <= 1:
            total = w.sum(axis=1)
            # Bins of the original answers, kept for all weights; equal scores share a bin.
            bins = np.searchsorted(np.sort(s), s) * _BINS // len(s)
            off = (y - s)[:, None] * (bins[:, None] == np.arange(_BINS))
            out["ece"] = np.abs(w @ off).sum(axis=1) / total
            out["brier"] = w @ (y - s) ** 2 / total
    return out


def weighted_kappa(w: Floats, a: Ints, b: Ints, levels: int) -> Floats:
    """Return κ with linear weights (Cohen 1968) of two ratings from 0 to ``levels - 1``, per row of weights.

    ``1 - observed / expected``, each the mean ``|a - b|``; NaN where both raters only use one and the same level.
    """
    import numpy as np

    cell = np.eye(levels * levels)[a * levels + b]  # shape (n, levels²)
    distance = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels)))
    with np.errstate(invalid="ignore"):
        shares = (w @ cell).reshape(-1, levels, levels) / w.sum(axis=1)[:, None, None]
        by_chance = shares.sum(axis=2)[:, :, None] * shares.sum(axis=1)[:, None, :]
        return np.asarray(
            1
            - (shares * distance).sum(axis=(1, 2))
            / (by_chance * distance).sum(axis=(1, 2))
        )
