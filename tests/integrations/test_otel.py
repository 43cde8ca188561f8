import json

import pytest

pytest.importorskip("openinference.semconv")

from openinference.semconv.trace import (
    DocumentAttributes,
    MessageAttributes,
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
DOCUMENTS = [
    "Opened software is not refunded.",
    "Refunds go to the card that was used to pay.",
]
ANSWER = "No, opened software is not refunded."
KIND = SpanAttributes.OPENINFERENCE_SPAN_KIND
ASKED, WROTE = SpanAttributes.LLM_INPUT_MESSAGES, SpanAttributes.LLM_OUTPUT_MESSAGES


@pytest.fixture
def traced():
    """Makes a trace of a root and what is below it, as pairs of name and attributes: what holds its ended spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")

    def make(root, *below):
        with tracer.start_as_current_span(root[0], attributes=root[1]):
            for name, attributes in below:
                tracer.start_span(name, attributes=attributes).end()
        return exporter

    return make


def message(side, i, role, content=None):
    """The attributes of one message as OpenInference writes it."""
    place = f"{side}.{i}."
    said = (
        {} if content is None else {place + MessageAttributes.MESSAGE_CONTENT: content}
    )
    return {place + MessageAttributes.MESSAGE_ROLE: role, **said}


def document(i):
    """The attributes of one retrieved document."""
    at = f"{SpanAttributes.RETRIEVAL_DOCUMENTS}.{i}."
    fields = DocumentAttributes.DOCUMENT_ID, DocumentAttributes.DOCUMENT_CONTENT
    return {at + fields[0]: f"d{i}", at + fields[1]: DOCUMENTS[i]}


def given(role, kind, **part):
    """A message of the GenAI conventions with one part."""
    return {"role": role, "parts": [{"type": kind, **part}]}


RAG = (
    ("ask", {KIND: "CHAIN", "input.value": QUESTION, "output.value": ANSWER}),
    (
        "search_docs",
        {KIND: "RETRIEVER", "input.value": QUESTION, **document(0), **document(1)},
    ),
    (
        "complete",
        {
            KIND: "LLM",
            **message(ASKED, 0, "system", "You work for a shop."),
            **message(
                ASKED,
                1,
                "user",
                "\n".join(["Answer from these passages.", *DOCUMENTS, QUESTION]),
            ),
            **message(WROTE, 0, "assistant", ANSWER),
        },
    ),
)
"""A retriever and a model under a chain; the prompt repeats the documents."""
CALL = f"{ASKED}.1.{MessageAttributes.MESSAGE_TOOL_CALLS}.0"
AGENT = (
    ("agent", {KIND: "AGENT", "input.value": json.dumps({"query": QUESTION})}),
    (
        "run tool",
        {
            KIND: "TOOL",
            SpanAttributes.TOOL_NAME: "policy",
            "input.value": "99 days",
            "output.value": DOCUMENTS[0],
        },
    ),
    (
        "model",
        {
            KIND: "LLM",
            **message(ASKED, 0, "user", QUESTION),
            **message(ASKED, 1, "assistant"),
            f"{CALL}.{ToolCallAttributes.TOOL_CALL_ID}": "c1",
            f"{CALL}.{ToolCallAttributes.TOOL_CALL_FUNCTION_NAME}": "policy",
            f"{CALL}.{ToolCallAttributes.TOOL_CALL_FUNCTION_ARGUMENTS_JSON}": '{"days": "99 days"}',
            **message(ASKED, 2, "tool", DOCUMENTS[0]),
            f"{ASKED}.2.{MessageAttributes.MESSAGE_TOOL_CALL_ID}": "c1",
            **message(WROTE, 0, "assistant", ANSWER),
        },
    ),
)
"""A tool's span, and its call and result among the messages."""
MESSAGES = [
    given("user", "text", content="Hello."),
    given("assistant", "text", content="How can I help?"),
    given("user", "text", content=QUESTION),
    given("assistant", "tool_call", id="c1", name="policy", arguments={"days": 99}),
    given("tool", "tool_call_response", id="c1", response=DOCUMENTS[0]),
]
GEN_AI = (
    ("invoke_agent clerk", {gen_ai.GEN_AI_OPERATION_NAME: "invoke_agent"}),
    (
        "execute_tool policy",
        {
            gen_ai.GEN_AI_OPERATION_NAME: "execute_tool",
            gen_ai.GEN_AI_TOOL_NAME: "policy",
            gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS: '{"days": 99}',
            gen_ai.GEN_AI_TOOL_CALL_RESULT: DOCUMENTS[0],
        },
    ),
    (
        "chat tiny",
        {
            gen_ai.GEN_AI_OPERATION_NAME: "chat",
            gen_ai.GEN_AI_SYSTEM_INSTRUCTIONS: json.dumps(
                [{"type": "text", "content": "You work for a shop."}]
            ),
            gen_ai.GEN_AI_INPUT_MESSAGES: json.dumps(MESSAGES),
            gen_ai.GEN_AI_OUTPUT_MESSAGES: json.dumps(
                [given("assistant", "text", content=ANSWER)]
            ),
        },
    ),
)
"""The same by the GenAI conventions, with earlier turns."""
SYSTEM = ("You work for a shop.", "system")
TOOL, ASKER = (DOCUMENTS[0], "tool policy"), (QUESTION, "user")
FOUND = [(t, f"retriever search_docs, document d{i}") for i, t in enumerate(DOCUMENTS)]
CHUNKS = {
    "retriever": (RAG, [*FOUND, SYSTEM]),
    "tool": (AGENT, [TOOL, ASKER]),
    "GenAI": (GEN_AI, [TOOL, SYSTEM, ("Hello.", "user"), ASKER]),
}


def check(found, chunks):
    """It is one record, of that question and answer, with these chunks."""
    (record,) = found
    assert (record["question"], record["answer"]) == (QUESTION, ANSWER)
    assert [
        (c["text"], c["source"].partition(": ")[2]) for c in record["context"]
    ] == chunks


@pytest.mark.parametrize(("spans", "chunks"), CHUNKS.values(), ids=CHUNKS)
def test_what_becomes_a_chunk(traced, spans, chunks):
    """Documents, a tool's result under the tool's name, and earlier turns; no arguments of a call, no text twice."""
    check(records(traced(*spans)), chunks)


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
        "attributes": [
            {"key": k, "value": value(v)} for k, v in span.attributes.items()
        ],
    }


def test_every_way_spans_are_kept(traced, tmp_path):
    """In memory; OTLP's JSON, read or in a file of one document a line; what the SDK's console exporter writes. Each
    document is a chunk under its span's id."""
    spans = traced(*RAG).get_finished_spans()
    wire = [otlp(span) for span in spans]
    documents = [{"resourceSpans": [{"scopeSpans": [{"spans": [s]}]}]} for s in wire]
    lines, console = tmp_path / "traces.jsonl", tmp_path / "console.json"
    lines.write_text("\n".join(map(json.dumps, documents)))
    console.write_text("\n".join(s.to_json() for s in spans))
    whole = {"resourceSpans": [r for d in documents for r in d["resourceSpans"]]}
    for source in (spans, lines, whole, str(console)):
        check(records(source), CHUNKS["retriever"][1])
    chunk = records(spans)[0]["context"][0]
    (span,) = (s for s in wire if s["name"] == "search_docs")
    assert chunk["source"].startswith(f"span {span['spanId']}: ")


def test_traces_apart(traced, judge_at):
    """Spans of two traces are two records, in order; a judge takes them as they are, and its ids lead back to spans."""
    for i in range(2):
        answer = f"Kettle {i} is blue."
        question = f"Which is kettle {i}?"
        root = {KIND: "CHAIN", "input.value": question, "output.value": answer}
        texts = json.dumps([answer, "Lamps are red."])
        search = {KIND: "RETRIEVER", "output.value": texts}
        exporter = traced(("ask", root), ("search", search))
    found = records(exporter)
    assert [r["answer"] for r in found] == ["Kettle 0 is blue.", "Kettle 1 is blue."]
    for record, judgment in zip(found, judge_at()[0].batch(found), strict=True):
        (chunk,) = judgment.statements[0].supporting_chunk_ids
        source = record["context"][chunk]["source"]
        assert source.endswith("retriever search, document 0")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "got int. Expected spans"),
        ([7], "got int. Expected spans"),
        (
            {"name": "GET /", "attributes": {"http.method": "GET"}},
            "no span has an input, an output, messages or doc",
        ),
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
