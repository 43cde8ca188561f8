import pytest

from faith_dspy.errors import ConfigError
from faith_dspy.optimize.classifier.operating_point import (
    BALANCED,
    OperatingPoint,
    operating_point_sentence,
    review_range_for,
    threshold_for,
)
from faith_dspy.scoring.agreement import measure

# Ten answers: unfaithful at .1 .2 .3 .5, faithful at .4 .6 .7 .8 .9 .95.
PROBABILITIES = [0.1, 0.2, 0.3, 0.5, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95]
LABELS = [False] * 4 + [True] * 6


def test_an_operating_point_is_read_and_written():
    read = [OperatingPoint.parse(text) for text in ("balanced", "recall=0.9", " Cost=2.5 ")]
    assert read == [BALANCED, OperatingPoint(kind="recall", value=0.9), OperatingPoint(kind="cost", value=2.5)]
    assert [OperatingPoint.parse(str(point)) for point in read] == read


@pytest.mark.parametrize("text", ["best", "balanced=1", "recall", "recall=90", "recall=nan", "cost=0", "cost=inf"])
def test_a_wrong_operating_point_is_answered_with_a_right_one(text):
    with pytest.raises(ConfigError, match=f"got operating point '{text}', expected .* balanced; recall=0.9, .* cost=5"):
        OperatingPoint.parse(text)


@pytest.mark.parametrize(
    ("point", "threshold"),
    [("balanced", 0.6), ("cost=4", 0.8), ("recall=0.5", 0.25), ("recall=0.9", 0.55), ("recall=0.99", 0.55)],
)
def test_thresholds_by_hand(point, threshold):
    """The share of faithful answers, 6 of 10; 4 / (1 + 4); half of 4 unfaithful ones, .1 and .2, lie below .25; nine
    tenths are all four, below the middle of .5 and .6."""
    assert threshold_for(OperatingPoint.parse(point), PROBABILITIES, LABELS) == pytest.approx(threshold)


# Threshold .5. Above: wrong at .52 .56, right at .60 … .76 (5) and .80 .84 .88 (3): 8 of 10 from .5, 8 of 9 from .54,
# all 8 from .58. Below: right at .05 … .45 (9).
ABOVE = [0.52, 0.56, 0.60, 0.64, 0.68, 0.72, 0.76, 0.80, 0.84, 0.88]
BELOW = [0.05, 0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40, 0.45]


@pytest.mark.parametrize(
    ("above", "right", "bounds"),
    [
        (ABOVE, [False] * 2 + [True] * 8, (0.5, 0.58)),  # .9 is reached from .58 on
        # Where .9 is out of reach the best bound is taken, the one with most answers first: 4 of 5 from .64 on.
        (ABOVE[:8], [False, False, False, True, True, False, True, True], (0.5, 0.62)),
        (ABOVE[-4:], [True] * 4, (0.5, 1.0)),  # four tell nothing: all that the judge would pass goes to a person
    ],
)
def test_review_range_by_hand(above, right, bounds):
    """Below the threshold every verdict is right."""
    assert review_range_for(above + BELOW, right + [False] * 9, 0.5) == pytest.approx(bounds)


def test_what_a_threshold_reaches_is_said_in_per_cent():
    """At .55 it stops all four unfaithful answers, which has no interval, and passes five of the six faithful ones."""
    found = measure(LABELS, [p >= 0.55 for p in PROBABILITIES], PROBABILITIES)
    (said,) = operating_point_sentence(OperatingPoint(kind="cost", value=5), found, found)
    assert "it stops 100% of the unfaithful answers" in said
    assert "passes 83% [" in said
    assert operating_point_sentence(BALANCED, found, found) == []
