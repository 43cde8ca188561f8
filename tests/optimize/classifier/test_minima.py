"""What is fitted lies where an independent search finds the minimum: a wrong gradient would stop elsewhere."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from faith_dspy.optimize.classifier.logistic import fit_logistic, platt_scaling

RNG = np.random.default_rng(7)
LOGITS = 2 * RNG.normal(size=60)


def search(loss, size):
    """The minimum without a gradient."""
    options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 20_000, "maxfev": 20_000}
    return minimize(loss, np.zeros(size), method="Nelder-Mead", options=options).x


@pytest.mark.parametrize(("slope", "shift"), [(0.4, -1.0), (1.0, 0.0), (2.5, 1.0)])
def test_calibration_is_the_minimum_of_platts_loss(slope, shift):
    """Log loss to smoothed targets (Platt 1999), with a normal prior of variance 1/4 on the logarithm of the slope."""
    y = (RNG.random(60) < expit(slope * LOGITS + shift)).astype(np.float64)
    target = np.where(y == 1, (y.sum() + 1) / (y.sum() + 2), 1 / (60 - y.sum() + 2))

    def loss(theta):
        z = np.exp(theta[0]) * LOGITS + theta[1]
        return np.sum(np.logaddexp(0, z) - target * z) + 2 * theta[0] ** 2

    log_slope, expected_shift = search(loss, 2)
    assert platt_scaling(LOGITS, y) == pytest.approx(
        (np.exp(log_slope), expected_shift), abs=1e-3
    )


def test_a_fit_of_answers_is_the_minimum_of_its_loss():
    """An answer's log-odds are the soft minimum of its statements'; weights have a normal prior."""
    bags = np.repeat(np.arange(40), 3)
    x = RNG.normal(size=(120, 2))
    worst = np.array([x[bags == i].min(axis=0) for i in range(40)])
    y = (RNG.random(40) < expit(1.5 * worst[:, 0] + worst[:, 1] + 1.5)).astype(
        np.float64
    )
    mine = fit_logistic(x, y, [1, 1], bags, width=0.5)
    z = (x - mine.means) / mine.scales
    weights = np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y.mean()))

    def loss(theta):
        rows = (z @ theta[:2] + theta[2]).reshape(40, 3)
        answers = -np.log(np.exp(-rows).mean(axis=1))
        return (
            np.sum(weights * np.logaddexp(0, -(2 * y - 1) * answers))
            + np.sum((theta[:2] - 0.1) ** 2) / 0.5
        )

    assert [*mine.weights, mine.intercept] == pytest.approx(search(loss, 3), abs=1e-3)
    assert (
        mine.weights.min() > 0.2
    )  # well inside its bounds, and far from where the search begins
