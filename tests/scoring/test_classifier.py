import math

import pytest
from pydantic import ValidationError

from faith_dspy.scoring.classifier import (
    AGGREGATES,
    LOGIT_LIMIT,
    AnswerClassifier,
    StatementClassifier,
    aggregates,
    to_logit,
    to_probability,
)
from tests.support.classifiers import by_weakest, linear

STATEMENT = linear({"novel_run": -0.5, "lm": 1.5}, 0.25, (0.5, 1.0), (0.25, 2.0))
ANSWER = linear(
    dict(zip(AGGREGATES, (0.4, 0.3, 0.2, 0.1), strict=True)), -1.0, of=AnswerClassifier
)


def test_statement_by_hand():
    """0.25 − 0.5·(1−0.5)/0.25 + 1.5·(3−1)/2 = 0.25 − 1 + 1.5 = 0.75."""
    features = {"novel_run": 1.0, "lm": 3.0}
    assert STATEMENT.logit(features) == 0.75
    assert STATEMENT.probability(features) == pytest.approx(1 / (1 + math.exp(-0.75)))


def test_missing_signal_contributes_nothing():
    """A signal that is missing counts as its mean; one the classifier does not know is ignored."""
    for features in ({"lm": 1.0, "other": 9.0}, {}, {"novel_run": 0.5, "lm": 1.0}):
        assert STATEMENT.logit(features) == 0.25


def test_aggregates_by_hand():
    """Of logits 0, 1, 2: weakest 0, second 1, mean 1, soft weakest −log((1 + e⁻¹ + e⁻²)/3)."""
    found = aggregates([to_probability(2.0), to_probability(0.0), to_probability(1.0)])
    soft = -math.log((1 + math.exp(-1) + math.exp(-2)) / 3)
    assert found == pytest.approx(
        {"weakest": 0.0, "second_weakest": 1.0, "soft_weakest": soft, "mean": 1.0}
    )


def test_unjudged_statement_is_neither_dropped_nor_passed():
    """A statement without a probability counts as 0, or as told; an answer of nothing but them is None."""
    assert ANSWER.probability([0.9, None]) == ANSWER.probability([0.9, 0.0])
    assert ANSWER.probability([0.9, None], unjudged=1.0) == ANSWER.probability(
        [0.9, 1.0]
    )
    assert ANSWER.probability([None, None]) is None
    assert ANSWER.probability([]) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (dict.fromkeys(("means", "scales", "weights"), (1, 1)) | {"names": ("a", "a")}, "once"),
        ({"scales": (0.0,)}, "above 0"), ({"weights": (math.nan,)}, "finite"), ({"pickle": "…"}, "Extra inputs"),
        ({"names": ("novel_run",)}, "wrong sign"),  # novelty that speaks for a statement
        ({"names": ("lm",), "weights": (-0.1,)}, "wrong sign"),
    ],
)  # fmt: skip
def test_numbers_that_are_no_classifier(fields, said):
    """As many means, scales and weights as names, each in its sense; a review_range holds the threshold."""
    good = linear({"a": 1.0}).model_dump()
    for kind in (StatementClassifier, AnswerClassifier):
        with pytest.raises(ValidationError, match=said):
            kind.model_validate(good | fields)
    with pytest.raises(ValidationError, match="must hold the threshold"):
        by_weakest(STATEMENT, threshold=0.6, review_range=(0.1, 0.5))


def test_logits_are_clipped():
    """Certainty is worth ±6, and the way back does not overflow."""
    assert to_logit(0.0) == to_logit(1e-9) == -LOGIT_LIMIT
    assert to_logit(1.0) == LOGIT_LIMIT
    assert to_logit(0.5) == 0.0
    assert to_probability(-1000.0) == 0.0
    assert STATEMENT.probability({"lm": 1e6}) == to_probability(LOGIT_LIMIT)
