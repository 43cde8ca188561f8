"""Spans of OpenTelemetry, with the attributes of OpenInference or of the GenAI semantic conventions.

    from faith_dspy.integrations.otel import records
    judgments = judge.batch(records("traces.json"))

Reading needs no package: spans are read from JSON as exporters write it, or from the objects in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from faith_dspy.errors import InputError
from faith_dspy.integrations.traces import Span, documents_of, loads, records_of, span_of

_HOLDERS = ("resourceSpans", "scopeSpans", "spans", "data")
_OPERATIONS = {"execute_tool": "TOOL", "retrieval": "RETRIEVER", "invoke_agent": "AGENT", "chat": "LLM"}
_DOCUMENTS = ("retrieval.documents", "reranker.output_documents", "gen_ai.retrieval.documents")
_GIVEN = ("llm.input_messages", "gen_ai.input.messages", "gen_ai.prompt")
_WROTE = ("llm.output_messages", "gen_ai.output.messages", "gen_ai.completion")
"""Where a span has documents and messages: of each the first attribute that is there."""
_FORMAT = (
    "Expected spans: OTLP JSON (resourceSpans), objects with name, context and attributes as span exporters or Phoenix "
    "write them, ReadableSpan objects, or an InMemorySpanExporter."
)


def records(source: Any) -> list[dict[str, Any]]:
    """Records for a judge, one a trace; each chunk's ``source`` names its span (or turn).

    ``source``: a file of JSON (one document, one a line, or one after the other), what was read from it, a list of
    spans (dictionaries or `ReadableSpan`), or an `InMemorySpanExporter`. A trace that cannot be read is a record with
    ``error``, which a judge leaves unscored. Raises `InputError` for anything else, and where no span holds text.
    """
    traces: dict[str, list[Mapping[str, Any]]] = {}
    for raw in _raw_spans(source):
        trace_id = raw.get("traceId") or raw.get("context.trace_id") or _at(raw, "context.trace_id")
        traces.setdefault(_id(trace_id or "unknown"), []).append(raw)
    return records_of((trace_id, partial(map, _span, raws)) for trace_id, raws in traces.items())


def _raw_spans(source: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(source, str | Path):
        for document in _documents(Path(source)):
            yield from _raw_spans(document)
    elif hasattr(source, "get_finished_spans"):
        yield from _raw_spans(source.get_finished_spans())
    elif hasattr(source, "get_span_context"):
        yield json.loads(source.to_json())
    elif isinstance(source, list | tuple):
        for item in source:
            yield from _raw_spans(item)
    elif isinstance(source, Mapping):
        held = [source[k] for k in _HOLDERS if isinstance(source.get(k), list)]
        if held:
            yield from _raw_spans(held[0])
        else:
            yield source
    else:
        raise InputError(f"got {type(source).__name__}. {_FORMAT}")


def _documents(path: Path) -> Iterator[Any]:
    try:
        text = path.read_text(encoding="utf-8").strip(" \t\r\n,")
    except OSError as exc:
        raise InputError(f"{path}: cannot be read ({exc.strerror}). {_FORMAT}") from exc
    while text:
        try:
            value, end = json.JSONDecoder().raw_decode(text)
        except ValueError as exc:
            raise InputError(f"{path}: is not JSON ({exc}). {_FORMAT}") from exc
        yield value
        text = text[end:].lstrip(" \t\r\n,")


def _from_otlp(span: Mapping[str, Any]) -> dict[str, Any]:
    """A span of OTLP JSON as the SDK's exporters write it."""
    return {
        "name": span.get("name", ""),
        "context": {"trace_id": span.get("traceId"), "span_id": span.get("spanId")},
        "parent_id": span.get("parentSpanId"),
        "start_time": span.get("startTimeUnixNano"),
        "attributes": _values(span.get("attributes")),
        "events": [{**e, "attributes": _values(e.get("attributes"))} for e in _list(span.get("events"))],
    }


def _values(pairs: Any) -> dict[str, Any]:
    return {str(pair.get("key")): _value(pair.get("value")) for pair in _list(pairs)}


def _value(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "arrayValue" in value:
        return [_value(v) for v in _list(value["arrayValue"].get("values"))]
    if "kvlistValue" in value:
        return _values(value["kvlistValue"].get("values"))
    return next(iter(value.values()), None)


def tree(value: Any) -> Any:
    """Attributes with dotted names as nested mappings, numbered ones as lists. Missing values (None, NaN) are left out.

    ``{"a.0.b": 1, "a.1.b": 2}`` is ``{"a": [{"b": 1}, {"b": 2}]}``. Of a name that has both a value and parts, as
    ``error`` and ``error.type``, the parts are kept.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [tree(v) for v in value]
    if not isinstance(value, Mapping):
        return value
    out: dict[str, Any] = {}
    for key in sorted(value, key=str):  # a name before its parts
        inner = tree(value[key])
        if inner is None or inner != inner:
            continue
        node = out
        *path, leaf = str(key).split(".")
        for part in path:
            if not isinstance(node.get(part), dict):
                node[part] = {}
            node = node[part]
        node[leaf] = inner
    return _with_lists(out)


def _with_lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    inner = {k: _with_lists(v) for k, v in node.items()}
    if inner and all(k.isdigit() for k in inner):
        return [inner[k] for k in sorted(inner, key=int)]
    return inner


def _span(span: Mapping[str, Any]) -> Span:
    raw = tree(_from_otlp(span) if "spanId" in span else span)
    span_id = _at(raw, "context.span_id")
    if not span_id:
        raise InputError(f"a span has no context with a span_id: {str(dict(span))[:80]}. {_FORMAT}")
    attributes = raw.get("attributes") or {}
    events = [(str(e.get("name")), e.get("attributes") or {}) for e in _list(raw.get("events"))]
    for event, values in events:
        if event == "gen_ai.client.inference.operation.details":  # attributes that were moved into an event
            attributes["gen_ai"] = {**_at(attributes, "gen_ai", {}), **values.get("gen_ai", {})}
    operation = _OPERATIONS.get(str(_at(attributes, "gen_ai.operation.name")), "UNKNOWN")
    kind = str(_at(attributes, "openinference.span.kind") or raw.get("span_kind") or operation).upper()
    messages, replies = _messages(attributes, events)
    name, output = raw.get("name"), _at(attributes, "output.value")
    if kind == "TOOL":  # its messages hold its arguments, its output the result
        name = _first(attributes, "gen_ai.tool.name", "tool.name") or name
        output = _first(attributes, "output.value", "gen_ai.tool.call.result")
        output = output or next((m["content"] or m.get("parts") for m in replies), None)
        messages, replies = [], []
    parent = raw.get("parent_id")
    return span_of(
        kind,
        _at(attributes, "input.value"),
        output,
        documents_of(_first(attributes, *_DOCUMENTS)),
        messages,
        replies,
        id=_id(span_id),
        parent_id=_id(parent) if parent else None,
        name=str(name or ""),
        start=_nanoseconds(raw.get("start_time")),
    )


def _messages(
    attributes: Mapping[str, Any], events: list[tuple[str, dict[str, Any]]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages a model was given and those it wrote, in whichever convention the span uses."""
    given = [_message(m) for m in _list(_first(attributes, *_GIVEN))]
    wrote = [_message(m) for m in _list(_first(attributes, *_WROTE))]
    for name, values in events:
        if name == "gen_ai.choice":
            message = loads(values.get("message"))
            is_message = isinstance(message, Mapping) and "content" in message
            wrote.append(dict(message) if is_message else {"content": message})
        elif name.startswith("gen_ai.") and name.endswith(".message"):
            content = {"content": loads(values.get("content")), "tool_calls": loads(values.get("tool_calls"))}
            given.append({"role": name.split(".")[1], "tool_call_id": values.get("id"), **content})
    system = loads(_at(attributes, "gen_ai.system_instructions"))
    if system and not any(m.get("role") == "system" for m in given):
        given.insert(0, {"role": "system", "content": system})
    return [{"role": "user", **m} for m in given], [{**m, "role": "assistant"} for m in wrote]


def _message(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A message without OpenInference's wrappers; a message of the GenAI conventions stays the same."""
    inner = entry.get("message")
    message = dict(inner if isinstance(inner, Mapping) else entry)
    blocks = [c.get("message_content", c) for c in _list(message.pop("contents", None))]
    message["tool_calls"] = [c.get("tool_call", c) for c in _list(message.get("tool_calls"))]
    return {**message, "content": message.get("content") or blocks or None}


def _list(value: Any) -> list[Any]:
    found = loads(value)
    return [m for m in found if isinstance(m, Mapping)] if isinstance(found, list) else []


def _first(attributes: Mapping[str, Any], *paths: str) -> Any:
    return next((found for path in paths if (found := _at(attributes, path))), None)


def _at(node: Any, path: str, default: Any = None) -> Any:
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return default
        node = node[part]
    return node


def _id(value: Any) -> str:
    return str(value).removeprefix("0x")


def _nanoseconds(value: Any) -> float:
    if isinstance(value, str) and not value.isdigit():
        value = datetime.fromisoformat(value)
    return value.timestamp() * 1e9 if hasattr(value, "timestamp") else float(value or 0)
