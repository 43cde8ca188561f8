"""Text into comparable words, in any script: word lists by language, stems, numbers as values, what can be seen.

The lists are JSON, one file per language in ``word_lists``; a list that is missing is empty, and a language without a
file is read with its function words counted as content. Words are listed as they occur in a text, in lower case:

- ``function_words`` carry no content; they also tell languages apart.
- ``light_words`` carry content but say little: an answer may add them without adding a claim.
- ``intensifiers`` (“widely”) add emphasis and no fact: a statement taken from a sentence may leave them out.
- ``qualifiers`` say how many, how surely, how often or in what order; to lose one says something else.
- ``negations`` negate; ``stating_verbs`` make a short line that ends in a colon a statement.
- ``number_words`` and ``magnitudes`` have values. Number words begin at two: “one” is an article in most languages.

Phrases are verbose regular expressions, case ignored. ``apology`` and ``greeting`` list alternatives; a sentence of up
to four greetings, pleasantries and offers of help states nothing. ``refusal``, in lines, is how a clause begins that
says the answer cannot be given; ``clause_break`` is where another clause begins.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import regex
import snowballstemmer
from pydantic import BaseModel

LANGUAGES = (
    "english", "french", "german", "spanish", "italian", "portuguese", "dutch",
    "chinese", "japanese", "hindi", "arabic",
)  # fmt: skip
"""Languages with a file of word lists; of two that fit a text equally well the first is taken."""
DECIMAL_COMMA = frozenset({"french", "german", "spanish", "italian", "portuguese", "dutch", "russian"})
"""Languages that write 1.5 as “1,5”."""
_BY_SCRIPT = {  # the Snowball stemmers' names
    "CYRILLIC": "russian", "GREEK": "greek", "ARABIC": "arabic", "DEVANAGARI": "hindi", "TAMIL": "tamil",
    "ARMENIAN": "armenian", "HEBREW": "hebrew",
}  # fmt: skip


class WordLists(BaseModel, extra="forbid", frozen=True):
    """One language's file; the module says what each list is for."""

    function_words: frozenset[str] = frozenset()
    light_words: frozenset[str] = frozenset()
    intensifiers: frozenset[str] = frozenset()
    qualifiers: frozenset[str] = frozenset()
    negations: frozenset[str] = frozenset()
    number_words: dict[str, int] = {}
    magnitudes: dict[str, int] = {}
    stating_verbs: frozenset[str] = frozenset()
    apology: tuple[str, ...] = ()
    greeting: tuple[str, ...] = ()
    refusal: tuple[str, ...] = ()
    clause_break: tuple[str, ...] = ()


@cache
def word_lists(language: str) -> WordLists:
    """The word lists of a language; all empty where it has no file."""
    if language not in LANGUAGES:
        return WordLists()
    return WordLists.model_validate_json((files(__package__) / "word_lists" / f"{language}.json").read_bytes())


@cache
def light_stems(language: str) -> frozenset[str]:
    """Stems of the light words, whose absence from a context is no novelty."""
    return frozenset(stem(word, language) for word in word_lists(language).light_words)


@cache
def magnitudes() -> dict[str, int]:
    """The values of “thousand”, “million” and the like, in all languages together."""
    return {word: value for language in LANGUAGES for word, value in word_lists(language).magnitudes.items()}


def stem(word: str, language: str) -> str:
    """The word's stem; in a language without a stemmer its first two thirds, which most inflection leaves alone."""
    if language not in snowballstemmer.algorithms():
        return word[: max(4, round(len(word) * 2 / 3))]
    stemmed: str = snowballstemmer.stemmer(language).stemWord(word)  # a new one: it keeps the word it works on
    return stemmed


# What is a letter, a mark or a digit is Unicode's to say: Python's \w has no vowel signs, and would cut Hindi at each.
_PAIRED = (
    r"\p{LB=SA}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    r"\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
)
"""Thai, Lao, Burmese, Khmer and their like, kana and Han, written without spaces; and Hangul, whose particles cling to
the word. They are compared by pairs of characters."""
_LETTERS = rf"[[\p{{L}}\p{{Nl}}\p{{No}}]--[{_PAIRED}]][[\p{{L}}\p{{M}}\p{{N}}_]--[{_PAIRED}]]*"
_TOKEN = regex.compile(
    rf"(?P<number>\d{{1,3}}(?:[ \u00a0\u202f'’]\d{{3}})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)*)"
    rf"|(?P<paired>[{_PAIRED}\u0300-\u036f\u3099\u309a]+)"
    rf"|(?P<word>(?:{_LETTERS})(?:['’](?:{_LETTERS}))*)",
    regex.VERSION1,
)
_ORDINAL = frozenset(["st", "nd", "rd", "th", "er", "ère", "ers", "e", "ème", "º", "ª"])


class Token(NamedTuple):
    """One comparable unit of a text."""

    key: str
    """What is compared: a word's stem, ``#value`` for a number, two characters in scripts without spaces."""
    raw: str
    start: int
    """Offset in the normalised text."""
    kind: str
    """``word``, ``number`` or ``function`` (a word that carries no content)."""
    negates: bool = False


_MARKER = re.compile(r"(?m)^[^\S\n]*(?:\(?\d{1,2}[.)](?=\s|$)|[a-zA-Z][.)](?=\s|$)|[-*•·])\s*")
_REFERENCE = re.compile(
    r"\[\d+(?:\s*[,;-]\s*\d+)*\]"
    r"|\b(?:passage|document|source|chunk|context|section|step|étape|schritt|paso|abschnitt|quelle|dokument)e?[sn]?"
    r"\s+#?\d{1,2}\b(?:\s*(?:,|;|-|&|and|or|et|und|ou|y|to)\s*\d{1,2}\b)*",
    re.IGNORECASE,
)


def without_markers(text: str) -> str:
    """A statement without list markers and references (``[2]``, “Passage 1 and 3”, “Step 4”), which assert nothing."""
    return _REFERENCE.sub(" ", _MARKER.sub("", text))


def tidy(text: str) -> str:
    """Compatibility characters, typographic quotes and dashes brought to one form; case kept."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_TIDY)


_TIDY = str.maketrans({
    "’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "–": "-", "—": "-", "\u200d": None,
})  # fmt: skip
"""A joiner (U+200D) only says how the letters beside it are drawn."""


_WORDS = regex.compile(r"[\p{L}\p{M}]+")


def language_of(text: str) -> str:
    """The language whose word lists and stemmer are used, guessed from at most the first 20,000 characters.

    The one whose function words occur most; by the commonest letters for other scripts than Latin. ``other`` where
    neither decides, and English for less than 20 words of which none is listed.
    """
    text = text[:20_000]
    sample = [*filter(str.isalpha, text[:: max(1, len(text) // 200)])] or [*filter(str.isalpha, text)] or ["a"]
    scripts = Counter(map(_script, sample))
    script = max(sorted(scripts), key=scripts.__getitem__)
    if script in _BY_SCRIPT:
        return _BY_SCRIPT[script]
    words, listed = _WORDS.findall(text.lower()), _languages()
    hits = Counter(language for word in words if word in listed for language in listed[word])
    language, n = max(LANGUAGES, key=hits.__getitem__), len(words)
    return "other" if script != "LATIN" or (n >= 20 and hits[language] < 0.15 * n) else language


@cache
def _languages() -> dict[str, list[str]]:
    """By function word, the languages that have it."""
    found: dict[str, list[str]] = {}
    for language in LANGUAGES:
        for word in word_lists(language).function_words:
            found.setdefault(word, []).append(language)
    return found


@lru_cache(maxsize=1024)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "LATIN").split()[0]


def tokenize(text: str, language: str) -> list[Token]:
    """The tokens of a `tidy` text in order, by the word lists and the stemmer of ``language``."""
    tokens: list[Token] = []
    of_numbers = _words_of_numbers(language)
    for match in _TOKEN.finditer(text):
        raw, start = match[0], match.start()
        if match.lastgroup == "number":
            tokens.append(Token(f"#{number_value(raw, language)}", raw, start, "number"))
        elif match.lastgroup == "paired":
            pairs = [raw[i : i + 2] for i in range(len(raw) - 1)] or [raw]
            tokens += [Token(pair, pair, start + i, "word") for i, pair in enumerate(pairs)]
        else:
            for part in _parts(raw, language):
                if part.lower() not in of_numbers or not _add_to_number(tokens, part, start, text, language):
                    key, kind, negates = _word(part, language)
                    tokens.append(Token(key, part, start, kind, negates))
                start += len(part) + 1
    return tokens


def content_tokens(tokens: list[Token]) -> list[Token]:
    return [t for t in tokens if t.kind != "function"]


def _parts(raw: str, language: str) -> list[str]:
    """A word without its English clitics (except ``n't``); split at the apostrophe elsewhere: ``l'accord``."""
    if "'" not in raw or raw.lower().endswith("n't"):
        return [raw]
    parts = raw.split("'")
    return parts[:1] if language == "english" and len(parts[-1]) <= 2 else parts


@cache
def _words_of_numbers(language: str) -> frozenset[str]:
    """Words that are a number or may belong to the one before."""
    return _ORDINAL | magnitudes().keys() | word_lists(language).number_words.keys()


def _add_to_number(tokens: list[Token], raw: str, start: int, text: str, language: str) -> bool:
    """Whether a word is a number, or belongs to the number right before it (“2 million”, “3rd”); adds it if so."""
    low = raw.lower()
    number_words = word_lists(language).number_words
    small, factor = number_words.get(low), magnitudes().get(low)
    last = tokens[-1] if tokens and tokens[-1].kind == "number" else None
    if last is not None and start - (last.start + len(last.raw)) > 1:
        last = None  # a number, but not right before
    if last is not None and factor is not None:
        value = _plain(float(last.key[1:]) * factor)
        tokens[-1] = last._replace(key=f"#{value}", raw=text[last.start : start] + raw)
    elif last is not None and low in _ORDINAL and text[start - 1 : start].isdigit():
        pass
    elif small is None:
        return False
    elif last is not None and small < 10 and last.raw.lower() in number_words and last.key[1:] in _TENS:
        tokens[-1] = last._replace(key=f"#{int(last.key[1:]) + small}", raw=text[last.start : start] + raw)
    else:
        tokens.append(Token(f"#{small}", raw, start, "number"))
    return True


@lru_cache(maxsize=100_000)  # a stem takes a hundred times as long as looking it up
def _word(raw: str, language: str) -> tuple[str, str, bool]:
    """Key and kind of a word that is no number, and whether it negates."""
    low, lists = raw.lower(), word_lists(language)
    negates = low in lists.negations or low.endswith("n't")
    if negates or low in lists.function_words or (len(low) == 1 and not raw.isupper()):
        return low, "function", negates
    return stem(low, language), "word", False


_TENS = frozenset(["20", "30", "40", "50", "60", "70", "80", "90"])


@lru_cache(maxsize=10_000)
def number_value(raw: str, language: str) -> str:
    """A written number in one form: ``1,234.50`` and ``1.234,5`` (where the comma is decimal) are ``1234.5``.

    A single separator before exactly three digits groups thousands when the language uses it so; more than one
    separator of the same kind always groups.
    """
    digits = re.sub(r"[ \u00a0\u202f'’]", "", raw)
    group = "." if language in DECIMAL_COMMA else ","
    marks = [c for c in digits if not c.isdigit()]
    decimal = marks.count(marks[-1]) == 1 if marks else False  # of both kinds the last one is
    if len(marks) == 1 and marks[0] == group and re.search(r"\D\d{3}$", digits):
        decimal = False
    whole, mark, fraction = digits.rpartition(marks[-1]) if decimal else (digits, "", "")
    digits = re.sub(r"\D", "", whole) + mark.replace(",", ".") + fraction
    try:
        return _plain(float(digits))
    except ValueError:
        return digits


def _plain(value: float) -> str:
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(value)


def plain_words(text: str) -> str:
    """Lower-case words with one space between, nothing else."""
    return " ".join(regex.findall(r"[\p{L}\p{M}\p{N}_]+", text.lower()))


def symbols(text: str) -> frozenset[str]:
    """Characters that belong neither to words nor to common punctuation: ``$``, ``<``, ✗."""
    return frozenset(regex.findall(r"[^\p{L}\p{M}\p{N}_\s.,;:!?'\"()\[\]*#…-]", text))


_INVISIBLE = regex.compile(
    r"(?!(?<=[[\p{Lo}\p{M}]--\p{DI}])[\u200C\u200D][\p{Lo}--\p{DI}])[[\p{Cc}\p{Cf}\p{Cs}\p{DI}]--[\t\p{PCM}]]",
    regex.VERSION1,
)
"""Control and format characters, lone surrogates, and what Unicode calls default-ignorable, but not the joiners and
non-joiners between letters of scripts without capitals, where spelling needs them."""
_SEEN = regex.compile(r"[[\p{L}\p{N}]--\p{DI}]", regex.VERSION1)
_UNDIVIDED = regex.compile(r"[[\p{LB=SA}\p{LB=AK}\p{LB=AP}\p{LB=AS}]&&\p{L}]", regex.VERSION1)
"""Letters of scripts without spaces whose words take a dictionary to find (Thai, Lao, Khmer, Burmese, Javanese …), by
Unicode's line-breaking classes (UAX 14)."""


def visible(line: str) -> str:
    """A line without what shows nothing: zero-width, bidirectional, tag and control characters, fillers, selectors."""
    return line if line.isascii() and line.isprintable() else _INVISIBLE.sub("", line)


def has_words(text: str) -> bool:
    """Whether there is a letter or a digit to be seen: without one, a text says nothing."""
    return _SEEN.search(text) is not None


def has_word_breaks(text: str) -> bool:
    """Whether words can be told apart: most letters are of a script that has spaces, or Han or kana."""
    return text.isascii() or 2 * len(_UNDIVIDED.findall(text)) <= len(regex.findall(r"\p{L}", text))
