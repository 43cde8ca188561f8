"""Numbers with intervals: the estimate, the cluster bootstrap over weighted metrics, and prediction-powered rates."""

from __future__ import annotations

import math
from importlib import import_module
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from faith_dspy.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int_]

CONFUSION = ("faithful_passed", "faithful_failed", "unfaithful_passed", "unfaithful_failed")
_BINS = 10
_BLOCK = 2_000_000  # weights held at once by the bootstrap: 16 MB


class Estimate(BaseModel):
    """A number with its interval. What cannot be told is None, and `why` says so; it is never NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: float | None = Field(default=None, allow_inf_nan=False)
    """None when undefined, such as an AUROC where all labels are the same."""
    low: float | None = Field(default=None, allow_inf_nan=False)
    high: float | None = Field(default=None, allow_inf_nan=False)
    """Ends of the interval, at the confidence it was asked for; None when the data do not carry one."""
    why: str | None = None
    """In words, why the value or its interval is None."""

    @model_validator(mode="after")
    def _explained(self) -> Estimate:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"low={self.low!r} without high={self.high!r}: give both ends or neither")
        if self.low is None and self.why is None:
            raise ValueError("an estimate without a value or an interval says why")
        return self


class FaithfulShare(BaseModel):
    """The share of faithful answers in traffic of which only a sample was labelled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    powered: Estimate
    """From the labels and the judge's scores together (prediction-powered)."""
    labels_only: Estimate
    """From the labels alone, with a Wilson interval: what the scores have to beat."""
    weight: float = Field(ge=0, le=1)
    """How far the scores were used (λ of PPI++): 0 not at all, 1 fully."""
    labelled: int
    unlabelled: int


def need(module: str, purpose: str) -> Any:
    """Import `module` now; `MissingExtraError` naming the ``tune`` extra when its package is not installed."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.partition(".")[0] != package:
            raise
        raise MissingExtraError({"sklearn": "scikit-learn"}.get(package, package), "tune", purpose) from exc


def check_confidence(confidence: float, n_resamples: int = 1) -> None:
    """`InputError` unless ``0 < confidence < 1`` and there is at least one resample."""
    if not 0 < confidence < 1:
        raise InputError(f"got confidence={confidence!r}, expected a number between 0 and 1, such as 0.95")
    if n_resamples < 1:
        raise InputError(f"got n_resamples={n_resamples!r}, expected at least 1; 1000 is usual")


def check_labels(labels: Sequence[Any], **others: Sequence[Any] | None) -> None:
    """`InputError` unless `labels` are at least one, all True or False, and every one of `others` is as long."""
    if not len(labels):
        raise InputError("got no labels, expected at least one labelled answer")
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
    """How often each of `n` answers is drawn in each resample, in blocks of shape (some resamples, n).

    Whole groups are drawn with replacement, as many as there are, so that answers over one context stay together
    (cluster bootstrap: Field & Welsh 2007, *Bootstrapping clustered data*, JRSS-B 69; Davison & Hinkley 1997, §3.8).
    Without `groups` every answer is its own. With fewer than some 20 groups the intervals come out too narrow.
    The draws depend on `seed` and the sorted group names, not on the block size.
    """
    import numpy as np

    member = np.arange(n) if groups is None else np.unique(np.asarray(groups, dtype=str), return_inverse=True)[1]
    g = int(member.max()) + 1
    rng = np.random.default_rng(seed)
    step = max(1, _BLOCK // max(n, g))
    for start in range(0, n_resamples, step):
        counts = rng.multinomial(g, np.full(g, 1 / g), size=min(step, n_resamples - start))
        yield counts[:, member].astype(np.float64)


def from_draws(value: float, draws: Floats, confidence: float, undefined: str, *, basic: bool = False) -> Estimate:
    """`value` with the percentile interval of its resamples (Efron & Tibshirani 1993, ch. 13).

    `value` and `draws` (shape: resamples) hold NaN where undefined; `undefined` is then the reason. Undefined
    resamples are skipped; when more than half are, or when none differs from the others (a perfect judge on few
    answers would get an interval of width 0), there is no interval. `basic` mirrors the draws about the value, cut at
    0, for a statistic that resampling biases upwards (Davison & Hinkley 1997, §5.2), and widens to hold the value.
    """
    import numpy as np

    if np.isnan(value):
        return Estimate(why=undefined)
    kept = draws[~np.isnan(draws)]
    if len(kept) <= len(draws) / 2:
        return Estimate(value=value, why="no interval: undefined in more than half of the resamples")
    if np.ptp(kept) < 1e-12:
        return Estimate(value=value, why="no interval: every resample gives the same value; label more answers")
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.maximum(2 * value - kept, 0.0) if basic else kept, [tail, 1 - tail])
    return Estimate(value=value, low=float(low), high=max(float(high), value) if basic else float(high))


def confusion_counts(w: Floats, y: Bools, p: Bools) -> Floats:
    """Weighted counts, shape (resamples, 4), in the order of `CONFUSION`, from weights `w` of shape (resamples, n)."""
    import numpy as np

    return w @ np.column_stack([y & p, y & ~p, ~y & p, ~y & ~p]).astype(np.float64)


def weighted_auroc(w: Floats, y: Bools, s: Floats) -> Floats:
    """AUROC per resample, shape (resamples,): the Mann-Whitney statistic, ties one half; NaN with one class."""
    import numpy as np

    order = np.argsort(s, kind="stable")
    first = np.unique(s[order], return_index=True)[1]
    good = np.add.reduceat(w[:, order] * y[order], first, axis=1)
    bad = np.add.reduceat(w[:, order] * ~y[order], first, axis=1)
    won = good * (np.cumsum(bad, axis=1) - bad / 2)
    with np.errstate(invalid="ignore"):
        return np.asarray(won.sum(axis=1) / (good.sum(axis=1) * bad.sum(axis=1)))


def metric_values(w: Floats, y: Bools, p: Bools, s: Floats) -> dict[str, Floats]:
    """Every metric of `Agreement` for each row of weights `w`, shape (resamples, n); NaN where undefined."""
    import numpy as np

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


def wilson(k: int, n: int, confidence: float = 0.95) -> Estimate:
    """The share ``k / n`` with its Wilson interval (Wilson 1927, JASA 22); ``n`` at least 1."""
    stats = need("scipy.stats", "The interval of a share")
    interval = stats.binomtest(k, n).proportion_ci(confidence_level=confidence, method="wilson")
    return Estimate(value=k / n, low=float(interval.low), high=float(interval.high))


def ppi_mean(
    labelled_scores: Sequence[float | None],
    labels: Sequence[bool],
    unlabelled_scores: Sequence[float | None],
    *,
    confidence: float = 0.95,
) -> FaithfulShare:
    """The share of faithful answers in the traffic the unlabelled answers stand for.

    Args:
        labelled_scores: the judge's scores, in [0, 1], of n ≥ 2 labelled answers.
        labels: n labels, True = faithful.
        unlabelled_scores: the same judge's scores of N ≥ 2 other answers.
        confidence: of both intervals.

    Holds when the labelled answers are a *random* sample of the same traffic and were not used to tune the judge; it
    needs no calibration, since the labels correct the scores' bias. Unscored answers (None) enter with 0.5 on both
    sides, which keeps them in the denominator and costs only width. The interval is normal: doubt it below 30 labels.

    With Y labels, F scores: ``mean(Y) + λ (mean_N(F) - mean_n(F))``, variance ``λ² var_N(F)/N + var_n(Y - λF)/n``,
    ``λ = cov_n(Y, F) / ((1 + n/N) var(F))`` cut to [0, 1]: prediction-powered inference (Angelopoulos et al. 2023,
    *Science* 382) with power tuning (PPI++: Angelopoulos, Duchi, Zrnic 2023, arXiv:2311.01453).

    Raises:
        InputError: lengths differ, fewer than 2 answers on a side, or a score outside [0, 1].
    """
    need("scipy.stats", "The share of faithful answers")
    import numpy as np

    check_confidence(confidence)
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
        half = NormalDist().inv_cdf(0.5 + confidence / 2) * error
        low, value, high = np.clip([value - half, value, value + half], 0, 1).tolist()
        powered = Estimate(value=value, low=low, high=high)
    labels_only = wilson(int(y.sum()), n, confidence)
    return FaithfulShare(powered=powered, labels_only=labels_only, weight=weight, labelled=n, unlabelled=n_more)
