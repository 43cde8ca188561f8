"""Numbers with intervals: the estimate, its interval over sources, and that of a share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, model_validator

from faith_dspy.errors import import_optional

if TYPE_CHECKING:  # the base install has none
    import numpy as np
    from numpy.typing import NDArray

Bools: TypeAlias = "NDArray[np.bool_]"
Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int_]"
Metrics: TypeAlias = "Callable[[Floats], Mapping[str, Floats]]"
"""Weights of items, shape (draws, n), to values of shape (draws,) by name."""

SIGNIFICANT_FROM = 10
"""Sources of the rarer label from which a difference may be called significant: with fewer, intervals do not hold
(`optimize/LOG.md`)."""
NO_ERROR = 1e-12
"""A standard error below it is none."""
_GROUPS = 1_000
"""Into which sources are drawn, where there are more."""
_BLOCK = 2_000_000
"""Weights that are held at once: 16 MB."""
_FROM_MINUS_ONE = ("cohen_kappa", "mcc", "kappa")


class Estimate(BaseModel):
    """A number with its interval. What is undefined is None, and `why` gives the reason; it is never NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    value: float | None = None
    """None when undefined, such as an AUROC where all labels are the same."""
    low: float | None = None
    high: float | None = None
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


class BySource(NamedTuple):
    """A metric, and its standard error where each source is one draw; NaN where undefined."""

    value: float
    error: float
    df: int
    """Degrees of freedom of the error: sources of the rarer label, less one."""

    @property
    def half(self) -> float:
        """Half of the 95 % interval: that many standard errors as t has."""
        t = import_optional("scipy.stats", "An interval").t
        errors = float(t.ppf(0.975, self.df))
        return errors * self.error

    def estimate(self, undefined: str, lowest: float = 0.0) -> Estimate:
        """Return the metric, which lies between ``lowest`` and 1, with its interval; ``undefined``: why there is no
        value."""
        if math.isnan(self.value):
            return Estimate(why=undefined)
        why = None
        if math.isnan(self.error):
            why = "no interval: a label is in one source alone, or sources are few"
        elif self.error < NO_ERROR:  # a perfect judge's interval would have width 0
            why = "no interval: the same without any one source; label more answers"
        if why is not None:
            return Estimate(value=self.value, why=why)
        half = self.half
        return Estimate(
            value=self.value,
            low=max(lowest, self.value - half),
            high=min(1.0, self.value + half),
        )


def estimates(
    metrics: Metrics,
    sources: Sequence[Any],
    item: str,
    undefined: Mapping[str, str],
    labels: Sequence[bool] | None = None,
) -> dict[str, Estimate]:
    """Return the metrics that ``undefined`` names, over items of these ``sources`` (`by_source`); it has the reason to
    give where one is undefined, and ``item`` what was not scored where there are none."""
    if not sources:
        return dict.fromkeys(undefined, Estimate(why=f"no {item} was scored"))
    measured = by_source(metrics, sources, labels)
    result = {}
    for name, why in undefined.items():
        lowest = 0.0
        if name in _FROM_MINUS_ONE:
            lowest = -1.0
        result[name] = measured[name].estimate(why, lowest)
    return result


def label_sources(labels: Sequence[bool], sources: Sequence[Any]) -> dict[bool, int]:
    """Return in how many sources each label occurs. The smaller number decides how much the answers can show."""
    counts = {True: 0, False: 0}
    for label, _ in set(zip(labels, sources, strict=True)):
        counts[bool(label)] += 1
    return counts


def by_source(
    metrics: Metrics,
    sources: Sequence[Any],
    labels: Sequence[bool] | None = None,
) -> dict[str, BySource]:
    """Return each metric of items with its standard error over their ``sources``.

    The error is the jackknife's, each source left out once (Efron & Tibshirani 1993, ch. 11): ``√((G-1)/G Σ (m₋g - mean
    m₋)²)``. It goes with t of (sources of the rarer of the ``labels`` - 1) degrees of freedom, of (G - 1) without
    labels: where a label is in few sources, it is those that vary. It is undefined with fewer than three sources, and
    where a class is in one alone. More than `_GROUPS` sources are left out group by group (Kott 2001, J. Official
    Statistics 17).
    """
    import numpy as np

    n = len(sources)
    names = np.asarray(sources, dtype=str)
    source_of_item = np.unique(names, return_inverse=True)[1]
    count = int(source_of_item.max()) + 1
    least = count
    if labels is not None:
        by_label = label_sources(labels, source_of_item.tolist())
        least = min(by_label.values())
    if count > _GROUPS:
        source_of_item %= _GROUPS
        count = _GROUPS
    step = max(1, _BLOCK // n)
    blocks = []
    for start in range(0, count, step):
        end = min(start + step, count)
        left_out = np.arange(start, end)[:, None]
        weights = (left_out != source_of_item).astype(np.float64)
        blocks.append(metrics(weights))
    measured = {}
    for name, value in metrics(np.ones((1, n))).items():
        error = math.nan
        if count > 2 and least > 1:
            values = np.concatenate([block[name] for block in blocks])
            squares = (values - values.mean()) ** 2
            error = float(np.sqrt((count - 1) / count * squares.sum()))
        measured[name] = BySource(float(value[0]), error, min(least, count) - 1)
    return measured


def wilson(k: int, n: int) -> Estimate:
    """Return the share ``k / n`` with its 95 % score interval (Wilson 1927, JASA 22); undefined when ``n`` is 0."""
    if not n:
        return Estimate(why="there is nothing to take a share of")
    stats = import_optional("scipy.stats", "The interval of a share")
    interval = stats.binomtest(k, n).proportion_ci(method="wilson")
    return Estimate(
        value=k / n,
        low=float(interval.low),
        high=float(interval.high),
    )


def extreme_share(e: Estimate, sources: int) -> Estimate:
    """Return a share of 0 or 1 with `wilson`'s interval over its ``sources``, which do not vary; any other as it is."""
    if e.value in (0.0, 1.0) and e.low is None and sources:
        return wilson(round(e.value * sources), sources)
    return e


def mean_of_shares(
    e: Estimate,
    one: Estimate,
    other: Estimate,
) -> Estimate:
    """Return the mean ``e`` of two shares with an interval that is no narrower than theirs allow (Zou & Donner 2008).

    The jackknife sees no error in a share of 1; `extreme_share` does. Shares over the same sources are taken for
    independent.
    """
    if e.value is None:
        return e
    below = []
    above = []
    for share in (one, other):
        if share.value is None or share.low is None or share.high is None:
            return e
        below.append(share.value - share.low)
        above.append(share.high - share.value)
    low = max(0.0, e.value - math.hypot(*below) / 2)
    high = min(1.0, e.value + math.hypot(*above) / 2)
    if e.low is not None and e.high is not None:
        low = min(low, e.low)
        high = max(high, e.high)
    return Estimate(value=e.value, low=low, high=high)


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

    cells = [
        y & p,
        y & ~p,
        ~y & p,
        ~y & ~p,
    ]
    cell_of_item = np.column_stack(cells)
    return w @ cell_of_item.astype(np.float64)


def ratios(parts: Mapping[str, tuple[Any, Any]]) -> Metrics:
    """Return metrics that are sums over sums: for each, what every item adds to numerator and denominator."""

    import numpy as np

    def metrics(w: Floats) -> dict[str, Floats]:
        values = {}
        with np.errstate(invalid="ignore"):
            for name, (numerator, denominator) in parts.items():
                values[name] = (w @ numerator) / (w @ denominator)
        return values

    return metrics


def weighted_auroc(w: Floats, y: Bools, s: Floats) -> Floats:
    """Return AUROC per row of weights, shape (draws,): the Mann-Whitney statistic, ties one half; NaN with one
    class."""
    import numpy as np

    order = np.argsort(s, kind="stable")
    first = np.unique(s[order], return_index=True)[1]
    w = w[:, order]
    y = y[order]
    faithful = np.add.reduceat(w * y, first, axis=1)
    unfaithful = np.add.reduceat(w * ~y, first, axis=1)
    outranked = np.cumsum(unfaithful, axis=1) - unfaithful / 2
    won = (faithful * outranked).sum(axis=1)
    pairs = faithful.sum(axis=1) * unfaithful.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(won / pairs)


def metric_values(
    w: Floats,
    y: Bools,
    p: Bools,
    s: Floats,
) -> dict[str, Floats]:
    """Return every metric of `Agreement` for each row of weights, shape (draws, n); NaN where undefined.

    ``y``, ``p`` and ``s``, each of shape (n,): labels, predictions, and scores (NaN where there is none).
    """
    import numpy as np

    # Faithful is the positive class.
    tp, fn, fp, tn = confusion_counts(w, y, p).T
    faithful = tp + fn
    unfaithful = fp + tn
    passed = tp + fp
    failed = fn + tn
    has_one_label = (faithful == 0) | (unfaithful == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        recall_faithful = tp / faithful
        recall_unfaithful = tn / unfaithful
        balanced_accuracy = (recall_faithful + recall_unfaithful) / 2
        kappa = weighted_kappa(w, y.astype(int), p.astype(int), 2)
        kappa[has_one_label] = np.nan
        root = np.sqrt(faithful * passed * unfaithful * failed)
        mcc = (tp * tn - fn * fp) / root
        mcc[root == 0] = 0.0
        mcc[has_one_label] = np.nan
        f1_unfaithful = 2 * tn / (2 * tn + fn + fp)
        precision_unfaithful = tn / failed
        has_score = ~np.isnan(s)
        w = w[:, has_score]
        y = y[has_score]
        s = s[has_score]
        return {
            "recall_faithful": recall_faithful,
            "recall_unfaithful": recall_unfaithful,
            "balanced_accuracy": balanced_accuracy,
            "cohen_kappa": kappa,
            "mcc": mcc,
            "f1_unfaithful": f1_unfaithful,
            "precision_unfaithful": precision_unfaithful,
            **_score_metrics(w, y, s),
        }


def _score_metrics(w: Floats, y: Bools, s: Floats) -> dict[str, Floats]:
    """Return AUROC, ECE and Brier for each row of weights; NaN where undefined."""
    import numpy as np

    auroc = ece = brier = np.full(len(w), np.nan)
    if len(s):
        auroc = weighted_auroc(w, y, s)
        if s.min() >= 0 and s.max() <= 1:
            total = w.sum(axis=1)
            # Bins of the original answers, kept for all weights; equal scores share a bin.
            bins = np.searchsorted(np.sort(s), s) * _BINS // len(s)
            in_bin = bins[:, None] == np.arange(_BINS)
            errors = y - s
            gaps = w @ (errors[:, None] * in_bin)
            ece = np.abs(gaps).sum(axis=1) / total
            brier = w @ errors**2 / total
    return {"auroc": auroc, "ece": ece, "brier": brier}


def weighted_kappa(
    w: Floats,
    a: Ints,
    b: Ints,
    levels: int,
) -> Floats:
    """Return κ with linear weights (Cohen 1968) of two ratings from 0 to ``levels - 1``, per row of weights.

    ``1 - observed / expected``, each the mean ``|a - b|``; NaN where both raters only use one and the same level.
    """
    import numpy as np

    cells = np.zeros((len(a), levels, levels))
    cells[np.arange(len(a)), a, b] = 1
    scale = np.arange(levels)
    distance = np.abs(np.subtract.outer(scale, scale))
    with np.errstate(invalid="ignore"):
        shares = np.tensordot(w, cells, 1) / w.sum(axis=1)[:, None, None]
        observed = np.einsum("dij,ij->d", shares, distance)
        expected = np.einsum("dij,dkl,il->d", shares, shares, distance)
        return np.asarray(1 - observed / expected)
