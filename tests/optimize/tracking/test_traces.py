from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from recorded import log_study

from faith_dspy.optimize.report.tables import worst_first
from faith_dspy.optimize.tracking.store import connect
from faith_dspy.optimize.tracking.study_run import log_study_traces
from faith_dspy.schema import Judgment, Unscored

if TYPE_CHECKING:
    from faith_dspy.optimize.results import JudgedAnswer, StudyResult


YES = {True: "yes", False: "no"}


class Logged(NamedTuple):
    """A study, and the traces of its run, the newest first."""

    result: StudyResult
    found: list[Any]
    store: Any
    run_id: str


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory, studied: StudyResult) -> Logged:
    """A small study, in which people find otherwise than the champion on the last answer."""
    champion, *others = studied.test
    *answers, last = champion.answers
    example = last.example.model_copy(update={"faithful": not last.predicted})
    answers.append(last.model_copy(update={"example": example}))
    champion = champion.model_copy(update={"answers": tuple(answers)})
    studied = studied.model_copy(update={"test": (champion, *others)})
    folder = tmp_path_factory.mktemp("traced")
    uri = f"sqlite:///{folder}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_id, store = log_study(uri, studied), connect(uri)
        found = store.client.search_traces(locations=[store.experiment_id], run_id=run_id)
    return Logged(studied, list(found), store, run_id)


def _row(result: StudyResult, trace: Any) -> JudgedAnswer:
    return next(r for r in result.tested("champion").answers if r.id == trace.info.client_request_id)


def test_an_answer_is_a_trace(logged) -> None:
    """One span with what was judged and found, and the tokens it took."""
    for trace in logged.found:
        row = _row(logged.result, trace)
        (span,), e = trace.data.spans, row.example
        assert span.inputs == {"question": e.question, "answer": e.answer, "context": [c.text for c in e.context]}
        assert [s["text"] for s in span.outputs["statements"]] == [s.text for s in row.judgment.statements]
        assert trace.info.token_usage["input_tokens"] == row.raw.usage.prompt_tokens


def test_people_and_judge_stand_side_by_side(logged) -> None:
    """Both say whether the answer is faithful."""
    result, found = logged.result, logged.found
    for trace in found:
        row = _row(result, trace)
        told = {(a.name, a.source.source_type): a for a in trace.info.assessments}
        assert told["faithful", "HUMAN"].value == YES[row.label]
        assert told["faithful", "LLM_JUDGE"].value == YES[row.predicted]
        assert told["agrees", "CODE"].value == YES[row.label == row.predicted]


def test_disagreements_come_first(logged) -> None:
    """The first in MLflow, its newest, is the worst disagreement."""
    asked = [r.id for r in worst_first(logged.result.tested("champion").answers)]
    assert [t.info.client_request_id for t in logged.found] == asked


def test_an_unscored_answer_has_a_reason_and_no_value(logged) -> None:
    """MLflow's page shows the feedback as failed, and why; nothing says whether judge and people agree."""
    row = logged.result.tested("champion").answers[0]
    row = row.model_copy(update={"judgment": Judgment(unscored=Unscored.LM_FAILED)})
    test = [logged.result.test[0].model_copy(update={"answers": (row,)})]
    run_id = logged.store.client.create_run(logged.store.experiment_id).info.run_id
    changed = logged.result.model_copy(update={"test": test})
    log_study_traces(logged.store, run_id, changed)
    (trace,) = logged.store.client.search_traces(locations=[logged.store.experiment_id], run_id=run_id)
    (feedback,) = [a for a in trace.info.assessments if a.name == "faithful" and a.feedback is not None]
    assert feedback.feedback.value is None
    assert feedback.error.error_code == "UNSCORED"
    assert feedback.error.error_message == "lm_failed"
    assert "agrees" not in {a.name for a in trace.info.assessments}
