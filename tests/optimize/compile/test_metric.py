from functools import partial

import dspy
import pytest

from faith_dspy.config import Granularity
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.compile.examples import (
    answer_examples,
    extraction_examples,
    statement_examples,
)
from faith_dspy.optimize.compile.metric import (
    Judged,
    agreement_metric,
    best_cut,
    failed,
    statement_f1,
)
from faith_dspy.schema import RawVerdict, Statement
from faith_dspy.scoring.classifier import to_logit


def said(**fields):
    """A verifier's prediction; its log-odds are those of its probability."""
    if fields.get("probability") is not None:
        fields["logit"] = to_logit(fields["probability"])
    return dspy.Prediction(**fields)


def examples(*verdicts, instruction="binary", **more):
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
    feedback = agreement_metric(YES, nothing, pred_name="predict").feedback
    assert "no reply" in feedback or "did not start with a label" in feedback
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
    """Log-odds are clipped at 6: a probability of 1 counts .9975."""
    found = agreement_metric(*gold, reply, cite=cite)
    assert found == pytest.approx(score / 2, abs=0.0013)


def test_a_demo_shows_the_label_that_claims_least():
    """Of one who only said *not supported*, nothing rather than partly; asked yes or no, partly supported is no."""
    assert graded("not_supported")[0].verdict == "nothing"
    (partly,) = examples("partially_supported")
    assert (partly.verdict, partly.support) == ("No", 0.0)


def test_feedback_tells_what_people_said_and_why():
    """A reflecting LM reads how sure the verdict was, the person's, the finer one too, their reason, what the context
    lacks and their evidence."""
    e = parse_example(
        {
            "context": ["Prices. A ticket is 4 crowns. Children pay half.", "b"],
            "answer": "A ticket is 5 crowns.",
            "statements": [
                {
                    "text": "A ticket is 5 crowns.",
                    "verdict": "contradictory",
                    "reason": "It is 4.",
                    "supporting_chunk_ids": [0],
                }
            ],
        }
    )
    (gold,) = statement_examples([e], Granularity.STATEMENT, "binary")
    verdict = said(verdict="Yes", probability=0.7)
    found = agreement_metric(gold, verdict, pred_name="predict")
    assert found.score == pytest.approx(0.3)
    assert found.objective_scores == {"right": 0.0}
    assert found.feedback == (
        "Wrong: the verdict was Yes, support 0.70 (supported from .50); people say the context does not support all of "
        "it (contradictory). Their reason: It is 4. Words that the context lacks: 5. Their evidence, passage 0: A "
        "ticket is 4 crowns."
    )


def test_scores_are_counted_from_the_seeds_own_cut():
    """Yes to everything, at .9 to what is true and at .6 and .7 to what is not: they part at the log-odds half way
    between .7 and .9, (.847 + 2.197) / 2, from where .7 is no and .9 is yes."""
    judged = [
        Judged(gold, said(verdict="Yes", probability=p))
        for gold, p in zip((YES, NO, NO), (0.9, 0.6, 0.7), strict=True)
    ]
    cut = best_cut(judged)
    assert cut == pytest.approx(1.522, abs=1e-3)
    right = [
        agreement_metric(*one, pred_name="", cut=cut).objective_scores["right"]
        for one in judged
    ]
    assert right == [1.0, 1.0, 1.0]
    # A prompt that says yes more surely to everything is right about less.
    surer = said(verdict="Yes", probability=0.9)
    assert agreement_metric(NO, surer, pred_name="", cut=cut).score < 0.5
    assert best_cut(judged[:1]) == 0.0


ANSWER = "Ann lives in Rome and paints. She has a dog."
PEOPLE = ("Ann lives in Rome.", "Ann paints.", "Ann has a dog.")


def an_answer(**more):
    statements = [{"text": t, "verdict": "fully_supported"} for t in PEOPLE]
    return parse_example(
        {"context": ["a"], "answer": ANSWER, "statements": statements, **more}
    )


@pytest.mark.parametrize(
    ("texts", "f1"),
    [
        (PEOPLE, 1.0),
        # The first sentence as written stands for two of theirs: 2 of 2 match, 2 · 2 / (3 + 2).
        (("Ann lives in Rome and paints.", "She has a dog."), 0.8),
        (("Ann lives in Rome.", "Ann paints."), 0.8),
        ((), 0.0),
    ],
)
def test_extracted_statements_are_matched_one_to_one(texts, f1):
    """What is merged, or lost, lowers the F1."""
    extracted = [Statement(text=text) for text in texts]
    assert statement_f1(PEOPLE, extracted, ANSWER) == pytest.approx(f1)


def program_said(*pairs):
    raw = [
        RawVerdict(text=text, label="Yes", probability=p, logit=to_logit(p))
        for text, p in pairs
    ]
    return dspy.Prediction(raw_verdicts=raw, statements=[v.text for v in raw])


def test_an_answer_scores_its_statements_and_how_they_were_extracted():
    """Two of three statements with .9 and .7 for what people call supported: (.8 + F1 .8) / 2; right are 2 of 2."""
    (gold,) = answer_examples([an_answer()])
    pred = program_said(("Ann lives in Rome.", 0.9), ("Ann paints.", 0.7))
    found = agreement_metric(gold, pred, pred_name="extract")
    assert found.score == pytest.approx((0.8 + 0.8) / 2)
    assert found.objective_scores["right"] == pytest.approx((1 + 0.8) / 2)
    assert "Not extracted: Ann has a dog." in found.feedback
    call = [(None, {"statement": "Ann paints."}, None)]
    verified = agreement_metric(gold, pred, None, "verify.predict", call)
    assert "support 0.70" in verified.feedback
    assert "0.90" not in verified.feedback


def test_where_the_answer_alone_is_labelled_its_weakest_statement_counts():
    """People call it unfaithful; the least supported statement has .2, which is .8 of the person's verdict."""
    e = parse_example({"context": ["a"], "answer": ANSWER, "faithful": False})
    (gold,) = answer_examples([e])
    pred = program_said(("Ann lives in Rome and paints.", 0.9), ("She has a dog.", 0.2))
    assert agreement_metric(gold, pred, pred_name="").score == pytest.approx(0.8)


def test_peoples_statements_are_demos_of_the_extraction():
    """Each with the number of the sentence that it stands in."""
    (row,) = extraction_examples([an_answer()])
    assert row.sentences == ["Ann lives in Rome and paints.", "She has a dog."]
    assert row.statements == [
        "1. Ann lives in Rome.",
        "1. Ann paints.",
        "2. Ann has a dog.",
    ]
    right = dspy.Prediction(statements=row.statements)
    assert agreement_metric(row, right, pred_name="").score == 1.0
