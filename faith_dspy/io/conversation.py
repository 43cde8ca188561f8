"""Read a conversation: the last answer whole, the question, and as context whatever was retrieved or given before it.

Messages may be written as OpenAI (chat, Assistants and Responses), Anthropic, Bedrock, Gemini, LangChain, LlamaIndex,
Vercel's AI SDK, ShareGPT or OpenTelemetry write them. At the door objects become mappings, and the bytes of files are
left out; then blocks are read by what they hold. A kind that is not known is named in a notice.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from faith_dspy.errors import InputError
from faith_dspy.io.names import TABLES

log = logging.getLogger(__name__)

_NAMED = TABLES["conversation"]
_BESIDE = [
    *_NAMED["beside"],
    *TABLES["fields"]["context"],
    *TABLES["further_columns"]["context"],
]
CONVERSATION_KEYS = {*_NAMED["whole"], *_BESIDE}
"""Under which a record holds messages, and evidence beside them."""
_SAID = {*_NAMED["content"], *_NAMED["blocks"], "tool_calls", "function_call"}
"""Under which a message holds what was said or called."""
_OWN_WORDS = re.compile(
    r"text|output_text|input_text|refusal|citationsContent|guardContent"
)
_UNREAD = re.compile(
    r"thinking|redacted_thinking|reasoning\w*|thought|server_tool_use|\w*tool[_-]?(?:use|call)|toolUse|function_?[cC]all"
    r"|mcp_(?:call|list_tools)|step-start|cachePoint|executableCode|item_reference|source-(?:url|document)"
)
"""Kinds of blocks that are a model's thinking or its calls, or only point somewhere: neither words nor evidence."""
_DOCUMENT = re.compile(
    r"document|search_?result|searchResult|file_search_call|\w*search_tool_result"
)
_RESULT = re.compile(
    r"tool[_-]?[rR]esult|tool_call_response|function_call_output|\w+_call_output|functionResponse|function_response"
    r"|codeExecutionResult|\w+_tool_result|web_search_call|tool-.+|toolInvocation|dynamic-tool|retriev\w+"
    r"|data-.*(?:source|document|result)\w*|mcp_\w*result"
)
"""Kinds of blocks that hold what a tool returned; `_DOCUMENT`: what a retriever did, or what a user attached."""
_KINDS = (_UNREAD, _DOCUMENT, _RESULT, _OWN_WORDS)
_FILE = re.compile(
    r"(?:input_)?(?:image|file|audio)|image_url|(?:inline|file)_?[dD]ata|video|media"
)
_DATA_URL = re.compile(r"data:[^,\s]{0,200};base64,")
_LINK = re.compile(r"https?://\S+")
_QUESTION = re.compile(r"[^.!?。！？\n]{1,300}[.!?。！？\s]*")
"""A user's message of one sentence only asks."""
_ASKS = re.compile(r"[^.!?。！？\n]{1,300}[?？]\s*|\S+(?:\s\S+){0,2}")
"""So does an earlier one that ends in a question mark, or has at most three words."""
_ENDS = re.compile(r"[.!?:;。！？।…)\]\"”]$")


@dataclass
class Piece:
    """One text of a message."""

    text: str
    source: str = ""
    """Where evidence comes from; empty for what a person or a model wrote."""
    quoted: bool = False
    """Whether it may be a quotation of another piece of evidence."""
    cites: list[str] = field(default_factory=list)
    """Sources, or quotations of them, that a block names for its text."""


def from_conversation(
    conversation: Any,
) -> tuple[str | None, list[dict[str, str]], str]:
    """Return question, context and answer of a conversation's last turn; the last assistant message is the answer.

    Every tool result, document and search result up to the answer is a chunk, as is what the user or the system wrote;
    its ``source`` says where it stood, as in ``turn 3: tool search_docs`` (turns count from 0), or the source that it
    names. The assistant's own words, its thinking and the arguments of its calls are never evidence. The question is
    the user's last message; where the user only asked, and nothing else is there, there is no context. Citations that
    the answer's blocks carry become markers in its text, numbered from 1. An answer that is only a tool call is empty.

    Raises:
        InputError: there is no message with a role, or none of the assistant.
    """
    plain = _plain(conversation)
    messages = _messages(plain)
    roles = [_role(message) for message in messages]
    if "assistant" not in roles:
        raise InputError(
            f"conversation has no assistant message among {len(messages)}; there is nothing to judge"
        )
    last = len(roles) - 1 - roles[::-1].index("assistant")
    messages[last] = {**messages[last], **_evidence_beside(plain)}
    first = last
    while first and _is_item(messages[last]) and roles[first - 1] == "assistant":
        first -= 1
    tools = _tool_names(messages)
    asked: list[str] = []
    evidence: list[Piece] = []
    answer: list[Piece] = []
    for number, message in enumerate(messages[: last + 1]):
        turn = _Turn(number, message, tools)
        pieces = turn.pieces()
        evidence += [piece for piece in pieces if piece.source]
        words = [piece for piece in pieces if not piece.source]
        if number >= first:
            answer += words
        elif words and turn.role != "assistant":
            text = "\n".join(piece.text for piece in words)
            evidence.append(Piece(text, turn.source(turn.role, message.get("name"))))
            if turn.role == "user":
                asked.append(text)
    only_asks = len(asked) == len(evidence) and all(map(_ASKS.fullmatch, asked[:-1]))
    if asked and only_asks and _QUESTION.fullmatch(asked[-1]):
        evidence = []
        log.warning(
            "conversation: no evidence found; looked at tool results, documents, search results, citations, and what "
            "the user and the system wrote"
        )
    evidence = _without_quotations(evidence)
    chunks = [{"text": piece.text, "source": piece.source} for piece in evidence]
    return asked[-1] if asked else None, chunks, _answer_text(answer, evidence)


def is_conversation(record: Mapping[str, Any]) -> bool:
    """Tell whether a record holds messages, as a request or a response does, or both together."""
    parts = (record.get(key) for key in _NAMED["whole"])
    return any(isinstance(part, list | tuple | Mapping) for part in parts)


def _plain(value: Any) -> Any:
    """Return objects of client libraries as mappings, whatever holds them, without the bytes of files."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    fields = value
    if not isinstance(value, Mapping):
        dump = getattr(value, "model_dump", None)
        fields = dump() if dump else getattr(value, "__dict__", {"text": str(value)})
        fields = {key: item for key, item in fields.items() if item is not None}
    if "lc" in fields and "kwargs" in fields:  # LangChain's dumpd
        fields = {"type": fields["id"][-1], **fields["kwargs"]}
    return {
        key: _plain(item)
        for key, item in fields.items()
        if not _is_bytes(key, item, fields)
    }


def _is_bytes(key: str, value: Any, fields: Mapping[str, Any]) -> bool:
    """Tell whether a value beside the other fields is the content of a file."""
    if not isinstance(value, str):
        return isinstance(value, bytes)
    is_typed = key == "data" and bool(fields.keys() & _NAMED["media_types"])
    is_file = is_typed and fields.get("type") != "text"
    return is_file or key in _NAMED["bytes"] or bool(_DATA_URL.match(value))


def _messages(conversation: Any) -> list[dict[str, Any]]:
    """Return the messages of a list, a request, a response, or both together."""
    items = conversation if isinstance(conversation, list) else []
    messages = [_unwrapped(item) for item in items]
    for key, role in _NAMED["whole"].items():
        part = _mapping(conversation).get(key) or []
        items = part if isinstance(part, list) else [part]
        messages += [_unwrapped(item, role) for item in items]
    unclear = [item for item in messages if not _role(item)]
    if unclear or not messages:
        got = unclear[0] if unclear else conversation
        is_mapping = isinstance(got, Mapping) and bool(got)
        named = f"an object with {', '.join(got)}" if is_mapping else repr(got)[:60]
        raise InputError(
            f'conversation: got {named}, expected messages like {{"role": "user", "content": "…"}}: a list of them, or '
            "a request or response that holds it"
        )
    return messages


def _unwrapped(message: Any, role: str = "") -> Any:
    """Return the message inside a choice or a candidate, with the evidence that stands beside it.

    Args:
        message: also a text, a pair of role and content, or LangChain's ``type`` and ``data``.
        role: whose it is where it does not say so itself.
    """
    is_pair = isinstance(message, list) and len(message) == 2
    if is_pair and str(message[0]).lower() in _NAMED["roles"]:
        return {"role": message[0], "content": message[1]}
    if isinstance(message, str) and role:
        return {"role": role, "content": message}
    fields = _mapping(message)
    for key in ("message", "content", "data"):
        inner = _mapping(fields.get(key))
        if _role(inner) or (key == "data" and inner and "role" not in fields):
            wrapper = {**fields, "type": None} if _role(inner) else fields
            return {**wrapper, **inner, **_evidence_beside(message)}
    has_content = _first(fields, (*_NAMED["blocks"], *_NAMED["content"]))
    if role and has_content and not _role(fields):
        return {**fields, "role": role}
    return message


def _evidence_beside(message: Any) -> dict[str, Any]:
    fields = _mapping(message)
    return {key: fields[key] for key in _BESIDE if fields.get(key)}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _role(message: Any) -> str:
    """Return user, assistant, tool or system; empty where it is not a message."""
    role = _first(message, _NAMED["role"])
    role = _first(role, ("value", "role")) or role
    kind = str(_mapping(message).get("type") or "")
    class_name = re.sub("message(chunk)?$", "", kind.lower())
    if not role and class_name in _NAMED["roles"]:  # LangChain
        role = class_name
    elif not role and _is_call(message):
        role = "tool" if kind.endswith("_output") else "assistant"
    name = str(role or "").lower()
    return str(_NAMED["roles"].get(name, name))


def _is_item(message: Mapping[str, Any]) -> bool:
    """Tell whether a message is an item of the Responses API, several of which are one answer."""
    return message.get("type") == "message" or _is_call(message)


def _is_call(message: Any) -> bool:
    """Tell whether an item is a call, its result or a document by itself."""
    fields = _mapping(message)
    kind = str(fields.get("type") or "")
    return "role" not in fields and any(form.fullmatch(kind) for form in _KINDS[:3])


def _blocks(message: Mapping[str, Any], turn: int) -> list[Mapping[str, Any]]:
    """Return the blocks of a message, a text as one; what stands beside blocks without words is read, too."""
    if _is_call(message):
        return [message]
    blocks = _listed(_first(message, ("blocks", "parts")))
    if not blocks:
        calls = _listed(message.get("toolInvocations"))
        blocks = [{"toolInvocation": call} for call in calls]
    if not any(_OWN_WORDS.fullmatch(_kind(block)) for block in blocks):
        content = _first(message, _NAMED["content"])
        blocks += _listed(_mapping(content).get("parts", content))
    if not all(isinstance(block, str | Mapping) for block in blocks):
        raise InputError(
            f"conversation[{turn}]: content is {str(blocks)[:40]}, expected text or a list of blocks"
        )
    return [{"text": block} if isinstance(block, str) else block for block in blocks]


def _listed(value: Any) -> list[Any]:
    """Return a list itself, nothing as an empty one, anything else as its only item."""
    if isinstance(value, list):
        return value
    return [value] if value else []


def _kind(block: Any) -> str:
    """Return the kind of a block: its type, or else the first of its keys that is one; all of them where none is."""
    if isinstance(block, str):
        return "text"
    fields = _mapping(block)
    keys = [str(fields["type"])] if fields.get("type") else [*map(str, fields)]
    kinds = (key for key in keys if any(form.fullmatch(key) for form in _KINDS))
    return next(kinds, ", ".join(keys))


def _tool_names(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the name of the tool by the id of its call, from all calls in the messages."""
    names: dict[str, str] = {}
    for turn, message in enumerate(messages):
        listed = message.get("tool_calls")
        calls = listed if isinstance(listed, list) else []
        for call in (*calls, *_blocks(message, turn)):
            # Bedrock wraps the call, OpenAI the function; Anthropic and OpenTelemetry have both names beside the id.
            inner = _mapping(_mapping(call).get("toolUse") or call)
            function = _mapping(inner.get("function")) or inner
            call_id = _first(inner, _NAMED["call_ids"])
            name = _first(function, ("name", "toolName"))
            if call_id and name:
                names[str(call_id)] = str(name)
    return names


def _first(item: Any, names: Sequence[str], kind: type = object) -> Any:
    """Return the first value that is not empty, of that type."""
    values = (_mapping(item).get(name) for name in names)
    return next((value for value in values if value and isinstance(value, kind)), None)


@dataclass(frozen=True)
class _Turn:
    """One message, and what its blocks are read with."""

    number: int
    message: Mapping[str, Any]
    tools: Mapping[str, str]
    """Names of tools by the ids of their calls."""

    @property
    def role(self) -> str:
        return _role(self.message)

    def source(self, role: str, name: Any = None, failed: Any = False) -> str:
        words = [f"turn {self.number}: {role}", str(name or "")]
        if failed:
            words.append("(failed)")
        return " ".join(filter(None, words))

    def pieces(self) -> list[Piece]:
        """Return the texts of the message that are not blank, those of tools and documents among them."""
        pieces: list[Piece] = []
        for block in _blocks(self.message, self.number):
            pieces += self.read(block)
        pieces = [piece for piece in pieces if piece.text.strip()]
        spoken = _mapping(self.message.get("audio")).get("transcript")
        spoken = spoken or self.message.get("refusal")
        if spoken and not pieces:
            pieces.append(Piece(str(spoken)))
        elif not (pieces or _is_call(self.message) or _SAID & self.message.keys()):
            keys = ", ".join(self.message)
            log.warning("conversation[%d]: got %s, but no content", self.number, keys)
        for key in _BESIDE:
            pieces += self.retrieved(self.message.get(key))
        return [piece for piece in pieces if piece.text.strip()]

    def read(self, block: Mapping[str, Any]) -> list[Piece]:
        """Return the texts of one block."""
        kind = _kind(block)
        if block.get("thought") or _UNREAD.fullmatch(kind):
            return []
        held = block.get(kind, block)
        if _OWN_WORDS.fullmatch(kind):
            return self.words(_mapping(held) or block)
        inner = _mapping(held) or {"content": held}
        inner = _mapping(inner.get("toolInvocation")) or inner
        if _RESULT.fullmatch(kind):
            return self.result(kind, inner)
        if "search_tool" in kind:
            return self.retrieved(inner.get("content"))
        is_document = _DOCUMENT.fullmatch(kind)
        documents = self.retrieved(inner.get("results") or inner) if is_document else []
        if not documents:
            _warn_unread(kind, f"conversation[{self.number}]")
        return documents

    def words(self, block: Mapping[str, Any]) -> list[Piece]:
        """Return what was said, and the evidence that its citations quote; all a tool says is evidence."""
        cites = [*(block.get("citations") or ()), *(block.get("annotations") or ())]
        names = [name for cite in cites for name in _names_of(cite)]
        piece = Piece(as_text({**block, "type": "text"}), cites=names)
        if self.role == "tool":
            piece.source = self.tool_source(self.message)
        return [piece, *self.retrieved(cites)]

    def result(self, kind: str, block: Mapping[str, Any]) -> list[Piece]:
        """Return what a tool returned, each document in it by itself."""
        values = (block[key] for key in _NAMED["results"] if block.get(key) is not None)
        content = next(values, None)
        documents = []
        if isinstance(content, list):
            documents = [item for item in content if _DOCUMENT.fullmatch(_kind(item))]
            content = [item for item in content if item not in documents]
        own_name = re.fullmatch("tool-(?!result|invocation)(.+)", kind)
        source = self.tool_source(block, own_name[1] if own_name else "")
        pieces = [piece for item in documents for piece in self.read(item)]
        if content or not documents:
            pieces.insert(0, Piece(as_text(content), source))
        return pieces

    def tool_source(self, block: Mapping[str, Any], otherwise: str = "") -> str:
        """Name the tool that a result is of, and say whether it failed."""
        failed = block.get("status") == "error" or _first(
            block, ("is_error", "isError")
        )
        call_ids = [_first(block, _NAMED["call_ids"]), self.message.get("tool_call_id")]
        names: list[Any] = [self.tools.get(str(call_id)) for call_id in call_ids]
        names += [
            _first(block, ("name", "toolName")),
            self.message.get("name"),
            otherwise,
        ]
        return self.source("tool", next(filter(None, names), ""), failed)

    def retrieved(self, value: Any) -> list[Piece]:
        """Return what was retrieved, wherever a format puts its text and its source."""
        if isinstance(value, str):
            is_link = _LINK.fullmatch(value)
            piece = Piece(value, self.source("tool", "retrieval"), quoted=True)
            return [] if is_link else [piece]
        if isinstance(value, list):
            return [piece for item in value for piece in self.retrieved(item)]
        if not isinstance(value, Mapping):
            return []
        inner = _first(value, _NAMED["lists"], list)
        inner = inner or _first(value, _NAMED["wrapped"], Mapping)
        if inner:
            return self.retrieved(inner)
        text = _first(_mapping(value.get("source")) or value, _NAMED["texts"])
        if text is None:
            return []
        places = (value, value.get("metadata"), value.get("location"))
        titles: list[Any] = [_first(place, _NAMED["titles"], str) for place in places]
        titles.append(self.source("tool", "retrieval"))
        return [Piece(as_text(text), next(filter(None, titles)), quoted=True)]


def _warn_unread(kind: str, place: str) -> None:
    """Name what is not read."""
    why = ""
    if _FILE.fullmatch(kind) or kind == "document":
        why = ": the bytes of a file are no text; give the text itself"
    log.warning("%s: a block of kind %r is not read%s", place, kind, why)


def _names_of(citation: Any) -> list[str]:
    """Return what a citation object names: its quotations and sources."""
    nested = _first(citation, ("url_citation", "sourceContent"))
    nested = _mapping(nested).get("url", nested)
    names = (_first(citation, _NAMED["cited"]), as_text(nested))
    return [str(name) for name in names if name]


def _without_quotations(pieces: Sequence[Piece]) -> list[Piece]:
    """Leave out what an earlier or a longer piece of evidence holds."""
    whole: list[Piece] = []
    for i, piece in enumerate(pieces):
        longer = [other for other in pieces if len(other.text) > len(piece.text)]
        others = [*pieces[:i], *longer]
        text = piece.text.strip()
        if not (piece.quoted and any(text in other.text for other in others)):
            whole.append(piece)
    return whole


def _answer_text(pieces: Sequence[Piece], evidence: Sequence[Piece]) -> str:
    """Return the pieces of an answer as one text: torn ones are joined, and cited chunks named by their numbers."""
    text = last = ""
    for piece in pieces:
        torn = not _ENDS.search(last) or piece.text[:1].isspace()
        text += piece.text if torn else f"\n{piece.text}"
        last = piece.text
        for number, chunk in enumerate(evidence, 1):
            if any(_is_cited(name, chunk) for name in piece.cites):
                text += f" [{number}]"
    return text


def _is_cited(name: str, chunk: Piece) -> bool:
    return name == chunk.source or (len(name) > 20 and name.strip() in chunk.text)


def as_text(value: Any) -> str:
    """Return the output of a tool or retriever as text: the texts of its blocks; anything without a text as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    blocks = value if isinstance(value, list | tuple) else [value]
    contents = [_content_of(block) for block in blocks]
    if contents and None not in contents:
        return "\n".join(filter(None, map(as_text, contents)))
    return json.dumps(value, ensure_ascii=False, default=str)


def _content_of(block: Any) -> Any:
    """Return a text itself, the text or JSON inside a content block; None for anything else."""
    if isinstance(block, str):
        return block
    fields = _mapping(block)
    kind = str(fields.get("type"))
    if _FILE.fullmatch(kind):
        _warn_unread(kind, "a tool's result")
        return ""
    is_own = _OWN_WORDS.fullmatch(kind)
    if is_own or (fields.keys() <= {"text", "json", "type"} and len(fields) <= 2):
        keys = ("text", "content", "refusal", "json", "value")
        return next((fields[k] for k in keys if fields.get(k) is not None), None)
    return None
