"""A context cut into windows that each fit one LM call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.text.sentences import sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faith_dspy.schema import Chunk


BYTES_PER_TOKEN = 2.5
"""Careful guess for UTF-8 text; English has about 4, Hindi about 3."""
CONTEXT_SHARE = 0.7
"""Share of the LM's context window that the answer's context may fill."""


class Window(NamedTuple):
    """A part of the context that fits one call."""

    ids: list[int]
    """Chunk id of each text."""
    texts: list[str]


def windows(context: Sequence[Chunk], limit: int | None, overhead: int = 0) -> list[Window]:
    """Chunks in order, in as few windows of at most ``limit`` bytes as possible; long chunks are cut between sentences.

    ``overhead``: bytes each chunk takes beside its text. Sizes are bytes of UTF-8, not characters, because a single
    character of Hindi or Chinese may be a token of its own.
    """
    out = [Window([], [])]
    used = 0
    for chunk_id, text in _pieces(context, limit):
        size = size_of(text) + overhead
        if out[-1].texts and limit is not None and used + size > limit:
            out.append(Window([], []))
            used = 0
        used += size
        out[-1].ids.append(chunk_id)
        out[-1].texts.append(text)
    return out


def bytes_of_context(num_ctx: int | None) -> int | None:
    """Bytes of context that fit one call of an LM with a window of ``num_ctx`` tokens; None if that is unknown."""
    return int(num_ctx * CONTEXT_SHARE * BYTES_PER_TOKEN) if num_ctx else None


def size_of(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _pieces(context: Sequence[Chunk], limit: int | None) -> Iterator[tuple[int, str]]:
    for chunk in context:
        if limit is None or size_of(chunk.text) <= limit:
            yield chunk.id, chunk.text
            continue
        piece = ""
        for sentence in sentences(chunk.text):
            for part in _cut(sentence.text, limit):
                if piece and size_of(piece) + size_of(part) + 1 > limit:
                    yield chunk.id, piece
                    piece = ""
                piece = f"{piece} {part}".strip()
        yield chunk.id, piece


def _cut(text: str, limit: int) -> Iterator[str]:
    """Parts of at most ``limit`` bytes, but at least one character each."""
    start = size = 0
    for i, character in enumerate(text):
        size += size_of(character)
        if size > limit and i > start:
            yield text[start:i]
            start, size = i, size_of(character)
    yield text[start:]
