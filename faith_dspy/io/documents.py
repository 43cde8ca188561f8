"""Retrieved documents, whatever a library wraps them in: a text and where it is from."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from faith_dspy.io.names import TABLES, Fields
from faith_dspy.schema import Chunk

log = logging.getLogger(__name__)

_NAMES = TABLES["documents"]
_LINK = re.compile(r"https?://\S+")
FILE = re.compile(
    r"(?:input_)?(?:image|file|audio)|image_url|(?:inline|file)_?[dD]ata|video|media"
)
"""Kinds of blocks that hold the bytes of a file."""
OWN_WORDS = re.compile(
    r"text|output_text|input_text|refusal|citationsContent|guardContent"
)
"""Kinds of blocks that hold words."""


class Document(NamedTuple):
    """What a retriever returned."""

    text: str
    source: str | None = None


def documents_in(value: Any) -> list[Document]:
    """Return the documents that are not blank: in a text, a document, what wraps either, or a list of these.

    A bare link only points to one.
    """
    if isinstance(value, str):
        is_text = value.strip() and not _LINK.fullmatch(value)
        return [Document(value)] if is_text else []
    items = value
    if not isinstance(value, list | tuple):
        items = first_of(value, _NAMES["lists"], list | tuple)
    if items is None:
        document = document_of(value)
        if document:
            return [document] if document.text.strip() else []
        items = []
        for held in mapping(value).values():
            held = held if isinstance(held, list) else [held]
            items += [item for item in held if not isinstance(item, str)]
    return [document for item in items for document in documents_in(item)]


def document_of(item: Any) -> Document | None:
    """Return text and source of one document; None for anything else.

    Its text may stand inside a ``node``, a ``document``, ``kwargs`` or a ``source``. The source is what it, its
    metadata or its location names.
    """
    if isinstance(item, Chunk):
        return Document(item.text, item.source)
    if isinstance(item, str | list | tuple | None):
        return None
    for name in _NAMES["wrapped"]:
        inner = document_of(value_of(item, name))
        if inner:
            return inner
    source = value_of(item, "source")
    holder = source if isinstance(source, Mapping) else item
    text = None
    for name in _NAMES["texts"]:
        value = value_of(holder, name)
        if isinstance(value, str | list | Mapping):
            inner = document_of(value)
            text = inner.text if inner else as_text(value)
        if text:
            break
    if text is None:
        return None
    return Document(text, _source_of(item))


def _source_of(document: Any) -> str | None:
    beside = ("metadata", "location", "data")
    places = [document, *(value_of(document, name) for name in beside)]
    for name in _NAMES["sources"]:
        for place in places:
            source = value_of(place, name)
            if isinstance(source, str | int) and source != "":
                return str(source)
    return None


def as_text(value: Any) -> str:
    """Return the output of a tool or retriever as text: the texts of its blocks; anything without a text as JSON."""
    if isinstance(value, str | None):
        return value or ""
    blocks = value if isinstance(value, list | tuple) else [value]
    contents = list(map(_content_of, blocks))
    if not contents or None in contents:
        return json.dumps(value, ensure_ascii=False, default=str, check_circular=False)
    texts = map(as_text, contents)
    return "\n".join(filter(None, texts))


def _content_of(block: Any) -> Any:
    """Return a text itself, the text or JSON inside a content block; None for anything else."""
    if isinstance(block, str):
        return block
    fields = mapping(block)
    kind = str(fields.get("type"))
    if FILE.fullmatch(kind):
        warn_unread(kind, "a tool's result")
        return ""
    is_bare = len(fields) <= 2 and fields.keys() <= {"text", "json", "type"}
    if is_bare or OWN_WORDS.fullmatch(kind):
        return first_present(fields, ("text", "content", "refusal", "json", "value"))
    return None


def warn_unread(kind: str, place: str) -> None:
    """Name what is not read."""
    why = ""
    if FILE.fullmatch(kind) or kind == "document":
        why = ": the bytes of a file are no text; give the text itself"
    log.warning("%s: a block of kind %r is not read%s", place, kind, why)


def mapping(value: Any) -> Fields:
    """Return a mapping itself, an empty one for anything else."""
    if isinstance(value, Mapping):
        return value
    return {}


def value_of(item: Any, name: str) -> Any:
    """Return a mapping's value, or an object's attribute; None where there is none."""
    if isinstance(item, Mapping):
        return item.get(name)
    return getattr(item, name, None)


def first_of(item: Any, names: Sequence[str], kind: Any = object) -> Any:
    """Return a mapping's first value that is not empty, of that type."""
    for name in names:
        value = mapping(item).get(name)
        if value and isinstance(value, kind):
            return value
    return None


def first_present(fields: Fields, names: Sequence[str]) -> Any:
    """Return the first value that is there, even if it is empty."""
    for name in names:
        if fields.get(name) is not None:
            return fields[name]
    return None


_LISTED = re.compile(r"['\"],\s")
_BETWEEN_TEXTS = re.compile(r"(?<=['\"])\s+(?=['\"])")
"""How numpy writes what stands between two texts; as a Python literal they would be one."""


def parsed(value: Any) -> Any:
    """Read a list written as text in a cell; a single document becomes a list. Anything else is returned as it is."""
    content = literal(value)
    if isinstance(value, str) and isinstance(content, Mapping):
        return [content] if document_of(content) else value
    return content


def literal(value: Any) -> Any:
    """Read a list or an object written as text, in JSON or as a Python literal; anything else is returned as it is."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    text = value
    if not _LISTED.search(text):
        text = _BETWEEN_TEXTS.sub(", ", text)
    for read in (json.loads, ast.literal_eval):
        try:
            content = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(content, list | Mapping):
            return content
    return value
