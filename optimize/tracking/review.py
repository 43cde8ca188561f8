"""A labels file as traces in MLflow, for people to review there; `faith_dspy.optimize.tracking.feedback` brings them back.

Each person's label is a human assessment. Statement labels and scores travel as expectations.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.data.votes import majority, meaning
from faith_dspy.optimize.tracking.feedback import FILE, NAME, TAG, client_for, trace_infos, working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.tracking.store import Store
    from faith_dspy.schema import LabelledExample


def push(store: Store, examples: Sequence[LabelledExample], name: str = NAME) -> tuple[int, int]:
    """Make each labelled answer a trace with the labels as human assessments, for people to review in MLflow.

    What is there already stays as it is, and so does what people changed: pushing the same file again does nothing.
    Returns how many traces were made and how many assessments were added.
    """
    with working(store, "take traces"):
        client = client_for(store)
        known = {i.info.trace_id: i for i in trace_infos(client, store)}
        made = added = 0
        for example in examples:
            trace_id = _trace_id(store.experiment_id, example)
            there = known.get(trace_id)
            if there is None:
                _log_trace(client, store.experiment_id, trace_id, example)
                made += 1
            have = {(a.name, str(a.source.source_id)) for a in there.search_assessments()} if there else set()
            for assessment in _assessments(example, name):
                if (assessment.name, assessment.source.source_id) not in have:
                    client.log_assessment(trace_id, assessment)
                    added += 1
    return made, added


def _assessments(example: LabelledExample, name: str) -> list[Any]:
    from mlflow.entities import AssessmentSource, Expectation, Feedback

    given = example.annotators
    if isinstance(given, list | tuple):
        given = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
        given = {f"person {i + 1}": label for i, label in enumerate(given)}
    people = {str(k): v for k, v in given.items()} if isinstance(given, dict) else {}
    people = {k: v for k, v in people.items() if isinstance(v, bool | int | float | str)}
    if example.label is not None and majority(meaning(v, {}) for v in people.values()) is not example.label:
        people[FILE] = example.label
    out: list[Any] = [Feedback(name=name, value=v, source=AssessmentSource("HUMAN", who)) for who, v in people.items()]
    statements = [s.model_dump(mode="json", exclude_none=True) for s in example.statements]
    for key, value in (("statements", statements), ("score", example.score)):
        if value not in (None, []):
            out.append(Expectation(name=key, value=value, source=AssessmentSource("HUMAN", FILE)))
    return out


def _log_trace(client: Any, experiment_id: str, trace_id: str, e: LabelledExample) -> None:
    from mlflow.entities import TraceInfo, TraceLocation, TraceState

    documents = [{"page_content": c.text, "metadata": {"doc_uri": c.source} if c.source else {}} for c in e.context]
    now = time.time_ns()
    kept = {"id": e.id, "group": e.group, "split": e.split, **e.tags}
    tags = {TAG: json.dumps({k: v for k, v in kept.items() if v}), "mlflow.traceName": "labelled answer"}
    client.start_trace(
        TraceInfo(
            trace_id=trace_id,
            trace_location=TraceLocation.from_experiment_id(experiment_id),
            request_time=now // 1_000_000,
            execution_duration=0,
            state=TraceState.OK,
            request_preview=(e.question or "")[:1000],
            response_preview=e.answer[:1000],
            tags=tags,
        )
    )
    asked = {"question": e.question or ""}
    root = _span(trace_id, "answer", "CHAIN", asked, e.answer, now)
    client.log_spans(
        experiment_id, [root, _span(trace_id, "context", "RETRIEVER", asked, documents, now, root.span_id)]
    )


def _span(trace_id: str, name: str, kind: str, inputs: Any, outputs: Any, at: int, parent: str | None = None) -> Any:
    from mlflow.entities import Span

    attributes = {"traceRequestId": trace_id, "spanType": kind, "spanInputs": inputs, "spanOutputs": outputs}
    return Span.from_dict(
        {
            "trace_id": trace_id,
            "span_id": hashlib.sha256(f"{trace_id} {name}".encode()).hexdigest()[:16],
            "parent_span_id": parent,
            "name": name,
            "start_time_unix_nano": at,
            "end_time_unix_nano": at,
            "status": {"code": "OK", "message": ""},
            "attributes": {f"mlflow.{k}": json.dumps(v, ensure_ascii=False) for k, v in attributes.items()},
        }
    )


def _trace_id(experiment_id: str, e: LabelledExample) -> str:
    """The same answer in the same experiment is the same trace, however often it is pushed."""
    text = json.dumps([experiment_id, e.id, e.question, [c.text for c in e.context], e.answer], ensure_ascii=False)
    return f"tr-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
