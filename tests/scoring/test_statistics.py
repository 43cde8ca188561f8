import math

import numpy as np
import pytest

from faith_dspy.scoring.statistics import (
    by_source,
    metric_values,
    ratios,
    weighted_kappa,
)


def test_a_weight_is_so_many_answers():
    """Weighted metrics are those of the answers written out as often; ECE alone keeps the bins of the original ones."""
    y = np.array([True, True, True, False, False, False])
    p = np.array([True, False, True, True, False, False])
    s = np.array([0.9, 0.7, 0.3, 0.7, 0.4, 0.1])
    a, b = np.array([2, 2, 1, 0, 1, 0]), np.array([2, 1, 1, 0, 0, 2])
    drawn = np.array([2, 0, 3, 1, 1, 2])
    once = np.ones((1, 9))
    weighted = metric_values(drawn[None], y, p, s)
    repeated = metric_values(once, *(np.repeat(each, drawn) for each in (y, p, s)))
    for name in weighted.keys() - {"ece"}:
        assert weighted[name] == pytest.approx(repeated[name]), name
    # Two at .9 win all four; three at .3 win against the two at .1 alone: (8 + 6) / 20.
    assert weighted["auroc"][0] == pytest.approx(14 / 20)
    kappa = weighted_kappa(once, np.repeat(a, drawn), np.repeat(b, drawn), 3)
    assert weighted_kappa(drawn[None], a, b, 3) == pytest.approx(kappa)


def test_the_rarer_label_has_the_degrees_of_freedom():
    """Of six sources one answer each; leaving each out moves the mean of 0 0 0 1 1 1 by .1: s² = 5/6 · 6 · .01 = .05.
    Three sources of the rarer label leave two degrees of freedom, t = 4.3027; all six, without labels, five, 2.5706."""
    right = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])

    def share(w):
        return {"share": (w @ right) / w.sum(axis=1)}

    labels = [True, True, True, False, False, False]
    sources = [str(i) for i in range(6)]
    by_label = by_source(share, sources, labels)["share"]
    assert (by_label.value, by_label.df) == (0.5, 2)
    assert by_label.half == pytest.approx(4.3027 * math.sqrt(0.05), rel=1e-4)
    assert by_source(share, sources)["share"].half == pytest.approx(
        2.5706 * math.sqrt(0.05), rel=1e-4
    )


def test_many_sources_are_left_out_in_groups():
    """Of 5,000 draws the error of the mean is their standard deviation by √5,000, a few percent off by the groups."""
    values = np.random.default_rng(0).normal(size=5_000)
    mean = by_source(ratios({"mean": (values, np.ones(5_000))}), range(5_000))
    assert mean["mean"].error == pytest.approx(values.std() / 5_000**0.5, rel=0.1)
