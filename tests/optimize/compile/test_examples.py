from functools import partial

import dspy
import pytest

from faith_dspy.config import Granularity
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.compile.examples import (
    agreement_metric,
    failed,
    statement_examples,
)

said = dspy.Prediction


def examples(*verdicts, instruction="supported", **more):
    """A statement with each of these verdicts by a person; of one label alone each weighs ½."""
    statements = [
        {"text": f"{x} is big.", "verdict": v, **more}
        for x, v in zip("ABCD", verdicts, strict=False)
    ]
    e = parse_example(
        {"context": ["a", "b", "c"], "answer": "All are big.", "statements": statements}
    )
    return statement_examples([e], Granularity.STATEMENT, instruction)


graded = partial(examples, instruction="graded")
# n / (2 · n of the class): 4 / 6 for each of three, 4 / 2 for the one; each class sums to 2.
YES, *OTHERS, NO = examples(*["fully_supported"] * 3, "no_evidence")


def test_the_score_is_the_weighted_probability_of_the_persons_verdict():
    """A supported piece with p = .9 scores .9 · ⅔, the unsupported one with p = .9 scores .1 · 2."""
    assert [e.weight for e in (YES, *OTHERS, NO)] == [pytest.approx(2 / 3)] * 3 + [2.0]
    sure = said(verdict="Yes", probability=0.9)
    assert agreement_metric(YES, sure) == pytest.approx(0.6)
    assert agreement_metric(NO, sure) == pytest.approx(0.2)


@pytest.mark.parametrize("nothing", [said(verdict=None), said(error="down"), None])
def test_a_reply_without_a_label_is_no_verdict(nothing):
    """It scores 0 for either label, as a wrong verdict does, is no demo, and the feedback says so."""
    assert failed(nothing)
    for gold in (YES, NO):
        assert agreement_metric(gold, nothing) == 0
        assert agreement_metric(gold, nothing, trace=[]) is False
    assert "label" in agreement_metric(YES, nothing, pred_name="predict").feedback
    assert not failed(said(verdict="Yes", probability=1.0))


@pytest.mark.parametrize(
    ("person", "label", "score"),
    [
        ("fully_supported", "fully", 1.0),
        ("fully_supported", "partly", 0.5),
        ("partially_supported", "nothing", 0.5),
        ("no_evidence", "contradicts", 0.9),
        ("contradictory", "nothing", 0.9),
        ("contradictory", "fully", 0.0),
        ("not_supported", "contradicts", 1.0),
    ],
)
def test_graded_verdicts_are_credited_by_their_distance(person, label, score):
    """Fully 1, partly ½, none 0: 1 - |distance|; the two kinds of unsupported confused cost a tenth."""
    assert agreement_metric(*graded(person), said(verdict=label)) == pytest.approx(
        score / 2
    )


NAMED = {"supporting_chunk_ids": [0, 1]}
SURE = {"verdict": "Yes", "probability": 1.0}


@pytest.mark.parametrize(
    ("gold", "reply", "cite", "score"),
    [
        # A person's *partly* is ½; an LM that expects .7 is .2 away. Asked yes or no it is no: .3 of support scores .7.
        (
            graded("partially_supported"),
            said(verdict="fully", probability=0.7),
            False,
            0.8,
        ),
        (
            examples("partially_supported"),
            said(verdict="No", probability=0.3),
            False,
            0.7,
        ),
        # Ids 0 and 1 against 1 and 2: F1 = 2·1/4 = ½, which counts a fifth where both name it, else the verdict alone.
        (
            examples("fully_supported", **NAMED),
            said(**SURE, supporting_chunk_ids=[1, 2]),
            False,
            0.9,
        ),
        (
            examples("fully_supported"),
            said(**SURE, supporting_chunk_ids=[1, 2]),
            False,
            1.0,
        ),
        (examples("fully_supported", **NAMED), said(**SURE), False, 1.0),
        # An LM that is to cite loses the fifth where it supports without a chunk, not where it says no.
        (examples("fully_supported", **NAMED), said(**SURE), True, 0.8),
        (
            examples("fully_supported", **NAMED),
            said(verdict="No", probability=0.4),
            True,
            0.4,
        ),
    ],
)
def test_by_probability_and_evidence(gold, reply, cite, score):
    assert agreement_metric(*gold, reply, cite=cite) == pytest.approx(score / 2)


def test_a_demo_shows_the_label_that_claims_least():
    """Of one who only said *not supported*, nothing rather than partly; asked yes or no, partly supported is no."""
    assert graded("not_supported")[0].verdict == "nothing"
    (partly,) = examples("partially_supported")
    assert (partly.verdict, partly.support) == ("No", 0.0)


def test_feedback_tells_what_people_said_and_why():
    """A reflecting LM reads the person's verdict, the finer one too, their reason and their evidence."""
    (gold,) = examples(
        "contradictory", reason="A ticket is 4 crowns.", supporting_chunk_ids=[1]
    )
    found = agreement_metric(
        gold, said(verdict="Yes", probability=0.7), pred_name="predict"
    )
    assert found.score == pytest.approx(0.3)
    assert found.feedback.startswith("Wrong")
    for told in ("(contradictory)", "A ticket is 4 crowns.", "passage 1: b"):
        assert told in found.feedback
