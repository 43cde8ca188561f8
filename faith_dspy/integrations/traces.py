"""From the spans of a trace, whatever wrote them, to a record for a judge: ``question``, ``context`` and ``answer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from faith_dspy.errors import InputError, short_message
from faith_dspy.io.conversation import from_conversation
from faith_dspy.io.documents import as_text, documents_in, literal
from faith_dspy.io.names import COLUMNS, NAMES

FINDERS = ("RETRIEVER", "RERANKER")
"""Kinds of spans whose documents are context; the output of a TOOL span is context too."""
MODELS = ("LLM", "CHAT_MODEL")
QUESTION_KEYS = (*COLUMNS["question"], "user_query", "messages", "text", "content")
ANSWER_KEYS = (
    *NAMES["answer"],
    "result",
    "text",
    "content",
    "message",
    "messages",
    "choices",
    "output_text",
)


class Span(NamedTuple):
    """What a record is made from. Documents and messages are read from output and input where there are none."""

    id: str
    parent_id: str | None
    name: str  # of the tool, where it is one
    start: float  # nanoseconds
    kind: str  # as in OpenInference and MLflow: RETRIEVER, RERANKER, TOOL, LLM, CHAT_MODEL, CHAIN, AGENT, …
    input: Any
    output: Any
    documents: Sequence[tuple[str, str]] = ()  # name and text of each that was found
    messages: Sequence[Mapping[str, Any]] = ()  # those a model was given, in order
    replies: Sequence[Mapping[str, Any]] = ()  # those it wrote

    def completed(self) -> Span:
        """Return the same with the documents of a `FINDERS` span and the messages of a `MODELS` span."""
        if self.kind in FINDERS:
            return self._replace(documents=self.documents or documents_of(self.output))
        if self.kind not in MODELS:
            return self
        messages, replies = literal(self.input), literal(self.output)
        if isinstance(messages, Mapping):
            messages = messages.get("messages")
        if isinstance(replies, str):
            replies = [{"content": replies}]
        elif isinstance(replies, Mapping):
            choices = replies.get("choices") or [{"message": replies}]
            replies = [choice.get("message") for choice in choices]
        return self._replace(
            messages=self.messages or _with("role", messages),
            replies=self.replies or _with("content", replies),
        )


def _with(key: str, items: Any) -> list[Mapping[str, Any]]:
    """Return the mappings among the items of a list that have a key."""
    if not isinstance(items, list | tuple):
        return []
    return [item for item in items if isinstance(item, Mapping) and key in item]


def records_of(
    traces: Iterable[tuple[str, Callable[[], Iterable[Span]]]],
) -> list[dict[str, Any]]:
    """`record_of_spans` of each trace that holds any text, in order. ``traces``: ids, and what reads each one's spans.

    Raises `InputError` when none of them holds any text.
    """
    read = [record_of_spans(*trace) for trace in traces]
    records = [r for r in read if "error" in r or r["answer"] or r["context"]]
    if read and not records:
        raise InputError(
            "no span has an input, an output, messages or documents; expected spans with OpenInference or "
            "OpenTelemetry GenAI attributes, exported with their content (not redacted)"
        )
    if records and all("error" in r for r in records):
        raise InputError(records[0]["error"])
    return records


def record_of_spans(
    trace_id: str, read: Callable[[], Iterable[Span]]
) -> dict[str, Any]:
    """Return question, context and answer of one trace. One that cannot be read has ``error`` instead; a judge leaves
    it unscored.

    Question and answer are input and output of the root span or, where that has none, of the last span in which a
    model replied. The context is what the root span names as such, else what came before the answer: retrieved
    documents, tool results, and the messages that model was given, without the assistant's own words. Messages that
    mostly repeat documents and results are left out, as those are chunks already.
    Each chunk's ``source`` names its span or turn.
    """
    try:
        spans = sorted((span.completed() for span in read()), key=lambda s: s.start)
        return {"id": trace_id, **_record(spans)}
    except Exception as exc:  # noqa: BLE001 - whatever a trace holds, the others are judged
        return {"id": trace_id, "error": f"trace {trace_id}: {short_message(exc)}"}


def _record(spans: Sequence[Span]) -> dict[str, Any]:
    ids = {span.id for span in spans}
    root = next((span for span in spans if span.parent_id not in ids), spans[0])
    inputs, outputs = literal(root.input), literal(root.output)
    if outputs and named_context(inputs, outputs) is not None:
        return record_of_call(inputs, outputs)
    writers = (s for s in reversed(spans) if _reply_text(s.replies))
    writer = next(writers, root)
    answer = _reply_text(root.replies) or text_of(root.output, ANSWER_KEYS)
    answer = answer or _reply_text(writer.replies)
    read = (s.messages for s in (writer, root, *reversed(spans)) if s.messages)
    asked, before = _conversation(next(read, ()), answer)
    question: str | None = text_of(root.input, QUESTION_KEYS)
    if root.messages:
        question, _ = _conversation(root.messages, "")
    sources = _sources(spans)
    chunks = [{"text": text, "source": source} for text, source in sources.items()]
    # A message that is half documents or results is a prompt built from them, or a result sent back to the model.
    for chunk in before:
        parts = (text.strip() for text in sources)
        repeated = sum(len(part) for part in parts if part in chunk["text"])
        if 2 * repeated < len(chunk["text"].strip()):
            chunks.append(chunk)
    return {"question": question or asked, "context": chunks, "answer": answer}


def _conversation(
    messages: Sequence[Mapping[str, Any]], answer: str
) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the question and the context of an answer to messages."""
    reply = {"role": "assistant", "content": answer}
    question, context, _ = from_conversation([*messages, reply])
    return question, context


def _sources(spans: Sequence[Span]) -> dict[str, str]:
    """Return what was retrieved, and what tools put out, each text with the span that it is from."""
    sources: dict[str, str] = {}
    for span in spans:
        where = f"span {span.id}: {span.kind.lower()} {span.name}"
        if span.kind in FINDERS:
            for name, text in span.documents:
                sources.setdefault(text, f"{where}, {name}")
        elif span.kind == "TOOL" and (text := tool_text(span.output)).strip():
            sources.setdefault(text, where)
    return sources


def named_context(*parts: Any) -> Any:
    """Return the context that one of the parts has under a usual name; None where none has."""
    for part in parts:
        for name in NAMES["context"] if isinstance(part, Mapping) else ():
            if isinstance(part.get(name), str | list | tuple):
                return part[name]
    return None


def record_of_call(inputs: Any, outputs: Any, *beside: Any) -> dict[str, Any]:
    """Return a record for a judge from what a program was given and gave.

    The answer is the output, the question the input; the context is what the input, what stands ``beside`` it, or the
    output names as such, else the messages of the input.
    """
    context = named_context(inputs, *beside, outputs)
    answer = text_of(outputs, ANSWER_KEYS)
    if isinstance(inputs, Mapping):
        messages = inputs.get("messages")
        if context is None and isinstance(messages, list):
            reply = {"role": "assistant", "content": answer}
            return {"conversation": [*messages, reply]}
        beside_it = {"answer", *NAMES["context"]}
        inputs = {k: v for k, v in inputs.items() if k not in beside_it}
    question = text_of(inputs, QUESTION_KEYS) if inputs else None
    return {"question": question, "context": context, "answer": answer}


def _reply_text(replies: Sequence[Mapping[str, Any]]) -> str:
    texts = (from_conversation([{**r, "role": "assistant"}])[2] for r in replies)
    return "\n".join(text for text in texts if text)


def tool_text(value: Any) -> str:
    """Return the text of a tool's output: the texts of its content blocks, else the output as it is."""
    text = as_text(literal(value))
    return value if isinstance(value, str) and text[:1] in ("{", "[") else text


def text_of(value: Any, keys: Sequence[str]) -> str:
    """Return the text of an input or output: of a mapping what is under the first of the keys, of messages the last
    (for a question the user's last), of a completion's choices the first; anything else as it is, or as JSON."""
    parsed = literal(value)
    if isinstance(parsed, Mapping):
        inner = next((parsed[k] for k in keys if parsed.get(k)), None)
        if inner is None and len(parsed) == 1:
            (inner,) = parsed.values()
        if inner is not None:
            return text_of(inner, keys)
    elif items := _with("role", parsed):
        users = [item for item in items if item["role"] == "user"]
        of_user = users if "question" in keys else []
        return text_of((of_user or items)[-1], keys)
    elif items := _with("message", parsed):
        return text_of(items[0], keys)
    return value if isinstance(value, str) else as_text(parsed)


def documents_of(value: Any) -> list[tuple[str, str]]:
    """Return name and text of retrieved documents, whatever `documents_in` reads."""
    named = []
    for number, document in enumerate(documents_in(literal(value))):
        source = number if document.source is None else document.source
        named.append((f"document {source}", document.text))
    return named
