"""Evidence: quotes that stand in the chunks of a context."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from faith_dspy.schema import Chunk, QuoteSpan
from faith_dspy.text.words import tidy, visible


def find_quotes(
    quotes: Iterable[str],
    context: Sequence[Chunk],
    named: Sequence[int] = (),
) -> tuple[tuple[QuoteSpan, ...], int]:
    """Return the span of each quote in the context, once each; and how many quotes the context does not have.

    Ignored are case, white space, what cannot be seen, the form of quotation marks and dashes, Unicode's composed and
    compatibility forms, and marks and punctuation around a quote. A quote may not begin or end inside a word or a
    number. Where several chunks have it, one of ``named`` is taken first.
    """
    plain_quotes = {_plain(quote).text.strip(_EDGE): None for quote in quotes}
    texts: dict[int, _Plain] = {}
    if plain_quotes:
        ordered = sorted(context, key=lambda chunk: (chunk.id not in named, chunk.id))
        texts = {chunk.id: _plain(chunk.text) for chunk in ordered}
    spans: dict[QuoteSpan, None] = {}
    dropped = 0
    for quote in plain_quotes:
        if quote in _NOTHING:
            continue
        span = _find(quote, texts)
        if span is None:
            dropped += 1
        else:
            spans[span] = None
    return tuple(spans), dropped


class _Plain(NamedTuple):
    text: str
    offsets: list[int]
    """For each character of ``text``, its offset in the original."""


_NOTHING = ("", "none", "n/a", "no quote")
_EDGE = " \"'`.,;:!?。，；：！？…()[]-*"


def _plain(text: str) -> _Plain:
    plain = " "
    offsets: list[int] = []
    for i, character in enumerate(text):
        folded = unicodedata.normalize("NFKD", tidy(character)).casefold()
        for c in folded.replace('"', "'"):
            # A prompt shows nothing invisible, and may have a space after a bracket.
            if c.isspace():
                if plain[-1] in " <[":
                    continue
                c = " "
            elif not visible(c):
                continue
            plain += c
            offsets.append(i)
    return _Plain(plain[1:], offsets)


def _find(quote: str, texts: Mapping[int, _Plain]) -> QuoteSpan | None:
    """Return where the first chunk that has a quote has it, in the original text."""
    for chunk_id, (text, offsets) in texts.items():
        for match in re.finditer(re.escape(quote), text):
            start, end = match.span()
            if not _inside(text, start) and not _inside(text, end):
                return QuoteSpan(
                    chunk_id=chunk_id,
                    start=offsets[start],
                    end=offsets[end - 1] + 1,
                )
    return None


def _inside(text: str, at: int) -> bool:
    """Return whether a position lies inside a letter, a word or a number. Scripts without capitals may have no
    spaces."""
    if not 0 < at < len(text):
        return False
    if unicodedata.category(text[at]).startswith("M"):  # a mark on the letter before
        return True
    before, after = text[at - 1], text[at]
    if before.isdigit() and after.isdigit():
        return True
    has_case = before.lower() != before.upper()
    return has_case and after.lower() != after.upper()
