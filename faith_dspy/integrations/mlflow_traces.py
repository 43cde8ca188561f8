"""Traces of MLflow, as records for a judge.

from faith_dspy.integrations.mlflow_traces import records
judgments = judge.batch(records(mlflow.search_traces(return_type="list")))
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError
from faith_dspy.integrations import datum
from faith_dspy.integrations.traces import (
    ANSWER_KEYS,
    FINDERS,
    QUESTION_KEYS,
    Span,
    documents_of,
    records_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlflow.entities import Trace

_CONTEXT = datum.NAMES["context"]


def records(traces: Trace | Iterable[Trace]) -> list[dict[str, Any]]:
    """Records for a judge, one a trace, in their order; ``id`` is the trace's.

    Inputs and outputs of the root span are question and answer; documents of RETRIEVER spans, results of TOOL spans
    and the messages of the last model that replied are the context, each with its span (or turn) as ``source``.
    A trace that cannot be read is a record with ``error``, which a judge leaves unscored.
    """
    several: list[Any] = [traces] if hasattr(traces, "data") else list(traces)
    if strange := [type(t).__name__ for t in several if not hasattr(t, "data")]:
        raise InputError(
            f"a trace is {strange[0]}, expected mlflow.entities.Trace, as mlflow.get_trace(id) or "
            'mlflow.search_traces(return_type="list") gives it'
        )
    return records_of((t.info.trace_id, partial(_spans, t)) for t in several)


def record_of(inputs: Any, outputs: Any, expected: Any = None, trace: Trace | None = None) -> dict[str, Any]:
    """A record for a judge, from a row of MLflow's evaluation; with ``error`` where it cannot be read.

    The answer is the output, the question the input. The context is what ``inputs``, ``expected`` or ``outputs`` name
    as such (`datum.NAMES`); if none does, what `records` finds in the trace, else the earlier messages in
    ``inputs["messages"]``.
    """
    parts = [p for p in (inputs, expected, outputs) if isinstance(p, Mapping)]
    named = next((p[k] for p in parts for k in _CONTEXT if isinstance(p.get(k), str | list | tuple)), None)
    if named is None and trace is not None:
        try:
            found = records(trace)[0]
        except InputError as exc:
            return {"error": str(exc)}
        if "error" in found or found["context"] or not isinstance(inputs, Mapping) or "messages" not in inputs:
            return found
    if outputs is None:
        return {"error": "the row has no outputs; expected the answer, or a trace that has one"}
    answer = text_of(outputs, ANSWER_KEYS)
    if named is None and isinstance(inputs, Mapping) and isinstance(inputs.get("messages"), list):
        return {"conversation": [*inputs["messages"], {"role": "assistant", "content": answer}]}
    asked = {k: v for k, v in inputs.items() if k not in _CONTEXT} if isinstance(inputs, Mapping) else inputs
    question = text_of(asked, QUESTION_KEYS) if asked else None
    try:
        return datum.record({"question": question, "context": named, "answer": answer})
    except InputError as exc:
        return {"error": str(exc)}


def record_of_trace(trace: Trace) -> dict[str, Any]:
    """`record_of` the inputs and outputs of a trace's root span, with the expectations people gave it."""
    root = next((s for s in trace.data.spans if s.parent_id is None), None)
    return record_of(root.inputs if root else None, root.outputs if root else None, expectations(trace), trace)


def expectations(trace: Trace) -> dict[str, Any]:
    """The expectations that people gave a trace, by name."""
    found: list[Any] = trace.search_assessments(type="expectation")
    return {a.name: a.value for a in found}


def _spans(trace: Any) -> list[Span]:
    return [_span(s, trace.info.trace_id) for s in trace.data.spans]


def _span(span: Any, trace_id: str) -> Span:
    kind = str(span.span_type or "UNKNOWN").upper()
    model = kind in ("LLM", "CHAT_MODEL")
    return Span(
        trace_id=trace_id,
        id=str(span.span_id),
        parent_id=span.parent_id,
        name=span.name,
        start=span.start_time_ns or 0,
        kind=kind,
        input=span.inputs,
        output=span.outputs,
        documents=documents_of(span.outputs) if kind in FINDERS else (),
        messages=_messages(span.inputs) if model else (),
        replies=_replies(span.outputs) if model else (),
    )


def _messages(inputs: Any) -> tuple[Mapping[str, Any], ...]:
    found = inputs.get("messages") if isinstance(inputs, Mapping) else inputs
    if not isinstance(found, list | tuple):
        return ()
    return tuple(m for m in found if isinstance(m, Mapping) and "role" in m)


def _replies(outputs: Any) -> tuple[Mapping[str, Any], ...]:
    if isinstance(outputs, str):
        return ({"role": "assistant", "content": outputs},)
    if not isinstance(outputs, Mapping):
        return ()
    choices = outputs.get("choices") or [{"message": outputs}]
    messages = [c.get("message") for c in choices if isinstance(c, Mapping)]
    return tuple({**m, "role": "assistant"} for m in messages if isinstance(m, Mapping) and "content" in m)
