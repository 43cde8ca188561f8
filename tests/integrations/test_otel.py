import json

import pytest

pytest.importorskip("openinference.semconv")

from openinference.semconv.trace import (
    DocumentAttributes,
    MessageAttributes,
    OpenInferenceSpanKindValues,
    SpanAttributes,
    ToolCallAttributes,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from faith_dspy.errors import InputError
from faith_dspy.integrations.otel import records

pytestmark = pytest.mark.all

QUESTION = "Is opened software refunded?"
DOCUMENTS = ["Opened software is not refunded.", "Refunds go to the card that was used to pay."]
ANSWER = "No, opened software is not refunded."
KIND = SpanAttributes.OPENINFERENCE_SPAN_KIND


@pytest.fixture
def exporter():
    """Holds the spans that ended."""
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter):
    """Makes spans."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("test")


def message(side, i, role, content):
    """The attributes of one message."""
    return {
        f"{side}.{i}.{MessageAttributes.MESSAGE_ROLE}": role,
        f"{side}.{i}.{MessageAttributes.MESSAGE_CONTENT}": content,
    }


def document(i):
    """The attributes of one retrieved document."""
    at = f"{SpanAttributes.RETRIEVAL_DOCUMENTS}.{i}"
    return {
        f"{at}.{DocumentAttributes.DOCUMENT_ID}": f"d{i}",
        f"{at}.{DocumentAttributes.DOCUMENT_CONTENT}": DOCUMENTS[i],
    }


@pytest.fixture
def rag(tracer, exporter):
    """A retriever and a model under a chain, as OpenInference writes them; the prompt repeats the documents."""
    kinds = OpenInferenceSpanKindValues
    root = {KIND: kinds.CHAIN.value, "input.value": QUESTION, "output.value": ANSWER}
    with tracer.start_as_current_span("ask", attributes=root):
        found = {KIND: kinds.RETRIEVER.value, "input.value": QUESTION, **document(0), **document(1)}
        tracer.start_span("search_docs", attributes=found).end()
        prompt = "\n".join(["Answer from these passages.", *DOCUMENTS, QUESTION])
        model = {
            KIND: kinds.LLM.value,
            **message(SpanAttributes.LLM_INPUT_MESSAGES, 0, "system", "You work for a shop."),
            **message(SpanAttributes.LLM_INPUT_MESSAGES, 1, "user", prompt),
            **message(SpanAttributes.LLM_OUTPUT_MESSAGES, 0, "assistant", ANSWER),
        }
        tracer.start_span("complete", attributes=model).end()
    return exporter


def check(found):
    """It is the record of the retrieval above."""
    (record,) = found
    assert (record["question"], record["answer"]) == (QUESTION, ANSWER)
    assert [c["text"] for c in record["context"]] == [*DOCUMENTS, "You work for a shop."]
    sources = [c["source"] for c in record["context"]]
    assert sources[0].endswith(": retriever search_docs, document d0")
    assert sources[1].endswith(": retriever search_docs, document d1")
    assert sources[2] == "turn 0: system"


def otlp(span):
    """A span as OTLP's JSON has it."""

    def value(v):
        if isinstance(v, str | bool):
            return {"stringValue" if isinstance(v, str) else "boolValue": v}
        return {"arrayValue": {"values": [value(x) for x in v]}}

    context = span.get_span_context()
    return {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "parentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
        "name": span.name,
        "startTimeUnixNano": str(span.start_time),
        "attributes": [{"key": k, "value": value(v)} for k, v in span.attributes.items()],
        "events": [
            {"name": e.name, "attributes": [{"key": k, "value": value(v)} for k, v in e.attributes.items()]}
            for e in span.events
        ],
    }


def test_every_way_spans_are_kept(rag, tmp_path):
    """In memory; OTLP's JSON, read or in a file of one document a line; what the SDK's console exporter writes. Each
    document is a chunk under its span's id; question and answer are the root's; no text is there twice."""
    spans = rag.get_finished_spans()
    scopes = [{"resourceSpans": [{"scopeSpans": [{"spans": [otlp(s)]}]}]} for s in spans]
    lines, console = tmp_path / "traces.jsonl", tmp_path / "console.json"
    lines.write_text("\n".join(json.dumps(s) for s in scopes))
    console.write_text("\n".join(s.to_json() for s in spans))
    whole = {"resourceSpans": [r for s in scopes for r in s["resourceSpans"]]}
    for source in (rag, spans, lines, whole, str(console), [json.loads(s.to_json()) for s in spans]):
        check(records(source))
    ids = {f"{s.get_span_context().span_id:016x}": s.name for s in spans}
    span_id = records(rag)[0]["context"][0]["source"].split(":")[0].removeprefix("span ")
    assert ids[span_id] == "search_docs"


def test_tool_calls_in_openinference(tracer, exporter):
    """Of a tool's span the result is context, under the tool's name; of its call in the messages, nothing."""
    side = SpanAttributes.LLM_INPUT_MESSAGES
    call = f"{side}.1.{MessageAttributes.MESSAGE_TOOL_CALLS}.0"
    with tracer.start_as_current_span(
        "agent", attributes={KIND: "AGENT", "input.value": json.dumps({"query": QUESTION})}
    ):
        tool = {
            KIND: "TOOL",
            SpanAttributes.TOOL_NAME: "policy",
            "input.value": "99 days",
            "output.value": DOCUMENTS[0],
        }
        tracer.start_span("run tool", attributes=tool).end()
        model = {
            KIND: "LLM",
            **message(side, 0, "user", QUESTION),
            f"{side}.1.{MessageAttributes.MESSAGE_ROLE}": "assistant",
            f"{call}.{ToolCallAttributes.TOOL_CALL_ID}": "c1",
            f"{call}.{ToolCallAttributes.TOOL_CALL_FUNCTION_NAME}": "policy",
            f"{call}.{ToolCallAttributes.TOOL_CALL_FUNCTION_ARGUMENTS_JSON}": '{"days": "99 days"}',
            **message(side, 2, "tool", DOCUMENTS[0]),
            f"{side}.2.{MessageAttributes.MESSAGE_TOOL_CALL_ID}": "c1",
            **message(SpanAttributes.LLM_OUTPUT_MESSAGES, 0, "assistant", ANSWER),
        }
        tracer.start_span("model", attributes=model).end()
    (record,) = records(exporter)
    assert (record["question"], record["answer"]) == (QUESTION, ANSWER)
    assert [(c["text"], c["source"].partition(": ")[2]) for c in record["context"]] == [
        (DOCUMENTS[0], "tool policy"),
        (QUESTION, "user"),
    ]


def given(role, kind, **part):
    """A message of the GenAI conventions with one part."""
    return {"role": role, "parts": [{"type": kind, **part}]}


def test_gen_ai_attributes(tracer, exporter):
    """GenAI conventions: messages in attributes, a tool's span with its result; earlier turns are context."""
    messages = [
        given("user", "text", content="Hello."),
        given("assistant", "text", content="How can I help?"),
        given("user", "text", content=QUESTION),
        given("assistant", "tool_call", id="c1", name="policy", arguments={"days": 99}),
        given("tool", "tool_call_response", id="c1", response=DOCUMENTS[0]),
    ]
    with tracer.start_as_current_span("invoke_agent clerk", attributes={gen_ai.GEN_AI_OPERATION_NAME: "invoke_agent"}):
        tool = {
            gen_ai.GEN_AI_OPERATION_NAME: "execute_tool",
            gen_ai.GEN_AI_TOOL_NAME: "policy",
            gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS: '{"days": 99}',
            gen_ai.GEN_AI_TOOL_CALL_RESULT: DOCUMENTS[0],
        }
        tracer.start_span("execute_tool policy", attributes=tool).end()
        chat = {
            gen_ai.GEN_AI_OPERATION_NAME: "chat",
            gen_ai.GEN_AI_SYSTEM_INSTRUCTIONS: json.dumps([{"type": "text", "content": "You work for a shop."}]),
            gen_ai.GEN_AI_INPUT_MESSAGES: json.dumps(messages),
            gen_ai.GEN_AI_OUTPUT_MESSAGES: json.dumps([given("assistant", "text", content=ANSWER)]),
        }
        tracer.start_span("chat tiny", attributes=chat).end()
    (record,) = records(exporter)
    assert (record["question"], record["answer"]) == (QUESTION, ANSWER)
    assert [(c["text"], c["source"].partition(": ")[2]) for c in record["context"]] == [
        (DOCUMENTS[0], "tool policy"),
        ("You work for a shop.", "system"),
        ("Hello.", "user"),
        ("How can I help?", "assistant"),
        (QUESTION, "user"),
    ]


def test_traces_apart(tracer, exporter, judge_at):
    """Spans of two traces are two records, in order; a judge takes them as they are, and its ids lead back to spans."""
    for i in range(2):
        root = {KIND: "CHAIN", "input.value": f"Which is kettle {i}?", "output.value": f"Kettle {i} is blue."}
        with tracer.start_as_current_span("ask", attributes=root):
            found = {KIND: "RETRIEVER", "output.value": json.dumps([f"Kettle {i} is blue.", "Lamps are red."])}
            tracer.start_span("search", attributes=found).end()
    found = records(exporter)
    assert [r["answer"] for r in found] == ["Kettle 0 is blue.", "Kettle 1 is blue."]
    judge, _ = judge_at()
    judgments = judge.batch(found)
    for record, judgment in zip(found, judgments, strict=True):
        (chunk,) = judgment.statements[0].supporting_chunk_ids
        assert record["context"][chunk]["source"].endswith("retriever search, document 0")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "got int. Expected spans"),
        ([7], "got int. Expected spans"),
        ({"name": "GET /", "attributes": {"http.method": "GET"}}, "no span has an input, an output, messages or doc"),
        ({"resourceSpans": []}, "no span has an input"),
        ("no-such-file.json", "no-such-file.json: cannot be read"),
        ("cut.json", "cut.json: cannot be read"),
    ],
)
def test_what_is_no_trace(source, message, tmp_path, monkeypatch):
    """Anything else is an error that says what was got and expected, or where a file was cut."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.json").write_text('{"resourceSpans": [')
    with pytest.raises(InputError, match=message):
        records(source)
