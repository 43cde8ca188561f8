"""Spans of OpenTelemetry, with the attributes of OpenInference or of the GenAI conventions, as records for a judge.

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
from faith_dspy.integrations.traces import Span, documents_of, loads, records_of

_HOLDERS = ("resourceSpans", "scopeSpans", "spans")
_KINDS = {"execute_tool": "TOOL", "retrieval": "RETRIEVER", "invoke_agent": "AGENT", "chat": "LLM"}
_DETAILS = "gen_ai.client.inference.operation.details"
"""An event that holds the attributes of a call, where they are not on its span."""
_FORMAT = (
    "Expected spans: OTLP JSON (resourceSpans), objects with name, context and attributes as the SDK's exporters write "
    "them, ReadableSpan objects, or an InMemorySpanExporter."
)


def records(source: Any) -> list[dict[str, Any]]:
    """Records for a judge, one a trace; each chunk's ``source`` names its span (or turn).

    ``source``: a file of JSON (one document, one a line, or one after the other), what was read from it, a list of
    spans (dictionaries or `ReadableSpan`), or an `InMemorySpanExporter`. A trace that cannot be read is a record with
    ``error``, which a judge leaves unscored. Raises `InputError` for anything else, and where no span holds text.
    """
    traces: dict[str, list[Mapping[str, Any]]] = {}
    for raw in _raw_spans(source):
        trace_id = raw.get("traceId") or _context(raw).get("trace_id") or "unknown"
        traces.setdefault(_id(trace_id), []).append(raw)
    return records_of((trace_id, partial(map, _span, raws)) for trace_id, raws in traces.items())


def _raw_spans(source: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(source, str | Path):
        source = list(_documents(Path(source)))
    elif hasattr(source, "get_finished_spans"):
        source = source.get_finished_spans()
    if hasattr(source, "get_span_context"):
        yield json.loads(source.to_json())
    elif isinstance(source, list | tuple):
        for item in source:
            yield from _raw_spans(item)
    elif isinstance(source, Mapping):
        held = next((source[k] for k in _HOLDERS if isinstance(source.get(k), list)), None)
        yield from [source] if held is None else _raw_spans(held)
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


def _span(raw: Mapping[str, Any]) -> Span:
    span_id = raw.get("spanId") or _context(raw).get("span_id")
    if not span_id:
        raise InputError(f"a span has no context with a span_id: {str(dict(raw))[:80]}. {_FORMAT}")
    flat = _attributes(raw)
    for event in _list(raw.get("events")):
        if event.get("name") == _DETAILS:
            flat |= _attributes(event)
    attributes = _tree(flat)
    kind = flat.get("openinference.span.kind") or _KINDS.get(str(flat.get("gen_ai.operation.name"))) or "UNKNOWN"
    given = [_message(m) for m in _list(_first(attributes, "llm.input_messages", "gen_ai.input.messages"))]
    wrote = [_message(m) for m in _list(_first(attributes, "llm.output_messages", "gen_ai.output.messages"))]
    if system := loads(flat.get("gen_ai.system_instructions")):
        given.insert(0, {"role": "system", "content": system})
    name, output = raw.get("name"), flat.get("output.value")
    if kind == "TOOL":  # its messages hold its arguments, its output the result
        name = flat.get("gen_ai.tool.name") or flat.get("tool.name") or name
        output = output or flat.get("gen_ai.tool.call.result")
        output = output or next((m["content"] or m.get("parts") for m in wrote), None)
        given, wrote = [], []
    found = _first(attributes, "retrieval.documents", "reranker.output_documents", "gen_ai.retrieval.documents")
    parent_id = raw.get("parentSpanId") or raw.get("parent_id")
    return Span(
        id=_id(span_id),
        parent_id=_id(parent_id) if parent_id else None,
        name=str(name or ""),
        start=_nanoseconds(raw.get("startTimeUnixNano") or raw.get("start_time")),
        kind=str(kind).upper(),
        input=flat.get("input.value"),
        output=output,
        documents=documents_of(found),
        messages=tuple({"role": "user", **m} for m in given),
        replies=tuple({**m, "role": "assistant"} for m in wrote),
    )


def _context(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    context = raw.get("context")
    return context if isinstance(context, Mapping) else {}


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a span or event by their dotted names, from OTLP's pairs or the SDK's mapping."""
    given = holder.get("attributes") or {}
    return dict(given) if isinstance(given, Mapping) else _values(given)


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


def _tree(flat: Mapping[str, Any]) -> Any:
    """Dotted names as nested mappings, numbered ones as lists: ``{"a.0.b": 1, "a.1.b": 2}``: ``{"a": [{"b": 1}, …]}``.

    Of a name that has both a value and parts, as ``error`` and ``error.type``, the parts are kept.
    """
    out: dict[str, Any] = {}
    for key in sorted(flat):  # a name before its parts
        node = out
        *path, leaf = key.split(".")
        for part in path:
            if not isinstance(node.get(part), dict):
                node[part] = {}
            node = node[part]
        node[leaf] = flat[key]
    return _with_lists(out)


def _with_lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    inner = {k: _with_lists(v) for k, v in node.items()}
    numbered = inner and all(k.isdigit() for k in inner)
    return [inner[k] for k in sorted(inner, key=int)] if numbered else inner


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


def _first(attributes: Any, *paths: str) -> Any:
    for path in paths:
        node = attributes
        for part in path.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        if node:
            return node
    return None


def _id(value: Any) -> str:
    return str(value).removeprefix("0x")


def _nanoseconds(value: Any) -> float:
    if isinstance(value, str) and not value.isdigit():
        return datetime.fromisoformat(value).timestamp() * 1e9
    return float(value or 0)
