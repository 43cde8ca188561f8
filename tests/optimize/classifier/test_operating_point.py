import numpy as np
import pytest

from faith_dspy.errors import ConfigError, InputError
from faith_dspy.optimize.classifier.operating_point import (
    BALANCED,
    OperatingPoint,
    review_range,
    threshold_for,
)

# Ten answers: unfaithful at .1 .2 .3 .5, faithful at .4 .6 .7 .8 .9 .95.
PROBABILITIES = [0.1, 0.2, 0.3, 0.5, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95]
LABELS = [False] * 4 + [True] * 6


def test_an_operating_point_is_read_and_written():
    read = [
        OperatingPoint.parse(text) for text in ("balanced", "recall=0.9", " Cost=2.5 ")
    ]
    assert read == [
        BALANCED,
        OperatingPoint(kind="recall", value=0.9),
        OperatingPoint(kind="cost", value=2.5),
    ]
    assert [OperatingPoint.parse(str(point)) for point in read] == read


@pytest.mark.parametrize(
    "text",
    ["best", "balanced=1", "recall", "recall=90", "recall=nan", "cost=0", "cost=inf"],
)
def test_a_wrong_operating_point_is_answered_with_a_right_one(text):
    with pytest.raises(
        ConfigError,
        match=f"got operating point '{text}', expected .* balanced; recall=0.9, .* cost=5",
    ):
        OperatingPoint.parse(text)


@pytest.mark.parametrize(
    ("point", "threshold"),
    [
        ("balanced", 0.6),
        ("cost=4", 0.8),
        ("recall=0.4", 0.25),
        ("recall=0.5", 0.35),
        ("recall=0.8", 0.55),
    ],
)
def test_thresholds_by_hand(point, threshold):
    """The share of faithful answers, 6 of 10; 4 / (1 + 4); of the 4 unfaithful ones the 5 · .4 = second lowest, .2, the
    third, .3, and the fourth, .5: half way from each to the next answer."""
    assert threshold_for(
        OperatingPoint.parse(point), PROBABILITIES, LABELS
    ) == pytest.approx(threshold)


def test_a_recall_that_the_labels_cannot_carry_is_refused():
    """Nine tenths take nine unfaithful answers: the (9 + 1) · .9 = ninth lowest."""
    with pytest.raises(
        InputError, match="got 4 unfaithful answers to fit on, expected at least 9"
    ):
        threshold_for(OperatingPoint.parse("recall=0.9"), PROBABILITIES, LABELS)


@pytest.mark.parametrize("n", [10, 20, 40])
def test_recall_holds_on_new_answers(n):
    """Thresholds from n unfaithful answers catch nine tenths of new ones in the mean; without the one more they caught
    .82, .86 and .88."""
    rng = np.random.default_rng(n)
    caught = []
    for _ in range(400):
        p = rng.random(2 * n)
        t = threshold_for(
            OperatingPoint.parse("recall=0.9"), p.tolist(), [False] * n + [True] * n
        )
        caught.append(t)  # of uniform scores the share below it
    assert 0.89 < np.mean(caught) < 0.95


def test_the_review_range_holds_the_answers_nearest_to_the_threshold():
    """Of ten at a distance of .05, .15 … from .5 a fifth: those at .05, and half way on to .15."""
    probabilities = [0.45, 0.55, 0.35, 0.65, 0.25, 0.75, 0.15, 0.85, 0.05, 0.95]
    low, high = review_range(probabilities, 0.5)
    assert sum(low <= p < high for p in probabilities) == 2
    assert (0.5 - low) == pytest.approx(high - 0.5)
