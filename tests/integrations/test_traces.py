import json
from types import SimpleNamespace

import pytest

from faith_dspy.integrations import mlflow as mlflow_traces
from faith_dspy.integrations import otel


def exported(trace, start, **attributes):
    """A model's span, as span exporters write it."""
    message = "llm.input_messages.0.message."
    asked = {f"{message}role": "user", f"{message}content": "Which? It is blue."}
    kind = {"openinference.span.kind": "LLM", "output.value": "It is blue."}
    context = {"trace_id": trace, "span_id": f"s{start}"}
    span = {"name": "ask", "context": context, "start_time": start}
    return span | {"attributes": asked | kind | attributes}


@pytest.mark.parametrize(
    "attributes",
    [
        {"llm.input_messages.0.message.content": 5},
        {"gen_ai.output.messages": [{"role": "assistant", "content": [7]}]},
    ],
)
def test_a_broken_message_costs_its_own_trace_alone(judge_at, attributes):
    """A trace with a message that cannot be read is unscored and says why; the traces around it are judged."""
    spans = [exported("a", 1), exported("b", 2, **attributes), exported("c", 3)]
    found = otel.records(spans)
    assert [r["id"] for r in found] == ["a", "b", "c"]
    first, broken, last = judge_at()[0].batch(json.loads(json.dumps(found)))
    assert (first.score, broken.score, last.score) == (1.0, None, 1.0)
    assert broken.unscored == "parse_failed"
    assert "trace b: conversation[0]: content is" in broken.detail


@pytest.mark.parametrize(
    "raw",
    [
        {"spanId": "s2", "attributes": [{"key": "x", "value": {"arrayValue": None}}]},
        {"spanId": "s2", "events": [{"attributes": [{"key": None, "value": 5}]}]},
        {"spanId": "s2", "startTimeUnixNano": {}},
        {},
    ],
)
def test_a_broken_span_costs_its_own_trace_alone(raw):
    """A span of OTLP JSON that cannot be read takes its trace out, with the reason, or says nothing; no other trace."""
    values = {"openinference.span.kind": "CHAIN", "output.value": "It is blue."}
    attributes = [{"key": k, "value": {"stringValue": v}} for k, v in values.items()]
    good = {"traceId": "a", "spanId": "s1", "attributes": attributes}
    raw = {"traceId": "b", **raw}
    found = otel.records({"resourceSpans": [{"scopeSpans": [{"spans": [good, raw]}]}]})
    assert found[0]["answer"] == "It is blue."
    assert [(r["id"], set(r)) for r in found[1:]] in ([], [("b", {"id", "error"})])


def test_mlflow():
    """An MLflow trace with a message that cannot be read leaves the others to be judged."""

    def trace(name, content):
        one = SimpleNamespace(span_id="s", parent_id=None, name="ask", start_time_ns=1)
        one.span_type = "CHAT_MODEL"
        one.inputs = {"messages": [{"role": "user", "content": content}]}
        reply = {"role": "assistant", "content": "It is blue."}
        one.outputs = {"choices": [{"message": reply}]}
        info, data = SimpleNamespace(trace_id=name), SimpleNamespace(spans=[one])
        return SimpleNamespace(info=info, data=data)

    good, bad = mlflow_traces.records([trace("a", "Blue?"), trace("b", 5)])
    assert (good["id"], good["answer"], bad["id"]) == ("a", "It is blue.", "b")
    assert "conversation[0]" in bad["error"]
    assert mlflow_traces.records([]) == otel.records([]) == []
