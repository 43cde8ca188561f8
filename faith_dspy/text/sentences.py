"""Text → sentences with exact character offsets, for answers and contexts alike; and which of them assert anything.

Sentence boundaries come from `sentencex <https://github.com/wikimedia/sentencex>`_ (MIT, made for Wikipedia's
languages). On top of it a line break always ends a sentence, so that list items are judged one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import takewhile
from typing import NamedTuple

import regex

from faith_dspy.schema import Sentence
from faith_dspy.text.languages import LANGUAGES, language_of, word_lists
from faith_dspy.text.words import (
    UNSPACED_VERB,
    begins_with_citation,
    has_words,
    names_only,
    plain_words,
    without_citations,
)

HEADING_WORDS = 6
"""A line of at most so many words that ends in a colon, or begins with Markdown's number signs and only names
something, is a heading, unless it has a verb or a quantity."""
_MARKDOWN_HEADING = re.compile(r"#{1,6}\s")
_LINE = re.compile(r"(?:(?![。！？।](?=\d))[^\r\n])*(?:[。！？।](?=\d)|[^\r\n])")
"""Text up to the end of a line, or to a CJK or Hindi full stop before a digit, which sentencex misses."""
BLOCK = 20_000
"""Characters that sentencex gets at a time."""
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff"
"""Kana and Han, written without spaces."""
_FENCE = re.compile(r"(?:`{3,}|~{3,})\s*[\w+#.-]*")
_COUNTER = re.compile(
    r"(?![+−-]?\d+$)[^\w%‰$€£¥₹°]*\d{1,3}[^\w%‰$€£¥₹°]*|(?:\W*\[[\d,\s–-]+\])+\W*"
)
"""A number that only counts: “1.”, “(2)”, “[3][4]”. A quantity (“5 %”), or a number by itself, may be an answer."""
_FLAGS = re.IGNORECASE | re.VERBOSE | re.DOTALL
_RULES = {"german": "de"}
"""Languages for which sentencex does better by their own rules (“am 3. Mai”) than by the English ones (“M. Dupont”)."""


_Pattern = re.Pattern[str]
_Piece = tuple[int, str]
"""Offset and text."""


@cache
def _courtesies() -> _Pattern:
    """Return a pattern of apologies, and of greetings and pleasantries, of all languages (`WordLists`)."""
    apologies: list[str] = []
    greetings: list[str] = []
    for lists in map(word_lists, LANGUAGES):
        apologies += lists.apology
        greetings += lists.greeting
    apology = rf"^\W*(?:{'|'.join(apologies)})\W*$"
    end = rf"(?:(?<=[{_UNSPACED}])|[\W_]+|$)"
    greeting = rf"^[\W_]*(?:(?:{'|'.join(greetings)}){end}){{1,4}}$"
    return re.compile(f"{apology}|{greeting}", _FLAGS)


@cache
def _refusals() -> list[tuple[_Pattern, _Pattern]]:
    """Return by language how a refusal begins, and where another clause does."""
    patterns = []
    for lists in map(word_lists, LANGUAGES):
        if not lists.refusal:
            continue
        apology = "|".join(lists.apology)
        sorry = rf"(?:{apology})\W*+(?:but\s+|aber\s+|mais\s+|pero\s+)?"
        refusal = "\n".join(lists.refusal)
        # Possessive: to step back from one sign at a time takes time by the square.
        begins = rf"^\W*+(?:{sorry})?(?:{refusal})"
        clause = "\n".join(lists.clause_break)
        patterns.append((re.compile(begins, _FLAGS), re.compile(clause, _FLAGS)))
    return patterns


@cache
def _verbs() -> frozenset[str]:
    """Return the verbs of all languages that make a short line a statement."""
    verbs: set[str] = set()
    for language in LANGUAGES:
        verbs |= word_lists(language).stating_verbs
    return frozenset(verbs)


class SplitAnswer(NamedTuple):
    """An answer's sentences, and what it claims; made by `split_answer` and handed on."""

    text: str
    sentences: tuple[Sentence, ...]
    stating: tuple[Sentence, ...]
    """Those that can assert anything (`carries_statement`)."""
    declines: bool
    """Whether every sentence, apologies and greetings aside, declines to answer."""


def split_answer(answer: str) -> SplitAnswer:
    """Split an answer into sentences, and tell which of them can assert anything."""
    divided = sentences(answer)
    stating = tuple(s for s in divided if carries_statement(s.text))
    return SplitAnswer(answer, divided, stating, _all_decline(divided))


def sentences(text: str) -> tuple[Sentence, ...]:
    """Return the sentences, with only white space between them: ``text[s.start:s.end] == s.text`` for each."""
    divided = []
    for i, (start, piece) in enumerate(sentence_texts(text)):
        sentence = Sentence(
            index=i,
            start=start,
            end=start + len(piece),
            text=piece,
        )
        divided.append(sentence)
    return tuple(divided)


def sentence_texts(text: str) -> list[_Piece]:
    """Return the sentences as (offset, text)."""
    lines: list[_Piece] = []
    for start, piece in _pieces(text):
        for match in _LINE.finditer(piece):
            line = match[0].lstrip()
            offset = start + match.end() - len(line)
            if line:
                lines.append((offset, line.rstrip()))
    return _with_notes(text, lines)


_NOTE = regex.compile(r"(?:<sup\b.{1,400}?</sup>|[⁰¹²³⁴-⁹⁽⁾,])+")


def _with_notes(text: str, pieces: list[_Piece]) -> list[_Piece]:
    """Return the sentences with the raised numbers right behind them, which sentencex puts before the next one."""
    out: list[_Piece] = []
    for start, piece in pieces:
        note = _NOTE.match(piece)
        is_behind = out and not text[start - 1].isspace()
        if note and is_behind:
            end = start + note.end()
            first, _ = out.pop()
            out.append((first, text[first:end]))
            rest = piece[note.end() :].lstrip()
            start += len(piece) - len(rest)
            piece = rest
        if piece:
            out.append((start, piece))
    return out


def _pieces(text: str) -> Iterator[_Piece]:
    """Yield what sentencex splits a text into, as (offset, text).

    It gets a block at a time: it looks for the end of each quotation in all of the rest, so that its time grows with
    the square of the length.
    """
    from sentencex import get_sentence_boundaries

    rules = _RULES.get(language_of(text), "en")
    position = 0
    while position < len(text):
        end = position + BLOCK
        block = text[position:end]
        boundaries = get_sentence_boundaries(rules, block) if block.strip() else []
        pieces = [boundary["text"] for boundary in boundaries]
        if end < len(text) and len(pieces) > 1:
            pieces.pop()  # it may go on behind the block
            end = 0
        for piece in pieces:
            start = text.index(piece, position)
            position = start + len(piece)
            yield start, piece
        position = max(position, end)


def carries_statement(sentence: str) -> bool:
    """Tell whether a sentence can assert anything.

    Questions that only ask, greetings, pleasantries, offers of help, apologies, headings (“Steps:”, “## Steps”), code
    fences, list markers, citations, names of sources, rules of tables and between paragraphs, symbols and what cannot
    be seen cannot.
    """
    text = without_citations(sentence).strip()
    if _FENCE.fullmatch(sentence) or not has_words(text):
        return False
    if _is_source(sentence, text):
        return False
    if any(map(str.isalpha, text)):
        return not (_only_asks(text) or _is_heading(text) or _is_courtesy(text))
    has_digit = re.search(r"\d", text) is not None
    return has_digit and not _COUNTER.fullmatch(text)


_SOURCE_HEADINGS = (
    "sources?|references?|citations?|bibliography|quellen?|literatur|références?|fuentes?|referencias?|fonti|bronnen"
    "|参考(?:文献|资料)?|来源|出典|المصادر|स्रोत"
)
_SOURCE_LINE = regex.compile(
    rf"[*_#>\s-]*(?:{_SOURCE_HEADINGS})[*_\s]*(?:[:：]|$)|\[\^?\d{{1,3}}\]:|\W*(?:\d{{1,3}}[.)]\s+)?(?:https?://|www\.)[!-~]+$",
    regex.IGNORECASE,
)
"""How a line about sources begins: the heading of their list, a footnote, nothing but an address."""
_SOURCE_LINK = regex.compile(r"[-*•\s]*\[([^\[\]\n]{1,200})\]\(https?://[^()\s]*\)\W*")
_URL = regex.compile(r"(?:https?://|www\.)[!-~]+")


def _is_source(sentence: str, text: str) -> bool:
    """Tell whether it is an entry or the heading of a list of sources; ``text`` is without citations."""
    link = _SOURCE_LINK.fullmatch(sentence)
    heading = _SOURCE_LINE.match(sentence) or _SOURCE_LINE.match(text)
    if link:
        text = link[1]
    elif heading:
        text = heading.string[heading.end() :]
    else:
        is_whole = text.endswith((".", "!", "。", "।"))
        if is_whole or not begins_with_citation(sentence.lstrip("-*• ")):
            return False
    return names_only(_URL.sub(" ", text))


_COURTESY = 400
"""Characters of a courtesy at most; matching takes longer than in proportion."""


def _is_courtesy(sentence: str) -> bool:
    if len(sentence) > _COURTESY:
        return False
    return _courtesies().match(sentence) is not None


def _only_asks(sentence: str) -> bool:
    """Tell whether it is a question that asserts nothing, unlike “Did you know that …?” or “It is blue, right?”."""
    text = sentence.rstrip("\"'”’»)] ")
    if not text.endswith(("?", "？", "؟")) or _asserting_questions().search(text):
        return False
    lists = word_lists(language_of(text))
    words = _WORD_OR_PAUSE.findall(text.lower())
    before = list(takewhile(lambda word: word not in lists.stating_verbs, words))
    has_verb = len(before) < len(words)
    if not has_verb or not lists.question_words:
        return True
    follows_pause = bool(before) and before[-1] in _PAUSES
    asks = not lists.question_words.isdisjoint(before)
    return asks or follows_pause or lists.openers.issuperset(before)


_PAUSES = ',:;–—("“-'
_WORD_OR_PAUSE = regex.compile(
    rf"[\p{{L}}\p{{M}}]+(?:['’](?!s\b)\p{{L}}+)?|[{_PAUSES}]"
)


@cache
def _asserting_questions() -> _Pattern:
    phrases: list[str] = []
    for language in LANGUAGES:
        phrases += word_lists(language).asserting_question
    return re.compile("|".join(phrases), _FLAGS)


def _is_heading(sentence: str) -> bool:
    line = sentence.strip("*_#> ")
    has_colon = line.endswith((":", "："))
    is_marked = _MARKDOWN_HEADING.match(sentence) is not None
    if not has_colon and not (is_marked and names_only(line)):
        return False
    if re.search(f"[{_UNSPACED}]", line):
        states = UNSPACED_VERB.search(line) or re.search(r"\d", line)
        return len(line) <= HEADING_WORDS and not states
    # “Method 1:” has a number, “It costs 20 euros:” a quantity.
    line = re.sub(r"\s\d{1,2}\W*$", "", line)
    if re.search(r"\d|['’](?:s|re|m|ll|ve)\b", line):
        return False
    words = line.split()
    plain = map(plain_words, words)
    return len(words) <= HEADING_WORDS and _verbs().isdisjoint(plain)


def _all_decline(sentences: Iterable[Sentence]) -> bool:
    """Tell whether all of them, courtesies aside, decline to answer.

    Conservative on purpose: an answer that declines and then goes on is judged like any other.
    """
    texts = [s.text for s in sentences if not _is_courtesy(s.text)]
    for refusal, clause_break in _refusals():
        if texts and all(_declines(text, refusal, clause_break) for text in texts):
            return True
    return False


def _declines(sentence: str, refusal: _Pattern, clause_break: _Pattern) -> bool:
    while match := refusal.match(sentence):
        more = clause_break.search(sentence, match.end())
        if more is None:
            return True
        sentence = sentence[more.end() :]
    return False
