"""Text into comparable tokens: word stems, numbers as values, CJK as pairs of characters."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from functools import lru_cache
from typing import NamedTuple

from faith_dspy.text.languages import (
    DECIMAL_COMMA,
    MAGNITUDES,
    NEGATIONS,
    NUMBER_WORDS,
    STOP_WORDS,
    guess_language,
    stem,
)

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
"""Thai, Lao, Burmese, Khmer, kana, Han: written without spaces; and Hangul, whose particles cling to the word."""
_LETTER = rf"[^\W\d_{_UNSPACED}][^\W{_UNSPACED}]*"
_TOKEN = re.compile(
    rf"(?P<number>\d{{1,3}}(?:[ \u00a0\u202f'’]\d{{3}})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)*)"
    rf"|(?P<unspaced>[{_UNSPACED}\u0300-\u036f\u3099\u309a]+)"
    rf"|(?P<word>(?:{_LETTER})(?:['’](?:{_LETTER}))*)"
)
_ORDINAL = frozenset(["st", "nd", "rd", "th", "er", "ère", "ers", "e", "ème", "º", "ª"])


class Token(NamedTuple):
    """One comparable piece of a text."""

    key: str
    """What is compared: the stem, ``#value`` for a number, two characters where no spaces are written."""
    raw: str
    """As written."""
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
    """A statement without its list markers and its references: layout, not claims.

    References are ``[2]``, “Passage 1 and 3”, “Step 4”.
    """
    return _REFERENCE.sub(" ", _MARKER.sub("", text))


def tidy(text: str) -> str:
    """Compatibility characters, typographic quotes and dashes brought to one form; case kept."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_QUOTES)


_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "–": "-", "—": "-"})


_WORD = re.compile(r"[^\W\d_]+")
_NO_LETTERS = {i: " " for i in range(128) if not chr(i).isalpha()}


def ascii_words(text: str) -> list[str]:
    """What `_WORD` finds in an ASCII text in lower case, in a third of the time."""
    return text.lower().translate(_NO_LETTERS).split()


def language_of(text: str) -> str:
    """The language whose lists and stemmer are used, guessed from at most the first 20,000 characters."""
    text = text[:20_000]
    if text.isascii():
        return guess_language(ascii_words(text), "LATIN")
    scripts: Counter[str] = Counter()
    for c, n in Counter(text[:: max(1, len(text) // 200)]).items():
        if c.isalpha():
            scripts[_script(c)] += n
    if not scripts:
        scripts[_script(next((c for c in text if c.isalpha()), "a"))] = 1
    script = max(sorted(scripts), key=lambda name: scripts[name])
    return guess_language([word.lower() for word in _WORD.findall(text)], script)


@lru_cache(maxsize=1024)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "LATIN").split()[0]


def tokenize(text: str, language: str) -> list[Token]:
    """The tokens of a `tidy` text in order, by the lists and the stemmer of ``language``."""
    tokens: list[Token] = []
    known = _known[language]
    for match in _TOKEN.finditer(text):
        raw, start = match[0], match.start()
        if (word := known.get(raw)) is not None:  # most of them: made without Token's own call, which takes longer
            tokens.append(tuple.__new__(Token, (word[0], raw, start, word[1], word[2])))
        elif match.lastgroup == "number":
            tokens.append(Token(f"#{number_value(raw, language)}", raw, start, "number"))
        elif match.lastgroup == "unspaced":
            pairs = [raw[i : i + 2] for i in range(len(raw) - 1)] or [raw]
            tokens += [Token(pair, pair, start + i, "word") for i, pair in enumerate(pairs)]
        else:
            for part in _parts(raw, language):
                _add_word(tokens, part, start, text, language)
                start += len(part) + 1
    return tokens


def content_tokens(tokens: list[Token]) -> list[Token]:
    """The tokens that can be missing from a context: words that carry content, and numbers."""
    return [t for t in tokens if t.kind != "function"]


def _parts(raw: str, language: str) -> list[str]:
    """A word without its English clitics (but for ``n't``); at the apostrophe elsewhere: ``l'accord``."""
    if "'" not in raw or raw.lower().endswith("n't"):
        return [raw]
    parts = raw.split("'")
    return parts[:1] if language == "english" and len(parts[-1]) <= 2 else parts


def _add_word(tokens: list[Token], raw: str, start: int, text: str, language: str) -> None:
    low = raw.lower()
    last = tokens[-1] if tokens and tokens[-1].kind == "number" else None
    if last is not None and start - (last.start + len(last.raw)) > 1:
        last = None  # a number, but not right before
    numbers = NUMBER_WORDS.get(language, {})
    if last is not None and low in MAGNITUDES:
        value = _plain(float(last.key[1:]) * MAGNITUDES[low])
        tokens[-1] = last._replace(key=f"#{value}", raw=text[last.start : start] + raw)
    elif last is not None and low in _ORDINAL and text[start - 1 : start].isdigit():
        return
    elif low in numbers:
        small = numbers[low]
        if last is not None and small < 10 and last.raw.lower() in numbers and last.key[1:] in _TENS:
            tokens[-1] = last._replace(key=f"#{int(last.key[1:]) + small}", raw=text[last.start : start] + raw)
        else:
            tokens.append(Token(f"#{small}", raw, start, "number"))
    else:
        known = _known[language]
        word = known.get(raw) or _word(raw, language)
        tokens.append(Token(word[0], raw, start, word[1], word[2]))
        if low not in MAGNITUDES and low not in _ORDINAL:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[raw] = word


_known: defaultdict[str, dict[str, tuple[str, str, bool]]] = defaultdict(dict)
"""By language: what `_word` says of words that are the same after any other; most of a text are looked up here."""
_MOST_KNOWN = 200_000


def _word(raw: str, language: str) -> tuple[str, str, bool]:
    """Key and kind of a word that is no number, and whether it negates."""
    low = raw.lower()
    negates = low in NEGATIONS.get(language, ()) or low.endswith("n't")
    if negates or low in STOP_WORDS.get(language, ()) or (len(low) == 1 and not raw.isupper()):
        return low, "function", negates
    return stem(low, language), "word", False


_TENS = frozenset(["20", "30", "40", "50", "60", "70", "80", "90"])


def number_value(raw: str, language: str) -> str:
    """A written number in one form: ``1,234.50`` and ``1.234,5`` (where the comma is decimal) are ``1234.5``.

    A single separator before exactly three digits groups thousands when the language uses it so; more than one
    separator of the same kind always groups.
    """
    if raw.isdecimal() and len(raw) < 16:  # most are written plainly
        return str(int(raw))
    digits = re.sub(r"[ \u00a0\u202f'’]", "", raw)
    group, decimal = (".", ",") if language in DECIMAL_COMMA else (",", ".")
    marks = [c for c in digits if not c.isdigit()]
    if marks:
        if len(set(marks)) == 2 and marks.count(marks[-1]) == 1:  # both kinds: the last one is decimal
            whole, _, fraction = digits.rpartition(marks[-1])
        elif len(marks) > 1 or (marks[0] == group and re.search(r"\D\d{3}$", digits)):
            whole, fraction = digits, ""
        elif marks[0] in (group, decimal):
            whole, _, fraction = digits.partition(marks[0])
        else:
            whole, fraction = digits, ""
        digits = re.sub(r"\D", "", whole) + ("." + fraction if fraction else "")
    try:
        return _plain(float(digits))
    except ValueError:
        return digits


def _plain(value: float) -> str:
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(value)
