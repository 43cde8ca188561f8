"""Identifiers: what is compared whole – addresses, paths, names in code, versions, telephone numbers."""

from __future__ import annotations

import html
from typing import NamedTuple

import regex

from faith_dspy.text.words import tidy, without_citations

_ADDRESS = r"(?:https?://|www\.)[^\s<>\"'()\[\]{}|]+|[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+"
_PHONE = r"(?<![\w+])(?:\+\d{1,3}|\(0\d{1,5}\)|0\d{1,4}(?=[\s/-]))(?:[\s()./-]{0,2}\d){6,12}(?!\d)"
_NO_VERSION = r"\d{1,3}(?:\.\d{3})+\b|\d{1,2}\.\d{1,2}\.\d{4}\b"
"""Thousands and dates."""
_VERSION = (
    rf"(?<![\w.])(?:[vV]\d+(?:\.\d+)*\b(?!-)|(?!{_NO_VERSION})\d+(?:\.\d+){{2,}}\b)"
)
_PATH = r"(?<![\w/.:<])(?:~|\.{1,2})?(?:/[\w@-][\w.@-]*)+|\b[A-Za-z]:\\[\w\\.-]+"
_FLAG = r"(?<![\w-])--[a-zA-Z][\w-]+"
_DOTTED = r"(?<![\w.@/-])[A-Za-z][\w-]+(?:\.[a-z][\w-]+)+"
_CODE = r"(?<![\w.@/-])(?:\w*[A-Za-z]_\w+|[a-z]+[A-Z]\w*|[A-Za-z]+\d\w*)(?![\w-])"
_PART = r"(?<![\w.@/-])[A-Z]{1,5}-\d+(?:\.\d+)*[A-Za-z]*(?![\w-])"
"""Numbers of parts and models: “XJ-900B”."""
_IDENTIFIER = regex.compile(
    "|".join((_ADDRESS, _PHONE, _VERSION, _PATH, _FLAG, _DOTTED, _CODE, _PART)),
    regex.VERSION1 | regex.ASCII,
)
"""Of ASCII letters: a script without spaces has its words beside them."""
_TARGET = regex.compile(r"\]\((https?://[^\s()]+)")
"""Where a link of Markdown leads."""
_SCHEME = regex.compile(r"(?i)^(?:https?://)?(?:www\.)?")
_DIGITS = regex.compile(r"[\d\s()+/-]+")
"""A telephone number, however its digits are divided."""
_SEPARATOR = r"[\s()./-]{0,2}"
_JOINT = r"[\s-]?"
"""What may stand between the letters and the digits of a name."""


class Identifier(NamedTuple):
    """An identifier as written, and where."""

    raw: str
    start: int
    end: int

    def holds(self, position: int) -> bool:
        """Tell whether a position of the text is within it."""
        return self.start <= position < self.end

    def is_in(self, text: str) -> bool:
        """Tell whether a text in lower case has it whole: not as a part of a longer name."""
        name = _SCHEME.sub("", self.raw.lower()).rstrip("/.")
        if _DIGITS.fullmatch(name):
            digits = regex.findall(r"\d", name)
            form = _SEPARATOR.join(digits)
        else:
            name = regex.sub(r"^v(?=\d)", "", name)
            parts = regex.split(r"(?<=[a-z])-?(?=\d)|(?<=\d)-?(?=[a-z])", name)
            form = f"v?{_JOINT.join(map(regex.escape, parts))}"
        return regex.search(rf"(?<![\w-]){form}(?!\w|-\w)", text) is not None


def identifiers_in(text: str) -> list[Identifier]:
    """Return the identifiers of a `comparable` text."""
    identifiers = []
    for match in _IDENTIFIER.finditer(text):
        raw = match[0].rstrip(".,;:!?")
        start = match.start()
        identifiers.append(Identifier(raw, start, start + len(raw)))
    return identifiers


def link_targets(text: str) -> list[Identifier]:
    """Return where the links of a Markdown text lead, citations aside; they stand nowhere in the text that is read."""
    targets = _TARGET.findall(without_citations(text))
    return [Identifier(target, -1, -1) for target in targets]


def searchable(text: str) -> str:
    """Return a text in which `Identifier.is_in` looks: with what HTML and Markdown do not show."""
    return tidy(html.unescape(text)).lower()
