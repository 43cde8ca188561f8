import json

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from faith_dspy.errors import InputError
from faith_dspy.integrations.otel import records

QUESTION = "Is opened software refunded?"
ANSWER = "No, opened software is not refunded."
FIRST = "Opened software is not refunded."
SECOND = "Refunds go to the card that was used to pay."
SYSTEM = "You work for a shop."


def message(side, number, **fields):
    """The attributes of one message as OpenInference writes it."""
    place = f"llm.{side}_messages.{number}.message"
    return {f"{place}.{name.replace('__', '.')}": fields[name] for name in fields}


def said(role, kind="text", **part):
    """A message of the GenAI conventions with one part."""
    return {"role": role, "parts": [{"type": kind, **part}]}


RAG = {
    "ask": {
        "openinference.span.kind": "CHAIN",
        "input.value": QUESTION,
        "output.value": ANSWER,
    },
    "search_docs": {
        "openinference.span.kind": "RETRIEVER",
        "input.value": QUESTION,
        "retrieval.documents.0.document.id": "d0",
        "retrieval.documents.0.document.content": FIRST,
        "retrieval.documents.1.document.id": "d1",
        "retrieval.documents.1.document.content": SECOND,
    },
    "complete": {
        "openinference.span.kind": "LLM",
        **message("input", 0, role="system", content=SYSTEM),
        **message("input", 1, role="user", content=f"{FIRST}\n{SECOND}\n{QUESTION}"),
        **message("output", 0, role="assistant", content=ANSWER),
    },
}
"""A retriever and a model under a chain; the prompt repeats the documents."""
CALL = {
    "tool_calls__0__tool_call__id": "c1",
    "tool_calls__0__tool_call__function__name": "policy",
    "tool_calls__0__tool_call__function__arguments": '{"days": "99 days"}',
}
AGENT = {
    "agent": {
        "openinference.span.kind": "AGENT",
        "input.value": json.dumps({"query": QUESTION}),
    },
    "run tool": {
        "openinference.span.kind": "TOOL",
        "tool.name": "policy",
        "input.value": "99 days",
        "output.value": FIRST,
    },
    "model": {
        "openinference.span.kind": "LLM",
        **message("input", 0, role="user", content=QUESTION),
        **message("input", 1, role="assistant", **CALL),
        **message("input", 2, role="tool", content=FIRST, tool_call_id="c1"),
        **message("output", 0, role="assistant", content=ANSWER),
    },
}
"""A tool's span, and its call and result among the messages."""
GEN_AI = {
    "invoke_agent clerk": {"gen_ai.operation.name": "invoke_agent"},
    "execute_tool policy": {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "policy",
        "gen_ai.tool.call.arguments": '{"days": 99}',
        "gen_ai.tool.call.result": FIRST,
    },
    "chat tiny": {
        "gen_ai.operation.name": "chat",
        "gen_ai.system_instructions": [{"type": "text", "content": SYSTEM}],
        "gen_ai.input.messages": json.dumps(
            [
                said("user", content="Hello."),
                said("assistant", content="How can I help?"),
                said("user", content=QUESTION),
                said("assistant", "tool_call", id="c1", name="policy", arguments={}),
                said("tool", "tool_call_response", id="c1", response=FIRST),
            ]
        ),
        "gen_ai.output.messages": [said("assistant", content=ANSWER)],
    },
}
"""The same by the GenAI conventions, with earlier turns, and values as JSON and as they are."""
DOCUMENTS = [
    (FIRST, "retriever search_docs, document d0"),
    (SECOND, "retriever search_docs, document d1"),
    (SYSTEM, "system"),
]
TOOL, ASKED = (FIRST, "tool policy"), (QUESTION, "user")
CHUNKS = {
    "retriever": (RAG, DOCUMENTS),
    "tool": (AGENT, [TOOL, ASKED]),
    "GenAI": (GEN_AI, [TOOL, (SYSTEM, "system"), ("Hello.", "user"), ASKED]),
}


def value(content):
    """A value as OTLP's JSON has it."""
    if isinstance(content, list):
        return {"arrayValue": {"values": [value(one) for one in content]}}
    if isinstance(content, dict):
        return {"kvlistValue": {"values": pairs(content)}}
    return {"stringValue": content}


def pairs(content):
    return [{"key": name, "value": value(held)} for name, held in content.items()]


def otlp(trace, name="t"):
    """The spans of a trace as OTLP's JSON has them; the first is the root."""
    spans = []
    for i, (span, attributes) in enumerate(trace.items()):
        ids = {"traceId": name, "spanId": f"s{i}", "parentSpanId": "s0" if i else ""}
        start = {"name": span, "startTimeUnixNano": str(i)}
        spans.append({**ids, **start, "attributes": pairs(attributes)})
    return spans


def resource(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": [*spans]}]}]}


def check(source, chunks):
    """It is one record, of that question and answer, with these chunks."""
    (record,) = records(source)
    assert (record["question"], record["answer"]) == (QUESTION, ANSWER)
    sources = [(c["text"], c["source"].partition(": ")[2]) for c in record["context"]]
    assert sources == chunks
    return record


@pytest.mark.parametrize(("trace", "chunks"), CHUNKS.values(), ids=CHUNKS)
def test_what_becomes_a_chunk(trace, chunks):
    """Documents, a tool's result under the tool's name, and earlier turns; no arguments of a call, no text twice. Each
    is a chunk under its span's id."""
    record = check(resource(*otlp(trace)), chunks)
    assert record["context"][0]["source"].startswith("span s1: ")


def test_every_way_spans_are_kept(tmp_path):
    """In memory, in an exporter or a list; in a file of one document a line, or as the SDK's console exporter writes
    them."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    (root, attributes), *below = RAG.items()
    with tracer.start_as_current_span(root, attributes=attributes):
        for name, attributes in below:
            tracer.start_span(name, attributes=attributes).end()
    spans = exporter.get_finished_spans()
    lines, console = tmp_path / "traces.jsonl", tmp_path / "console.json"
    lines.write_text("\n".join(json.dumps(resource(span)) for span in otlp(RAG)))
    console.write_text("\n".join(span.to_json() for span in spans))
    for source in (exporter, spans, lines, str(console)):
        check(source, DOCUMENTS)
    assert records([]) == []


@pytest.mark.parametrize(
    "attributes",
    [
        pairs({"openinference.span.kind": "LLM", **message("output", 0, content=[7])}),
        pairs({"gen_ai.output.messages": [{"role": "assistant", "content": [7]}]}),
        [{"key": "x", "value": {"arrayValue": None}}],
    ],
    ids=["OpenInference", "GenAI", "OTLP"],
)
def test_a_broken_span_costs_its_own_trace_alone(judge_at, attributes):
    """A trace that cannot be read is unscored and says why; the traces around it are judged, in order, and the ids of
    their chunks lead back to spans."""
    broken = {"traceId": "b", "spanId": "s", "attributes": attributes}
    found = records([*otlp(RAG, "a"), broken, *otlp(AGENT, "c")])
    assert [record["id"] for record in found] == ["a", "b", "c"]
    first, unread, last = judge_at()[0].batch(json.loads(json.dumps(found)))
    assert (first.score, unread.score, last.score) == (1.0, None, 1.0)
    assert unread.unscored == "parse_failed"
    assert "trace b: " in unread.detail
    (chunk,) = first.statements[0].supporting_chunk_ids
    assert found[0]["context"][chunk]["source"].startswith("span s1: retriever")


@pytest.mark.parametrize(
    ("source", "message"),
    [
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
