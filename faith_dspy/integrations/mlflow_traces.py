"""Traces of MLflow, as records for a judge.

from faith_dspy.integrations.mlflow_traces import records
judgments = judge.batch(records(mlflow.search_traces(return_type="list")))
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError
from faith_dspy.integrations.traces import (
    ANSWER_KEYS,
    QUESTION_KEYS,
    Span,
    record_of_spans,
    records_of,
    span_of,
    text_of,
)
from faith_dspy.io.names import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlflow.entities import Trace

_CONTEXT = NAMES["context"]


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
    as such (`faith_dspy.io.names.NAMES`); if none does, what `records` finds in the trace, else the earlier messages in
    ``inputs["messages"]``.
    """
    parts = [p for p in (inputs, expected, outputs) if isinstance(p, Mapping)]
    named = next((p[k] for p in parts for k in _CONTEXT if isinstance(p.get(k), str | list | tuple)), None)
    messages = inputs.get("messages") if isinstance(inputs, Mapping) else None
    if named is None and trace is not None:
        found = record_of_spans(trace.info.trace_id, partial(_spans, trace))
        if "error" in found or found["context"] or messages is None:
            return found
    if outputs is None:
        return {"error": "the row has no outputs; expected the answer, or a trace that has one"}
    answer = text_of(outputs, ANSWER_KEYS)
    if named is None and isinstance(messages, list):
        return {"conversation": [*messages, {"role": "assistant", "content": answer}]}
    asked = {k: v for k, v in inputs.items() if k not in _CONTEXT} if isinstance(inputs, Mapping) else inputs
    question = text_of(asked, QUESTION_KEYS) if asked else None
    return {"question": question, "context": named, "answer": answer}


def record_of_trace(trace: Trace) -> dict[str, Any]:
    """`record_of` the inputs and outputs of a trace's root span, with the expectations people gave it."""
    root = next((s for s in trace.data.spans if s.parent_id is None), None)
    return record_of(root.inputs if root else None, root.outputs if root else None, expectations(trace), trace)


def expectations(trace: Trace) -> dict[str, Any]:
    """The expectations that people gave a trace, by name."""
    found: list[Any] = trace.search_assessments(type="expectation")
    return {a.name: a.value for a in found}


def _spans(trace: Any) -> list[Span]:
    return [
        span_of(
            str(s.span_type or "UNKNOWN").upper(),
            s.inputs,
            s.outputs,
            id=str(s.span_id),
            parent_id=s.parent_id,
            name=s.name,
            start=s.start_time_ns or 0,
        )
        for s in trace.data.spans
    ]
