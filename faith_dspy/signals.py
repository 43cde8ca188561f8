"""Signals of support that need no LM: what of a statement is not in the context, and how the rest hangs together.

Every signal is a number with a fixed direction (`DIRECTIONS`): -1 for novelty, which never speaks for a statement;
+1 for support. Their names are stored in exported judges and shown to people.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from contextvars import ContextVar
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.languages import LIGHT_WORDS
from faith_dspy.normalise import (
    Token,
    content_tokens,
    language_of,
    tidy,
    tokenize,
    without_markers,
)
from faith_dspy.segment import carries_statement, sentence_texts
from faith_dspy.sequences import character_grams, common_subsequence, longest_run, ngrams, plain

if TYPE_CHECKING:
    from collections.abc import KeysView, Mapping, Sequence

    from faith_dspy.schema import Chunk

DIRECTIONS: Mapping[str, int] = {
    "novel_words": -1,  # share of different content words that are nowhere in the context
    "novel_word_count": -1,  # log(1 + how many they are)
    "novel_run": -1,  # log(1 + the longest run of them without a known content word between)
    "novel_characters": -1,  # share of strings of five characters that are not in the context: forgives inflection
    "novel_in_chunk": -1,  # share of content words that are not in the one chunk that has most of them
    "novel_in_window": -1,  # the same for two sentences that follow each other
    "novel_pairs": -1,  # share of neighbouring content words that are neighbours nowhere in the context
    "novel_name_count": -1,  # log(1 + how many capitalised words and acronyms are not in the context)
    "novel_number_count": -1,  # log(1 + how many numbers are not in the context, however written)
    "moved_numbers": -1,  # share of numbers that are in the context, but beside none of the same words
    "novel_quotes": -1,  # share of quoted passages that are not in the context word by word
    "out_of_order": -1,  # share of content words outside the longest common subsequence with the best two sentences
    "negation_mismatch": -1,  # words shared with the most similar sentence, if one of the two negates and one does not
    "admits_gap": 1,  # 1 if it says that the context does not tell something (English phrases), else 0
    "copied_run": 1,  # share of the statement that its longest literal copy from the context makes up
}
"""Each signal's direction. All are in [0, 1] but the logarithms of counts, which start at 0."""

HEAD_SIGNALS = (
    "novel_run", "novel_in_window", "novel_pairs", "novel_name_count", "novel_number_count", "admits_gap",
)  # fmt: skip
"""What a head uses by default. More signals did not separate better in any of our sets (optimize/LOG.md); the others
are shown to people, and are there for whoever has the labels to find out."""


class _Piece(NamedTuple):
    content: list[str]
    keys: frozenset[str]
    negated: bool


class PreparedContext(NamedTuple):
    """A tokenised context, made once by `prepare` for all statements of an answer."""

    language: str
    sentences: list[_Piece]
    chunk_keys: list[set[str]]
    chunk_ids: list[int]
    where: dict[str, set[int]]
    trigrams: set[tuple[str, ...]]
    pairs: set[tuple[str, ...]]
    characters: str | set[str]
    """Where strings of five characters are looked for: a short text as it is, of a long one the set of them."""
    number_neighbours: dict[str, set[str]]
    plain: str
    signs: frozenset[str]
    """Characters that are neither of words nor common punctuation."""
    known: dict[str, dict[str, float]]
    """Signals of the statements looked at so far."""

    @property
    def keys(self) -> KeysView[str]:
        """Of all its content."""
        return self.where.keys()


def prepare(context: Sequence[Chunk], question: str | None = None) -> PreparedContext:
    """Tokenise a context once, so that each statement, and each answer over the same document, costs little.

    The question only helps to tell the language: what it says is no evidence.
    """
    key = (tuple(context), question)
    own = _own.get()
    if own is not None and own[0] == key:
        return own[1]
    prepared = _prepare(*key)
    if len(prepared.plain) < _KEPT:
        _own.set((key, prepared))
    return prepared


_own: ContextVar[tuple[Any, PreparedContext] | None] = ContextVar("faith_dspy_prepared", default=None)
"""What this piece of work looked at last: with many going on at a time, others have taken its place in the cache."""
_KEPT = 50_000
"""Characters of a context that is kept for as long as the work on it goes on."""


@lru_cache(maxsize=4)  # few: a long document's takes tens of megabytes
def _prepare(context: tuple[Chunk, ...], question: str | None) -> PreparedContext:
    texts = [tidy(c.text) for c in context]
    language = language_of(" ".join([*texts, question or ""]))
    sentences: list[_Piece] = []
    where: dict[str, set[int]] = defaultdict(set)
    trigrams: set[tuple[str, ...]] = set()
    pairs: set[tuple[str, ...]] = set()
    neighbours: dict[str, set[str]] = defaultdict(set)
    chunk_keys: list[set[str]] = []
    for text in texts:
        in_chunk: set[str] = set()
        for _, sentence in sentence_texts(text):
            tokens = tokenize(sentence, language)
            content = [t.key for t in content_tokens(tokens)]
            for key in content:
                where[key].add(len(sentences))
            sentences.append(_Piece(content, frozenset(content), any(t.negates for t in tokens)))
            trigrams.update(ngrams([t.key for t in tokens], 3))
            pairs.update(ngrams(content, 2))
            for i, token in enumerate(tokens):
                if token.kind == "number":
                    neighbours[token.key] |= _neighbours(tokens, i)
            in_chunk.update(content)
        chunk_keys.append(in_chunk)
    joined = plain(" ".join(texts))
    characters = joined if len(joined) < _SHORT else character_grams(joined)
    return PreparedContext(
        language, sentences, chunk_keys, [c.id for c in context], dict(where), trigrams, pairs, characters,
        dict(neighbours), joined, _signs(" ".join(texts)), {},
    )  # fmt: skip


def statement_signals(
    statement: str,
    context: Sequence[Chunk],
    *,
    question: str | None = None,
    prepared: PreparedContext | None = None,
) -> dict[str, float]:
    """All signals of one statement; their meanings and directions are in `DIRECTIONS`.

    A statement without any content word (a list marker, “So it is.”) gets the values of a fully supported one.
    """
    p = prepared or prepare(context, question)
    if statement not in p.known:
        p.known[statement] = _signals(statement, p)
    return dict(p.known[statement])


def _signals(statement: str, p: PreparedContext) -> dict[str, float]:
    text, tokens = _read(statement, p.language)
    content = [t.key for t in content_tokens(tokens)]
    gap = float(bool(_NOT_TOLD.search(text) and _SOURCE.search(text)))
    if not content:
        return {name: float(name == "copied_run") for name in DIRECTIONS} | {"admits_gap": gap}
    words = set(content)
    n = len(words)
    light = LIGHT_WORDS.get(p.language, frozenset())
    novel = {k for k in words if k not in p.keys and k not in light}
    shared = Counter(chain.from_iterable(p.where[k] for k in words if k in p.where))
    best = min(shared, key=lambda i: (-shared[i], len(p.sentences[i].keys), i), default=None)
    mismatch = best is not None and any(t.negates for t in tokens) != p.sentences[best].negated
    in_window, window = _best_window(words, p, shared)
    window_content = [k for i in window for k in p.sentences[i].content][:_COMPARED]
    in_chunk = max((len(words & keys) for keys in p.chunk_keys), default=0)
    numbers = [(i, t.key) for i, t in enumerate(tokens) if t.kind == "number"]
    moved = [
        k for i, k in numbers
        if k in p.keys and (near := _neighbours(tokens, i)) and not near & p.number_neighbours.get(k, set())
    ]  # fmt: skip
    pairs, grams = ngrams(content, 2), character_grams(text)
    quotes = [plain(q) for q in _QUOTED.findall(text)]
    return {
        "novel_word_count": math.log1p(len(novel)),
        "novel_run": math.log1p(longest_run([k in novel for k in content])),
        "novel_words": len(novel) / n,
        "novel_characters": _share(len([g for g in grams if g not in p.characters]), len(grams)),
        "novel_in_chunk": 1 - in_chunk / n,
        "novel_in_window": 1 - in_window / n,
        "novel_pairs": _share(sum(g not in p.pairs for g in pairs), len(pairs)),
        "novel_name_count": math.log1p(len({k for k in _names(tokens, text) if k not in p.keys})),
        "novel_number_count": math.log1p(len({k for _, k in numbers if k not in p.keys})),
        "moved_numbers": _share(len(moved), len(numbers)),
        "novel_quotes": _share(sum(q not in p.plain for q in quotes), len(quotes)),
        "out_of_order": 1 - common_subsequence(content[:_COMPARED], window_content) / len(content[:_COMPARED]),
        "negation_mismatch": shared[best] / n if best is not None and mismatch else 0.0,
        "admits_gap": gap,
        "copied_run": _longest_copy([t.key for t in tokens], p),
    }


_DOUBTS = ("novel_word_count", "novel_name_count", "novel_number_count", "moved_numbers", "negation_mismatch")
_SIGN = re.compile(r"[^\w\s.,;:!?'\"()\[\]*#…-]")
_STEP = re.compile(r"\b(?:section|step|étape|schritt|paso|abschnitt)\w*\s+#?\d{1,2}\b", re.IGNORECASE)


def words_clear(statement: str, prepared: PreparedContext) -> bool:
    """Whether nothing in a statement is foreign to the context, so that no LM need be asked about it.

    Each word that carries content, name, number and quotation occurs there, no number stands beside other words, no
    sentence negates otherwise, and signs (``$``, ``<``, ✗) are the context's. Without content words it is not clear.
    Words of the context put together to say something else are, and so are other small words (“after” for “before”);
    whoever cannot have that asks about everything.
    """
    parts = [text for _, text in sentence_texts(statement) if carries_statement(text)]
    if len(parts) > 1:
        return all(words_clear(p, prepared) for p in parts)
    text, tokens = _read(statement, prepared.language)
    if not content_tokens(tokens) or not _signs(tidy(statement)) <= prepared.signs:
        return False
    literal = [*re.findall(r'"([^"]*)"', text), *_STEP.findall(tidy(statement))]
    found = statement_signals(statement, (), prepared=prepared)
    return not any(found[name] for name in _DOUBTS) and all(
        f" {plain(words)} " in f" {prepared.plain} " for words in literal
    )


def novelty(statement: str, prepared: PreparedContext) -> float:
    """How much of a statement is new to the context, from 0: the sum of those `HEAD_SIGNALS` that are about it."""
    found = statement_signals(statement, (), prepared=prepared)
    return math.fsum(found[name] for name in HEAD_SIGNALS if DIRECTIONS[name] < 0)


def _signs(text: str) -> frozenset[str]:
    return frozenset(_SIGN.findall(text))


@lru_cache(maxsize=16)  # its chunks are looked for right after its signals
def _read(statement: str, language: str) -> tuple[str, list[Token]]:
    """A statement's text without layout, and its tokens."""
    text = without_markers(tidy(statement))
    return text, tokenize(text, language)


_SHORT = 2000
"""Characters up to which a text is searched in less time than the set of its parts is made."""
_COMPARED = 400
"""Tokens compared at most for their order; only tables and unpunctuated text are longer."""
_SOURCE = re.compile(
    r"\b(?:passages?|documents?|contexts?|sources?|excerpts?|(?:the|these|this|provided|given|available|further|specific"
    r"|enough|sufficient|more)\s+(?:texts?|articles?|information|details?))\b|\bunable\s+to\s+(?:answer|provide|determine|say)",
    re.IGNORECASE,
)
_NOT_TOLD = re.compile(
    r"\b(?:not|no|none|nothing|nor|neither|without|unable|cannot|impossible|insufficient|lacks?|unclear|limited)\b|n['’]t\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r'"([^"]{12,})"')


def _neighbours(tokens: Sequence[Token], i: int, reach: int = 4) -> set[str]:
    return {t.key for t in tokens[max(0, i - reach) : i + reach + 1] if t.kind == "word"}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _best_window(words: set[str], p: PreparedContext, shared: Counter[int]) -> tuple[int, range]:
    """How many of the words two sentences that follow each other have at most, and which two."""
    best, window = 0, range(0)
    for first in sorted({first for i in shared for first in (i - 1, i)}):
        if shared[first] + shared[first + 1] > best:
            pair = range(max(first, 0), min(first + 2, len(p.sentences)))
            count = len(words.intersection(chain.from_iterable(p.sentences[i].keys for i in pair)))
            if count > best:
                best, window = count, pair
    return best, window


def _names(tokens: Sequence[Token], text: str) -> list[str]:
    """Capitalised words that do not begin a sentence, and words with two capitals anywhere."""
    names = []
    for i, t in enumerate(tokens):
        if t.kind == "word" and t.raw[0].isupper():
            before = text[max(0, t.start - 12) : t.start].rstrip(" \"'(*-")
            if sum(c.isupper() for c in t.raw) >= 2 or (i > 0 and before and before[-1] not in ".!?:\n"):
                names.append(t.key)
    return names


def _longest_copy(keys: Sequence[str], p: PreparedContext) -> float:
    """Longest run of tokens of which all trigrams are in the context, as a share; of short statements, their words."""
    if len(keys) < 3:
        return float(all(k in p.keys or k in p.plain for k in keys))
    run = longest_run([g in p.trigrams for g in ngrams(keys, 3)])
    return (run + 2) / len(keys) if run else 0.0


def best_chunks(statement: str, prepared: PreparedContext, k: int = 2) -> tuple[int, ...]:
    """Ids of at most ``k`` chunks that share most of the statement's content words, by id.

    A chunk that adds no word to the one before is left out.
    """
    _, tokens = _read(statement, prepared.language)
    wanted = {t.key for t in content_tokens(tokens)} & prepared.keys
    chosen: list[int] = []
    for _ in range(k):
        gains = [len(wanted & keys) for keys in prepared.chunk_keys]
        best = max(range(len(gains)), key=lambda i: (gains[i], -i), default=None)
        if best is None or not gains[best]:
            break
        chosen.append(prepared.chunk_ids[best])
        wanted -= prepared.chunk_keys[best]
    return tuple(sorted(chosen))


SHORTCUTS = ("answer_words", "answer_sentences", "answer_words_per_sentence")
"""Things that are not evidence; the shortcut floor shows what they alone would reach."""


def shortcut_signals(answer: str, n_sentences: int) -> dict[str, float]:
    """The shape of an answer, which says nothing about its support. Kept apart from the signals on purpose."""
    words = len(re.findall(r"\w+", answer))
    return {
        "answer_words": math.log1p(words),
        "answer_sentences": math.log1p(n_sentences),
        "answer_words_per_sentence": words / max(1, n_sentences),
    }
