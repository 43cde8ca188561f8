"""What the lexical features know of single languages: word lists and phrases, the language of a text, stems.

The lists are JSON, one file per language in ``word_lists``; a list that is missing is empty, and a language without a
file is read with its function words counted as content. Words are listed as they occur in a text, in lower case:

- ``function_words`` carry no content; they also tell languages apart.
- ``light_words`` carry content but say little: an answer may add them without adding a claim.
- ``qualifiers`` say how many, how surely, how often or in what order; to lose one says something else.
- ``negations`` negate; ``stating_verbs`` make a short line that ends in a colon a statement.
- ``number_words`` and ``magnitudes`` have values. Number words begin at two: “one” is an article in most languages.

Phrases are verbose regular expressions, case ignored. ``apology`` and ``greeting`` list alternatives; a sentence of up
to four greetings, pleasantries and offers of help states nothing. ``refusal``, in
lines, is how a clause begins that says the answer cannot be given; ``clause_break`` is where another clause begins.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import snowballstemmer
from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Sequence

LANGUAGES = (
    "english", "french", "german", "spanish", "italian", "portuguese", "dutch",
    "chinese", "japanese", "hindi", "arabic",
)  # fmt: skip
"""Languages with a file of word lists; of two that fit a text equally well the first is taken."""
DECIMAL_COMMA = frozenset({"french", "german", "spanish", "italian", "portuguese", "dutch", "russian"})
"""Languages that write 1.5 as “1,5”."""
_BY_SCRIPT = {
    "CYRILLIC": "russian", "GREEK": "greek", "ARABIC": "arabic", "DEVANAGARI": "hindi", "TAMIL": "tamil",
    "ARMENIAN": "armenian", "HEBREW": "hebrew",
}  # fmt: skip
"""Names as the Snowball stemmers have them."""


class WordLists(BaseModel, extra="forbid", frozen=True):
    """One language's file; the module says what each list is for."""

    function_words: frozenset[str] = frozenset()
    light_words: frozenset[str] = frozenset()
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


@cache
def _languages_of_words() -> dict[str, list[str]]:
    listed: dict[str, list[str]] = {}
    for language in LANGUAGES:
        for word in word_lists(language).function_words:
            listed.setdefault(word, []).append(language)
    return listed


def guess_language(words: Sequence[str], script: str) -> str:
    """The language whose function words occur most among lower-case ``words``; by script for other scripts than Latin.

    ``script`` is the first word of the Unicode name of the commonest letters. Returns ``other`` where neither decides,
    and English for less than 20 words of which none is listed.
    """
    if script in _BY_SCRIPT:
        return _BY_SCRIPT[script]
    listed = _languages_of_words()
    hits = Counter(dict.fromkeys(LANGUAGES, 0))
    for word, count in Counter(words).items():
        for language in listed.get(word, ()):
            hits[language] += count
    language = max(LANGUAGES, key=hits.__getitem__)
    if script != "LATIN" or (len(words) >= 20 and hits[language] < 0.15 * len(words)):
        return "other"
    return language


def stem(word: str, language: str) -> str:
    """The word's stem; in a language without a stemmer its first two thirds, which most inflection leaves alone."""
    if language not in snowballstemmer.algorithms():
        return word[: max(4, round(len(word) * 2 / 3))]
    stemmed: str = snowballstemmer.stemmer(language).stemWord(word)  # a new one: it keeps the word it works on
    return stemmed
