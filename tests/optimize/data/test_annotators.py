from __future__ import annotations

import pytest

from faith_dspy.optimize.data.audit import annotator_agreement
from faith_dspy.schema import Chunk, LabelledExample


def example(annotators: object, i: int = 0) -> LabelledExample:
    """An answer with these annotators, over a context of its own."""
    return LabelledExample(
        id=str(i), context=(Chunk(id=0, text=f"c{i}"),), answer="a", faithful=True, annotators=annotators
    )


def test_one_annotator_against_the_majority_of_the_others() -> None:
    """Each person is held against the others; where the others tie there is nothing to hold against."""
    # yes yes no: the two yes face a tie and drop out; the no faces yes, yes.
    # no no no: three times unfaithful against unfaithful. True True True: three times faithful against faithful.
    found = annotator_agreement(
        [example(["yes", "yes", "no"], 0), example([["no", "no", "no"]], 1), example([[True, True, True]], 2)]
    )
    assert found is not None
    assert found.n == 7
    assert found.confusion == {
        "faithful_passed": 3,
        "faithful_failed": 1,
        "unfaithful_passed": 0,
        "unfaithful_failed": 3,
    }
    assert found.balanced_accuracy.value == pytest.approx((3 / 4 + 1) / 2)
    # Observed 6/7; by chance (4*3 + 3*4) / 49 = 24/49; (42/49 - 24/49) / (25/49)
    assert found.cohen_kappa.value == pytest.approx(18 / 25)


def test_annotators_may_be_ratings_verdicts_or_a_mapping() -> None:
    """The highest rating of the set and full support mean faithful; labels nobody can read are left out."""
    ratings = annotator_agreement([example([["4", "4", "3"]], 0), example([["1", "2", "4"]], 1)])
    # 4 4 3: the 3 faces two faithful. 1 2 4: the 4 faces two unfaithful; 1 and 2 face a tie, as do both 4 above.
    assert ratings is not None
    assert ratings.confusion["faithful_failed"] == ratings.confusion["unfaithful_passed"] == 1
    verdicts = annotator_agreement([example({"ann": "fully_supported", "bo": "contradictory", "cy": "?"})])
    assert verdicts is not None
    assert verdicts.n == 2


@pytest.mark.parametrize("annotators", [None, [], ["yes"], [["?", "!"]], 3, "yes", [{"a": 1}, None]])
def test_nothing_usable_gives_no_ceiling(annotators: object) -> None:
    """Without two readable labels on one answer there is no human agreement to report."""
    assert annotator_agreement([example(annotators)]) is None
