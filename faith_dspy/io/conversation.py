"""Read a conversation: the last answer whole, the question, and as context whatever was retrieved or given before it.

Messages may be written as OpenAI (chat, Assistants and Responses), Anthropic, Bedrock, Gemini, LangChain, LlamaIndex,
Vercel's AI SDK, ShareGPT or OpenTelemetry write them. At the door objects become mappings, and the bytes of files are
left out; then blocks are read by what they hold. A kind that is not known is named in a notice.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TypeAlias

from faith_dspy.errors import InputError
from faith_dspy.io.documents import (
    FILE,
    OWN_WORDS,
    as_text,
    documents_in,
    first_of,
    first_present,
    mapping,
    warn_unread,
)
from faith_dspy.io.names import COLUMNS, TABLES, Fields

log = logging.getLogger(__name__)

_NAMES = SimpleNamespace(**TABLES["conversation"])
_EVIDENCE_KEYS = [*_NAMES.beside, *COLUMNS["context"]]
CONVERSATION_KEYS = {*_NAMES.whole, *_EVIDENCE_KEYS}
"""Under which a record holds messages, and evidence beside them."""
_CONTENT = (*_NAMES.blocks, *_NAMES.content)
_SAID = {*_CONTENT, "tool_calls", "function_call"}
"""Under which a message holds what was said or called."""
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
_KINDS = (_UNREAD, _DOCUMENT, _RESULT, OWN_WORDS)
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


Answered: TypeAlias = tuple[str | None, list[dict[str, str]], str]
"""Question, context and answer."""


def from_conversation(conversation: Any) -> Answered:
    """Return question, context and answer of a conversation's last turn; the last assistant message is the answer.

    Every tool result, document and search result up to the answer is a chunk, as is what the user or the system wrote;
    its ``source`` says where it stood, as in ``turn 3: tool search_docs`` (turns count from 0), or the source that it
    names. The assistant's own words, its thinking and the arguments of its calls are never evidence. The question is
    the user's last message; where the user only asked, and nothing else is there, there is no context. Citations that
    the answer's blocks carry become markers in its text, numbered from 1. An answer that is only a tool call is empty.

    Raises:
        InputError: there is no message with a role, or none of the assistant.
    """
    turns, beside = _read(conversation)
    *_, last = (turn.number for turn in turns if turn.role == "assistant")
    turns[last].beside = beside
    return _record(turns[: last + 1])


def answers_in(conversation: Any) -> dict[int, Answered]:
    """Return the same for each answer by the number of its message: the assistant's last one before the user goes on.

    What was retrieved counts for the next answer alone; for one that nothing was retrieved for, all before it counts.
    """
    turns, beside = _read(conversation)
    turns[0].beside = beside
    answers: dict[int, int] = {}
    asked = 0
    for turn in turns:
        asked += turn.role == "user" and bool(turn.said)
        if turn.role == "assistant":
            answers[asked] = turn.number
    records = {}
    since = 0
    for number in answers.values():
        records[number] = _record(turns[: number + 1], since)
        since = number + 1
    return records


def _read(conversation: Any) -> tuple[list[_Turn], Fields]:
    """Return the messages, of which one is the assistant's, and the evidence that stands beside them."""
    plain = _as_mappings(conversation)
    messages = _messages(plain)
    tools = _tool_names(messages)
    turns = [_Turn(number, one, tools) for number, one in enumerate(messages)]
    if all(turn.role != "assistant" for turn in turns):
        raise InputError(
            f"conversation has no assistant message among {len(messages)}; there is nothing to judge"
        )
    return turns, _evidence_beside(plain)


def _record(turns: Sequence[_Turn], since: int = 0) -> Answered:
    """Return the record of the last of the turns; what was retrieved before turn ``since`` counts where nothing was
    later."""
    last = turns[-1]
    first = last.number
    while first and _is_item(last.message) and turns[first - 1].role == "assistant":
        first -= 1
    if not any(turn.evidence for turn in turns[since:]):
        since = 0
    asked: list[str] = []
    evidence: list[Piece] = []
    answer: list[Piece] = []
    for turn in turns:
        if turn.number >= since:
            evidence += turn.evidence
        if turn.number >= first:
            answer += turn.said
        elif turn.said and turn.role != "assistant":
            text = "\n".join(piece.text for piece in turn.said)
            source = turn.source(turn.role, turn.message.get("name"))
            evidence.append(Piece(text, source))
            if turn.role == "user":
                asked.append(text)
    if len(asked) == len(evidence) and _only_ask(asked):
        evidence = []
        log.warning(
            "conversation: no evidence found; looked at tool results, documents, search results, citations, and what "
            "the user and the system wrote"
        )
    evidence = _without_quotations(evidence)
    chunks = [{"text": piece.text, "source": piece.source} for piece in evidence]
    question = asked[-1] if asked else None
    return question, chunks, _answer_text(answer, evidence)


def _only_ask(texts: Sequence[str]) -> bool:
    """Tell whether a user's messages, of which the last one asks, tell nothing."""
    if not texts or not _QUESTION.fullmatch(texts[-1]):
        return False
    earlier = texts[:-1]
    return all(map(_ASKS.fullmatch, earlier))


def is_conversation(record: Fields) -> bool:
    """Tell whether a record holds messages, as a request or a response does, or both together."""
    parts = (record.get(key) for key in _NAMES.whole)
    return any(isinstance(part, list | tuple | Mapping) for part in parts)


def _as_mappings(value: Any) -> Any:
    """Return objects of client libraries as mappings, whatever holds them, without the bytes of files."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | bytes | int | float | None):
        return value
    if isinstance(value, list | tuple):
        return [_as_mappings(item) for item in value]
    fields = value
    if hasattr(value, "model_dump"):
        fields = value.model_dump()
    elif not isinstance(value, Mapping):
        fields = getattr(value, "__dict__", {"text": str(value)})
    if "lc" in fields and "kwargs" in fields:  # LangChain's dumpd
        path = fields.get("id")
        kind = path[-1] if path and isinstance(path, list) else None
        fields = {"type": kind, **mapping(fields["kwargs"])}
    plain = {}
    for key, item in fields.items():
        if item is not None and not _is_bytes(key, item, fields):
            plain[key] = _as_mappings(item)
    return plain


def _is_bytes(key: str, value: Any, fields: Fields) -> bool:
    """Tell whether a value beside the other fields is the content of a file."""
    if not isinstance(value, str):
        return isinstance(value, bytes)
    if key == "data" and fields.get("type") != "text":
        return not fields.keys().isdisjoint(_NAMES.media_types)
    return key in _NAMES.bytes


def _messages(conversation: Any) -> list[dict[str, Any]]:
    """Return the messages of a list, a request, a response, or both together."""
    messages = []
    if isinstance(conversation, list):
        messages = [_unwrapped(item) for item in conversation]
    for key, role in _NAMES.whole.items():
        items = _listed(mapping(conversation).get(key))
        messages += [_unwrapped(item, role) for item in items]
    unclear = [item for item in messages if not _role(item)]
    if messages and not unclear:
        return messages
    got = unclear[0] if unclear else conversation
    named = repr(got)[:60]
    if isinstance(got, Mapping) and got:
        named = f"an object with {', '.join(got)}"
    raise InputError(
        f'conversation: got {named}, expected messages like {{"role": "user", "content": "…"}}: a list of them, or '
        "a request or response that holds it"
    )


def _unwrapped(message: Any, role: str = "") -> Any:
    """Return the message inside a choice or a candidate, with the evidence that stands beside it.

    Args:
        message: also a text, a pair of role and content, or LangChain's ``type`` and ``data``.
        role: whose it is where it does not say so itself.
    """
    if isinstance(message, list) and len(message) == 2:
        name, content = message
        if str(name).lower() in _NAMES.roles:
            return {"role": name, "content": content}
    if isinstance(message, str) and role:
        return {"role": role, "content": message}
    fields = mapping(message)
    beside = _evidence_beside(fields)
    for key in ("message", "content", "data"):
        inner = mapping(fields.get(key))
        if _role(inner):
            return {**fields, "type": None, **inner, **beside}
        if key == "data" and inner and "role" not in fields:
            return {**fields, **inner, **beside}
    has_content = first_of(fields, _CONTENT)
    if role and has_content and not _role(fields):
        return {**fields, "role": role}
    return message


def _evidence_beside(message: Any) -> Fields:
    fields = mapping(message)
    return {key: fields[key] for key in _EVIDENCE_KEYS if fields.get(key)}


def _role(message: Any) -> str:
    """Return user, assistant, tool or system; empty where it is not a message."""
    role = first_of(message, _NAMES.role)
    role = first_of(role, ("value", "role")) or role
    fields = mapping(message)
    kind = str(fields.get("type") or "")
    class_name = re.sub("message(chunk)?$", "", kind.lower())
    if not role and class_name in _NAMES.roles:  # LangChain
        role = class_name
    elif not role and _is_call(message):
        role = "assistant"
        if kind.endswith("_output"):
            role = "tool"
    name = str(role or "").lower()
    return str(_NAMES.roles.get(name, name))


def _is_item(message: Fields) -> bool:
    """Tell whether a message is an item of the Responses API, several of which are one answer."""
    return message.get("type") == "message" or _is_call(message)


def _is_call(message: Any) -> bool:
    """Tell whether an item is a call, its result or a document by itself."""
    fields = mapping(message)
    kind = str(fields.get("type") or "")
    is_kind = any(form.fullmatch(kind) for form in _KINDS[:3])
    return is_kind and "role" not in fields


def _blocks(message: Fields, turn: int) -> list[Fields]:
    """Return the blocks of a message, a text as one; what stands beside blocks without words is read, too."""
    if _is_call(message):
        return [message]
    calls = _listed(message.get("toolInvocations"))
    blocks: list[Any] = [{"toolInvocation": call} for call in calls]
    blocks += _listed(first_of(message, ("blocks", "parts")))
    if not any(OWN_WORDS.fullmatch(_kind(block)) for block in blocks):
        content = first_of(message, _NAMES.content)
        blocks += _listed(mapping(content).get("parts", content))
    mappings: list[Fields] = []
    for block in blocks:
        if isinstance(block, str):
            block = {"text": block}
        if not isinstance(block, Mapping):
            raise InputError(
                f"conversation[{turn}]: content is {str(blocks)[:40]}, expected text or a list of blocks"
            )
        mappings.append(block)
    return mappings


def _listed(value: Any) -> list[Any]:
    """Return a list itself, nothing as an empty one, anything else as its only item."""
    if isinstance(value, list):
        return value
    if not value:
        return []
    return [value]


def _kind(block: Any) -> str:
    """Return the kind of a block: its type, or else the first of its keys that is one; all of them where none is."""
    if isinstance(block, str):
        return "text"
    fields = mapping(block)
    kind = fields.get("type")
    names = [kind] if kind else fields
    keys = list(map(str, names))
    for key in keys:
        if any(form.fullmatch(key) for form in _KINDS):
            return key
    return ", ".join(keys)


def _tool_names(messages: Sequence[Fields]) -> dict[str, str]:
    """Return the name of the tool by the id of its call, from all calls in the messages."""
    names: dict[str, str] = {}
    for turn, message in enumerate(messages):
        calls = _listed(message.get("tool_calls"))
        for call in [*calls, *_blocks(message, turn)]:
            # Bedrock wraps the call, OpenAI the function; Anthropic and OpenTelemetry have both names beside the id.
            call = mapping(call)
            inner = mapping(call.get("toolUse") or call)
            function = mapping(inner.get("function")) or inner
            call_id = first_of(inner, _NAMES.call_ids)
            name = first_of(function, _NAMES.tool_names)
            if call_id and name:
                names[str(call_id)] = str(name)
    return names


@dataclass
class _Turn:
    """One message, and what its blocks are read with."""

    number: int
    message: Fields
    tools: Mapping[str, str]
    """Names of tools by the ids of their calls."""
    beside: Fields = field(default_factory=dict)
    """Evidence that stands beside all messages."""

    @cached_property
    def role(self) -> str:
        return _role(self.message)

    @property
    def said(self) -> list[Piece]:
        return [piece for piece in self.pieces if not piece.source]

    @property
    def evidence(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.source]

    def source(
        self,
        role: str,
        name: Any = None,
        failed: Any = False,
    ) -> str:
        place = f"turn {self.number}: {role}"
        words = [place, name and str(name), failed and "(failed)"]
        return " ".join(filter(None, words))

    @cached_property
    def pieces(self) -> list[Piece]:
        """The texts of the message that are not blank, those of tools and documents among them."""
        message = self.message
        pieces: list[Piece] = []
        for block in _blocks(message, self.number):
            pieces += self.read(block)
        is_blank = not any(piece.text.strip() for piece in pieces)
        says_nothing = not _SAID & message.keys() and not _is_call(message)
        audio = mapping(message.get("audio"))
        spoken = audio.get("transcript") or message.get("refusal")
        if is_blank and spoken:
            pieces.append(Piece(str(spoken)))
        elif is_blank and says_nothing:
            keys = ", ".join(message)
            log.warning("conversation[%d]: got %s, but no content", self.number, keys)
        for key in _EVIDENCE_KEYS:
            pieces += self.retrieved(self.beside.get(key) or message.get(key))
        return [piece for piece in pieces if piece.text.strip()]

    def read(self, block: Fields) -> list[Piece]:
        """Return the texts of one block."""
        kind = _kind(block)
        if block.get("thought") or _UNREAD.fullmatch(kind):
            return []
        held = block.get(kind, block)
        if OWN_WORDS.fullmatch(kind):
            return self.words(mapping(held) or block)
        inner = mapping(held) or {"content": held}
        inner = mapping(inner.get("toolInvocation")) or inner
        if _RESULT.fullmatch(kind):
            return self.result(kind, inner)
        if "search_tool" in kind:
            return self.retrieved(inner.get("content"))
        if _DOCUMENT.fullmatch(kind):
            documents = self.retrieved(inner.get("results") or inner)
            if documents:
                return documents
        elif self.role == "tool" and not FILE.fullmatch(kind):
            return [Piece(as_text(block), self.tool_source(self.message))]
        warn_unread(kind, f"conversation[{self.number}]")
        return []

    def words(self, block: Fields) -> list[Piece]:
        """Return what was said, and the evidence that its citations quote; all a tool says is evidence."""
        cites = _listed(block.get("citations"))
        cites = cites + _listed(block.get("annotations"))
        text = as_text({**block, "type": "text"})
        piece = Piece(text)
        for cite in cites:
            piece.cites += _names_of(cite)
        if self.role == "tool":
            piece.source = self.tool_source(self.message)
        quotations = self.retrieved(cites)
        for quotation in quotations:
            quotation.quoted = True
        return [piece, *quotations]

    def result(self, kind: str, block: Fields) -> list[Piece]:
        """Return what a tool returned, each document in it by itself."""
        content = first_present(block, _NAMES.results)
        source = self.tool_source(block, kind)
        if not isinstance(content, list):
            return [Piece(as_text(content), source)]
        documents: list[Piece] = []
        others = []
        for item in content:
            if _DOCUMENT.fullmatch(_kind(item)):
                documents += self.read(item)
            else:
                others.append(item)
        text = as_text(others or "")
        return [Piece(text, source), *documents]

    def tool_source(self, block: Fields, kind: str = "") -> str:
        """Name the tool that a result is of, and say whether it failed."""
        fields = {**self.message, **block}
        is_error = first_of(fields, ("is_error", "isError"))
        failed = is_error or fields.get("status") == "error"
        own_name = re.fullmatch("tool-(?!result|invocation)(.+)", kind)
        call_id = first_of(fields, _NAMES.call_ids)
        name = self.tools.get(str(call_id)) or first_of(fields, _NAMES.tool_names)
        return self.source("tool", name or (own_name and own_name[1]), failed)

    def retrieved(self, value: Any) -> list[Piece]:
        """Return what was retrieved, with its source."""
        here = self.source("tool", "retrieval")
        return [Piece(one.text, one.source or here) for one in documents_in(value)]


def _names_of(citation: Any) -> list[str]:
    """Return what a citation object names: its quotations and sources."""
    nested = first_of(citation, ("url_citation", "sourceContent"))
    nested = mapping(nested).get("url", nested)
    cited = first_of(citation, _NAMES.cited)
    names = [cited, as_text(nested)]
    return [str(name) for name in names if name]


def _without_quotations(pieces: Sequence[Piece]) -> list[Piece]:
    """Leave out quotations of other evidence, and what is there again."""
    texts = "\0".join(piece.text for piece in pieces if not piece.quoted)
    whole: dict[str, Piece] = {}
    for piece in pieces:
        text = piece.text.strip()
        if not (piece.quoted and text in texts):
            whole.setdefault(text, piece)
    return [*whole.values()]


def _answer_text(pieces: Sequence[Piece], evidence: Sequence[Piece]) -> str:
    """Return the pieces of an answer as one text: torn ones are joined, and cited chunks named by their numbers."""
    text = last = ""
    for piece in pieces:
        is_torn = not _ENDS.search(last) or piece.text[:1].isspace()
        if not is_torn:
            text += "\n"
        text += piece.text
        last = piece.text
        for number, chunk in enumerate(evidence, 1):
            if any(_is_cited(name, chunk) for name in piece.cites):
                text += f" [{number}]"
    return text


def _is_cited(name: str, chunk: Piece) -> bool:
    is_quoted = len(name) > 20 and name.strip() in chunk.text
    return is_quoted or name == chunk.source
