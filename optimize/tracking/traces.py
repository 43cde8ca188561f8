"""MLflow traces of a study's test answers, each with the judge's and people's verdicts.

They are written from the study's results when it is finished, without calling an LM or switching on tracing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.report.tables import OUTCOME, worst_first
from faith_dspy.optimize.tracking.store import global_store
from faith_dspy.schema import Usage, digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlflow.entities import Assessment, LiveSpan

    from faith_dspy.optimize.results import PredictionRow, StatementRow, StudyResult
    from faith_dspy.optimize.tracking.store import Store

MOST = 100
"""Traces of a study at most, those where judge and people disagree first; all answers are in ``predictions.csv``."""
DIGEST = "faith_dspy.digest"
"""Tag of a trace by which it is found again."""
_PASSES = 3
"""MLflow stores traces in the background and gives one up while its store is busy: what is missing is written again."""


def known_traces(store: Store, run_id: str | None = None) -> dict[str, Any]:
    """The `mlflow.entities.TraceInfo` of each trace with a `DIGEST`. Call it inside `global_store`."""
    import mlflow

    found = mlflow.search_traces(
        locations=[store.experiment_id], run_id=run_id, include_spans=False, return_type="list", flush=True
    )
    return {t.info.tags[DIGEST]: t.info for t in found if DIGEST in t.info.tags}


def log_study_traces(store: Store, run_id: str, result: StudyResult) -> None:
    """Make the champion's test answers traces of the study's run.

    MLflow lists the newest trace first: the worst disagreement. A trace that is already there keeps what people have
    added to it; one of an earlier outcome of the study is deleted.

    Each trace has these assessments: ``faithful``, as people's expectation and as the judge's feedback; the judge's
    ``probability``; ``agrees``, whether judge and people agree; and on each statement ``supported``, by the judge and,
    where they labelled it, by people.
    """
    lm = str(result.lm.get("name"))
    rows = {
        digest([result.champion, lm, row.model_dump(mode="json")]): row
        for row in worst_first(result.tested("champion").predictions)[:MOST]
    }
    with global_store(store.uri):
        there = known_traces(store, run_id)
        if old := [info.trace_id for key, info in there.items() if key not in rows]:
            store.client.delete_traces(store.experiment_id, trace_ids=old)
        for _ in range(_PASSES):
            if there.keys() >= rows.keys():
                break
            for key, row in reversed(rows.items()):
                if key not in there:
                    time.sleep(0.001)  # MLflow orders traces by the millisecond they began in
                    _write(store, run_id, result.champion, lm, row, key)
            there = known_traces(store, run_id)  # it waits until all are stored


def _write(store: Store, run_id: str, judge: str, lm: str, row: PredictionRow, key: str) -> None:
    """Write a trace; MLflow stores it with its assessments, as a whole, when the block ends."""
    import mlflow
    from mlflow.entities.trace_location import MlflowExperimentLocation

    place = MlflowExperimentLocation(store.experiment_id)
    asked = {"question": row.question} if row.question else {}
    with mlflow.start_span("judge", "EVALUATOR", trace_destination=place, run_id=run_id) as root:
        mlflow.update_current_trace(
            tags={DIGEST: key, "part": row.part, **{k[:250]: v[:250] for k, v in row.tags.items()}},
            metadata={"mlflow.source.name": "faith-dspy tune"},
            client_request_id=row.id,
            response_preview=f"{OUTCOME[row.predicted]}; people: {OUTCOME[row.label]}",
        )
        root.set_inputs({**asked, "answer": row.answer, "context": list(row.context)})
        spans = _write_calls(root, row, lm)
        for assessment in _of_answer(row, judge):
            mlflow.log_assessment(root.trace_id, assessment)
        for statement, span in zip(row.statements, spans, strict=True):
            for assessment in _of_statement(statement, judge, span.span_id):
                mlflow.log_assessment(root.trace_id, assessment)
        outcome = row.model_dump(include={"predicted", "probability", "unscored"}, exclude_none=True)
        # MLflow ends it once more when the block is left; the first end counts.
        root.end(outputs=outcome, end_time_ns=root.start_time_ns + _nanoseconds(row.usage))


def _write_calls(root: LiveSpan, row: PredictionRow, lm: str) -> list[LiveSpan]:
    """Extraction, then verification with a span for each statement, one after the other as long as their calls took.

    Returns the spans of the statements.
    """
    each = [s.usage or Usage() for s in row.statements]
    verification = row.usage - row.extraction
    texts, verdicts = [s.text for s in row.statements], [s.verdict or "unjudged" for s in row.statements]
    start = root.start_time_ns + 1  # after its parent's, which is how MLflow orders them
    extract = _start(root, "extract", "PARSER", start, {"answer": row.answer}, row.extraction, lm)
    start += _nanoseconds(row.extraction)
    extract.end(outputs=texts, end_time_ns=start)
    verify = _start(root, "verify", "CHAIN", start, {"statements": texts}, verification - sum(each, Usage()), lm)
    verify.end(outputs=verdicts, end_time_ns=start + _nanoseconds(verification))
    spans = []
    start += 1
    for s, usage in zip(row.statements, each, strict=True):
        span = _start(verify, "statement", "CHAIN", start, {"statement": s.text}, usage, lm)
        start += _nanoseconds(usage)
        said = s.model_dump(mode="json", include={"verdict", "confidence", "chunk_ids", "reason"}, exclude_none=True)
        if s.error:
            span.record_exception(s.error)
        span.end(outputs=said, end_time_ns=start)
        spans.append(span)
    return spans


def _start(
    parent: LiveSpan, name: str, kind: str, start: int, inputs: dict[str, Any], usage: Usage, lm: str
) -> LiveSpan:
    """A span that begins at ``start``, in nanoseconds; its type is ``kind`` unless an LM was called."""
    import mlflow
    from mlflow.tracing.constant import SpanAttributeKey

    span = mlflow.start_span_no_context(
        name, "LLM" if usage.calls else kind, parent_span=parent, inputs=inputs, start_time_ns=start
    )
    if usage.calls:
        tokens = {
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.prompt_tokens + usage.output_tokens,
            "cache_read_input_tokens": usage.cached_tokens,
        }
        span.set_attributes({SpanAttributeKey.CHAT_USAGE: tokens, SpanAttributeKey.MODEL: lm, "calls": usage.calls})
        if usage.dollars is not None:
            span.set_attribute(SpanAttributeKey.LLM_COST, {"total_cost": usage.dollars})
    return span


def _nanoseconds(usage: Usage) -> int:
    return max(1, round(usage.seconds * 1e9))  # one at least keeps spans of no length in order


def _of_answer(row: PredictionRow, judge: str) -> Iterator[Assessment]:
    from mlflow.entities import AssessmentError, AssessmentSource, Expectation, Feedback

    by_judge = AssessmentSource("LLM_JUDGE", judge)
    yield Expectation("faithful", _yes(row.label), AssessmentSource("HUMAN", "labels"))
    if row.predicted is None:
        yield Feedback("faithful", None, AssessmentError("UNSCORED", row.unscored), by_judge)
        return
    doubtful = [f"{s.verdict or 'unjudged'}: {s.text}" for s in row.statements if s.verdict != "fully_supported"]
    rationale = "\n".join(doubtful) or "every statement is supported"
    yield Feedback("faithful", _yes(row.predicted), source=by_judge, rationale=rationale)
    yield Feedback("agrees", _yes(row.predicted == row.label), source=AssessmentSource("CODE", "faith_dspy"))
    if row.probability is not None:
        yield Feedback("probability", round(row.probability, 4), source=by_judge)


def _of_statement(s: StatementRow, judge: str, span_id: str) -> Iterator[Assessment]:
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    if s.verdict:
        value, by_judge = _yes(s.verdict == "fully_supported"), AssessmentSource("LLM_JUDGE", judge)
        yield Feedback("supported", value, source=by_judge, rationale=s.reason, span_id=span_id)
    if s.label is not None:
        yield Expectation("supported", _yes(s.label), AssessmentSource("HUMAN", "labels"), span_id=span_id)


def _yes(value: bool) -> str:
    """As MLflow's own judges write it; its table of traces shows nothing for an expectation that is False."""
    return "yes" if value else "no"
