import pytest

from faith_dspy.errors import ConfigError, InputError
from faith_dspy.optimize.classifier.operating_point import (
    BALANCED,
    OperatingPoint,
    review_range_for,
    review_range_sentence,
    threshold_for,
)

# Ten answers: unfaithful at .1 .2 .3 .5, faithful at .4 .6 .7 .8 .9 .95.
PROBABILITIES = [0.1, 0.2, 0.3, 0.5, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95]
LABELS = [False] * 4 + [True] * 6


@pytest.mark.parametrize(
    ("text", "operating_point"),
    [
        ("balanced", BALANCED),
        ("recall=0.9", OperatingPoint(kind="recall", value=0.9)),
        ("cost=5", OperatingPoint(kind="cost", value=5)),
        (" Cost=2.5 ", OperatingPoint(kind="cost", value=2.5)),
    ],
)
def test_an_operating_point_is_read_and_written(text: str, operating_point: OperatingPoint) -> None:
    """Every operating point survives being written and read again."""
    assert OperatingPoint.parse(text) == operating_point == OperatingPoint.parse(str(operating_point))


@pytest.mark.parametrize(
    ("text", "teaches"),
    [
        ("best", "expected one of balanced; recall=0.9"),
        ("balanced=1", "expected one of balanced"),
        ("recall", "above 0 and below 1, such as recall=0.9"),
        ("recall=90", "above 0 and below 1, such as recall=0.9"),
        ("recall=nan", "above 0 and below 1"),
        ("cost=0", "such as cost=5"),
        ("cost=5:1", "such as cost=5"),
        ("cost=inf", "such as cost=5"),
    ],
)
def test_a_wrong_operating_point_is_answered_with_a_right_one(text: str, teaches: str) -> None:
    """What cannot be read names what was got and shows what can."""
    with pytest.raises(ConfigError, match=teaches):
        OperatingPoint.parse(text)


def test_recall_by_hand() -> None:
    """Half of 4 unfaithful: ceil(.5 · 5) = 3 are stopped by a threshold between .3 and .4; no faithful one is lost."""
    choice = threshold_for(OperatingPoint(kind="recall", value=0.5), PROBABILITIES, LABELS)
    assert choice.threshold == pytest.approx(0.35)
    assert choice.recall_unfaithful.value == 0.75
    assert choice.recall_faithful.value == 1.0
    assert choice.recall_unfaithful.low is not None


def test_recall_that_few_labels_cannot_guarantee() -> None:
    """With 4 unfaithful answers .9 takes .9/.1 = 9: all four are stopped, between .5 and .6, and it says so."""
    choice = threshold_for(OperatingPoint(kind="recall", value=0.9), PROBABILITIES, LABELS)
    assert choice.threshold == pytest.approx(0.55)
    assert choice.note is not None
    assert "cannot be guaranteed with 4 labelled unfaithful answers: it takes 9" in choice.note
    # Wilson for 4 of 4: 4 / (4 + 1.96²) = .5101
    assert choice.recall_unfaithful.low == pytest.approx(0.5101, abs=1e-3)
    assert "as low as 0.51" in choice.note


def test_cost_by_hand() -> None:
    """Saved by thresholds at .55, .65, .75: 20·4 − 1, − 2, − 3 = 79, 78, 77; at .45 only 59. Each counted half and its
    neighbours a quarter, .65 has (79 + 2·78 + 77) / 4 = 78 and .55 only 73.75. It stops 2 faithful of ten answers."""
    dear = threshold_for(OperatingPoint(kind="cost", value=20), PROBABILITIES, LABELS)
    assert dear.threshold == pytest.approx(0.65)
    assert dear.recall_faithful.value == pytest.approx(4 / 6)
    cheap = threshold_for(OperatingPoint(kind="cost", value=0.05), PROBABILITIES, LABELS)
    assert cheap.threshold <= 0.35
    assert cheap.recall_faithful.value == 1.0


def test_unscored_answers_are_left_out() -> None:
    """None is no probability: the threshold is that of the others."""
    with_none = threshold_for(BALANCED, [None, *PROBABILITIES, None], [True, *LABELS, False])
    assert with_none.threshold == threshold_for(BALANCED, PROBABILITIES, LABELS).threshold


def test_one_class_is_refused() -> None:
    """No threshold can be fitted to one label; the message counts."""
    with pytest.raises(InputError, match="6 faithful and 0 unfaithful"):
        threshold_for(BALANCED, PROBABILITIES[4:], LABELS[4:])


def test_an_unfaithful_answer_at_the_very_top_is_refused() -> None:
    """No threshold stops an answer of probability 1."""
    with pytest.raises(InputError, match="no threshold stops 2"):
        threshold_for(OperatingPoint(kind="recall", value=0.9), [0.1, 1.0, 0.9], [False, False, True])


# Threshold .5. Above: wrong at .52 .56, right at .60 … .76 (5) and .80 .84 .88 (3): 8 of 10 from .5, 8 of 9 from .54,
# all 8 from .58. Below: right at .05 … .45 (9).
ABOVE = [0.52, 0.56, 0.60, 0.64, 0.68, 0.72, 0.76, 0.80, 0.84, 0.88]
BELOW = [0.05, 0.10, 0.15, 0.20, 0.25, 0.30, 0.35, 0.40, 0.45]
RANGE_LABELS = [False, False] + [True] * 8 + [False] * 9


def test_review_range_by_hand() -> None:
    """.9 is reached from .58 on; below the threshold every verdict is right."""
    p = ABOVE + BELOW
    assert review_range_for(p, RANGE_LABELS, 0.5) == pytest.approx((0.5, 0.58))
    told = review_range_sentence((0.5, 0.58), p, RANGE_LABELS)
    assert told.startswith("11% of the answers, those between 0.50 and 0.58. Of the others 100% [")  # 2 of 19
    assert " of the passed are faithful and 100% [" in told


def test_a_review_range_comes_as_close_as_it_can() -> None:
    """Where .9 is out of reach the best bound is taken, the one with most answers first: 4 of 5 from .64 on."""
    p = [0.52, 0.56, 0.60, 0.64, 0.68, 0.72, 0.76, 0.80, *BELOW]
    labels = [False, False, False, True, True, False, True, True] + [False] * 9
    assert review_range_for(p, labels, 0.5) == pytest.approx((0.5, 0.62))


def test_too_few_on_a_side_all_go_to_a_person() -> None:
    """Four answers tell nothing: everything the judge would pass goes to a person."""
    assert review_range_for(ABOVE[-4:] + BELOW, [True] * 4 + [False] * 9, 0.5) == (0.5, 1.0)


def test_a_review_range_around_everything() -> None:
    """Where every answer goes to a person there is no other to be right about."""
    told = review_range_sentence((0.0, 1.0), ABOVE + BELOW, RANGE_LABELS)
    assert told == "100% of the answers, those between 0.00 and 1.00: no other is left."


def test_few_labels_leave_the_threshold_near_the_share_of_faithful_answers() -> None:
    """Two of ten are unfaithful, and .25 separates them best: log-odds -1.1, those of the share of .8 are 1.4. With ten
    labels the threshold has 200 parts of the latter and 10 of the former, 1.27; with a thousand 200 and 1,000, -.68."""
    few, many = (threshold_for(BALANCED, sorted(PROBABILITIES) * k, ([False] * 2 + [True] * 8) * k) for k in (1, 100))
    assert few.threshold == pytest.approx(0.78, abs=0.01)
    assert many.threshold == pytest.approx(0.335, abs=0.01)
