"""The learning curve: agreement on the testset with fewer labels, from replies that are paid for anyway.

For each number of labels the champion's classifier and threshold are fitted anew on random draws of train and dev –
context by context, the last one cut – and judge the test part. Variant, prompts, mode, and which answers the LM is
asked about stay the champion's. Nothing is chosen by these figures.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faith_dspy.errors import InputError, counted
from faith_dspy.optimize.results import CurvePoint
from faith_dspy.optimize.select.evaluate import classifier_example, fit_examples, scorable
from faith_dspy.scoring.statistics import Estimate, from_draws, metric_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faith_dspy.optimize.classifier.operating_point import OperatingPoint
    from faith_dspy.optimize.results import CostPoint, TestsetResult
    from faith_dspy.optimize.select.evaluate import JudgedExample
    from faith_dspy.optimize.select.modes import Modes

SIZES = (10, 25, 50, 100, 200)
"""Numbers of labels to fit on, beside half of them and all."""
DRAWS = 20
"""Draws of each number."""
ENOUGH = 30
"""With fewer labels to fit on there is no curve: half of them can hardly be fitted."""
_NEXT = 100
_METRICS = ("balanced_accuracy", "auroc")


class LearningCurve(NamedTuple):
    """The curve, and what it lets one expect."""

    points: tuple[CurvePoint, ...]
    """By number of labels, from 0, the default judge or else the untuned one, to all, the champion; empty with fewer
    than `ENOUGH`."""
    outlook: str
    """What the next hundred labels would probably bring, a sentence."""


def steps(total: int) -> int:
    """How many classifiers are drawn with so many labels to fit on."""
    return DRAWS * len(_sizes(total))


def learning_curve(
    modes: Modes,
    mode: CostPoint,
    test: Sequence[JudgedExample],
    champion: TestsetResult,
    start: TestsetResult,
    operating_point: OperatingPoint,
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> LearningCurve:
    """Agreement of the champion (``modes`` in ``mode``) on ``test``, as it was judged, by number of labels.

    ``champion`` is what it reached there, ``start`` what a judge without a label did; ``advance`` is called for each of
    `steps`. What the champion left unscored stays so. Draws on which nothing can be fitted are left out; the points say
    how many are not.
    """
    last = modes.of(mode)
    pool = [(e.example.id, e.example.group_key) for e in scorable(last.judged)]
    total = len(pool)
    if total < ENOUGH:
        return LearningCurve((), f"With {total} labels to fit on there is no learning curve: it takes {ENOUGH}.")
    stages = [modes.lexical, last] if mode.escalates_within and mode.lm_share else [last]
    known = [{e.example.id: classifier_example(e) for e in scorable(s.judged)} for s in stages]
    names = ["lexical" if s is modes.lexical else "both" for s in stages]
    scored = [i for i, r in enumerate(champion.predictions) if r.predicted is not None]
    labels = np.array([champion.predictions[i].label for i in scored], dtype=bool)
    decided_by = [-1 if test[i].raw_judgment.escalated else 0 for i in scored]
    asked = [classifier_example(test[i]._replace(raw_judgment=test[i].raw_judgment.last)) for i in scored]

    found: dict[int, list[dict[str, float]]] = {}
    for n in _sizes(total):
        widths: list[tuple[float, float] | None] = [None] * len(stages)
        found[n] = []
        for ids in _draws(pool, n, seed):
            advance(1)
            try:
                fitted = [
                    fit_examples(
                        [e for i, e in rows.items() if i in ids], which, seed, operating_point, modes.priors, width
                    )
                    for rows, which, width in zip(known, names, widths, strict=True)
                ]
            except InputError:
                continue
            widths = [f.prior_widths for f in fitted]  # chosen on the first draw of each size
            classifiers = [fitted[k].classifier for k in decided_by]
            chances = [c.probability(e.statements, e.features) for c, e in zip(classifiers, asked, strict=True)]
            p = np.array([np.nan if chance is None else chance for chance in chances], dtype=np.float64)
            passed = p >= np.array([c.threshold for c in classifiers])
            values = metric_values(np.ones((1, len(p))), labels, passed, p)
            found[n].append({metric: float(values[metric][0]) for metric in _METRICS})
    drawn = [_point(n, draws) for n, draws in found.items() if draws]
    points = (_whole(0, start), *drawn, _whole(total, champion))
    return LearningCurve(points, _outlook(total, found.get(total // 2, []), champion))


def _sizes(total: int) -> list[int]:
    """`SIZES` below ``total``, and half of it in place of those within a fifth of that."""
    half = total // 2
    return sorted({half, *(n for n in SIZES if n < total and abs(n - half) > half / 5)}) if total >= ENOUGH else []


def _draws(pool: Sequence[tuple[str, str]], n: int, seed: int) -> Iterator[set[str]]:
    """`DRAWS` times ``n`` ids of the pool, (id, group) each: whole groups in random order, the last one cut."""
    rng = random.Random(seed)
    groups: dict[str, list[str]] = {}
    for i, group in sorted(pool):
        groups.setdefault(group, []).append(i)
    for _ in range(DRAWS):
        order = rng.sample(list(groups.values()), len(groups))
        yield set([i for group in order for i in rng.sample(group, len(group))][:n])


def _point(n: int, draws: Sequence[dict[str, float]]) -> CurvePoint:
    spreads = {}
    for metric in _METRICS:
        values = np.array([d[metric] for d in draws])
        spreads[metric] = from_draws(float(values.mean()), values, "the scored test answers have one label only")
    return CurvePoint(labels=n, draws=len(draws), **spreads)


def _whole(n: int, tested: TestsetResult) -> CurvePoint:
    """A point without draws: of no label, or of all."""
    values = {metric: getattr(tested.agreement, metric) for metric in _METRICS}
    return CurvePoint(
        labels=n,
        draws=1,
        **{m: Estimate(value=e.value, why=e.why or "there is one draw only") for m, e in values.items()},
    )


def _outlook(total: int, halves: Sequence[dict[str, float]], champion: TestsetResult) -> str:
    """What the next hundred labels would bring if each doubling went on bringing what the last one did."""
    reached = champion.agreement.balanced_accuracy.value
    if reached is None or not halves:
        return "What more labels would bring cannot be said: nothing could be fitted on half of them."
    doublings = math.log2(1 + _NEXT / total)
    gains = 100 * (reached - np.array([d["balanced_accuracy"] for d in halves]))
    value, low, high = (float(v) for v in (gains.mean(), *np.quantile(gains, [0.025, 0.975])))
    last = f"the last doubling, from {total // 2} to {total} labels, brought {value:+.1f} points of balanced accuracy"
    spread = f"[{low:+.1f}, {high:+.1f} over {counted(len(halves), 'draw')}]"
    if low <= 0:
        return f"Of the next {_NEXT} labels nothing measurable is to be expected: {last} {spread}."
    more = f"{value * doublings:+.1f} points of balanced accuracy [{low * doublings:+.1f}, {high * doublings:+.1f}]"
    return f"The next {_NEXT} labels would probably bring {more}, should it go on as before: {last} {spread}."
