import json
from types import SimpleNamespace

import pytest

from faith_dspy.integrations import mlflow as mlflow_traces
from faith_dspy.integrations import otel
from faith_dspy.integrations.traces import documents_of


def exported(trace, start, **attributes):
    """A model's span, as span exporters write it."""
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "What colour is the kettle? It is blue.",
        "output.value": "It is blue.",
        **attributes,
    }
    context = {"trace_id": trace, "span_id": f"s{start}"}
    return {
        "name": "ask",
        "context": context,
        "start_time": start,
        "attributes": attributes,
    }


@pytest.mark.parametrize(
    "attributes",
    [
        {"llm.input_messages.0.message.content": 5},
        {"gen_ai.output.messages": [{"role": "assistant", "content": [7]}]},
    ],
)
def test_a_broken_message_costs_its_own_trace_alone(judge_at, attributes):
    """A trace with a message that cannot be read is unscored and says why; the traces around it are judged."""
    found = otel.records(
        [exported("a", 1), exported("b", 2, **attributes), exported("c", 3)]
    )
    assert [r["id"] for r in found] == ["a", "b", "c"]
    first, broken, last = judge_at()[0].batch(json.loads(json.dumps(found)))
    assert (first.score, broken.score, last.score) == (1.0, None, 1.0)
    assert broken.unscored == "parse_failed"
    assert "trace b: conversation[0]: content is" in broken.detail


@pytest.mark.parametrize(
    "raw",
    [
        {
            "traceId": "b",
            "spanId": "s2",
            "attributes": [{"key": "x", "value": {"arrayValue": None}}],
        },
        {
            "traceId": "b",
            "spanId": "s2",
            "events": [{"name": "e", "attributes": [{"key": None, "value": 5}]}],
            "x": 1,
        },
        {"traceId": "b", "spanId": "s2", "startTimeUnixNano": {}},
        {"traceId": "b"},
    ],
)
def test_a_broken_span_costs_its_own_trace_alone(raw):
    """A span of OTLP JSON that cannot be read takes its trace out, with the reason, or says nothing; no other trace."""
    values = {
        "openinference.span.kind": "CHAIN",
        "input.value": "?",
        "output.value": "It is blue.",
    }
    attributes = [
        {"key": key, "value": {"stringValue": value}} for key, value in values.items()
    ]
    good = {"traceId": "a", "spanId": "s1", "attributes": attributes}
    found = otel.records({"resourceSpans": [{"scopeSpans": [{"spans": [good, raw]}]}]})
    assert found[0]["answer"] == "It is blue."
    assert [(r["id"], set(r)) for r in found[1:]] in ([], [("b", {"id", "error"})])


def test_mlflow():
    """An MLflow trace with a message that cannot be read leaves the others to be judged."""

    def trace(name, content):
        one = SimpleNamespace(
            span_id="s",
            parent_id=None,
            name="ask",
            start_time_ns=1,
            span_type="CHAT_MODEL",
        )
        one.inputs = {"messages": [{"role": "user", "content": content}]}
        one.outputs = {
            "choices": [{"message": {"role": "assistant", "content": "It is blue."}}]
        }
        return SimpleNamespace(
            info=SimpleNamespace(trace_id=name), data=SimpleNamespace(spans=[one])
        )

    good, bad = mlflow_traces.records([trace("a", "Blue?"), trace("b", 5)])
    assert (good["id"], good["answer"], bad["id"]) == ("a", "It is blue.", "b")
    assert "conversation[0]" in bad["error"]


def test_documents_that_are_texts_in_objects():
    """``document`` beside a rank may be a text as well as an object."""
    assert documents_of([{"document": "It is blue.", "score": 0.5}]) == [
        ("document 0", "It is blue.")
    ]
