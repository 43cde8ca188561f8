"""What a user does first: labels of one's own, tuned on, loaded and judged with; and the judge that needs no model."""

import pytest

from faith_dspy import Judge
from faith_dspy.eval_sets.catalog import load


@pytest.mark.parametrize(
    ("name", "auroc"),
    [("quickstart", 0.784), ("hard_cases", 0.59), ("assistants", 0.558)],
)
def test_without_a_model_it_ranks_as_well_as_it_did(name, auroc):
    """`Judge("none")` on the shipped sets: faithful answers come above unfaithful ones as often as when this was
    written."""
    assert round(Judge("none").agreement(load(name)).answers.auroc.value, 3) >= auroc
