import math

import numpy as np
import pytest

from faith_dspy.errors import MissingExtraError, need
from faith_dspy.scoring.statistics import (
    by_source,
    weighted_auroc,
    weighted_kappa,
    wilson,
)


def test_weighted_auroc_is_that_of_repeated_answers():
    """A resample's AUROC is the AUROC of the answers written out as often as they were drawn."""
    from sklearn import metrics

    y = np.array([True] * 6 + [False] * 4)
    s = np.array([0.9, 0.9, 0.8, 0.7, 0.6, 0.4, 0.7, 0.3, 0.2, 0.1])
    for w in np.random.default_rng(0).integers(0, 4, size=(20, 10)).astype(float):
        again = w.astype(int)
        if 0 < (again * y).sum() < again.sum():
            expected = metrics.roc_auc_score(np.repeat(y, again), np.repeat(s, again))
            assert weighted_auroc(w[None], y, s)[0] == pytest.approx(expected)


def test_a_missing_package_names_the_extra():
    """What is not installed is an error that says how to install it, not an ImportError."""
    with pytest.raises(MissingExtraError, match=r"pip install '.\[tune\]'"):
        need("no_such_package.part", "Measuring agreement")


def test_weighted_kappa_by_hand():
    """One step apart costs half of two; in resamples it is the κ of the items written out as often as drawn."""
    # Labels 2 2 1 0, verdicts 2 1 1 0: observed distance 1/4. By chance, label shares (1/4, 1/4, 1/2) against verdict
    # shares (1/4, 1/2, 1/4): (0·1/16 + 1·1/8 + 2·1/16) + (1/16 + 0 + 1/16) + (2·1/8 + 1/4 + 0) = 1/4 + 1/8 + 1/2.
    a, b = np.array([2, 2, 1, 0]), np.array([2, 1, 1, 0])
    assert weighted_kappa(np.ones((1, 4)), a, b, 3)[0] == pytest.approx(
        1 - 0.25 / 0.875
    )
    from sklearn import metrics

    for w in np.random.default_rng(0).integers(0, 4, size=(20, 4)).astype(float):
        again = w.astype(int)
        one, other = np.repeat(a, again), np.repeat(b, again)
        if len({*one, *other}) > 1:
            expected = metrics.cohen_kappa_score(
                one, other, weights="linear", labels=[0, 1, 2]
            )
            assert weighted_kappa(w[None], a, b, 3)[0] == pytest.approx(expected)


def test_the_rarer_label_has_the_degrees_of_freedom():
    """Of six sources one answer each; leaving each out moves the mean of 0 0 0 1 1 1 by .1: s² = 5/6 · 6 · .01 = .05.
    Three sources of the rarer label leave two degrees of freedom, t = 4.3027; all six, without labels, five, 2.5706."""
    right = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])

    def share(w):
        return {"share": (w @ right) / w.sum(axis=1)}

    labels = [True, True, True, False, False, False]
    sources = [str(i) for i in range(6)]
    by_label = by_source(share, 6, sources, labels)["share"]
    assert (by_label.value, by_label.df) == (0.5, 2)
    assert by_label.half == pytest.approx(4.3027 * math.sqrt(0.05), rel=1e-4)
    assert by_source(share, 6, sources)["share"].half == pytest.approx(
        2.5706 * math.sqrt(0.05), rel=1e-4
    )


def test_a_share_of_nothing_is_undefined():
    """A Wilson interval of 2 in 4 by hand is tested with prediction-powered shares; of 0 in 0 there is none."""
    assert wilson(0, 0).value is None
    assert wilson(0, 3).low == pytest.approx(0.0)
