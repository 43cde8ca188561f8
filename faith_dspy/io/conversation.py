"""Read a conversation: the last answer whole, the question, and as context whatever was retrieved or given before it.

Messages may be written as OpenAI (chat and Responses), Anthropic, Bedrock, Gemini, LangChain, LlamaIndex, Vercel's AI
SDK or OpenTelemetry write them: mappings or objects, text or lists of blocks or parts. Blocks are read by what they
hold; a kind that is not known is named in a notice.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faith_dspy.errors import InputError

log = logging.getLogger(__name__)

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "function": "tool",
    "developer": "system",
}
_WHOLE = (
    "messages",
    "contents",
    "input",
    "conversation",
    "output",
    "candidates",
    "choices",
)
"""Keys of a request, a response, or both together, under which messages stand, in their order."""
_OWN_WORDS = re.compile(r"text|output_text|input_text|refusal")
_UNREAD = re.compile(
    r"thinking|redacted_thinking|reasoning\w*|thought|server_tool_use|\w*tool[_-]?(?:use|call)|toolUse|function_?[cC]all"
    r"|mcp_(?:call|list_tools)|step-start|cachePoint|executableCode|item_reference|source-url"
)
"""Kinds of blocks that are a model's thinking or its calls, or only point somewhere: neither words nor evidence."""
_EVIDENCE = re.compile(
    r"tool[_-]?[rR]esult|tool_call_response|function_call_output|\w+_call_output|functionResponse|function_response"
    r"|codeExecutionResult|document|search_?result|searchResult|\w+_tool_result|file_search_call|web_search_call"
    r"|source-document|tool-.+|dynamic-tool|retriev\w+|data-.*(?:source|document|result)\w*|mcp_\w*result"
)
"""Kinds of blocks that hold what a tool or a retriever returned, or what a user attached."""
_BESIDE = (
    "documents",
    "sources",
    "retrievedReferences",
    "groundingMetadata",
    "grounding_metadata",
    "artifact",
)
"""Keys of a message, or of the response around it, that hold evidence beside its content."""
_RESULTS = (
    "content",
    "response",
    "result",
    "results",
    "output",
    "outputs",
    "search_results",
    "text",
    "data",
    "json",
)
_TITLES = ("source", "url", "uri", "title", "filename", "file_name", "name")
_QUESTION = re.compile(r"[^.!?。！？\n]{1,300}[.!?。！？\s]*")
"""A user's message of one sentence only asks."""
_LOOKED_AT = "tool results, documents, search results, citations, and what the user and the system wrote"


@dataclass
class Piece:
    """One text of a message."""

    text: str
    tool: str | None = None
    """Name of the tool that returned it, empty if unknown; None for what a person or a model wrote."""
    failed: bool = False
    source: str | None = None
    """Where retrieved text comes from, as its block says."""
    cites: list[str] = field(default_factory=list)
    """Sources, or quotations of them, that the block names for its text."""


def from_conversation(
    conversation: Any,
) -> tuple[str | None, list[dict[str, str]], str]:
    """Return question, context and answer of a conversation's last turn; the last assistant message is the answer.

    Every tool result, document and search result up to the answer is a chunk, as is what the user or the system wrote;
    its ``source`` says where it stood, as in ``turn 3: tool search_docs`` (turns count from 0), or the source that it
    names. The assistant's own words, its thinking and the arguments of its calls are never evidence. The question is
    the user's last message; where it is all there is, there is no context. Citations that the answer's blocks carry
    become markers in its text, numbered from 1. An answer that is only a tool call is empty.

    Raises:
        InputError: there is no message with a role, or none of the assistant.
    """
    messages = [_plain_message(message) for message in _messages(conversation)]
    last = next(
        (
            i
            for i in reversed(range(len(messages)))
            if messages[i]["role"] == "assistant"
        ),
        None,
    )
    if last is None:
        raise InputError(
            f"conversation has no assistant message among {len(messages)}; there is nothing to judge"
        )
    first = last
    while (
        first
        and messages[last].get("item")
        and messages[first - 1]["role"] == "assistant"
    ):
        first -= 1
    tools = _tool_names(messages)
    question: str | None = None
    question_chunk: dict[str, str] | None = None
    chunks: list[dict[str, str]] = []
    answer: list[Piece] = []
    for turn, message in enumerate(messages[: last + 1]):
        role = message["role"]
        pieces = _pieces(message, turn, tools)
        chunks += [_chunk(piece, turn) for piece in pieces if piece.tool is not None]
        words = [piece for piece in pieces if piece.tool is None]
        if turn >= first:
            answer += words
        elif words and role != "assistant":
            text = "\n".join(piece.text for piece in words)
            chunk = {"text": text, "source": _source(turn, role, message.get("name"))}
            chunks.append(chunk)
            if role == "user":
                question, question_chunk = text, chunk
    if (
        len(chunks) == 1
        and chunks[0] is question_chunk
        and _QUESTION.fullmatch(question or "")
    ):
        chunks = []
        log.warning("conversation: no evidence found; looked at %s", _LOOKED_AT)
    return question, _unique(chunks), _answer_text(answer, _unique(chunks))


def _messages(conversation: Any) -> list[Any]:
    """Return the messages of a list, a request, a response, or both together."""
    if isinstance(conversation, Mapping) and not _role(conversation):
        held = [conversation[key] for key in _WHOLE if conversation.get(key)]
        messages = [
            m
            for part in held
            for m in ([part] if isinstance(part, str | Mapping) else part)
        ]
        if messages and isinstance(messages[0], str):
            messages[0] = {"role": "user", "content": messages[0]}
        beside = {key: conversation[key] for key in _BESIDE if conversation.get(key)}
        if messages and beside:
            messages[-1] = {**_inner(messages[-1]), **beside}
        conversation = messages
    listed = list(conversation) if isinstance(conversation, list | tuple) else []
    inner = [_inner(message) for message in listed]
    if not inner or not all(_role(message) for message in inner):
        raise InputError(
            'conversation must be a list of messages like {"role": "user", "content": "…"}'
        )
    return inner


def _inner(message: Any) -> Any:
    """Return the message inside a choice or a candidate, with the evidence that stands beside it."""
    if not isinstance(message, Mapping):
        return message
    for key in ("message", "content"):
        held = message.get(key)
        if isinstance(held, Mapping) and _role(held):
            return {**held, **{k: message[k] for k in _BESIDE if message.get(k)}}
    return message


def _role(message: Any) -> str:
    """Return user, assistant, tool or system; empty where it is not a message."""
    role = _get(message, "role")
    role = getattr(role, "value", role)  # LlamaIndex has an enum
    if not role and not isinstance(message, Mapping):
        role = (
            _get(message, "type") if _get(message, "content") is not None else ""
        )  # LangChain
    if not role and isinstance(
        message, Mapping
    ):  # an item of the Responses API, or a dumped LangChain message
        kind = str(message.get("type") or "")
        if kind in _ROLES or kind in ("system", "tool"):
            role = kind
        elif _UNREAD.fullmatch(kind) or _EVIDENCE.fullmatch(kind):
            role = "tool" if kind.endswith("_output") else "assistant"
    return _ROLES.get(str(role or "").lower(), str(role or "").lower())


def _plain_message(message: Any) -> dict[str, Any]:
    """Return a message as a mapping with ``role`` and ``content``; ``item``: whether it is one of the Responses API."""
    keys = (
        "content",
        "parts",
        "blocks",
        "name",
        "tool_calls",
        "tool_call_id",
        "status",
        "refusal",
        "context",
        *_BESIDE,
    )
    plain = {key: _get(message, key) for key in keys}
    if plain["blocks"] and not isinstance(message, Mapping):
        plain["content"] = plain["blocks"]
    plain["role"] = _role(message)
    kind = message.get("type") if isinstance(message, Mapping) else None
    is_call = (
        kind is not None and not message.get("role") and message.get("content") is None
    )
    plain["item"] = kind == "message" or is_call
    if plain["item"] and kind != "message":
        plain |= {"content": [dict(message)], "parts": None}
    return plain


def _get(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _tool_names(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the name of the tool by the id of its call, from all calls in the messages."""
    names: dict[str, str] = {}
    for turn, message in enumerate(messages):
        listed = message.get("tool_calls")
        calls = [
            *(listed if isinstance(listed, list | tuple) else ()),
            *_blocks(message, turn),
        ]
        for call in calls:
            # Bedrock wraps the call, OpenAI the function; Anthropic and OpenTelemetry have both names beside the id.
            inner = _mapping(_get(call, "toolUse")) or call
            call_id = _first(inner, ("call_id", "id", "toolUseId", "toolCallId"))
            name = _get(_get(inner, "function") or inner, "name") or _get(
                inner, "toolName"
            )
            if call_id and name:
                names[str(call_id)] = str(name)
    return names


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _first(item: Any, names: Sequence[str]) -> Any:
    return next((value for name in names if (value := _get(item, name))), None)


def _blocks(message: Mapping[str, Any], turn: int) -> list[Any]:
    content = message.get("content") or message.get("parts")
    blocks = [content] if isinstance(content, str | Mapping) else content or []
    if not isinstance(blocks, list | tuple) or any(
        isinstance(b, int | float | list) for b in blocks
    ):
        raise InputError(
            f"conversation[{turn}]: content is {str(content)[:40]!r}, expected text or a list of blocks"
        )
    return [
        block if isinstance(block, str | Mapping) else _dumped(block)
        for block in blocks
    ]


def _dumped(block: Any) -> Mapping[str, Any]:
    """Return an object of a client library as a mapping."""
    dump = getattr(block, "model_dump", None)
    if dump is not None:
        return {k: v for k, v in dump().items() if v is not None} | {
            "type": _get(block, "block_type") or _get(block, "type")
        }
    return vars(block) if hasattr(block, "__dict__") else {"text": str(block)}


def _pieces(
    message: Mapping[str, Any], turn: int, tools: Mapping[str, str]
) -> list[Piece]:
    """Return the texts of a message that are not blank, those of tools and documents among them."""
    whole = None
    if message["role"] == "tool":
        whole = message.get("name") or tools.get(str(message.get("tool_call_id"))) or ""
    failed = message.get("status") == "error"
    pieces: list[Piece] = []
    for block in _blocks(message, turn):
        if isinstance(block, str):
            pieces.append(Piece(block, whole, failed and whole is not None))
        else:
            pieces += _pieces_of(block, whole, tools, turn)
    if not pieces and message.get("refusal"):
        pieces.append(Piece(str(message["refusal"])))
    for key in _BESIDE:
        pieces += _retrieved(message.get(key))
    pieces += _retrieved(
        _mapping(message.get("context")).get("citations")
    )  # Azure's “on your data”
    return [piece for piece in pieces if piece.text.strip()]


def _pieces_of(
    block: Mapping[str, Any], whole: str | None, tools: Mapping[str, str], turn: int
) -> list[Piece]:
    """Return the texts of one block."""
    kind = str(
        block.get("type")
        or next(
            (
                key
                for key in block
                if _UNREAD.fullmatch(key) or _EVIDENCE.fullmatch(key)
            ),
            "",
        )
    )
    held = block.get(kind, block)
    if block.get("thought") or _UNREAD.fullmatch(kind):
        return []
    if "citationsContent" in block:
        return _cited(block["citationsContent"])
    if "guardContent" in block:
        return [Piece(as_text(_mapping(block["guardContent"]).get("text")), whole)]
    if _OWN_WORDS.fullmatch(kind) or (not kind and "text" in block):
        cites = [*(block.get("citations") or ()), *(block.get("annotations") or ())]
        text = as_text(block if "text" in block else {"type": "text", **block})
        evidence = [p for p in _retrieved(cites) if p.text]
        return [
            Piece(
                text, whole, cites=[name for cite in cites for name in _names_of(cite)]
            ),
            *evidence,
        ]
    if _EVIDENCE.fullmatch(kind):
        inner = held if isinstance(held, Mapping) else {"content": held}
        inner = _mapping(inner.get("toolInvocation")) or inner
        call_id = _first(
            inner, ("toolUseId", "tool_use_id", "call_id", "id", "toolCallId")
        )
        is_retrieved = kind in (
            "document",
            "search_result",
            "searchResult",
            "file_search_call",
            "source-document",
        )
        if is_retrieved or kind.endswith("search_tool_result"):
            return _retrieved(
                inner.get("results")
                or (inner.get("content") if "search_tool" in kind else inner)
            )
        name = (
            tools.get(str(call_id))
            or inner.get("name")
            or inner.get("toolName")
            or whole
        )
        name = name or (
            kind.removeprefix("tool-")
            if kind.startswith("tool-") and kind != "tool-result"
            else ""
        )
        content = next(
            (inner[key] for key in _RESULTS if inner.get(key) is not None), None
        )
        failed = inner.get("status") == "error" or bool(
            inner.get("is_error") or inner.get("isError")
        )
        return [Piece(as_text(content), str(name), failed)]
    log.warning(
        "conversation[%d]: a block of kind %r is not read",
        turn,
        kind or ", ".join(map(str, block)),
    )
    return []


def _cited(content: Any) -> list[Piece]:
    """Return the text of Bedrock's ``citationsContent``, and what its citations quote."""
    content = _mapping(content)
    citations = content.get("citations") or ()
    names = [name for citation in citations for name in _names_of(citation)]
    return [Piece(as_text(content.get("content")), cites=names), *_retrieved(citations)]


def _names_of(citation: Any) -> list[str]:
    """Return what a citation object names: its quotations and sources."""
    found = [
        _first(
            citation,
            ("cited_text", "document_title", "url", "filename", "title", "source"),
        )
    ]
    nested = _get(citation, "url_citation") or _get(citation, "sourceContent")
    if isinstance(nested, Mapping):
        found.append(nested.get("url"))
    elif nested:
        found.append(as_text(nested))
    return [str(name) for name in found if name]


def _retrieved(value: Any) -> list[Piece]:
    """Return what was retrieved, wherever a format puts its text and its source."""
    if value is None:
        return []
    if isinstance(value, str):
        return [Piece(value, "retrieval")]
    if isinstance(value, list | tuple):
        return [piece for item in value for piece in _retrieved(item)]
    for key in (
        "groundingChunks",
        "grounding_chunks",
        "retrievedReferences",
        "references",
        "citations",
    ):
        if isinstance(_get(value, key), list | tuple):
            nested = _retrieved(_get(value, key))
            if nested:
                return nested
    inner = _first(value, ("retrievedContext", "retrieved_context", "node", "document"))
    if inner is not None and not isinstance(inner, str):
        return _retrieved(inner)
    holder = (
        _get(value, "source") if isinstance(_get(value, "source"), Mapping) else value
    )
    text = _first(
        holder,
        (
            "text",
            "page_content",
            "cited_text",
            "sourceContent",
            "content",
            "data",
            "snippet",
        ),
    )
    places = (value, _get(value, "metadata"), _get(value, "location"))
    source = next(
        (
            s
            for place in places
            for name in _TITLES
            if isinstance(s := _get(place, name), str) and s
        ),
        None,
    )
    return [] if text is None else [Piece(as_text(text), "retrieval", source=source)]


def _chunk(piece: Piece, turn: int) -> dict[str, str]:
    if piece.source:
        return {"text": piece.text, "source": piece.source}
    return {
        "text": piece.text,
        "source": _source(turn, "tool", piece.tool, piece.failed),
    }


def _unique(chunks: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return chunks without those that an earlier or a longer one of the same source holds, as quotations do."""
    kept: list[dict[str, str]] = []
    for i, chunk in enumerate(chunks):
        others = [
            other
            for j, other in enumerate(chunks)
            if j < i or len(other["text"]) > len(chunk["text"])
        ]
        quoted = (
            not chunk["source"].startswith("turn ")
            or "tool retrieval" in chunk["source"]
        )
        if not (
            quoted and any(chunk["text"].strip() in other["text"] for other in others)
        ):
            kept.append(chunk)
    return kept


_ENDS = re.compile(r"[.!?:;。！？।…)\]\"”]\s*$")


def _answer_text(pieces: Sequence[Piece], chunks: Sequence[Mapping[str, str]]) -> str:
    """Return the pieces of an answer as one text: torn ones are joined, and cited chunks named by their numbers."""
    text = last = ""
    for piece in pieces:
        torn = not _ENDS.search(last) or last[-1:].isspace() or piece.text[:1].isspace()
        text += piece.text if torn else f"\n{piece.text}"
        last = piece.text
        numbers = [
            i
            for i, chunk in enumerate(chunks, 1)
            if any(_is_cited(name, chunk) for name in piece.cites)
        ]
        text += "".join(f" [{number}]" for number in numbers)
    return text


def _is_cited(name: str, chunk: Mapping[str, str]) -> bool:
    return name == chunk["source"] or (len(name) > 20 and name.strip() in chunk["text"])


def as_text(value: Any) -> str:
    """Return the output of a tool or retriever as text: the texts of its blocks; anything without a text as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list | tuple)
        and value
        and all(_content_of(v) is not None for v in value)
    ):
        return "\n".join(as_text(v) for v in value)
    inner = _content_of(value)
    if inner is not None:
        return as_text(inner)
    return json.dumps(value, ensure_ascii=False, default=str)


def _content_of(block: Any) -> Any:
    """Return a text itself, the text or JSON inside a content block; None for anything else."""
    if not isinstance(block, Mapping):
        page = getattr(block, "page_content", None)
        return block if isinstance(block, str) else page
    if _OWN_WORDS.fullmatch(str(block.get("type"))) or (
        set(block) <= {"text", "json", "type"} and len(block) <= 2
    ):
        return next(
            (
                block[k]
                for k in ("text", "content", "refusal", "json")
                if block.get(k) is not None
            ),
            None,
        )
    return None


def _source(turn: int, role: str, name: Any, failed: bool = False) -> str:
    return f"turn {turn}: {role}{f' {name}' if name else ''}{' (failed)' if failed else ''}"
