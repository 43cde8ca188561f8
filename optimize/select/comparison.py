"""Whether one judge is better than another on the same labelled answers, and how many labels it would take to tell."""

from __future__ import annotations

import math
from itertools import chain
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple

from faith_dspy.errors import need
from faith_dspy.optimize.results import Comparison, Difference
from faith_dspy.report.tables import roughly
from faith_dspy.scoring.statistics import metric_values, resample_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.scoring.statistics import Floats

    Metrics = Callable[[Floats], Sequence[Floats]]
    """Metrics of shape (resamples,), NaN where undefined, from weights of shape (resamples, n)."""

NO_DIFFERENCE = 0.005
"""Half a percentage point of balanced accuracy: below it no number of labels is worth asking for."""


class Side(NamedTuple):
    """What one judge found on n labelled answers."""

    predictions: Sequence[bool | None]
    """n verdicts, True = faithful; None where it left the answer unscored."""
    scores: Sequence[float | None]
    """n probabilities or raw scores, higher = more faithful; None where there is none."""

    @classmethod
    def of(cls, rows: Sequence[PredictionRow]) -> Side:
        """The judge whose predictions these are."""
        return cls([r.predicted for r in rows], [r.probability for r in rows])


def compare(
    labels: Sequence[bool],
    a: Side,
    b: Side,
    groups: Sequence[str] | None = None,
    *,
    names: tuple[str, str] = ("A", "B"),
    n_resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Judge ``a`` against judge ``b``; ``names`` are for the sentence. Other arguments as for `differences`.

    The labels it would take come from the standard error, which shrinks with one over the root of the labels:
    ``n (z SE / d)^2`` for the interval to end at 0.
    """
    balanced, auroc = differences(labels, a, b, groups, n_resamples=n_resamples, seed=seed)
    verdict, more, sentence = _verdict(balanced, len(labels), names)
    return Comparison(
        n=len(labels), balanced_accuracy=balanced, auroc=auroc, verdict=verdict, more_labels=more, sentence=sentence
    )


def compare_rows(rows: Sequence[PredictionRow], others: Sequence[PredictionRow], names: tuple[str, str]) -> Comparison:
    """`compare` for predictions of the same answers, in the same order."""
    labels, groups = [r.label for r in rows], [r.group for r in rows]
    return compare(labels, Side.of(rows), Side.of(others), groups, names=names)


def differences(
    labels: Sequence[bool],
    a: Side,
    b: Side,
    groups: Sequence[str] | None = None,
    *,
    n_resamples: int = 2000,
    seed: int = 0,
) -> tuple[Difference, Difference]:
    """Balanced accuracy and AUROC of A minus those of B on the same answers, with 95 % intervals (`paired_bootstrap`).

    An answer a judge left unscored counts as wrong *for that judge*: in balanced accuracy as the wrong verdict, in
    AUROC as a score on the wrong side of all others, so that no judge gains by skipping hard answers.
    """
    if len(set(labels)) < 2:
        same = Difference(why=f"all answers are labelled {'faithful' if all(labels) else 'unfaithful'}")
        return same, same
    both = _all_answers(labels, a), _all_answers(labels, b)
    balanced, auroc = paired_bootstrap(*both, len(labels), groups, n_resamples=n_resamples, seed=seed)
    for name, side in (("A", a), ("B", b)):
        if all(s is None for s in side.scores):
            auroc = Difference(why=f"judge {name} gives no scores")
    return balanced, auroc


def _all_answers(labels: Sequence[bool], side: Side) -> Metrics:
    """Balanced accuracy and AUROC of one judge over all answers, those it left unscored as wrong."""
    import numpy as np

    y = np.array(labels, dtype=bool)
    passed = np.array([not y if p is None else p for y, p in zip(labels, side.predictions, strict=True)], dtype=bool)
    rows = zip(labels, side.predictions, side.scores, strict=True)
    ranks = np.array([(-math.inf if y else math.inf) if p is None or s is None else s for y, p, s in rows])

    def metrics(w: Floats) -> Sequence[Floats]:
        found = metric_values(w, y, passed, ranks)
        return found["balanced_accuracy"], found["auroc"]

    return metrics


def paired_bootstrap(
    a: Metrics,
    b: Metrics,
    n: int,
    groups: Sequence[str] | None,
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> list[Difference]:
    """Each metric of A minus the same of B, both on the same resamples of ``n`` answers, by group (`resample_weights`).

    Percentile interval at ``level``; ``p = 2 min(P(d* <= 0), P(d* >= 0))``, one added to counts and resamples (Davison
    & Hinkley 1997, §4.2 and §5.2). Resamples with one class are skipped; when more than half are, there is no interval.
    """
    need("numpy", "Comparing judges")
    import numpy as np

    weights = chain([np.ones((1, n))], resample_weights(n, groups, n_resamples, seed))
    blocks = [[one - other for one, other in zip(a(w), b(w), strict=True)] for w in weights]
    one_group = groups is not None and len(set(groups)) < 2
    return [_difference(np.concatenate(values), level, one_group) for values in zip(*blocks, strict=True)]


def _difference(values: Floats, level: float, one_group: bool) -> Difference:
    """``values``: the difference on all answers, then on each resample."""
    import numpy as np

    value, draws = float(values[0]), values[1:]
    if np.isnan(value):
        return Difference(why="all these answers have the same label, or none was scored")
    if one_group:
        return Difference(value=value, why="no interval: all answers are one group")
    kept = draws[~np.isnan(draws)]
    if len(kept) <= len(draws) / 2:
        return Difference(value=value, why="no interval: more than half of the resamples have one class only")
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2]).tolist()
    tail = min(int((kept <= 1e-12).sum()), int((kept >= -1e-12).sum()))
    p_value = min(1.0, 2 * (tail + 1) / (len(kept) + 1))
    return Difference(value=value, low=low, high=high, p_value=p_value, standard_error=float(kept.std(ddof=1)))


def _verdict(
    d: Difference, n: int, names: tuple[str, str]
) -> tuple[Literal["better", "not shown better", "worse"], int | None, str]:
    one, other = names
    if d.value is None or d.low is None or d.high is None or d.standard_error is None:
        return "not shown better", None, f"{one} cannot be told from {other} on these {n} labels: {d.why}."
    facts = (
        f"balanced accuracy {100 * d.value:+.1f} points (95% interval {100 * d.low:+.1f} to {100 * d.high:+.1f}; "
        f"{n} labels)"
    )
    if d.low > 0:
        return "better", None, f"{one} is better than {other}: {facts}."
    if d.high < 0:
        return "worse", None, f"{one} is worse than {other}: {facts}."
    start = f"{one} is not shown to be better than {other}: {facts}."
    if abs(d.value) < NO_DIFFERENCE:
        return "not shown better", None, f"{start} At a difference this close to 0 no number of labels would tell."
    z = NormalDist().inv_cdf(0.975)
    more = max(1, math.ceil(n * (z * d.standard_error / d.value) ** 2 - n))
    end = f"If the difference stays, {roughly(more)} more answers to test on have an even chance to tell."
    return "not shown better", more, f"{start} {end}"


def holm(comparisons: Mapping[str, Comparison], primary: str = "untuned") -> dict[str, Comparison]:
    """The same comparisons, all but the primary one corrected for their number (Holm 1979).

    The primary comparison, the one a study is made for, stands as it is. Of the others the k-th smallest p is
    multiplied by ``m - k + 1`` and never less than the one before; a verdict that does not hold at 5 % after that
    becomes *not shown better*. Comparisons without a p value stay as they are.
    """
    others = {k: p for k, c in comparisons.items() if k != primary and (p := c.balanced_accuracy.p_value) is not None}
    found = dict(comparisons)
    if len(others) < 2:
        return found
    least = 0.0
    for i, (name, p) in enumerate(sorted(others.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, p * (len(others) - i)))
        found[name] = _corrected(comparisons[name], least, len(others))
    return found


def _corrected(c: Comparison, p: float, m: int) -> Comparison:
    update: dict[str, object] = {"p_holm": p}
    if c.verdict != "not shown better" and p < 0.05:
        update["sentence"] = f"{c.sentence} Corrected for {m} such comparisons it still is (Holm: p = {p:.2g})."
    elif c.verdict != "not shown better":
        start = c.sentence.replace(f" is {c.verdict} than ", f" is not shown to be {c.verdict} than ", 1)
        update["verdict"] = "not shown better"
        update["sentence"] = (
            f"{start} Its interval alone would show it; corrected for {m} such comparisons it does not "
            f"(Holm: p = {p:.2g})."
        )
    return c.model_copy(update=update)
