"""Text → sentences with exact character offsets, for answers and contexts alike; and what of an answer is a claim.

Sentence boundaries come from `sentencex <https://github.com/wikimedia/sentencex>`_ (MIT, made for Wikipedia's
languages). On top of it a line break ends a sentence, so that list items are judged one by one, unless the line is only
wrapped there. Left out of an answer is what it does not say: thoughts, tags, marks of chat templates, images.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise, takewhile
from typing import NamedTuple

import regex

from faith_dspy.schema import Sentence
from faith_dspy.text.languages import LANGUAGES, language_of, word_lists
from faith_dspy.text.words import (
    UNSPACED_VERB,
    begins_with_citation,
    comparable,
    has_words,
    names_only,
    plain_words,
    tokenize,
    without_citations,
)

HEADING_WORDS = 6
"""A line of at most so many words that ends in a colon, or begins with Markdown's number signs and only names
something, is a heading, unless it has a verb or a value."""
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


def _alternatives(kind: str) -> str:
    """Return the phrases of a kind (`WordLists`) in all languages."""
    lists = map(word_lists, LANGUAGES)
    return "|".join(phrase for one in lists for phrase in getattr(one, kind))


@cache
def _courtesies() -> _Pattern:
    """Return a pattern of apologies, and of greetings and pleasantries."""
    apology = rf"^\W*(?:{_alternatives('apology')})\W*$"
    end = rf"(?:(?<=[{_UNSPACED}])|[\W_]+|$)"
    greeting = rf"^[\W_]*(?:(?:{_alternatives('greeting')}){end}){{1,4}}$"
    return re.compile(f"{apology}|{greeting}", _FLAGS)


@cache
def _begins(language: str, kind: str) -> _Pattern:
    """Return how a clause of a kind in `WordLists` begins."""
    phrases = "\n".join(getattr(word_lists(language), kind)) or "(?!)"
    # Possessive: to step back from one sign at a time takes time by the square.
    return re.compile(rf"^\W*+(?:{phrases})", _FLAGS)


@cache
def _breaks(language: str) -> _Pattern:
    """Return what stands before or between clauses: an apology at the beginning, breaks."""
    lists = word_lists(language)
    apology = "|".join(lists.apology)
    but = r"(?:(?:but|aber|mais|pero|ma|mas|maar)\s|が)?"
    breaks = "\n".join(lists.clause_break)
    return re.compile(rf"^\W*+(?:{apology})\W*+{but}|{breaks}", _FLAGS)


def _clauses(text: str, language: str) -> list[str]:
    line = " ".join(text.split())
    return list(filter(has_words, _breaks(language).split(line)))


def gap_words(text: str, language: str) -> str | None:
    """Return the words by which a text says that the context does not tell something; None if a clause does not."""
    gap = _begins(language, "gap")
    gaps = [gap.match(clause) for clause in _clauses(text, language)]
    if not gaps or None in gaps:
        return None
    return " ".join(word for match in gaps if match for word in match.groups(""))


@cache
def _verbs(language: str) -> frozenset[str]:
    """Return the verbs that make a short line a statement: of other languages those of three letters and more."""
    verbs = set(word_lists(language).stating_verbs)
    for other in LANGUAGES:
        verbs.update(v for v in word_lists(other).stating_verbs if len(v) > 2)
    return frozenset(verbs)


@cache
def _anywhere(kind: str) -> _Pattern:
    return re.compile(_alternatives(kind), _FLAGS)


class SplitAnswer(NamedTuple):
    """An answer's sentences, and what it claims; made by `split_answer` and handed on."""

    text: str
    sentences: tuple[Sentence, ...]
    stating: tuple[Sentence, ...]
    """Those that can assert anything (`carries_statement`) and are no titles, each on one line."""
    declines: bool
    """Whether every sentence, apologies and greetings aside, declines to answer."""

    @property
    def said(self) -> str:
        """The answer from its first sentence to its last."""
        if not self.sentences:
            return ""
        return self.text[self.sentences[0].start : self.sentences[-1].end]


def split_answer(answer: str) -> SplitAnswer:
    """Split an answer into sentences, and tell which of them can assert anything."""
    divided = sentences(answer)
    titles = _titles(answer, divided)
    stating = []
    for sentence in divided:
        if sentence.index not in titles and carries_statement(sentence.text):
            line = " ".join(_DIVISION.sub("", sentence.text).split())
            stating.append(sentence.model_copy(update={"text": line}))
    return SplitAnswer(answer, divided, tuple(stating), _all_decline(divided))


def sentences(answer: str) -> tuple[Sentence, ...]:
    """Return what an answer says, by sentence: ``answer[s.start:s.end] == s.text`` for each."""
    divided = []
    for i, (start, piece) in enumerate(sentence_texts(_said(answer))):
        end = start + len(piece)
        sentence = Sentence(index=i, start=start, end=end, text=answer[start:end])
        divided.append(sentence)
    return tuple(divided)


_THOUGHT = r"(?i:think|thinking|thoughts?|reasoning)[>\]]"
_ATTRIBUTES = r"(?:\s[^<>=]{1,40}=[^<>]{0,500})?\s*/?>"
_UNSAID = regex.compile(
    rf"(?m:^)[^\S\n]*[<\[]{_THOUGHT}.*?(?:[<\[]/{_THOUGHT}|\Z)|[<\[]{_THOUGHT}.{{0,9999}}?[<\[]/{_THOUGHT}"
    rf"|\A(?:(?![<\[]{_THOUGHT}).)*?[<\[]/{_THOUGHT}"
    r"|!\[(?P<caption>[^\[\]\n]{0,200})\]\([^()\s]{1,2000}\)|<!--.{0,9999}?-->"
    rf"|(?P<inline></?(?i:b|i|em|strong|span|u|font|small|mark){_ATTRIBUTES})"
    r"|</?(?i:p|div|h[1-6]|[uo]l|li|table|t[hrd]|thead|tbody|br|hr|img|pre|blockquote|section|article)"
    rf"{_ATTRIBUTES}|</(?!(?i:sup|cite|a)>)[A-Za-z][\w-]{{0,19}}>|(?:(?m:^)|(?<=>))[^\S\n]*<(?!(?i:sup|cite|a)>)[A-Za-z][\w-]{{0,19}}>"
    r"|<[|｜][^<>\s]{1,40}[|｜]>(?:(?:assistant|model)\b)?|\[/?INST\]|<(?:start|end)_of_turn>(?:model\b)?",
    regex.DOTALL,
)
"""Thoughts, images, comments, tags, marks of chat templates."""
_ANSWER_FIELD = regex.compile(
    r'(?=.*\}\s*(?:```\s*)?\Z)\s*(?:```\w*\s*)?\{.*?"(?:(?:final_)?answer|response)"\s*:\s*"((?:[^"\\]|\\.)*+)".*',
    regex.DOTALL,
)
"""An answer in an object of JSON."""


def _said(answer: str) -> str:
    """Return an answer with white space for what it does not say, and the rest in its place."""
    field = _ANSWER_FIELD.fullmatch(answer)
    if field:
        value = field[1].replace(r"\n", " \n").replace(r"\"", ' "')
        answer = value.rjust(field.end(1)).ljust(len(answer))
    said: str = _UNSAID.sub(_blank, answer)
    return said


def _blank(match: regex.Match[str]) -> str:
    blank = " " if match["inline"] else "\n"
    if not names_only(match["caption"] or ""):
        blank = match[0]
    return blank.ljust(len(match[0]))


def sentence_texts(text: str) -> list[_Piece]:
    """Return the sentences as (offset, text)."""
    lines: list[_Piece] = []
    for start, piece in _pieces(_NUMBERING.sub(r"\1)", _unwrapped(text))):
        for match in _LINE.finditer(piece):
            size = len(match[0].lstrip())
            offset = start + match.end() - size
            if size:
                line = text[offset : offset + size].rstrip()
                lines.append((offset, line))
    return _with_notes(text, lines)


_NUMBERING = re.compile(r"(?m)^([^\S\n]*(?:#+\s)?(?:\*\*|__)?\d{1,2})\.(?=\s)")
"""Its full stop would end a sentence."""
_PARAGRAPH = regex.compile(r"(?m)^[^\S\n]*+\S.*\n(?:[^\S\n]*+\S.*(?:\n|\Z))+")
"""Of several lines."""
_DIVISION = regex.compile(r"(?<=\p{L})-[^\S\n]*\n\s*(?=\p{Ll})")
"""Where a line ends within a word."""
_BREAK = regex.compile(
    r"(?<=[^\s:;|。！？])[^\S\n]*\n(?!\s*(?:[-*+•·#>|`~\[]|\(?(?:\d{1,2}|[a-z]|[ivx]{1,4})[.)]\s|[\w-]+:\s))"
)
"""Where a line ends and no table, list or lead-in."""


@cache
def _wraps(language: str) -> regex.Pattern[str]:
    """Return how a line of prose ends that goes on in the next one.

    The next one begins with a small letter or a digit, or the last word is a function word.
    """
    words = "|".join(word_lists(language).function_words) or "(?!)"
    return regex.compile(
        rf"(?m)^(?![#|])(?=.{{25,100}}$)(?=(?:\S+\s+){{4}}).*(?:(?:,|\b(?i:{words}))\s*\n|(?<![.!?]){_BREAK.pattern}\s*[\p{{Ll}}\d])"
    )


def _unwrapped(text: str) -> str:
    """Return a text with spaces for the line breaks within its sentences."""
    wraps = _wraps(language_of(text))

    def joined(paragraph: regex.Match[str]) -> str:
        breaks = _BREAK if wraps.search(paragraph[0]) else _DIVISION
        text: str = breaks.sub(lambda at: at[0].replace("\n", " "), paragraph[0])
        return text

    unwrapped: str = _PARAGRAPH.sub(joined, text)
    return unwrapped


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
    if not text.endswith(("?", "？", "؟")) or _anywhere("asserting_question").search(
        text
    ):
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


def _is_heading(sentence: str) -> bool:
    line = sentence.strip("*_#> ")
    has_colon = line.endswith((":", "："))
    is_marked = _MARKDOWN_HEADING.match(sentence) is not None
    if not has_colon and not (is_marked and names_only(line)):
        return False
    rest = _anywhere("lead_in").sub(" ", line)
    is_unspaced = re.search(f"[{_UNSPACED}]", line)
    size = len(line) if is_unspaced else len(line.split())
    return (rest != line or size <= HEADING_WORDS) and not _asserts(rest)


_COUNT = re.compile(r"^\W*\d{1,2}[.)]\s|\s(?:\d{1,2}|(?:19|20)\d\d)\W*$")
"""What a title may have: “2. Volume”, “Method 1:”, “Sales 2024”."""


def _asserts(line: str) -> bool:
    """Tell whether a short line has a verb or a value, which a context could contradict."""
    line = _COUNT.sub(" ", line)
    if UNSPACED_VERB.search(line) or re.search(r"['’](?:s|re|m|ll|ve)\b", line):
        return True
    language = language_of(line)
    words = plain_words(line).split()
    if not _verbs(language).isdisjoint(words):
        return True
    tokens = tokenize(comparable(line), language)
    return any(token.kind == "number" for token in tokens)


_TITLE = regex.compile(
    r"(?P<number>[*_\s]*(?:\d{1,2}|[IVX]{1,4})[.)]\s.*)"
    r"|(?P<shown>(?:\*\*|__)[^*_]*(?:\*\*|__):?|(?!.*\p{Ll})(?=.*\p{Lu}{3}).*)"
)
"""A line that may be a title: numbered, or in bold type or capitals."""
_RULE = re.compile(r"\|?\s*:?(?:-{2,}|={3,})[\s|:=-]*")
"""What stands below a title or the head of a table."""


def _titles(answer: str, sentences: Sequence[Sentence]) -> Collection[int]:
    """Return the positions of the sentences that only name what stands below: the heads of tables, and titles.

    No title is an item of a list, beside another of its kind, nor the only one if it comes first, as an answer may.
    """
    titles: dict[int, str] = {}
    lines = [_TITLE.fullmatch(sentence.text) for sentence in sentences]
    kinds = ["", *(line.lastgroup if line else "" for line in lines)]
    begins_line = True
    for i, (sentence, following) in enumerate(pairwise(sentences), 1):
        is_rule = _RULE.fullmatch(following.text)
        kind = "head" if is_rule else kinds[i]
        is_title = begins_line and kind and kind not in (kinds[i - 1], kinds[i + 1])
        begins_line = "\n" in answer[sentence.end : following.start]
        if is_title and begins_line and _names(sentence.text):
            titles[sentence.index] = kind
    return {} if titles == {0: "shown"} else titles


def _names(title: str) -> bool:
    is_whole = title.endswith((".", "!", "?", "。"))
    return not is_whole and names_only(title.lower()) and not _asserts(title)


def _all_decline(sentences: Iterable[Sentence]) -> bool:
    """Tell whether all of them, courtesies and referrals aside, decline to answer.

    Conservative on purpose: an answer that declines and then goes on is judged like any other.
    """
    texts = [without_citations(s.text) for s in sentences if not _is_courtesy(s.text)]
    return any(_declines(texts, language) for language in LANGUAGES)


def _declines(texts: Iterable[str], language: str) -> bool:
    refusal, gap, referral = (
        _begins(language, kind) for kind in ("refusal", "gap", "referral")
    )
    declines = False
    for text in texts:
        for clause in _clauses(text, language):
            if refusal.match(clause) or gap.match(clause):
                declines = True
            elif not referral.match(clause):
                return False
    return declines
