from __future__ import annotations

import math

import numpy as np
import pytest

from faith_dspy.errors import InputError, MissingExtraError, need
from faith_dspy.scoring.metrics import weighted_auroc, weighted_kappa
from faith_dspy.scoring.statistics import ppi_mean, resample_weights, wilson


def test_weighted_auroc_is_that_of_repeated_answers() -> None:
    """A resample's AUROC is the AUROC of the answers written out as often as they were drawn."""
    from sklearn import metrics

    y = np.array([True] * 6 + [False] * 4)
    s = np.array([0.9, 0.9, 0.8, 0.7, 0.6, 0.4, 0.7, 0.3, 0.2, 0.1])
    for w in next(resample_weights(10, None, 20, 0)):
        again = w.astype(int)
        if 0 < (again * y).sum() < again.sum():
            expected = metrics.roc_auc_score(np.repeat(y, again), np.repeat(s, again))
            assert weighted_auroc(w[None], y, s)[0] == pytest.approx(expected)


def test_prediction_powered_share_worked_by_hand() -> None:
    """The powered share is the labels' mean, moved by λ times how far the scores differ on the unlabelled answers."""
    # Labels 1 0 1 0, scores .8 .2 .6 .4 | unlabelled .8 .8 .6 .6. cov(Y, F): .5 (.3 + .3 + .1 + .1) / 3 = .4 / 3.
    # var of all eight scores (mean .6): squares .04 .16 0 .04 .04 .04 0 0 -> .32 / 7. n/N = 1.
    # λ = (.4 / 3) / (2 * .32 / 7) = 1.458 -> cut to 1. Share = .5 + (.7 - .5) = .7.
    share = ppi_mean([0.8, 0.2, 0.6, 0.4], [True, False, True, False], [0.8, 0.8, 0.6, 0.6])
    assert share.weight == 1.0
    assert share.powered.value == pytest.approx(0.7)
    # Variance: var(F_u) / 4 + var(Y - F) / 4 = (.04 / 3) / 4 + (.4 / 3) / 4; Y - F = .2 -.2 .4 -.4.
    assert share.powered.low == pytest.approx(0.7 - 1.959964 * math.sqrt(0.44 / 12))
    # Wilson for 2 of 4: .5 ± 1.96 sqrt(.25/4 + 1.96²/64) / (1 + 1.96²/4)
    z = 1.959964
    assert share.labels_only.high == pytest.approx(0.5 + z * math.sqrt(0.0625 + z**2 / 64) / (1 + z**2 / 4), abs=1e-6)


def test_prediction_powered_intervals_hold_the_truth_and_are_narrower() -> None:
    """With 60 labels and 600 scores of a fair but biased judge: coverage in 90 to 99 %, width under that of labels."""
    rng = np.random.default_rng(2)
    held = narrower = 0
    for _ in range(200):
        y = rng.random(660) < 0.7
        f = np.clip(0.2 + 0.5 * y + 0.1 * rng.standard_normal(660), 0, 1)
        share = ppi_mean(f[:60].tolist(), y[:60].tolist(), f[60:].tolist())
        p, c = share.powered, share.labels_only
        held += p.low <= 0.7 <= p.high  # type: ignore[operator]  # all samples have both classes
        narrower += p.high - p.low < c.high - c.low  # type: ignore[operator]
    assert 180 <= held <= 198
    assert narrower > 190


def test_useless_scores_are_not_used() -> None:
    """Constant scores get weight 0 and leave the labels' mean; labels all alike give no normal interval."""
    share = ppi_mean([0.5] * 4, [True, False, True, True], [0.5, None, 0.5])
    assert (share.weight, share.powered.value) == (0.0, 0.75)
    same = ppi_mean([0.9, 0.8], [True, True], [0.9, 0.1])
    assert same.powered.low is None
    assert same.labels_only.low is not None
    for bad in (
        ([1.5, 0.5], [True, False], [0.5, 0.5]),
        ([0.5], [True], [0.5]),
        ([math.nan, 0.5], [True, False], [1, 1]),
    ):
        with pytest.raises(InputError):
            ppi_mean(*bad)


def test_a_missing_package_names_the_extra() -> None:
    """What is not installed is an error that says how to install it, not an ImportError."""
    with pytest.raises(MissingExtraError, match=r"faith_dspy\[tune\]"):
        need("no_such_package.part", "Measuring agreement")


def test_weighted_kappa_by_hand() -> None:
    """One step apart costs half of two; in resamples it is the κ of the items written out as often as drawn."""
    # Labels 2 2 1 0, verdicts 2 1 1 0: observed distance 1/4. By chance, label shares (1/4, 1/4, 1/2) against verdict
    # shares (1/4, 1/2, 1/4): (0·1/16 + 1·1/8 + 2·1/16) + (1/16 + 0 + 1/16) + (2·1/8 + 1/4 + 0) = 1/4 + 1/8 + 1/2.
    a, b = np.array([2, 2, 1, 0]), np.array([2, 1, 1, 0])
    assert weighted_kappa(np.ones((1, 4)), a, b, 3)[0] == pytest.approx(1 - 0.25 / 0.875)
    from sklearn import metrics

    for w in next(resample_weights(4, None, 20, 0)):
        again = w.astype(int)
        one, other = np.repeat(a, again), np.repeat(b, again)
        if len({*one, *other}) > 1:
            expected = metrics.cohen_kappa_score(one, other, weights="linear", labels=[0, 1, 2])
            assert weighted_kappa(w[None], a, b, 3)[0] == pytest.approx(expected)


def test_a_share_of_nothing_is_undefined() -> None:
    """A Wilson interval of 2 in 4 by hand is tested with prediction-powered shares; of 0 in 0 there is none."""
    assert wilson(0, 0).value is None
    assert wilson(0, 3).low == pytest.approx(0.0)
