from __future__ import annotations

from typing import Any

import pytest

from .optimizers import measured


def row(context: int, supported: bool, logit: float | None, gold: list[int], cited: list[int]) -> dict[str, Any]:
    """What was said about a statement."""
    return {"context": context, "supported": supported, "logit": logit, "gold": gold, "cited": cited}


def test_a_prompt_is_measured_beside_the_seed_prompt():
    """Worked by hand: two supported and two unsupported statements over four contexts."""
    seed = [
        row(0, True, 1, [0], [0]),
        row(1, True, -1, [1], [0, 1]),
        row(2, False, 2, [], [1]),
        row(3, False, -2, [], []),
    ]
    # A reply without a label passes nothing, and ranks last; chunk ids count where people named some.
    own = [row(0, True, 1, [0], []), row(1, True, 3, [1], [1]), row(2, False, None, [], [1]), row(3, False, 2, [], [])]
    found = measured(own, seed)
    assert found["auroc"].value == pytest.approx(3 / 4)  # of the pairs only 1 against 2 is in the wrong order
    assert found["auroc gain"].value == pytest.approx(3 / 4 - 2 / 4)
    assert found["balanced_accuracy"].value == pytest.approx((1 + 1 / 2) / 2)
    assert found["balanced_accuracy gain"].value == pytest.approx(3 / 4 - 1 / 2)
    assert found["f1"].value == pytest.approx(2 * 1 / (1 + 2))
    assert found["f1 gain"].value == pytest.approx(2 / 3 - 2 * 2 / (3 + 2))
    assert measured(seed, seed)["auroc gain"].value == 0


def test_sets_weigh_alike_in_their_mean():
    """Two sets of two and of four statements: .5 and 1 of balanced accuracy."""
    small = [row(0, True, -1, [0], [0]), row(1, False, -1, [], [])]
    large = [row(i, i % 2 == 0, 1 if i % 2 == 0 else -1, [i], [i]) for i in range(4)]
    rows = [{**r, "set": name} for name, part in (("small", small), ("large", large)) for r in part]
    found = measured(rows, rows)
    assert found["balanced_accuracy"].value == pytest.approx((1 / 2 + 1) / 2)
    assert found["f1"].value == 1
    assert found["f1 gain"].value == 0
