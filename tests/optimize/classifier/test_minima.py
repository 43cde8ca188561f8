"""What is fitted lies where an independent search finds the minimum: a wrong gradient would stop elsewhere."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from faith_dspy.optimize.classifier.logistic import fit_logistic


def search(loss, size):
    """The minimum without a gradient."""
    options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 20_000, "maxfev": 20_000}
    return minimize(loss, np.zeros(size), method="Nelder-Mead", options=options).x


def test_a_fit_of_answers_is_the_minimum_of_its_loss():
    """An answer's log-odds are the soft minimum of its statements'; weights have a normal prior."""
    rng = np.random.default_rng(7)
    bags = np.repeat(np.arange(40), 3)
    x = rng.normal(size=(120, 2))
    worst = np.array([x[bags == i].min(axis=0) for i in range(40)])
    y = (rng.random(40) < expit(1.5 * worst[:, 0] + worst[:, 1] + 1.5)).astype(
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
