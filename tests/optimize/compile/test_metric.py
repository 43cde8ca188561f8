from __future__ import annotations

import dspy
import pytest

from faith_dspy.config import Granularity
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.compile.examples import statement_examples
from faith_dspy.optimize.compile.metric import agreement_metric, failed

STATEMENT = Granularity.STATEMENT


def examples():
    """Three supported statements and one that is not."""
    statements = [{"text": f"{x} is big.", "verdict": "no_evidence" if x == "D" else "fully_supported"} for x in "ABCD"]
    e = parse_example({"context": ["c"], "answer": "All are big.", "statements": statements})
    return statement_examples([e], STATEMENT, "supported")


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
    """It scores 0 for either label, as a wrong verdict does, is no demo, and the feedback says so."""
    for nothing in (dspy.Prediction(verdict=None), dspy.Prediction(error="down"), None):
        assert failed(nothing)
        for gold in examples():
            assert agreement_metric(gold, nothing) == 0
            assert agreement_metric(gold, nothing, trace=[]) is False
        assert "label" in agreement_metric(examples()[0], nothing, pred_name="predict").feedback
    assert not failed(dspy.Prediction(verdict="Yes", probability=1.0))


def graded(verdict: str, instruction: str = "graded", ids: list[int] | None = None) -> dspy.Example:
    """One statement with that verdict by a person, alone in its set: its weight is 1 / (2 · 1) = ½."""
    statement = {"text": "It is free.", "verdict": verdict, "supporting_chunk_ids": ids}
    e = parse_example({"context": ["a", "b", "c"], "answer": "It is free.", "statements": [statement]})
    return statement_examples([e], STATEMENT, instruction)[0]


@pytest.mark.parametrize(
    ("person", "label", "score"),
    [
        ("fully_supported", "fully", 1.0),
        ("fully_supported", "partly", 0.5),
        ("partially_supported", "partly", 1.0),
        ("partially_supported", "nothing", 0.5),
        ("no_evidence", "nothing", 1.0),
        ("no_evidence", "contradicts", 0.9),
        ("contradictory", "nothing", 0.9),
        ("contradictory", "fully", 0.0),
        ("not_supported", "contradicts", 1.0),
    ],
)
def test_graded_verdicts_are_credited_by_their_distance(person, label, score):
    """Fully 1, partly ½, none 0: 1 - |distance|; the two kinds of unsupported confused cost a tenth."""
    assert agreement_metric(graded(person), dspy.Prediction(verdict=label)) == pytest.approx(score / 2)


def test_a_graded_verdict_by_probability_is_the_distance_to_the_expected_support():
    """A person's *partly* is ½; an LM that expects .7 is .2 away."""
    found = agreement_metric(graded("partially_supported"), dspy.Prediction(verdict="fully", probability=0.7))
    assert found == pytest.approx(0.8 / 2)


def test_asked_yes_or_no_partly_supported_is_no():
    """A yes-or-no instruction has no label for it: support .3 scores .7."""
    gold = graded("partially_supported", "supported")
    assert (gold.verdict, gold.support) == ("No", 0.0)
    assert agreement_metric(gold, dspy.Prediction(verdict="No", probability=0.3)) == pytest.approx(0.7 / 2)


def test_a_label_that_is_only_not_supported_is_shown_as_nothing_not_as_partly():
    """Demos show the label that claims least."""
    assert graded("not_supported").verdict == "nothing"


def test_evidence_counts_a_fifth_where_both_name_it():
    """Ids 0 and 1 against 1 and 2: F1 = 2·1/4 = ½; .8 · 1 + .2 · ½ = .9. Where either names none, the verdict alone."""
    gold = graded("fully_supported", "supported", [0, 1])
    named = dspy.Prediction(verdict="Yes", probability=1.0, supporting_chunk_ids=[1, 2])
    assert agreement_metric(gold, named) == pytest.approx(0.9 / 2)
    assert agreement_metric(graded("fully_supported", "supported"), named) == pytest.approx(0.5)
    assert agreement_metric(gold, dspy.Prediction(verdict="Yes", probability=1.0)) == pytest.approx(0.5)


def test_an_lm_that_is_to_cite_loses_the_fifth_where_it_supports_without_a_chunk():
    """Not where it says no: that needs none."""
    gold = graded("fully_supported", "supported", [0, 1])
    assert agreement_metric(gold, dspy.Prediction(verdict="Yes", probability=1.0), cite=True) == pytest.approx(0.8 / 2)
    assert agreement_metric(gold, dspy.Prediction(verdict="No", probability=0.4), cite=True) == pytest.approx(0.4 / 2)


def test_feedback_tells_what_people_said_and_why():
    """A reflecting LM reads the person's verdict, the finer one too, their reason and their evidence."""
    statement = {"text": "It is free.", "verdict": "contradictory", "reason": "A ticket is 4 crowns."}
    e = parse_example({"context": ["a", "b"], "answer": "It is free.", "statements": [statement]})
    gold = statement_examples([e], STATEMENT, "supported")[0]
    found = agreement_metric(gold, dspy.Prediction(verdict="Yes", probability=0.7), pred_name="predict")
    assert found.score == pytest.approx(0.3)
    assert "A ticket is 4 crowns." in found.feedback
    assert found.feedback.startswith("Wrong")
    named = graded("contradictory", ids=[1])
    text = agreement_metric(named, dspy.Prediction(verdict="fully"), pred_name="predict").feedback
    assert "(contradictory)" in text
    assert "passage 1: b" in text
