"""What can be seen of a text, by the properties of Unicode."""

from __future__ import annotations

import regex

_INVISIBLE = regex.compile(
    r"(?!(?<=[[\p{Lo}\p{M}]--\p{DI}])[\u200C\u200D][\p{Lo}--\p{DI}])[[\p{Cc}\p{Cf}\p{Cs}\p{DI}]--[\t\p{PCM}]]",
    regex.VERSION1,
)
"""Control and format characters, lone surrogates, and what Unicode calls default-ignorable, but not the joiners and
non-joiners between letters of scripts without capitals, where spelling needs them."""
_WORD = regex.compile(r"[[\p{L}\p{N}]--\p{DI}]", regex.VERSION1)


def visible(line: str) -> str:
    """A line without what shows nothing: zero-width, bidirectional, tag and control characters, fillers, selectors."""
    return line if line.isascii() and line.isprintable() else _INVISIBLE.sub("", line)


def has_words(text: str) -> bool:
    """Whether there is a letter or a digit to be seen: without one, a text says nothing."""
    return _WORD.search(text) is not None
