from __future__ import annotations

import pytest

from faith_dspy.errors import InputError
from faith_dspy.scoring.evidence import measure_evidence


def test_ids_are_summed_over_statements() -> None:
    """Each id counts once, so that a statement with many chunks weighs more (micro average)."""
    # Shared 1 + 0 + 2 = 3; predicted 2 + 1 + 2 = 5, gold 1 + 1 + 3 = 5.
    e = measure_evidence([{0, 1}, {2}, {3, 4}], [{0}, {5}, {3, 4, 6}])
    assert (e.n, e.scored, e.coverage) == (3, 3, 1.0)
    assert (e.precision.value, e.recall.value, e.f1.value) == pytest.approx((0.6, 0.6, 0.6))
    assert e.f1.low is not None


def test_an_unscored_statement_counts_in_coverage_alone() -> None:
    """None is a statement nobody judged, the empty set one for which the judge named no chunk."""
    e = measure_evidence([{0}, None, set()], [{0}, {1}, {1}])
    assert (e.n, e.scored, e.coverage) == (3, 2, 2 / 3)
    assert (e.precision.value, e.recall.value) == (1.0, 0.5)
    assert measure_evidence([None], [{0}]).f1.why == "no statement was scored"


def test_evidence_that_is_undefined_says_why() -> None:
    """Without any id on one side, the share of that side is undefined; without any at all, F1 is, too."""
    e = measure_evidence([set(), set()], [{0}, {1}])
    assert (e.precision.why, e.recall.value, e.f1.value) == ("the judge named no chunk", 0.0, 0.0)
    assert measure_evidence([set()], [set()]).f1.why == "nobody named a supporting chunk"
    with pytest.raises(InputError, match="2 predicted and 1 gold"):
        measure_evidence([{1}, {2}], [{1}])
