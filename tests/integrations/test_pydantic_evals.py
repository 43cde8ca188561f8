import pytest

pytest.importorskip("pydantic_evals")

from pydantic import BaseModel
from pydantic_evals import Case, Dataset

from faith_dspy.integrations.pydantic_evals import Faithfulness
from tests.support.cases import CONTEXT, ICELAND, LANDED

pytestmark = pytest.mark.all


class Question(BaseModel):
    """What a task is given, as a model of the user's own."""

    question: str
    context: list[str]


CASES = [
    Case(inputs={"question": "When?", "context": CONTEXT}),
    Case(inputs=Question(question="When?", context=CONTEXT)),
    Case(inputs="When?", metadata={"context": CONTEXT}),
    Case(inputs="When?"),
]


def dataset(cases, *evaluator):
    """Cases with a judge by the name that Pydantic AI gives its model."""
    evaluators = [Faithfulness("openai:tiny", *evaluator)]
    return Dataset(name="flights", cases=cases, evaluators=evaluators)


def test_scores_and_assertions(endpoint):
    """Each case gets its score and whether it passes, with the reasons, its context named in a mapping, a model or the
    metadata; one without is a failure, and no 0."""
    report = dataset(CASES).evaluate_sync(
        lambda _: f"{LANDED} {ICELAND}", progress=False
    )
    *scored, bare = sorted(report.cases, key=lambda case: not case.scores)
    assert len(scored) == 3
    for case in scored:
        assert case.scores["faithfulness"].value == 0.5
        assert case.assertions["faithful"].value is False
        assert f"not_supported: {ICELAND}" in case.scores["faithfulness"].reason
    assert (bare.scores, bare.assertions) == ({}, {})
    (failure,) = bare.evaluator_failures
    assert "unscored (no_context)" in failure.error_message
    assert "Question: When?" in endpoint.requests[0]["messages"][-1]["content"]


def test_a_file_of_cases(tmp_path):
    """Judge and options are written with the cases, and read again."""
    written = dataset(CASES[:1], {"verdicts": "binary", "criteria": "Be strict."})
    path = tmp_path / "cases.yaml"
    written.to_file(path)
    read = Dataset.from_file(path, custom_evaluator_types=[Faithfulness])
    assert read.evaluators == written.evaluators
