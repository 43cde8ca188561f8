"""Text → sentences with exact character offsets, for answers and contexts alike; and which of them assert anything.

Sentence boundaries come from `sentencex <https://github.com/wikimedia/sentencex>`_ (MIT, made for Wikipedia's
languages). On top of it a line break always ends a sentence, so that list items are judged one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import chain

import regex

from faith_dspy.schema import Sentence
from faith_dspy.text.languages import LANGUAGES, language_of, word_lists
from faith_dspy.text.words import CITATION, has_words, without_citations

HEADING_WORDS = 6
"""A line of at most so many words that ends in a colon, or begins with Markdown's number signs, is a heading, unless it
has a verb or a quantity."""
_MARKDOWN_HEADING = re.compile(r"#{1,6}\s")
_LINE = re.compile(r"(?:(?![。！？।](?=\d))[^\r\n])*(?:[。！？।](?=\d)|[^\r\n])")
"""Text up to the end of a line, or to a CJK or Hindi full stop before a digit, which sentencex misses."""
BLOCK = 20_000
"""Characters that sentencex gets at a time."""
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff"
"""Kana and Han, written without spaces."""
_FENCE = re.compile(r"(?:`{3,}|~{3,})\s*[\w+#.-]*")
_MARKER = re.compile(
    r"(?![+−-]?\d+$)[^\w%‰$€£¥₹°]*\d{1,3}[^\w%‰$€£¥₹°]*|(?:\W*\[[\d,\s–-]+\])+\W*"
)
"""A number that only counts: “1.”, “(2)”, “[3][4]”. A quantity (“5 %”), or a number by itself, may be an answer."""
_FLAGS = re.IGNORECASE | re.VERBOSE | re.DOTALL
_RULES = {"german": "de"}
"""Languages for which sentencex does better by their own rules (“am 3. Mai”) than by the English ones (“M. Dupont”)."""


@cache
def _courtesies() -> list[re.Pattern[str]]:
    """Apologies, and greetings and pleasantries, of all languages (`WordLists`)."""
    lists = [word_lists(language) for language in LANGUAGES]
    apology, greeting = (
        "|".join(chain.from_iterable(getattr(w, n) for w in lists))
        for n in ("apology", "greeting")
    )
    forms = (
        rf"^\W*(?:{apology})\W*$",
        rf"^[\W_]*(?:(?:{greeting})(?:(?<=[{_UNSPACED}])|[\W_]+|$)){{1,4}}$",
    )
    return [re.compile(form, _FLAGS) for form in forms]


@cache
def _refusals() -> list[tuple[re.Pattern[str], re.Pattern[str]]]:
    """By language: how a refusal begins, and where another clause does."""
    found = []
    for w in map(word_lists, LANGUAGES):
        if w.refusal:
            sorry, refusal, clause = (
                "|".join(w.apology),
                "\n".join(w.refusal),
                "\n".join(w.clause_break),
            )
            begins = rf"^\W*(?:(?:{sorry})\W*(?:but\s+|aber\s+|mais\s+|pero\s+)?)?(?:{refusal})"
            found.append((re.compile(begins, _FLAGS), re.compile(clause, _FLAGS)))
    return found


@lru_cache(
    maxsize=128
)  # an answer is split up to three times, a document once per answer
def sentences(text: str) -> tuple[Sentence, ...]:
    """The sentences of ``text``, with only white space between them: ``text[s.start:s.end] == s.text`` for each."""
    return tuple(
        Sentence(index=i, start=start, end=start + len(piece), text=piece)
        for i, (start, piece) in enumerate(sentence_texts(text))
    )


@lru_cache(maxsize=128)
def sentence_texts(text: str) -> tuple[tuple[int, str], ...]:
    """The sentences of ``text`` as (offset, text)."""
    out: list[tuple[int, str]] = []
    for start, piece in _pieces(text):
        for match in _LINE.finditer(piece):
            line = match[0]
            stripped = line.strip()
            if stripped:
                out.append((start + match.start() + line.index(stripped), stripped))
    return tuple(_with_notes(text, out))


_NOTE = regex.compile(r"(?:<sup\b.{1,400}?</sup>|[⁰¹²³⁴-⁹⁽⁾,])+")


def _with_notes(text: str, pieces: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the sentences with the raised numbers right behind them, which sentencex puts before the next one."""
    out: list[tuple[int, str]] = []
    for start, piece in pieces:
        note = _NOTE.match(piece)
        if out and note and not text[start - 1].isspace():
            first = out[-1][0]
            out[-1] = (first, text[first : start + note.end()])
            rest = piece[note.end() :].lstrip()
            start, piece = start + len(piece) - len(rest), rest
        if piece:
            out.append((start, piece))
    return out


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """What sentencex finds, as (offset, text). It gets a block at a time: it looks for the end of each quotation in all
    of the rest, so that its time grows with the square of the length."""
    from sentencex import get_sentence_boundaries

    rules = _RULES.get(language_of(text), "en")
    position = 0
    while position < len(text):
        block, end = text[position : position + BLOCK], position + BLOCK
        found = (
            [boundary["text"] for boundary in get_sentence_boundaries(rules, block)]
            if block.strip()
            else []
        )
        if end < len(text) and len(found) > 1:
            found.pop()  # it may go on behind the block
            end = 0
        for piece in found:
            start = text.index(piece, position)
            position = start + len(piece)
            yield start, piece
        position = max(position, end)


def carries_statement(sentence: str) -> bool:
    """Whether a sentence can assert anything.

    Questions, greetings, pleasantries, offers of help, apologies, headings (“Steps:”, “## Steps”), code fences, list
    markers, citations, entries of a list of sources, rules of tables and between paragraphs, symbols and what cannot be
    seen cannot.
    """
    text = without_citations(sentence)
    if _FENCE.fullmatch(sentence) or not has_words(text) or _is_source(sentence):
        return False
    sentence = text.strip()
    if any(c.isalpha() for c in sentence):
        return not (
            _is_question(sentence) or _is_heading(sentence) or _is_courtesy(sentence)
        )
    return bool(re.search(r"\d", sentence)) and not _MARKER.fullmatch(sentence)


_SOURCES = (
    "sources?|references?|citations?|bibliography|quellen?|literatur|références?|fuentes?|referencias?|fonti|bronnen"
    "|参考(?:文献|资料)?|来源|出典|المصادر|स्रोत"
)
_SOURCE = regex.compile(
    rf"[*_#>\s-]*(?:{_SOURCES})[*_\s]*(?:[:：].{{0,300}})?|\W*(?:\d{{1,3}}[.)]\s+)?(?:https?://|www\.)\S+",
    regex.IGNORECASE | regex.DOTALL,
)
_FOOTNOTE = regex.compile(r"\[\^?\d{1,3}\]:")
_LINK = regex.compile(r"[-*•\s]*\[[^\[\]\n]{1,200}\]\(https?://[^()\s]*\)\W*")
"""A heading of a list of sources with what follows it in its line; an address."""
_ENTRY_WORDS = 12
"""Words of an entry of a list of sources at most: a number in brackets, a title, and no verb or full stop."""


def _is_source(sentence: str) -> bool:
    """Tell whether it is an entry or the heading of a list of sources."""
    text = without_citations(sentence).strip()
    if (
        _SOURCE.fullmatch(text)
        or _FOOTNOTE.match(sentence)
        or _LINK.fullmatch(sentence)
    ):
        return True
    marker = CITATION.match(sentence.lstrip("-*• "))
    if marker is None or text.endswith((".", "!", "。", "।")):
        return False
    words = text.lower().split()
    verbs = (word_lists(language).stating_verbs for language in LANGUAGES)
    return "http" in text or (
        len(words) <= _ENTRY_WORDS and not any(v.intersection(words) for v in verbs)
    )


_COURTESY = 400
"""Characters of a courtesy at most; matching takes longer than in proportion."""


def _is_courtesy(sentence: str) -> bool:
    return len(sentence) <= _COURTESY and any(
        phrase.match(sentence) for phrase in _courtesies()
    )


def _is_question(sentence: str) -> bool:
    return sentence.rstrip("\"'”’»)] ").endswith(("?", "？", "؟"))


def _is_heading(sentence: str) -> bool:
    line = sentence.strip("*_#> ")
    if not line.endswith((":", "：")) and not _MARKDOWN_HEADING.match(sentence):
        return False
    # “Method 1:” has a number, “It costs 20 euros:” a quantity.
    words = re.sub(r"\s\d{1,2}\W*$", "", line).split()
    plain = {regex.sub(r"[^\p{L}\p{M}\p{N}]", "", w).lower() for w in words}
    unspaced = re.search(f"[{_UNSPACED}]", line)
    return (
        len(words) <= HEADING_WORDS
        and (
            not unspaced
            or (len(line) <= HEADING_WORDS and not re.search("是|为|有|です", line))
        )
        and not any(
            plain & word_lists(language).stating_verbs for language in LANGUAGES
        )
        and not re.search(r"\d|['’](?:s|re|m|ll|ve)\b", " ".join(words))
    )


def declines(answer: str) -> bool:
    """Whether every sentence of the answer, apologies and greetings aside, declines to answer.

    Conservative on purpose: an answer that declines and then goes on is judged like any other.
    """
    found = [s.text for s in sentences(answer) if not _is_courtesy(s.text)]
    return bool(found) and any(
        all(_declines(s, *refusal) for s in found) for refusal in _refusals()
    )


def _declines(
    sentence: str, refusal: re.Pattern[str], clause_break: re.Pattern[str]
) -> bool:
    while match := refusal.match(sentence):
        more = clause_break.search(sentence, match.end())
        if more is None:
            return True
        sentence = sentence[more.end() :]
    return False
