from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import mlflow
import pytest
from recorded import log_study

from faith_dspy.optimize.report.tables import worst_first
from faith_dspy.optimize.tracking.store import connect, global_store
from faith_dspy.optimize.tracking.traces import log_study_traces

if TYPE_CHECKING:
    from faith_dspy.optimize.results import PredictionRow, StudyResult


YES = {True: "yes", False: "no"}


class Logged(NamedTuple):
    """A study, the traces of its run, the newest first, and how to look again."""

    result: StudyResult
    found: list[Any]
    store: Any
    run_id: str

    def now(self) -> list[Any]:
        """The traces there are."""
        return list(self.store.client.search_traces(locations=[self.store.experiment_id], run_id=self.run_id))


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory, studied: StudyResult) -> Logged:
    """A small study, in which people find otherwise than the champion on the last answer."""
    champion, *others = studied.test
    *rows, last = champion.predictions
    rows.append(last.model_copy(update={"label": not last.predicted}))
    champion = champion.model_copy(update={"predictions": tuple(rows)})
    studied = studied.model_copy(update={"test": (champion, *others)})
    folder = tmp_path_factory.mktemp("traced")
    uri = f"sqlite:///{folder}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_id, store = log_study(uri, studied), connect(uri)
        found = store.client.search_traces(locations=[store.experiment_id], run_id=run_id)
    return Logged(studied, list(found), store, run_id)


def _row(result: StudyResult, trace: Any) -> PredictionRow:
    return next(r for r in result.tested("champion").predictions if r.id == trace.info.client_request_id)


def test_an_answer_is_a_trace_with_its_calls(logged) -> None:
    """Extraction, and verification with a span a statement; tokens of the spans sum to those of the answer."""
    result, found = logged.result, logged.found
    for trace in found:
        row = _row(result, trace)
        names = [s.name for s in trace.data.spans]
        assert names[:3] == ["judge", "extract", "verify"]
        assert names[3:] == ["statement"] * len(row.statements)
        counted = [s.get_attribute("mlflow.chat.tokenUsage") for s in trace.data.spans]
        # A hundred prompt tokens a call, one call a statement.
        assert sum(u["input_tokens"] for u in counted if u) == 100 * len(row.statements)
        assert trace.info.token_usage["input_tokens"] == row.usage.prompt_tokens == 100 * len(row.statements)
        assert trace.info.token_usage["cache_read_input_tokens"] == 60 * len(row.statements)


def test_people_and_judge_stand_side_by_side(logged) -> None:
    """Both say whether the answer is faithful; so they do of each statement that people labelled."""
    result, found = logged.result, logged.found
    for trace in found:
        row = _row(result, trace)
        told = {(a.name, a.source.source_type, a.span_id is None): a for a in trace.info.assessments}
        assert told["faithful", "HUMAN", True].value == YES[row.label]
        assert told["faithful", "LLM_JUDGE", True].value == YES[row.predicted]
        assert told["agrees", "CODE", True].value == YES[row.label == row.predicted]
        by_span = [a for a in trace.info.assessments if a.span_id]
        labels = [a.value for a in by_span if a.source.source_type == "HUMAN"]
        assert labels == [YES[s.label] for s in row.statements]
        assert {a.name for a in by_span} == {"supported"}


def test_disagreements_come_first(logged) -> None:
    """The first in MLflow, its newest, is the worst disagreement."""
    asked = [r.id for r in worst_first(logged.result.tested("champion").predictions)]
    assert [t.info.client_request_id for t in logged.found] == asked


def test_what_was_judged_is_told(logged) -> None:
    """Question, context and answer are in the trace as they were judged."""
    row = _row(logged.result, logged.found[0])
    root = logged.found[0].data.spans[0]
    assert root.inputs == {"question": row.question, "answer": row.answer, "context": list(row.context)}


def test_what_people_added_stays(logged) -> None:
    """The same study again leaves its traces as they are. Another outcome replaces them."""
    from mlflow.entities import AssessmentSource

    said = AssessmentSource("HUMAN", "a reader")
    with global_store(logged.store.uri):
        mlflow.log_feedback(trace_id=logged.found[0].info.trace_id, name="faithful", value="no", source=said)
    log_study_traces(logged.store, logged.run_id, logged.result)
    now = logged.now()
    assert [t.info.trace_id for t in now] == [t.info.trace_id for t in logged.found]
    assert len(now[0].info.assessments) == len(logged.found[0].info.assessments) + 1
    changed = logged.result.model_copy(update={"champion": "another"})
    log_study_traces(logged.store, logged.run_id, changed)
    assert {a.source.source_id for t in logged.now() for a in t.info.assessments} == {"labels", "another", "faith_dspy"}


def test_an_unscored_answer_has_a_reason_and_no_value(logged) -> None:
    """MLflow's page shows the feedback as failed, and why; nothing says whether judge and people agree."""
    row = logged.result.tested("champion").predictions[0]
    row = row.model_copy(update={"predicted": None, "probability": None, "unscored": "lm_failed", "statements": ()})
    test = [logged.result.test[0].model_copy(update={"predictions": [row]})]
    run_id = logged.store.client.create_run(logged.store.experiment_id).info.run_id
    changed = logged.result.model_copy(update={"test": test})
    log_study_traces(logged.store, run_id, changed)
    (trace,) = logged.store.client.search_traces(locations=[logged.store.experiment_id], run_id=run_id)
    (feedback,) = [a for a in trace.info.assessments if a.name == "faithful" and a.feedback is not None]
    assert feedback.feedback.value is None
    assert feedback.error.error_code == "UNSCORED"
    assert feedback.error.error_message == "lm_failed"
    assert "agrees" not in {a.name for a in trace.info.assessments}
