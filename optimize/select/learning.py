"""The learning curve: agreement on the testset with a quarter, half and all of the labels.

It costs no LM call. Classifier and threshold are fitted anew on random draws of whole sources of train and dev.
Variant, prompts, and which answers the LM is asked about stay the champion's. Nothing is chosen by these figures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.judge import Judge
from faith_dspy.optimize.results import CurvePoint, JudgedAnswer, JudgeResult
from faith_dspy.scoring.statistics import Estimate, from_draws, metric_values

SHARES = (0.25, 0.5)
DRAWS = 10
ENOUGH = 30
"""With fewer labels to fit on there is no curve: a quarter of them can hardly be fitted."""
_METRICS = ("balanced_accuracy", "auroc")


def learning_curve(
    known: Sequence[JudgedAnswer],
    build: Callable[[Sequence[JudgedAnswer]], Judge],
    champion: JudgeResult,
    seed: int,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[CurvePoint, ...]:
    """Agreement on the champion's test answers when ``build`` fits it on a part of ``known``; last, on all of it.

    Draws on which nothing can be fitted are left out; the points say how many are not. Empty with fewer labels than
    `ENOUGH`.
    """
    if len(known) < ENOUGH:
        return ()
    by_source: dict[str, list[JudgedAnswer]] = {}
    for a in sorted(known, key=lambda a: a.id):
        by_source.setdefault(a.source, []).append(a)
    rng = random.Random(seed)
    points = []
    for share in SHARES:
        n, draws = round(share * len(known)), []
        for _ in range(DRAWS):
            advance(1)
            order = rng.sample(list(by_source.values()), len(by_source))
            try:
                judge = build([a for source in order for a in source][:n])
            except InputError:
                continue
            draws.append(_agreement([a.by(judge) for a in champion.answers]))
        if draws:
            points.append(CurvePoint(labels=n, draws=len(draws), **_spread(draws)))
    whole = {m: getattr(champion.agreement, m) for m in _METRICS}
    last = {m: Estimate(value=e.value, why=e.why or "there is one draw only") for m, e in whole.items()}
    return (*points, CurvePoint(labels=len(known), draws=1, **last))


def _agreement(answers: Sequence[JudgedAnswer]) -> list[float]:
    scored = [a for a in answers if a.predicted is not None]
    labels, passed = np.array([a.label for a in scored]), np.array([bool(a.predicted) for a in scored])
    ranks = np.array([np.nan if a.probability is None else a.probability for a in scored])
    found = metric_values(np.ones((1, len(scored))), labels, passed, ranks)
    return [float(found[m][0]) for m in _METRICS]


def _spread(draws: Sequence[Sequence[float]]) -> dict[str, Estimate]:
    columns = np.array(draws).T
    why = "the scored test answers have one label only"
    return {m: from_draws(float(values.mean()), values, why) for m, values in zip(_METRICS, columns, strict=True)}
