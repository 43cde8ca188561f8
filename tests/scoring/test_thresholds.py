from __future__ import annotations

import numpy as np
import pytest

from faith_dspy.scoring.thresholds import stable_threshold


def test_threshold_prefers_a_plateau() -> None:
    """The threshold lies in the middle between the two classes; with one class it is 0.5."""
    probabilities = np.concatenate([np.linspace(0.0, 0.4, 50), np.linspace(0.6, 1.0, 50)])
    labels = np.array([0.0] * 50 + [1.0] * 50)
    assert stable_threshold(probabilities, labels) == pytest.approx(0.5)
    assert stable_threshold(probabilities, np.ones(100)) == 0.5
