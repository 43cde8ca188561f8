"""Text → sentences, with character offsets that give the text back exactly; answers and contexts alike.

Sentence boundaries come from `sentencex <https://github.com/wikimedia/sentencex>`_ (MIT, made for Wikipedia's
languages). On top of it a line break always ends a sentence, so that list items are judged one by one.
"""

from __future__ import annotations

import re

from faith_dspy.normalise import language_of
from faith_dspy.schema import Sentence

_DECLINES = re.compile(
    r"""^\W*(?:(?:i['’]?m\s+(?:very\s+)?sorry|i\s+am\s+sorry|sorry|unfortunately|i\s+apologi[sz]e)\W+(?:but\s+)?)?
    (?:based\s+on\s+[\w\s]{1,40},\s*)?
    (?:
      (?:i['’]m\s+unable|(?:i|we)\s+
        (?:do\s+not|don['’]?t|can\s?not|can['’]?t|am\s+unable|could\s?n[o'’]t|could\s+not|are\s+unable))\b
        (?:(?!\b(?:but|and|because)\b)[^,;:]){0,60}?\b
        (?:know|answer|find|determine|say|tell|information|sure)\b
    | (?:unable|impossible)\s+to\s+(?:answer|determine|say|tell)\b
    | (?:the|this|these|none\s+of\s+the)?\s*(?:provided\s+|given\s+)?
        (?:context|documents?|passages?|sources?|text|information)\s+(?:provided\s+|given\s+)?
        (?:(?:do|does|did)\s*(?:not|n['’]t)\s+(?:\w+\s+){0,2}?(?:say|state|mention|contain|provide|include|answer|specify)
         |(?:is|are)\s+(?:not\s+enough|insufficient|silent))
    | there\s+is\s+(?:no|not\s+enough)\s+(?:information\b|evidence\s+(?:in|within)\b)
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_GOES_ON = re.compile(
    r"""[;:–—](?=\s*\w) | \s-\s
    | \b(?:but|however|although|though|yet|nevertheless|still|except|whereas|while|therefore|thus|because|since)\b
    | ,\s*(?:so|and|it|they)\b
    | \band\s+(?:it|they|he|she|you|is|was|are|were|has|had|states?|says?|costs?)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_APOLOGY = re.compile(r"^\W*(?:i['’]?m\s+(?:very\s+)?sorry|i\s+am\s+sorry|sorry|i\s+apologi[sz]e)\W*$", re.IGNORECASE)
_RULES = {"german": "de"}
"""Languages whose own rules beat the English ones: “am 3. Mai” does not end a sentence. Most do not (“M. Dupont”)."""


def sentences(text: str) -> tuple[Sentence, ...]:
    """Split ``text`` into sentences; ``text[s.start:s.end] == s.text`` for each, white space lies between them."""
    if not text.strip():
        return ()
    from sentencex import get_sentence_boundaries

    out: list[Sentence] = []
    position = 0
    for boundary in get_sentence_boundaries(_RULES.get(language_of(text), "en"), text):
        piece: str = boundary["text"]
        start = text.index(piece, position)
        position = start + len(piece)
        for line in re.finditer(r"[^\r\n]+", piece):
            stripped = line.group().strip()
            if stripped:
                begin = start + line.start() + line.group().index(stripped)
                out.append(Sentence(index=len(out), start=begin, end=begin + len(stripped), text=stripped))
    return tuple(out)


def carries_statement(sentence: str) -> bool:
    """Whether a sentence can assert anything: it has a letter, or a number that is not a mere list marker."""
    if any(c.isalpha() for c in sentence):
        return not _is_question(sentence)
    return bool(re.search(r"\d", sentence)) and not re.fullmatch(r"[\W_]*\(?\d{1,3}[.):]?[\W_]*", sentence)


def _is_question(sentence: str) -> bool:
    return sentence.rstrip("\"'”’»)] ").endswith(("?", "？", "؟"))


def declines(answer: str) -> bool:
    """Whether the whole answer only declines to answer (English phrases; every sentence has to decline).

    Conservative on purpose: an answer that declines and then goes on is judged like any other.
    """
    found = [s.text for s in sentences(answer) if not _APOLOGY.match(s.text)]
    return bool(found) and all(map(_declines, found))


def _declines(clause: str) -> bool:
    match = _DECLINES.match(clause)
    if match is None:
        return False
    more = _GOES_ON.search(clause, match.end())
    return more is None or _declines(clause[more.end() :])
