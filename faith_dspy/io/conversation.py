"""Make a record of a conversation: the last answer, and everything that was said or retrieved before it.

Messages may be written as OpenAI, Anthropic, Bedrock (Strands) and OpenTelemetry write them: text, lists of content
blocks or of parts, tool calls beside the text or among the blocks, tool results in messages or in blocks of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from faith_dspy.errors import InputError


class Piece(NamedTuple):
    """One text of a message."""

    text: str
    tool: str | None = None
    """Name of the tool that returned it, empty if unknown; None for what a person or a model wrote."""
    failed: bool = False


def from_conversation(messages: Any) -> tuple[str | None, list[dict[str, str]], str]:
    """Question, context and answer of a conversation's last turn; the last assistant message is the answer.

    Every message before it, and every tool result by itself, is a chunk whose ``source`` says where it came from, as
    in ``turn 3: tool search_docs``; turns count from 0. The question is the user's last message. Earlier messages of
    the assistant are context, too. Arguments of tool calls and the model's own thinking are not, as the model wrote
    them; an answer that is only a tool call is empty.

    Raises `InputError` for anything but a list of messages with an assistant message among them.
    """
    if not isinstance(messages, list | tuple) or not all(isinstance(m, Mapping) and "role" in m for m in messages):
        raise InputError('conversation must be a list of messages like {"role": "user", "content": "…"}')
    last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i]["role"] == "assistant"), None)
    if last is None:
        raise InputError(f"conversation has no assistant message among {len(messages)}; there is nothing to judge")
    tools = _tool_names(messages)
    question, chunks = None, []
    for turn, message in enumerate(messages[:last]):
        texts = []
        for piece in _pieces(message, turn, tools):
            if piece.tool is None:
                texts.append(piece.text)
            else:
                chunks.append({"text": piece.text, "source": _source(turn, "tool", piece.tool, piece.failed)})
        if texts:
            text = "\n".join(texts)
            chunks.append({"text": text, "source": _source(turn, str(message["role"]), message.get("name"))})
            question = text if message["role"] == "user" else question
    answer = [p.text for p in _pieces(messages[last], last, tools) if p.tool is None]
    return question, chunks, "\n".join(answer)


def _tool_names(messages: Any) -> dict[str, str]:
    """Name of the tool by the id of its call, from all calls in the messages."""
    names: dict[str, str] = {}
    for turn, message in enumerate(messages):
        listed = message.get("tool_calls")
        calls = [*(listed if isinstance(listed, list | tuple) else ()), *_blocks(message, turn)]
        for call in map(_mapping, calls):
            # Bedrock wraps the call, OpenAI the function; Anthropic and OpenTelemetry have both names beside the id.
            inner = _mapping(call.get("toolUse")) or call
            call_id = inner.get("id") or inner.get("toolUseId")
            name = (_mapping(inner.get("function")) or inner).get("name")
            if call_id and name:
                names[str(call_id)] = str(name)
    return names


def _pieces(message: Mapping[str, Any], turn: int, tools: Mapping[str, str]) -> list[Piece]:
    """The texts of a message that are not blank."""
    pieces: list[Piece] = []
    whole = None
    if message["role"] in ("tool", "function"):
        whole = message.get("name") or tools.get(str(message.get("tool_call_id"))) or ""
    for block in _blocks(message, turn):
        if isinstance(block, str):
            pieces.append(Piece(block, whole))
            continue
        result = block.get("toolResult", block)
        result = result if isinstance(result, Mapping) else {"content": result}
        kind = block.get("type")
        if "toolResult" in block or kind in ("tool_result", "tool_call_response"):
            call_id = next((result[k] for k in ("toolUseId", "tool_use_id", "id") if result.get(k)), None)
            name = tools.get(str(call_id)) or whole or ""
            found = next((result[k] for k in ("content", "response", "result") if k in result), None)
            failed = result.get("status") == "error" or bool(result.get("is_error"))
            pieces.append(Piece(as_text(found), name, failed))
        elif "text" in block or kind in ("text", "refusal"):
            pieces.append(Piece(as_text(block), whole))
    if not pieces and message.get("refusal"):
        pieces.append(Piece(str(message["refusal"])))
    return [p for p in pieces if p.text.strip()]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _blocks(message: Mapping[str, Any], turn: int) -> list[Any]:
    content = message.get("parts") if message.get("content") is None else message["content"]
    blocks = [content] if isinstance(content, str | Mapping) else content or []
    if not isinstance(blocks, list | tuple) or not all(isinstance(b, str | Mapping) for b in blocks):
        raise InputError(f"conversation[{turn}]: content is {str(content)[:40]!r}, expected text or a list of blocks")
    return list(blocks)


def as_text(value: Any) -> str:
    """The output of a tool or retriever as text: the texts of its blocks; anything without a text as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value and all(_content_of(v) is not None for v in value):
        return "\n".join(as_text(v) for v in value)
    inner = _content_of(value)
    if inner is not None:
        return as_text(inner)
    return json.dumps(value, ensure_ascii=False, default=str)


def _content_of(block: Any) -> Any:
    """A text itself, the text or JSON inside a content block; None for anything else."""
    if not isinstance(block, Mapping):
        return block if isinstance(block, str) else None
    if block.get("type") in ("text", "refusal") or (set(block) <= {"text", "json", "type"} and len(block) <= 2):
        return next((block[k] for k in ("text", "content", "refusal", "json") if block.get(k) is not None), None)
    return None


def _source(turn: int, role: str, name: Any, failed: bool = False) -> str:
    return f"turn {turn}: {role}{f' {name}' if name else ''}{' (failed)' if failed else ''}"
