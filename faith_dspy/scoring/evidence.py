"""Evidence: chunk ids that exist in the context, and quotes that stand in its chunks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from faith_dspy.schema import Chunk, QuoteSpan
from faith_dspy.text.words import tidy, visible


def valid_chunk_ids(
    named: Iterable[int], context: Sequence[Chunk]
) -> tuple[tuple[int, ...], int]:
    """Return the ids that exist, ascending and once each; and how many different ids do not exist."""
    named, existing = set(named), {c.id for c in context}
    return tuple(sorted(named & existing)), len(named - existing)


def find_quotes(
    quotes: Iterable[str], context: Sequence[Chunk], named: Sequence[int] = ()
) -> tuple[tuple[QuoteSpan, ...], int]:
    """Return the span of each quote in the context, once each; and how many quotes the context does not have.

    Ignored are case, white space, what cannot be seen, the form of quotation marks and dashes, Unicode's composed and
    compatibility forms, and marks and punctuation around a quote. A quote may not begin or end inside a word or a
    number. Where several chunks have it, one of ``named`` is taken first.
    """
    plain_quotes = dict.fromkeys(_plain(q).text.strip(_EDGE) for q in quotes)
    chunks: list[tuple[int, _Plain]] = []
    if plain_quotes:
        for chunk in sorted(
            context, key=lambda chunk: (chunk.id not in named, chunk.id)
        ):
            chunks.append((chunk.id, _plain(chunk.text)))
    spans: list[QuoteSpan] = []
    dropped = 0
    for quote in plain_quotes:
        if not quote or quote in _NOTHING:
            continue
        for chunk_id, text in chunks:
            if ends := _find(quote, text):
                span = QuoteSpan(chunk_id=chunk_id, start=ends[0], end=ends[1])
                if span not in spans:
                    spans.append(span)
                break
        else:
            dropped += 1
    return tuple(spans), dropped


class _Plain(NamedTuple):
    text: str
    offsets: list[int]
    """For each character of ``text``, its offset in the original."""


_NOTHING = frozenset(["none", "n/a", "no quote"])
_EDGE = " \"'`.,;:!?。，；：！？…()[]-*"


def _plain(text: str) -> _Plain:
    out: list[str] = []
    offsets: list[int] = []
    for i, character in enumerate(text):
        for c in (
            unicodedata.normalize("NFKD", tidy(character)).casefold().replace('"', "'")
        ):
            space = c.isspace()
            if not (space or visible(c)) or (space and (not out or out[-1] in " <[")):
                continue  # a prompt shows nothing invisible, and may have a space after a bracket
            out.append(" " if space else c)
            offsets.append(i)
    return _Plain("".join(out), offsets)


def _find(quote: str, chunk: _Plain) -> tuple[int, int] | None:
    """Return start and end in the original text."""
    for match in re.finditer(re.escape(quote), chunk.text):
        start, end = match.span()
        if not _inside(chunk.text, start) and not _inside(chunk.text, end):
            return chunk.offsets[start], chunk.offsets[end - 1] + 1
    return None


def _inside(text: str, at: int) -> bool:
    """Return whether a position lies inside a letter, a word or a number. Scripts without capitals may have no
    spaces."""
    if not 0 < at < len(text):
        return False
    if unicodedata.category(text[at]).startswith("M"):  # a mark on the letter before
        return True
    pair = text[at - 1], text[at]
    return all(c.isdigit() for c in pair) or all(c.lower() != c.upper() for c in pair)
