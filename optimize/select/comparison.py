"""Whether one judge is better than another on the same labelled answers, and how many labels it would take to tell."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple

from faith_dspy.errors import InputError
from faith_dspy.optimize.checks import Comparison, Difference, McNemar
from faith_dspy.scoring.metrics import weighted_auroc
from faith_dspy.scoring.statistics import (
    check_labels,
    check_scores,
    need,
    resample_weights,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.scoring.statistics import Floats

NO_DIFFERENCE = 0.005
"""Half a percentage point of balanced accuracy: below it no number of labels is worth asking for."""

_Metric = Literal["balanced_accuracy", "auroc"]
_METRICS: tuple[_Metric, ...] = ("balanced_accuracy", "auroc")


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


def paired_bootstrap(
    labels: Sequence[bool],
    pred_a: Sequence[bool | None],
    pred_b: Sequence[bool | None],
    scores_a: Sequence[float | None],
    scores_b: Sequence[float | None],
    groups: Sequence[str] | None = None,
    metric: _Metric = "balanced_accuracy",
    *,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Difference:
    """Metric of A minus metric of B, both on the same resamples of whole groups (see `resample_weights`).

    All sequences have the length of `labels` (True = faithful). An answer a judge left unscored counts as wrong *for
    that judge*: in balanced accuracy as the wrong verdict, in AUROC as a score on the wrong side of all others, so that
    no judge gains by skipping hard answers. Percentile interval; ``p = 2 min(P(d* <= 0), P(d* >= 0))``, one added to
    counts and resamples (Davison & Hinkley 1997, §4.2 and §5.2). Resamples with one class are skipped; when more than
    half are, there is no interval.

    Raises:
        InputError: no labels, lengths differ, a label or score that is not one, an unknown metric.
    """
    need("numpy", "Comparing judges")
    import numpy as np

    check_labels(labels, pred_a=pred_a, pred_b=pred_b, scores_a=scores_a, scores_b=scores_b, groups=groups)
    check_scores([*scores_a, *scores_b])
    if metric not in _METRICS:
        raise InputError(f"got metric={metric!r}, expected 'balanced_accuracy' or 'auroc'")
    y = np.array(labels, dtype=bool)
    if y.all() or not y.any():
        return Difference(why=f"all answers are labelled {'faithful' if y.all() else 'unfaithful'}")
    if metric == "balanced_accuracy":
        right = np.column_stack([_right(labels, pred_a), _right(labels, pred_b)])

        def differences(w: Floats) -> Floats:
            recalls = [(w[:, c] @ right[c]) / w[:, c].sum(axis=1, keepdims=True) for c in (y, ~y)]
            return np.asarray((recalls[0] + recalls[1]) @ np.array([0.5, -0.5]))
    else:
        for name, scores in (("A", scores_a), ("B", scores_b)):
            if all(s is None for s in scores):
                return Difference(why=f"judge {name} gives no scores")
        ranks = [_ranked(labels, pred_a, scores_a), _ranked(labels, pred_b, scores_b)]

        def differences(w: Floats) -> Floats:
            return weighted_auroc(w, y, ranks[0]) - weighted_auroc(w, y, ranks[1])

    with np.errstate(invalid="ignore"):
        value = float(differences(np.ones((1, len(y))))[0])
        draws = np.concatenate([differences(w) for w in resample_weights(len(y), groups, n_resamples, seed)])
    if groups is not None and len(set(groups)) < 2:
        return Difference(value=value, why="no interval: all answers are one group")
    kept = draws[~np.isnan(draws)]
    if len(kept) <= n_resamples / 2:
        return Difference(value=value, why="no interval: more than half of the resamples have one class only")
    low, high = np.quantile(kept, [0.025, 0.975]).tolist()
    tail = min(int((kept <= 1e-12).sum()), int((kept >= -1e-12).sum()))
    p_value = min(1.0, 2 * (tail + 1) / (len(kept) + 1))
    return Difference(value=value, low=low, high=high, p_value=p_value, standard_error=float(kept.std(ddof=1)))


def mcnemar(labels: Sequence[bool], pred_a: Sequence[bool | None], pred_b: Sequence[bool | None]) -> McNemar:
    """Exact McNemar test (McNemar 1947): of the answers one judge alone got right, is each judge's share one half?

    Unscored (None) counts as wrong. Answers over one context are taken as independent, unlike in `paired_bootstrap`.
    `InputError` as there.
    """
    stats = need("scipy.stats", "Comparing judges")
    check_labels(labels, pred_a=pred_a, pred_b=pred_b)
    right = list(zip(_right(labels, pred_a), _right(labels, pred_b), strict=True))
    only_a, only_b = sum(a and not b for a, b in right), sum(b and not a for a, b in right)
    p_value = float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0
    return McNemar(only_a_right=only_a, only_b_right=only_b, p_value=p_value)


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
    """Judge `a` against judge `b` on the same answers; `names` are for the sentence. Arguments as `paired_bootstrap`.

    The labels it would take come from the standard error, which shrinks with one over the root of the labels:
    ``n (z SE / d)^2`` for the interval to end at 0.
    """
    balanced, auroc = (
        paired_bootstrap(
            labels,
            a.predictions,
            b.predictions,
            a.scores,
            b.scores,
            groups,
            metric,
            n_resamples=n_resamples,
            seed=seed,
        )
        for metric in _METRICS
    )
    test = mcnemar(labels, a.predictions, b.predictions)
    verdict, more, sentence = _verdict(balanced, test, len(labels), names)
    return Comparison(
        n=len(labels),
        balanced_accuracy=balanced,
        auroc=auroc,
        mcnemar=test,
        verdict=verdict,
        more_labels=more,
        sentence=sentence,
    )


def _verdict(
    d: Difference, test: McNemar, n: int, names: tuple[str, str]
) -> tuple[Literal["better", "not shown better", "worse"], int | None, str]:
    one, other = names
    if d.value is None or d.low is None or d.high is None or d.standard_error is None:
        return "not shown better", None, f"{one} cannot be told from {other} on these {n} labels: {d.why}."
    facts = (
        f"balanced accuracy {100 * d.value:+.1f} points (95% interval {100 * d.low:+.1f} to "
        f"{100 * d.high:+.1f}; {n} labels; McNemar p = {test.p_value:.2g})"
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
    rough = "a few" if more < 10 else f"about {int(float(f'{more:.1g}' if more < 100 else f'{more:.2g}')):,}"
    end = f"If the difference stays, {rough} more answers to test on have an even chance to tell."
    return "not shown better", more, f"{start} {end}"


def holm(comparisons: Mapping[str, Comparison], primary: str = "untuned") -> dict[str, Comparison]:
    """The same comparisons, all but the primary one corrected for their number (Holm 1979).

    The primary comparison, the one a study is made for, stands as it is. Of the others the k-th smallest p is
    multiplied by ``m - k + 1`` and never less than the one before; a verdict that does not hold at 5 % after that
    becomes *not shown better*. Comparisons without a p value stay as they are.
    """
    others = {k: p for k, c in comparisons.items() if k != primary and (p := c.balanced_accuracy.p_value) is not None}
    corrected: dict[str, float] = {}
    least = 0.0
    for i, (name, p) in enumerate(sorted(others.items(), key=lambda item: item[1])):
        least = max(least, min(1.0, p * (len(others) - i)))
        corrected[name] = least
    return {k: _corrected(c, corrected.get(k), len(others)) for k, c in comparisons.items()}


def _corrected(c: Comparison, p: float | None, m: int) -> Comparison:
    if p is None or m < 2:
        return c
    update: dict[str, object] = {"p_holm": p}
    if c.verdict != "not shown better" and p < 0.05:
        update["sentence"] = f"{c.sentence} Corrected for {m} such comparisons it still is (Holm: p = {p:.2g})."
    elif c.verdict != "not shown better":
        said = f" is {c.verdict} than "
        start = c.sentence.replace(said, f" is not shown to be {c.verdict} than ", 1)
        update["verdict"] = "not shown better"
        update["sentence"] = (
            f"{start} Its interval alone would show it; corrected for {m} such comparisons it does not "
            f"(Holm: p = {p:.2g})."
        )
    return c.model_copy(update=update)


def _right(labels: Sequence[bool], predictions: Sequence[bool | None]) -> list[bool]:
    return [p is not None and bool(p) == bool(y) for y, p in zip(labels, predictions, strict=True)]


def _ranked(labels: Sequence[bool], predictions: Sequence[bool | None], scores: Sequence[float | None]) -> Floats:
    """Scores, with those of unscored answers on the wrong side of all others."""
    import numpy as np

    rows = zip(labels, predictions, scores, strict=True)
    return np.array([(-math.inf if y else math.inf) if p is None or s is None else float(s) for y, p, s in rows])
