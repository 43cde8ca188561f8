"""Languages: word lists, stems, values that words stand for, and which language a text is in.

The lists are JSON, one file per language in ``word_lists``; a list that is missing is empty, and a language without a
file is read with its function words counted as content. Words are listed as they occur in a text, in lower case:

- ``function_words`` carry no content; they also tell languages apart.
- ``light_words`` carry content but say little: an answer may add them without adding a claim.
- ``intensifiers`` (“widely”) add emphasis and no fact: a statement taken from a sentence may leave them out.
- ``qualifiers`` say how many, how surely, how often or in what order; to lose one says something else.
- ``negations``, words or phrases, negate; ``antonyms`` are groups of words, those before the bar against those behind.
- ``agents`` (“by”) come before who did it, where the verb stands in the passive.
- ``conjunctions`` (“and”, “but”) come between clauses.
- ``stating_verbs`` make a short line that ends in a colon a statement, and a line about sources more than their names.
- ``openers`` may come before any clause; ``question_words`` before the verb say that a sentence with a question mark
  asks. Languages that ask in the order of statements have neither.
- ``number_words`` have values. They begin at two: “one” is an article in most languages.

Phrases are verbose regular expressions, case ignored. ``apology`` and ``greeting`` list alternatives; a sentence of up
to four greetings, pleasantries, offers of help and an assistant's disclaimers states nothing. ``refusal`` and ``gap``,
in lines, are how a clause begins that says the answer cannot be given: ``gap`` that the context does not tell it.
``referral``, in lines, is a clause that may follow: “please ask …”; ``clause_break`` is where another clause begins.
``lead_in`` lists what in a line that ends in a colon only points to what stands below: “here are …”.
``asserting_question`` is how one asks without asking: “Did you know that …?”, “…, right?”.

``values.json`` has, for all languages together, the units and currencies, months, scales and fractions that are
compared by value, and how scripts without spaces negate. They are lists of our own: babel formats values and reads no
text, dateparser and text2num rewrite a text without telling where each value stood, and pint knows units but not how
people write them.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain

import regex
import snowballstemmer
from pydantic import BaseModel

_EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}
Words = frozenset[str]
Phrases = tuple[str, ...]


class WordLists(BaseModel, extra="forbid", frozen=True):
    """One language's file; the module says what each list is for."""

    function_words: Words = Words()
    light_words: Words = Words()
    intensifiers: Words = Words()
    qualifiers: Words = Words()
    negations: Words = Words()
    antonyms: Phrases = ()
    agents: Words = Words()
    conjunctions: Words = Words()
    number_words: dict[str, int] = {}
    stating_verbs: Words = Words()
    openers: Words = Words()
    question_words: Words = Words()
    apology: Phrases = ()
    greeting: Phrases = ()
    refusal: Phrases = ()
    gap: Phrases = ()
    referral: Phrases = ()
    clause_break: Phrases = ()
    lead_in: Phrases = ()
    asserting_question: Phrases = ()


class Values(BaseModel, extra="forbid", frozen=True):
    """What ``values.json`` holds, for all languages together."""

    languages: tuple[str, ...]
    """Languages with a file of word lists; of two that fit a text equally well the first is taken."""
    languages_by_script: dict[str, str]
    """By Unicode's name of a script, the Snowball stemmers' name of its language."""
    decimal_comma: Words
    """Languages that write 1.5 as “1,5”."""
    units: dict[str, str]
    """By each form of a unit or currency its name: ``kilometres`` → ``km``."""
    ambiguous_units: dict[str, tuple[str, ...]]
    """By unit, the forms that may be another one, too."""
    durations: Words
    """Forms of units that are one only behind a number (“5 days”, not “day 5”)."""
    conversions: dict[str, tuple[float, str]]
    """By unit, how many of which smaller unit it is."""
    aliases: dict[str, str]
    """By a word as written, the key of what else it says (“noon”, “Mon”)."""
    months: dict[str, int]
    """As `CLDR <https://cldr.unicode.org>`_ has them, and abbreviations."""
    ambiguous_months: Words
    """Those that are other words, too; beside a number they are months."""
    weekdays: dict[str, int]
    """As CLDR has them; Monday is 0."""
    acronyms: Words
    given_names: Words
    """Names that are function words but for their capitals (“US”, “Will”)."""
    unspaced_negations: tuple[str, ...]
    """How scripts without spaces negate."""
    scales: dict[str, int]
    """What may follow a number without a space: “5k”."""
    magnitudes: dict[str, int]
    """Words that multiply the number before them."""
    fractions: dict[str, int]
    """In percent."""
    halves: tuple[str, ...]
    below_zero: tuple[str, ...]
    """What may follow a number, or its unit: “and a half”, “below zero”."""
    bounds: dict[str, int]
    """By what stands before a round number (“over”), 1 where the exact one is above it, -1 where it is below."""
    rates: dict[str, str]
    """By word (“monthly”) or sign of a rate the unit that it names; empty for those before a unit (“per”)."""


_FOLDER = files(__package__)
_CONTENT = (_FOLDER / "values.json").read_bytes()
VALUES = Values.model_validate_json(_CONTENT)
LANGUAGES = VALUES.languages


@cache
def word_lists(language: str) -> WordLists:
    """Load the word lists of a language; all empty where it has no file."""
    if language not in LANGUAGES:
        return WordLists()
    path = _FOLDER / "word_lists" / f"{language}.json"
    return WordLists.model_validate_json(path.read_bytes())


@cache
def unit_stems(unit: str, language: str) -> tuple[str, ...]:
    """Return the stems of a unit's forms, by which it is known where no number stands beside it."""
    forms = [form for form, name in VALUES.units.items() if name == unit]
    forms += VALUES.ambiguous_units.get(unit, ())
    stems = dict.fromkeys(stem(form, language) for form in forms)
    return tuple(stems)


@cache
def light_stems(language: str) -> frozenset[str]:
    """Return stems of the light words, whose absence from a context is no novelty."""
    words = word_lists(language).light_words
    return _stems(words, language)


@cache
def antonyms(language: str) -> dict[str, set[str]]:
    """Return by word or stem the words and stems that say the opposite."""
    opposites: dict[str, set[str]] = {}
    for pair in word_lists(language).antonyms:
        first, second = pair.split("|")
        for phrase, other in ((first, second), (second, first)):
            for form in _forms(phrase, language):
                opposites.setdefault(form, set()).update(_forms(other, language))
    return opposites


def _forms(phrase: str, language: str) -> set[str]:
    """Return words and their stems."""
    words = phrase.split()
    return {*words, *_stems(words, language)}


def _stems(words: Iterable[str], language: str) -> frozenset[str]:
    return frozenset(stem(word, language) for word in words)


@lru_cache(maxsize=100_000)  # a stem takes a hundred times as long as looking it up
def stem(word: str, language: str) -> str:
    """Stem a word; in a language without a stemmer its first two thirds, which most inflection leaves alone."""
    if language not in snowballstemmer.algorithms():
        length = max(4, round(len(word) * 2 / 3))
        return word[:length]
    stemmer = snowballstemmer.stemmer(language)  # a new one: it keeps its word
    stemmed: str = stemmer.stemWord(word)
    return stemmed


_WORDS = regex.compile(r"[\p{L}\p{M}]+(?:(?<=n)['’]t\b)?")
"""“Aren't” is one word: its “t” alone is a word of French."""
_START = 20_000
"""Characters at the start of a text that tell its script and its language."""


def language_of(text: str) -> str:
    """Guess the language whose word lists and stemmer are used.

    The one whose function words occur most; by the commonest letters for other scripts than Latin. ``other`` where
    neither decides, and English for less than 20 words of which none is listed.
    """
    script = script_of(text)
    languages = VALUES.languages_by_script
    if script in languages:
        return languages[script]
    if script != "LATIN":
        return "other"
    hits, count = function_words_in(text)
    language = max(LANGUAGES, key=hits.__getitem__)
    if count >= 20 and hits[language] < 0.15 * count:
        return "other"
    return language


def script_of(text: str) -> str:
    """Return the script that most letters of a text's start are of, by Unicode's name of it."""
    start = text[:_START]
    step = max(1, len(start) // 200)
    sample = start[::step]
    if not any(map(str.isalpha, sample)):
        sample = start
    letters = filter(str.isalpha, sample)
    scripts = Counter(map(_script, letters))
    if not scripts:
        return "LATIN"
    return max(sorted(scripts), key=scripts.__getitem__)


def function_words_in(text: str) -> tuple[Counter[str], int]:
    """Count the function words of each language in a text's start, and all words there."""
    words = _WORDS.findall(text[:_START].lower())
    listed = _languages()
    languages = (listed.get(word, ()) for word in words)
    hits = Counter(chain.from_iterable(languages))
    return hits, len(words)


_SAYS_LANGUAGE = 8
"""So many words without a function word of two letters or more are of another language, if the context has few of
them."""


def language_gap(context: str, answer: str) -> str | None:
    """Say why words alone cannot compare an answer with its context; None where they can.

    Their scripts or languages differ, or the answer's script does not divide words. Two languages are told apart only
    where each text has at least three function words of its own, and twice as many as of the other's.
    """
    if not has_word_breaks(answer):
        return "its script has no spaces between words"
    theirs = script_of(context)
    ours = script_of(answer)
    if theirs != ours and not {theirs, ours} <= _EAST_ASIAN:
        letters = filter(str.isalpha, context)
        shared = [letter for letter in letters if _script(letter) == ours]
        if len(shared) >= len(answer) / 2:
            return None
        return f"the answer is written in {_script_name(ours)} letters, the context in {_script_name(theirs)}"
    context_hits, _ = function_words_in(context)
    hits, count = function_words_in(answer)
    theirs = max(LANGUAGES, key=context_hits.__getitem__)
    ours = max(LANGUAGES, key=hits.__getitem__)
    if _prevails(theirs, ours, context_hits) and _prevails(ours, theirs, hits):
        return f"the answer is in {ours.title()}, the context in {theirs.title()}"
    if count < _SAYS_LANGUAGE or context_hits[theirs] < _LEAST_HITS:
        return None
    words = {*_WORDS.findall(answer.lower())}
    context_words = _WORDS.findall(context.lower())
    shared_words = words.intersection(context_words)
    function_words = words & word_lists(theirs).function_words
    longest = max(map(len, function_words), default=0)
    if longest < 2 and 2 * len(shared_words) < len(words):
        return f"the answer has no function words of {theirs.title()}, the context's language"
    return None


_LEAST_HITS = 3
"""Function words of a language that a text in it has at least."""


def _prevails(language: str, other: str, hits: Counter[str]) -> bool:
    least = max(_LEAST_HITS, 2 * hits[other])
    return hits[language] >= least


def _script_name(script: str) -> str:
    if script in _EAST_ASIAN:
        return "East Asian"
    return script.title()


@cache
def _languages() -> dict[str, list[str]]:
    """Return by function word the languages that have it."""
    languages: dict[str, list[str]] = {}
    for language in LANGUAGES:
        for word in word_lists(language).function_words:
            languages.setdefault(word, []).append(language)
    return languages


@lru_cache(maxsize=1024)
def _script(letter: str) -> str:
    name = unicodedata.name(letter, "LATIN")
    return name.split()[0]


_UNDIVIDED = regex.compile(
    r"[[\p{LB=SA}\p{LB=AK}\p{LB=AP}\p{LB=AS}]&&\p{L}]", regex.VERSION1
)
"""Letters of scripts without spaces whose words take a dictionary to find (Thai, Lao, Khmer, Burmese, Javanese …), by
Unicode's line-breaking classes (UAX 14)."""


def has_word_breaks(text: str) -> bool:
    """Tell whether words can be told apart: most letters are of a script that has spaces, or Han or kana."""
    letters = regex.findall(r"\p{L}", text)
    undivided = _UNDIVIDED.findall(text)
    return 2 * len(undivided) <= len(letters)
