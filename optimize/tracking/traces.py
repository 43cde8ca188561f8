"""MLflow traces: one writer, and the traces of a study's test answers, each with the judge's and people's verdicts.

Traces are written from the study's results when it is finished, without calling an LM or switching on tracing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import FaithDspyError
from faith_dspy.optimize.reporting.learned import disagreements
from faith_dspy.optimize.tracking.store import global_store
from faith_dspy.schema import Usage, digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mlflow.entities import Assessment, LiveSpan

    from faith_dspy.optimize.results import PredictionRow, StatementRow, StudyResult
    from faith_dspy.optimize.tracking.store import Store

MOST = 100
"""Traces of a study at most, those where judge and people disagree first; all answers are in ``predictions.jsonl``."""
_DIGEST = "faith_dspy.digest"
_SAID = {"verdict", "confidence", "chunk_ids", "reason"}
_PAGE = 100  # traces that MLflow deletes, or a server lists, at once


class TraceWriter:
    """A trace being written. MLflow stores it with its assessments, as a whole, when `new_trace` ends."""

    def __init__(self, root: LiveSpan) -> None:
        self.root, self._spans = root, 0

    def span(
        self,
        name: str,
        span_type: str,
        *,
        parent: LiveSpan | None = None,
        start: float = 0.0,
        seconds: float = 0.0,
        inputs: Any = None,
        outputs: Any = None,
        error: str | None = None,
        usage: Usage | None = None,
        lm: str = "",
    ) -> LiveSpan:
        """Add a span below ``parent`` (default: the root). ``start``: seconds since the trace began."""
        import mlflow
        from mlflow.entities import SpanStatus, SpanStatusCode
        from mlflow.tracing.constant import SpanAttributeKey

        self._spans += 1  # a nanosecond each keeps spans of no length in order
        began = self.root.start_time_ns + round(start * 1e9) + self._spans
        span = mlflow.start_span_no_context(
            name, span_type, parent_span=parent or self.root, inputs=inputs, start_time_ns=began
        )
        if usage is not None and usage.calls:
            span.set_attributes(
                {SpanAttributeKey.CHAT_USAGE: _tokens(usage), SpanAttributeKey.MODEL: lm, "calls": usage.calls}
            )
            if usage.dollars is not None:
                span.set_attribute(SpanAttributeKey.LLM_COST, {"total_cost": usage.dollars})
        status = SpanStatus(SpanStatusCode.ERROR, error) if error else SpanStatus(SpanStatusCode.OK)
        span.end(outputs=outputs, status=status, end_time_ns=began + max(1, round(seconds * 1e9)))
        return span

    def assess(self, assessment: Assessment) -> None:
        """Add what people or the judge say of the trace, or of the span with the assessment's ``span_id``."""
        import mlflow

        mlflow.log_assessment(self.root.trace_id, assessment)


@contextmanager
def new_trace(
    store: Store,
    name: str,
    span_type: str,
    *,
    inputs: Any,
    outputs: Any,
    seconds: float = 0.0,
    run_id: str | None = None,
    source: str = "faith-dspy",
    **info: Any,
) -> Iterator[TraceWriter]:
    """Write a trace to the store's experiment; the block adds its spans and assessments.

    Call it inside `global_store`. ``seconds``: length of the root span. ``source``: shown as the program that wrote it.
    ``info``: what else `mlflow.update_current_trace` takes: ``tags``, ``client_request_id``, ``response_preview``.
    """
    import mlflow
    from mlflow.entities.trace_location import MlflowExperimentLocation

    place = MlflowExperimentLocation(store.experiment_id)
    with mlflow.start_span(name, span_type, trace_destination=place, run_id=run_id) as root:
        mlflow.update_current_trace(metadata={"mlflow.source.name": source}, **info)
        root.set_inputs(inputs)
        yield TraceWriter(root)
        # MLflow ends it once more when the block is left; the first end counts.
        root.end(outputs=outputs, end_time_ns=root.start_time_ns + max(1, round(seconds * 1e9)))


def trace_infos(store: Store, **search: Any) -> Iterator[Any]:
    """Every trace of the experiment as an `mlflow.entities.TraceInfo`, without its spans."""
    token = None
    while True:
        page = store.client.search_traces(
            locations=[store.experiment_id], include_spans=False, max_results=_PAGE, page_token=token, **search
        )
        yield from (trace.info for trace in page)
        token = page.token
        if not token:
            return


def log_study_traces(store: Store, run_id: str, result: StudyResult) -> int:
    """Make the champion's test answers traces of the study's run; returns how many there are.

    MLflow lists the newest trace first: the worst disagreement. A trace that is already there keeps what people have
    added to it; one of an earlier outcome of the study is deleted.

    Each trace has these assessments: ``faithful``, as people's expectation and as the judge's feedback; the judge's
    ``probability``; ``agrees``, whether judge and people agree; and on each statement ``supported``, by the judge and,
    where they labelled it, by people.
    """
    import mlflow

    lm = str(result.lm.get("name"))
    rows = {
        digest([result.champion, lm, row.model_dump(mode="json")]): row
        for row in disagreements_first(result.tested("champion").predictions)[:MOST]
    }
    there = {i.tags[_DIGEST]: i.trace_id for i in trace_infos(store, run_id=run_id) if _DIGEST in i.tags}
    old = [trace_id for key, trace_id in there.items() if key not in rows]
    for i in range(0, len(old), _PAGE):
        store.client.delete_traces(store.experiment_id, trace_ids=old[i : i + _PAGE])
    with global_store(store.uri):
        for key, row in reversed(rows.items()):
            if key not in there:
                _write(store, run_id, result.champion, lm, row, key)
        mlflow.flush_trace_async_logging()
    written = sum(i.tags.get(_DIGEST) in rows for i in trace_infos(store, run_id=run_id))
    if written < len(rows):
        raise FaithDspyError(f"MLflow stored {written} of {len(rows)} traces; is tracing disabled or sampled?")
    return written


def disagreements_first(rows: Sequence[PredictionRow]) -> list[PredictionRow]:
    """Answers on which judge and people disagree, the worst first; then the others."""
    return [*disagreements(rows), *(r for r in rows if r.predicted == r.label)]


def _write(store: Store, run_id: str, judge: str, lm: str, row: PredictionRow, key: str) -> None:
    verdicts = [s.verdict or "unjudged" for s in row.statements]
    outcome = row.model_dump(include={"probability", "unscored"}, exclude_none=True) | {"verdicts": verdicts}
    words = {True: "faithful", False: "unfaithful", None: f"unscored: {row.unscored or 'no verdict'}"}
    with new_trace(
        store,
        "judge",
        "EVALUATOR",
        inputs={
            **({"question": row.question} if row.question else {}),
            "answer": row.answer,
            "context": list(row.context),
        },
        outputs=outcome if row.predicted is None else {"faithful": row.predicted, **outcome},
        seconds=row.usage.seconds,
        run_id=run_id,
        source="faith-dspy tune",
        client_request_id=row.id,
        response_preview=f"{words[row.predicted]}; people: {words[row.label]}",
        tags={_DIGEST: key, "part": row.part, **{k[:250]: v[:250] for k, v in row.tags.items()}},
    ) as trace:
        _write_calls(trace, row, verdicts, judge, lm)
        _assess_answer(trace, row, judge)


def _write_calls(trace: TraceWriter, row: PredictionRow, verdicts: list[str], judge: str, lm: str) -> None:
    """Extraction, then verification with a span for each statement, one after the other as long as their calls took."""
    extraction, each = row.extraction, [s.usage or Usage() for s in row.statements]
    together = _remaining(row.usage, extraction, *each)
    texts = [s.text for s in row.statements]
    trace.span(
        "extract",
        "LLM" if extraction.calls else "PARSER",
        seconds=extraction.seconds,
        inputs={"answer": row.answer},
        outputs=texts,
        usage=extraction,
        lm=lm,
    )
    verify = trace.span(
        "verify",
        "LLM" if together.calls else "CHAIN",
        start=extraction.seconds,
        seconds=max(0.0, row.usage.seconds - extraction.seconds),
        inputs={"statements": texts},
        outputs=verdicts,
        usage=together,
        lm=lm,
    )
    start = extraction.seconds
    for s, usage in zip(row.statements, each, strict=True):
        span = trace.span(
            "statement",
            "LLM" if usage.calls else "CHAIN",
            parent=verify,
            start=start,
            seconds=usage.seconds,
            inputs={"statement": s.text},
            outputs=s.model_dump(mode="json", include=_SAID, exclude_none=True),
            error=s.error,
            usage=usage,
            lm=lm,
        )
        start += usage.seconds
        _assess_statement(trace, s, span.span_id, judge)


def _assess_answer(trace: TraceWriter, row: PredictionRow, judge: str) -> None:
    from mlflow.entities import AssessmentError, AssessmentSource, Expectation, Feedback

    by_judge = AssessmentSource("LLM_JUDGE", judge)
    trace.assess(Expectation("faithful", _yes(row.label), AssessmentSource("HUMAN", "labels")))
    if row.predicted is None:
        error = AssessmentError("UNSCORED", row.unscored or "no verdict")
        trace.assess(Feedback("faithful", None, error, by_judge))
        return
    doubtful = [
        f"{(s.verdict or 'unjudged').replace('_', ' ')}: {s.text}"
        for s in row.statements
        if s.verdict != "fully_supported"
    ]
    rationale = "\n".join(doubtful) or "every statement is supported"
    trace.assess(Feedback("faithful", _yes(row.predicted), source=by_judge, rationale=rationale))
    if row.probability is not None:
        trace.assess(Feedback("probability", round(row.probability, 4), source=by_judge))
    agrees = _yes(row.predicted == row.label)
    trace.assess(Feedback("agrees", agrees, source=AssessmentSource("CODE", "faith_dspy")))


def _assess_statement(trace: TraceWriter, s: StatementRow, span_id: str, judge: str) -> None:
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    if s.verdict:
        value, by_judge = _yes(s.verdict == "fully_supported"), AssessmentSource("LLM_JUDGE", judge)
        trace.assess(Feedback("supported", value, source=by_judge, rationale=s.reason, span_id=span_id))
    if s.label is not None:
        trace.assess(Expectation("supported", _yes(s.label), AssessmentSource("HUMAN", "labels"), span_id=span_id))


def _yes(value: bool) -> str:
    """As MLflow's own judges write it; its table of traces shows nothing for an expectation that is False."""
    return "yes" if value else "no"


def _tokens(usage: Usage) -> Mapping[str, int]:
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
    }


def _remaining(whole: Usage, *parts: Usage) -> Usage:
    """What is left of a usage without some of its parts; its price is not known."""
    names = ("calls", "prompt_tokens", "cached_tokens", "output_tokens", "seconds")
    return Usage(**{n: max(0, getattr(whole, n) - sum(getattr(p, n) for p in parts)) for n in names})
