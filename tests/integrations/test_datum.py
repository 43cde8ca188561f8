from __future__ import annotations

from types import SimpleNamespace

import pytest

from faith_dspy.errors import InputError
from faith_dspy.integrations.datum import record, records

WANTED = {"question": "Q?", "context": ["C."], "answer": "A."}


@pytest.mark.parametrize(
    "datum",
    [
        {"question": "Q?", "retrieved_contexts": ["C."], "answer": "A."},
        {"question": "Q?", "retrieved_context": ["C."], "answer": "A."},
        {"query": "Q?", "retrieved_content": ["C."], "actual_output": "A.", "expected_output": "E."},
        {"user_input": "Q?", "retrieved_contexts": ["C."], "response": "A.", "reference": "E."},
        {"input": "Q?", "actual_output": "A.", "retrieval_context": ["C."], "context": ["ideal"]},
        {"question": "Q?", "answer": "A.", "context_chunks": ["C."]},
        SimpleNamespace(user_input="Q?", response="A.", retrieved_contexts=["C."]),
    ],
    ids=["continuous-eval", "continuous-eval-old", "axion", "ragas", "deepeval", "rag_evals", "object"],
)
def test_names_of_each_library(datum):
    """What each library calls question, context and answer is the same record."""
    assert record(datum) == WANTED


def test_documents():
    """Chunks that are documents give their text, and their id as source."""
    context = [{"page_content": "C.", "metadata": {"source": "a.md"}}, {"content": "D.", "id": 7}, {"text": "E."}]
    assert record({"answer": "A.", "retrieved_contexts": context})["context"] == [
        {"text": "C.", "source": "document a.md"},
        {"text": "D.", "source": "document 7"},
        {"text": "E."},
    ]


def test_a_datum_without_an_answer():
    """A datum without an answer is an error that says what was there."""
    with pytest.raises(InputError, match="a datum has no answer: got question, expected one of answer, response"):
        record({"question": "Q?"})


def as_datum(case):
    """As continuous-eval writes it."""
    return {"question": case.question, "retrieved_contexts": case.context, "answer": case.answer}


def test_by_statement(recorded, case):
    """continuous-eval by statement: the share of statements attributed to the context."""
    judge, _ = recorded()
    (found,) = judge.batch(records([as_datum(case)]))
    assert found.score == case.share


def test_by_whole_answer(judge_at, case):
    """continuous-eval by whole answer: one yes or no about all of it."""
    judge, server = judge_at(says="Yes" if case.share == 1 else "No", granularity="answer")
    (found,) = judge.batch(records([as_datum(case)]))
    assert found.faithful is (case.version == "supported")
    assert len(server.requests) == 1


def test_graded(recorded, case):
    """axion: four verdicts weighted 1, .5, 0, −1, their mean clamped to [0, 1]; verdicts are counted."""
    judge, _ = recorded(verdicts="graded", threshold=0.5)
    (found,) = judge.batch(records([as_datum(case)]))
    assert found.score == case.weighted
    assert found.faithful is (case.weighted >= 0.5)
    assert sum(found.verdict_counts.values()) == 2


TABLET = ["Adults take one tablet of 200 mg every six hours with water."]
LENIENT = {"fully_supported": 1, "partially_supported": 1, "no_evidence": 0, "contradictory": 0, "not_supported": 0}


@pytest.mark.parametrize(
    ("second", "options", "score"),
    [
        ("Adults take one tablet every six hours, after a meal.", {}, 0.75),  # (1 + .5) / 2
        ("Adults take one tablet every six hours, after a meal.", {"verdict_scores": LENIENT}, 1.0),
        ("The medicine may cause headaches.", {}, 0.5),
        ("The medicine may cause headaches.", {"strict_mode": True}, 0.0),  # (1 - 1) / 2
    ],
)
def test_verdict_scores_and_strict_mode(recorded, second, options, score):
    """axion's override of what a verdict is worth, and its strict mode, in which no evidence counts −1."""
    judge, _ = recorded(verdicts="graded", **options)
    (found,) = judge.batch(records([{"answer": f"The tablet is taken with water. {second}", "contexts": TABLET}]))
    assert found.score == score


@pytest.mark.parametrize("granularity", ["sentence", "answer"])
def test_reasoning(judge_at, granularity):
    """continuous-eval's reasoning, by statement and by whole answer."""
    judge, _ = judge_at(says="No The context names no price.", granularity=granularity, reasoning="after")
    (found,) = judge.batch(records([{"answer": "It costs 3 euros.", "retrieved_contexts": ["It is blue."]}]))
    assert "The context names no price." in found.statements[0].reason


def test_pretty(recorded):
    """What was found can be read in a terminal: each statement with its verdict."""
    judge, _ = recorded(verdicts="graded")
    datum = {"answer": "The medicine may cause headaches.", "contexts": ["Adults take one tablet."]}
    (found,) = judge.batch(records([datum]))
    assert "The medicine may cause headaches." in found.pretty()
    assert found.verdict_counts == {"no_evidence": 1}
