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
from faith_dspy.integrations.traces import Span, documents_of, records_of
from faith_dspy.io.documents import literal

_HOLDERS = ("resourceSpans", "scopeSpans", "spans")
_KINDS = {
    "execute_tool": "TOOL",
    "retrieval": "RETRIEVER",
    "invoke_agent": "AGENT",
    "chat": "LLM",
}
_DETAILS = "gen_ai.client.inference.operation.details"
"""An event that holds the attributes of a call, where they are not on its span."""
_FORMAT = (
    "Expected spans: OTLP JSON (resourceSpans), objects with name, context and attributes as the SDK's exporters write "
    "them, ReadableSpan objects, or an InMemorySpanExporter."
)


def records(source: Any) -> list[dict[str, Any]]:
    """Return records for a judge, one a trace; each chunk's ``source`` names its span (or turn).

    ``source``: a file of JSON (one document, one a line, or one after the other), what was read from it, a list of
    spans (dictionaries or `ReadableSpan`), or an `InMemorySpanExporter`. A trace that cannot be read is a record with
    ``error``, which a judge leaves unscored. Raises `InputError` for anything else, and where no span holds text.
    """
    traces: dict[str, list[Mapping[str, Any]]] = {}
    for raw in _raw_spans(source):
        traces.setdefault(_id(raw, "traceId", "trace_id"), []).append(raw)
    return records_of(
        (trace_id, partial(map, _span, raws)) for trace_id, raws in traces.items()
    )


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
        held = next((source[k] for k in _HOLDERS if k in source), None)
        yield from [source] if held is None else _raw_spans(held)
    else:
        raise InputError(f"got {type(source).__name__}. {_FORMAT}")


def _documents(path: Path) -> Iterator[Any]:
    try:
        text = path.read_text(encoding="utf-8").strip(" \t\r\n,")
        while text:
            value, end = json.JSONDecoder().raw_decode(text)
            yield value
            text = text[end:].lstrip(" \t\r\n,")
    except (OSError, ValueError) as exc:
        raise InputError(f"{path}: cannot be read ({exc}). {_FORMAT}") from exc


def _span(raw: Mapping[str, Any]) -> Span:
    attributes = _attributes(raw)
    for event in raw.get("events") or ():
        if event.get("name") == _DETAILS:
            attributes |= _attributes(event)

    def first(*names: str) -> Any:
        for name in names:
            value = attributes.get(name) or _numbered(attributes, name)
            if value:
                return literal(value)
        return None

    messages = first("llm.input_messages", "gen_ai.input.messages") or []
    if system := first("gen_ai.system_instructions"):
        messages = [{"role": "system", "content": system}, *messages]
    replies = first("llm.output_messages", "gen_ai.output.messages") or []
    operation = str(first("gen_ai.operation.name"))
    kind = first("openinference.span.kind") or _KINDS.get(operation, "UNKNOWN")
    kind = str(kind).upper()
    name = raw.get("name")
    if kind == "TOOL":  # its messages hold its arguments
        messages, replies = [], []
        name = first("gen_ai.tool.name", "tool.name") or name
    documents = first(
        "retrieval.documents", "reranker.output_documents", "gen_ai.retrieval.documents"
    )
    output = attributes.get("output.value")
    return Span(
        id=_id(raw, "spanId", "span_id"),
        parent_id=_id(raw, "parentSpanId", "parent_id"),
        name=str(name or ""),
        start=_nanoseconds(raw.get("startTimeUnixNano") or raw.get("start_time")),
        kind=kind,
        input=attributes.get("input.value"),
        output=output or attributes.get("gen_ai.tool.call.result"),
        documents=documents_of(documents or []),
        messages=[{"role": "user", **_with_content(m)} for m in messages],
        replies=list(map(_with_content, replies)),
    )


def _with_content(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**message, "content": message.get("content") or message.get("contents")}


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a span or event by their dotted names, from OTLP's pairs or the SDK's mapping."""
    return _values(holder.get("attributes") or {})


def _values(pairs: Any) -> dict[str, Any]:
    if isinstance(pairs, Mapping):
        return dict(pairs)
    return {str(pair["key"]): _value(pair["value"]) for pair in pairs}


def _value(value: Mapping[str, Any]) -> Any:
    nothing: tuple[str, Any] = ("", None)
    kind, held = next(iter(value.items()), nothing)
    if kind == "arrayValue":
        return [_value(v) for v in held.get("values", ())]
    if kind == "kvlistValue":
        return _values(held.get("values", ()))
    return held


def _numbered(attributes: Mapping[str, Any], name: str) -> Any:
    """Return what OpenInference writes as ``name.0.message.role``, ``name.1.…``: a list of objects, without their
    wrapper."""
    tree: dict[str, Any] = {}
    for key, value in attributes.items():
        if key.startswith(f"{name}."):
            node = tree
            *path, leaf = key.removeprefix(f"{name}.").split(".")
            for part in path:
                node = node.setdefault(part, {})
            node[leaf] = value
    return _listed(tree)


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    inner = {k: _listed(v) for k, v in node.items()}
    if not inner or not all(k.isdigit() for k in inner):
        return inner
    # Each holds its object under the name of its kind.
    return [next(iter(inner[k].values())) for k in sorted(inner, key=int)]


def _id(raw: Mapping[str, Any], name: str, sdk_name: str) -> str:
    """Return an id of a span as OTLP's JSON has it, or as the SDK writes it, in its context."""
    in_context = (raw.get("context") or {}).get(sdk_name)
    value = raw.get(name) or raw.get(sdk_name) or in_context or ""
    return str(value).removeprefix("0x")


def _nanoseconds(value: Any) -> float:
    if isinstance(value, str) and not value.isdigit():
        return datetime.fromisoformat(value).timestamp() * 1e9
    return float(value or 0)
