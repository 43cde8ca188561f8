"""From the spans of a trace, whatever wrote them, to a record for a judge: ``question``, ``context`` and ``answer``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from faith_dspy.errors import InputError, in_short
from faith_dspy.io.conversation import as_text, from_conversation

FINDERS = ("RETRIEVER", "RERANKER")
"""Kinds of spans whose documents are context; the output of a TOOL span is context too."""
MODELS = ("LLM", "CHAT_MODEL")
QUESTION_KEYS = ("question", "query", "user_input", "input", "prompt", "user_query", "messages", "text", "content")
ANSWER_KEYS = (
    *("answer", "response", "output", "result", "text", "content", "message", "messages", "choices"),
    "output_text",
)


class Span(NamedTuple):
    """What a record is made from. Documents and messages are read from output and input where there are none."""

    id: str
    parent_id: str | None
    name: str
    """For a tool its name, else the span's."""
    start: float
    """Nanoseconds."""
    kind: str
    """As in OpenInference and MLflow: RETRIEVER, RERANKER, TOOL, LLM, CHAT_MODEL, CHAIN, AGENT, …"""
    input: Any
    output: Any
    documents: tuple[tuple[str, str], ...] = ()
    """Name and text of each document found."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The messages a model was given, in order."""
    replies: tuple[Mapping[str, Any], ...] = ()
    """The messages it wrote."""

    def completed(self) -> Span:
        """The same with the documents of a `FINDERS` span and the messages of a `MODELS` span."""
        if self.kind in FINDERS:
            return self._replace(documents=self.documents or documents_of(self.output))
        if self.kind not in MODELS:
            return self
        messages, replies = self.messages or _messages(loads(self.input)), self.replies or _replies(loads(self.output))
        return self._replace(messages=messages, replies=replies)


def _messages(inputs: Any) -> tuple[Mapping[str, Any], ...]:
    found = inputs.get("messages") if isinstance(inputs, Mapping) else inputs
    return tuple(m for m in found if isinstance(m, Mapping) and "role" in m) if isinstance(found, list | tuple) else ()


def _replies(outputs: Any) -> tuple[Mapping[str, Any], ...]:
    if isinstance(outputs, str):
        return ({"content": outputs},)
    if not isinstance(outputs, Mapping):
        return ()
    choices = outputs.get("choices") or [{"message": outputs}]
    messages = [c.get("message") for c in choices if isinstance(c, Mapping)]
    return tuple(m for m in messages if isinstance(m, Mapping) and "content" in m)


def records_of(traces: Iterable[tuple[str, Callable[[], Iterable[Span]]]]) -> list[dict[str, Any]]:
    """`record_of_spans` of each trace that holds any text, in order. ``traces``: ids, and what reads each one's spans.

    Raises `InputError` when no trace is left.
    """
    found = [record_of_spans(trace_id, read) for trace_id, read in traces]
    found = [r for r in found if "error" in r or r["answer"] or r["context"]]
    if not found:
        raise InputError(
            "no span has an input, an output, messages or documents; expected spans with OpenInference or "
            "OpenTelemetry GenAI attributes, exported with their content (not redacted)"
        )
    if all("error" in r for r in found):
        raise InputError(found[0]["error"])
    return found


def record_of_spans(trace_id: str, read: Callable[[], Iterable[Span]]) -> dict[str, Any]:
    """One record. A trace that cannot be read has ``error`` instead of texts; a judge leaves it unscored."""
    try:
        spans = sorted((s.completed() for s in read()), key=lambda s: s.start)
        return {"id": trace_id, **_record(spans)}
    except Exception as exc:  # noqa: BLE001 - whatever a trace holds, the others are judged
        return {"id": trace_id, "error": f"trace {trace_id}: {in_short(exc)}"}


def _record(spans: Sequence[Span]) -> dict[str, Any]:
    """Question, context and answer of one trace, its spans in the order they began.

    Question and answer are input and output of the root span or, where that has none, of the last span in which a
    model replied. The context is everything before the answer: retrieved documents, tool results, and the messages
    that model was given. Messages that mostly repeat documents and results are left out, as those are chunks already.
    Each chunk's ``source`` names its span or turn.
    """
    ids = {s.id for s in spans}
    root = next((s for s in spans if s.parent_id not in ids), spans[0])
    writer = next((s for s in reversed(spans) if s.kind != "TOOL" and _reply_text(s.replies)), root)
    answer = _reply_text(root.replies) or text_of(root.output, ANSWER_KEYS) or _reply_text(writer.replies)
    chunks = []
    for span in spans:
        if span.kind in FINDERS:
            for name, text in span.documents:
                chunks.append({"text": text, "source": f"span {span.id}: {span.kind.lower()} {span.name}, {name}"})
        elif span.kind == "TOOL" and (text := tool_text(span.output)):
            chunks.append({"text": text, "source": f"span {span.id}: tool {span.name}"})
    chunks = list({c["text"]: c for c in reversed(chunks) if c["text"].strip()}.values())[::-1]
    found = [c["text"].strip() for c in chunks]
    given = next((s.messages for s in (writer, root, *reversed(spans)) if s.messages), ())
    asked, before, _ = from_conversation([*given, {"role": "assistant", "content": answer}])
    # A message that is half documents or results is a prompt built from them, or a result sent back to the model.
    chunks += [c for c in before if 2 * sum(len(f) for f in found if f in c["text"]) < len(c["text"].strip())]
    if root.messages:
        question = from_conversation([*root.messages, {"role": "assistant", "content": ""}])[0] or asked
    else:
        question = text_of(root.input, QUESTION_KEYS) or asked
    return {"question": question, "context": chunks, "answer": answer}


def _reply_text(replies: Sequence[Mapping[str, Any]]) -> str:
    texts = (from_conversation([{**r, "role": "assistant"}])[2] for r in replies)
    return "\n".join(text for text in texts if text)


def loads(value: Any) -> Any:
    """The value of a text that is a JSON object or list; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def tool_text(value: Any) -> str:
    """The text of a tool's output: the texts of its content blocks, else the output as it is."""
    text = as_text(loads(value))
    return value if isinstance(value, str) and text[:1] in ("{", "[") else text


def text_of(value: Any, keys: Sequence[str]) -> str:
    """The text of an input or output: in a mapping under the first of the keys, else all of it as JSON."""
    parsed = loads(value)
    found = _under(parsed, keys)
    return found if found is not None else value if isinstance(value, str) else as_text(parsed)


def _under(value: Any, keys: Sequence[str]) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value:
        if all(isinstance(v, Mapping) and "role" in v for v in value):
            users = [v for v in value if v["role"] == "user"]
            return _under((users if "question" in keys and users else value)[-1], keys)
        if isinstance(value[0], Mapping) and "message" in value[0]:  # the choices of a completion
            return _under(value[0], keys)
        text = as_text(value)
        return None if text.startswith("[") else text
    if isinstance(value, Mapping):
        inner = next((value[k] for k in keys if value.get(k)), None)
        inner = next(iter(value.values())) if inner is None and len(value) == 1 else inner
        return _under(inner, keys)
    return None


def documents_of(value: Any) -> tuple[tuple[str, str], ...]:
    """Name and text of retrieved documents: texts, or objects with ``page_content``, ``content`` or ``text``."""
    parsed = loads(value)
    if isinstance(parsed, Mapping):
        parsed = next((parsed[k] for k in ("documents", "results", "chunks") if k in parsed), [parsed])
    items = parsed if isinstance(parsed, list | tuple) else [parsed] if parsed else []
    out = []
    for i, item in enumerate(items):
        item = item.get("document", item) if isinstance(item, Mapping) else item
        item = item if isinstance(item, Mapping) else {"text": item}
        text = next((item[k] for k in ("page_content", "content", "text") if item.get(k)), None)
        metadata = loads(item.get("metadata"))
        places = {**metadata, **item} if isinstance(metadata, Mapping) else item
        name = next((places[k] for k in ("id", "url", "name", "doc_uri", "source") if places.get(k)), i)
        if isinstance(text, str) and text.strip():
            out.append((f"document {name}", text))
    return tuple(out)
