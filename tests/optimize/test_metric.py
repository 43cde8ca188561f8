from __future__ import annotations

import dspy
import pytest

from faith_dspy.labels import parse_example
from faith_dspy.optimize.metric import agreement_metric, statement_examples


def examples():
    """Three supported pieces and one that is not."""
    e = parse_example({"context": ["c"], "answer": "A. B. C. D.", "faithful": False})
    return statement_examples([(e, ["A.", "B.", "C.", "D."], [True, True, True, False])], "supported")


def test_both_classes_weigh_the_same():
    """n / (2 · n of the class): 4 / 6 for each of three, 4 / 2 for the one; each class sums to 2."""
    assert [e.weight for e in examples()] == [pytest.approx(2 / 3)] * 3 + [2.0]


def test_the_score_is_the_weighted_probability_of_the_persons_verdict():
    """A supported piece with p = .9 scores .9 · ⅔, the unsupported one with p = .9 scores .1 · 2."""
    yes, *_, no = examples()
    sure = dspy.Prediction(verdict="Yes", probability=0.9)
    assert agreement_metric(yes, sure) == pytest.approx(0.6)
    assert agreement_metric(no, sure) == pytest.approx(0.2)


def test_a_reply_without_a_label_is_no_verdict():
    """It scores 0 for either label, is no demo, and the feedback says so."""
    nothing = dspy.Prediction(verdict=None)
    for gold in examples():
        assert agreement_metric(gold, nothing) == 0
        assert agreement_metric(gold, nothing, trace=[]) is False
    assert "label" in agreement_metric(examples()[0], nothing, pred_name="ask[0]").feedback


def test_feedback_tells_what_people_said_and_why():
    """A reflecting LM reads the person's verdict and reason."""
    e = parse_example(
        {
            "context": ["c"],
            "answer": "It is free.",
            "statements": [{"text": "It is free.", "verdict": "contradictory", "reason": "A ticket is 4 crowns."}],
        }
    )
    gold = statement_examples([(e, ["It is free."], [False])], "supported")[0]
    found = agreement_metric(gold, dspy.Prediction(verdict="Yes", probability=0.7), pred_name="ask[0]")
    assert found.score == pytest.approx(0.3)
    assert "A ticket is 4 crowns." in found.feedback
    assert found.feedback.startswith("Wrong")
