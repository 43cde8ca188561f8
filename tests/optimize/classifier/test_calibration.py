import numpy as np
import pytest

from faith_dspy.optimize.classifier.calibration import ENOUGH_FOR_ISOTONIC, calibrate, isotonic_points
from faith_dspy.scoring.classifier import LOGIT_LIMIT, interpolate, to_probability

EDGE = to_probability(-LOGIT_LIMIT)


def folds(n: int, k: int = 5) -> list[np.ndarray]:
    """Every k-th answer is held out together."""
    return [np.arange(i, n, k) for i in range(k)]


def steps(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds over [-3, 3], chances that jump from .2 to .8 at 0: no sigmoid has that shape."""
    rng = np.random.default_rng(0)
    logits = np.linspace(-3, 3, n)
    y = (rng.random(n) < np.where(logits < 0, 0.2, 0.8)).astype(float)
    order = rng.permutation(n)
    return logits[order], y[order]


def test_isotonic_by_hand() -> None:
    """Labels 0 1 0 1 at .1 .2 .3 .4: the middle two break the order and are pooled at 1/2."""
    points = isotonic_points(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 1.0, 0.0, 1.0]))
    assert [x for x, _ in points] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert [y for _, y in points] == pytest.approx([EDGE, 0.5, 0.5, 1 - EDGE])
    assert interpolate(points, 0.25) == pytest.approx(0.5)
    assert interpolate(points, 0.15) == pytest.approx((EDGE + 0.5) / 2)
    assert (interpolate(points, 0.0), interpolate(points, 1.0)) == pytest.approx((EDGE, 1 - EDGE))


def test_few_labels_get_platt() -> None:
    """Below the limit isotonic regression is not even tried, however well it would fit."""
    n = ENOUGH_FOR_ISOTONIC - 1
    logits, y = steps(n)
    assert calibrate(logits, y, folds(n)).isotonic is None


def test_many_labels_that_show_steps_get_isotonic() -> None:
    """Where chances jump, isotonic regression wins on held-out labels, and its probabilities are near the truth."""
    logits, y = steps(2000)
    found = calibrate(logits, y, folds(2000))
    assert found.isotonic is not None
    assert found.probabilities[logits < -0.5].mean() == pytest.approx(0.2, abs=0.04)
    assert found.probabilities[logits > 0.5].mean() == pytest.approx(0.8, abs=0.04)
    assert found.probabilities[(logits > -3) & (logits < -2.5)].mean() == pytest.approx(0.2, abs=0.05)


def test_many_labels_on_a_sigmoid_keep_platt() -> None:
    """Where Platt's curve is the truth, isotonic regression loses on held-out labels and is not taken."""
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 1.5, 1500)
    y = (rng.random(1500) < 1 / (1 + np.exp(-logits))).astype(float)
    assert calibrate(logits, y, folds(1500)).isotonic is None
