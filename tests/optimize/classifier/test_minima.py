"""What is fitted lies where an independent search finds the minimum: a wrong gradient would stop elsewhere."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from faith_dspy.optimize.classifier.logistic import fit_logistic


def test_a_fit_of_answers_is_the_minimum_of_its_loss():
    """An answer's log-odds are the soft minimum of its statements'; weights have a normal prior."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(120, 2))
    one, other = x.reshape(40, 3, 2).min(axis=1).T
    y = (rng.random(40) < expit(1.5 * one + other + 1.5)).astype(np.float64)
    fit = fit_logistic(x, y, [1, 1], np.repeat(np.arange(40), 3), width=0.5)
    z = (x - fit.means) / fit.scales
    weights = np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y.mean()))

    def loss(theta):
        rows = (z @ theta[:2] + theta[2]).reshape(40, 3)
        answers = -np.log(np.exp(-rows).mean(axis=1))
        misfit = np.sum(weights * np.logaddexp(0, -(2 * y - 1) * answers))
        return misfit + np.sum((theta[:2] - 0.1) ** 2) / 0.5

    exact = {"xatol": 1e-7, "fatol": 1e-9}
    lowest = minimize(loss, np.zeros(3), method="Nelder-Mead", options=exact).x
    assert [*fit.weights, fit.intercept] == pytest.approx(lowest, abs=1e-3)
    assert fit.weights.min() > 0.2  # inside its bounds, and far from where it begins
