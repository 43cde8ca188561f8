import pytest

pytest.importorskip("pydantic_evals")

from pydantic import BaseModel
from pydantic_evals import Case, Dataset

from faith_dspy.integrations.pydantic_evals import Faithfulness

pytestmark = pytest.mark.all
CONTEXT = ["It is blue."]


class Question(BaseModel):
    """What a task is given, as a model of the user's own."""

    question: str
    context: list[str]


CASES = {
    "named in a mapping": Case(inputs={"question": "Which?", "context": CONTEXT}),
    "in a model": Case(inputs=Question(question="Which?", context=CONTEXT)),
    "in the metadata": Case(inputs="Which?", metadata={"context": CONTEXT}),
    "nowhere": Case(inputs="Which?"),
}


@pytest.fixture
def named(chat_server, monkeypatch):
    """A judge by the name that Pydantic AI gives its model; it supports one of two statements."""
    server = chat_server(yes={"It is blue.": 0.9, "It is new.": 0.1})
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    return "openai:tiny", server


def evaluated(cases, evaluator):
    """The report on a task that says the same to everything."""
    dataset = Dataset(name="kettles", cases=cases, evaluators=[evaluator])
    task = lambda inputs: "It is blue. It is new."  # noqa: E731
    return dataset, dataset.evaluate_sync(task, progress=False).cases


def test_scores_and_assertions(named):
    """Each case gets its score and whether it passes, with the reasons; one without context is a failure, and no 0."""
    _, reported = evaluated([*CASES.values()], Faithfulness(named[0]))
    *scored, bare = sorted(reported, key=lambda case: not case.scores)
    for case in scored:
        assert case.scores["faithfulness"].value == 0.5
        assert case.assertions["faithful"].value is False
        assert "not_supported: It is new." in case.scores["faithfulness"].reason
    assert (bare.scores, bare.assertions) == ({}, {})
    (failure,) = bare.evaluator_failures
    assert "unscored (no_context)" in failure.error_message
    assert "Question: Which?" in named[1].requests[0]["messages"][-1]["content"]


def test_a_file_of_cases(named, tmp_path):
    """Judge and options are written with the cases, and read again."""
    evaluator = Faithfulness(named[0], {"verdicts": "binary", "criteria": "Be strict."})
    dataset, _ = evaluated([CASES["named in a mapping"]], evaluator)
    dataset.to_file(tmp_path / "cases.yaml")
    again = Dataset.from_file(
        tmp_path / "cases.yaml", custom_evaluator_types=[Faithfulness]
    )
    assert again.evaluators == [evaluator]
