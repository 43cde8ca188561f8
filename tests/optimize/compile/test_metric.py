import dspy
import pytest

from faith_dspy.config import Granularity
from faith_dspy.io.labels import parse_example
from faith_dspy.optimize.compile.examples import (
    answer_examples,
    statement_examples,
)
from faith_dspy.optimize.compile.metric import (
    agreement_metric,
    failed,
    statement_f1,
)
from faith_dspy.schema import RawVerdict, Statement
from faith_dspy.scoring.classifier import to_logit

said = dspy.Prediction


def example(verdict, instruction="binary", **more):
    """A statement with that verdict by a person."""
    statement = {"text": "All are big.", "verdict": verdict, **more}
    row = {"context": ["a", "b", "c"], "answer": "All are big."}
    e = parse_example(row | {"statements": [statement]})
    (gold,) = statement_examples([e], Granularity.STATEMENT, instruction)
    return gold


YES, NO = example("fully_supported"), example("no_evidence")


@pytest.mark.parametrize("nothing", [said(verdict=None), None])
def test_a_reply_without_a_label_is_no_verdict(nothing):
    """It scores 0 for either label, as a wrong verdict does, and the feedback says so."""
    assert failed(nothing)
    for gold in (YES, NO):
        assert agreement_metric(gold, nothing) == 0
    feedback = agreement_metric(YES, nothing, pred_name="predict").feedback
    assert "no reply" in feedback or "has no verdict; people say Yes." in feedback


@pytest.mark.parametrize(
    ("person", "label", "score"),
    [
        ("fully_supported", "fully", 1.0),
        ("fully_supported", "partly", 0.5),
        ("partially_supported", "nothing", 0.5),
        ("no_evidence", "contradicts", 0.9),
        ("not_supported", "contradicts", 1.0),
    ],
)
def test_graded_verdicts_are_credited_by_their_distance(person, label, score):
    """Fully 1, partly ½, none 0: 1 - |distance|; the two kinds of unsupported confused cost a tenth."""
    gold = example(person, "graded")
    prediction = said(verdict=label)
    found = agreement_metric(gold, prediction, pred_name="predict")
    assert found.score == agreement_metric(gold, prediction) == pytest.approx(score)
    assert found.feedback.startswith("Right" if score == 1 else "Wrong")


NAMED = {"supporting_chunk_ids": [0, 1]}


@pytest.mark.parametrize(
    ("ids", "verdict", "named", "cite", "score"),
    [
        # Ids 0 and 1 against 1 and 2: F1 = 2·1/4 = ½, which counts a fifth where both name it, else the verdict alone.
        (NAMED, "Yes", [1, 2], False, 0.9),
        ({}, "Yes", [1, 2], False, 1.0),
        (NAMED, "Yes", [], False, 1.0),
        # An LM that is to cite loses the fifth where it supports without a chunk, not where it says no.
        (NAMED, "Yes", [], True, 0.8),
        (NAMED, "No", [], True, 0.0),
    ],
)
def test_chunk_ids_count_where_labels_name_chunks(ids, verdict, named, cite, score):
    gold = example("fully_supported", **ids)
    reply = said(verdict=verdict, supporting_chunk_ids=named)
    assert agreement_metric(gold, reply, cite=cite) == pytest.approx(score)


def test_a_demo_shows_the_label_that_claims_least():
    """Of one who only said *not supported*, nothing rather than partly; asked yes or no, partly supported is no."""
    assert example("not_supported", "graded").verdict == "nothing"
    partly = example("partially_supported")
    assert (partly.verdict, partly.support) == ("No", 0.0)


def test_feedback_tells_what_people_said_and_why():
    """A reflecting LM reads the verdict, the person's, the finer one too, their reason and their evidence."""
    why = {"reason": "It is 4.", "supporting_chunk_ids": [0]}
    gold = example("contradictory", **why)
    found = agreement_metric(gold, said(verdict="Yes"), pred_name="predict")
    outcome = "Wrong: the verdict is Yes; people say No (contradictory)."
    because = "Their reason: It is 4. The chunks that they named: 0."
    assert found.feedback == f"{outcome} {because}"


ANSWER = "Ann lives in Rome and paints. She has a dog."
PEOPLE = ("Ann lives in Rome.", "Ann paints.", "Ann has a dog.")


def answer_example(**labels):
    (gold,) = answer_examples(
        [parse_example({"context": ["a"], "answer": ANSWER} | labels)]
    )
    return gold


@pytest.mark.parametrize(
    ("texts", "f1"),
    [
        (PEOPLE, 1.0),
        # The first sentence as written stands for two of theirs: 2 of 2 match, 2 · 2 / (3 + 2).
        (("Ann lives in Rome and paints.", "She has a dog."), 0.8),
        ((), 0.0),
    ],
)
def test_extracted_statements_are_matched_one_to_one(texts, f1):
    """What is merged, or lost, lowers the F1."""
    extracted = [Statement(text=text) for text in texts]
    assert statement_f1(PEOPLE, extracted, ANSWER) == pytest.approx(f1)


def program_said(*pairs):
    raw = [
        RawVerdict(text=text, label="Yes" if p > 0.5 else "No", logit=to_logit(p))
        for text, p in pairs
    ]
    return dspy.Prediction(raw_verdicts=raw, statements=[v.text for v in raw])


def test_an_answer_scores_its_statements_and_how_they_were_extracted():
    """People call all three supported; of two that are extracted the LM supports one: (½ + F1 .8) / 2."""
    statements = [{"text": text, "verdict": "fully_supported"} for text in PEOPLE]
    gold = answer_example(statements=statements)
    pred = program_said(("Ann lives in Rome.", 0.9), ("Ann paints.", 0.3))
    found = agreement_metric(gold, pred, pred_name="extract")
    assert found.score == pytest.approx((0.5 + 0.8) / 2)
    assert "Not extracted: Ann has a dog." in found.feedback
    call = [(None, {"statement": "Ann paints."}, None)]
    verified = agreement_metric(gold, pred, None, "verify.predict", call)
    assert verified.feedback == "Wrong: the verdict is No; people say Yes."
    assert verified.score == found.score


def test_where_the_answer_alone_is_labelled_its_weakest_statement_counts():
    """People call it unfaithful, and so does the LM once it supports one statement less."""
    gold = answer_example(faithful=False)
    for weakest, score in ((0.2, 1.0), (0.6, 0.0)):
        pred = program_said(
            ("Ann lives in Rome and paints.", 0.9), ("She has a dog.", weakest)
        )
        assert agreement_metric(gold, pred) == score
