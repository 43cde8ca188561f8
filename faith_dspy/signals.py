"""Signals of support that need no LM: what of a statement is not in the context, and how the rest hangs together.

Every signal is a number with a fixed direction (`DIRECTIONS`): -1 for novelty, which never speaks for a statement;
+1 for support. Their names are stored in exported judges and shown to people.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.normalise import Token, language_of, split_sentences, tidy, tokenize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.schema import Chunk

DIRECTIONS: Mapping[str, int] = {
    "novel_words": -1,
    "novel_word_count": -1,
    "novel_rare": -1,
    "novel_beyond_question": -1,
    "novel_fuzzy": -1,
    "novel_characters": -1,
    "novel_run": -1,
    "novel_in_chunk": -1,
    "novel_in_sentence": -1,
    "novel_in_window": -1,
    "novel_bigrams": -1,
    "novel_trigrams": -1,
    "novel_content_pairs": -1,
    "apart_pairs": -1,
    "out_of_order": -1,
    "copied_run": 1,
    "novel_numbers": -1,
    "novel_number_count": -1,
    "moved_numbers": -1,
    "novel_names": -1,
    "novel_name_count": -1,
    "negation_mismatch": -1,
    "novel_quotes": -1,
    "scattered": -1,
    "question_words": 0,
}


class _Piece(NamedTuple):
    tokens: list[Token]
    content: list[str]
    keys: frozenset[str]
    negated: bool
    chunk: int


class PreparedContext(NamedTuple):
    """A tokenised context, made once by `prepare` for all statements of an answer."""

    language: str
    sentences: list[_Piece]
    chunk_keys: list[frozenset[str]]
    chunk_ids: list[int]
    keys: frozenset[str]
    where: dict[str, set[int]]
    bigrams: frozenset[tuple[str, ...]]
    trigrams: frozenset[tuple[str, ...]]
    content_pairs: frozenset[tuple[str, str]]
    prefixes: frozenset[str]
    characters: frozenset[str]
    number_neighbours: dict[str, set[str]]
    plain: str
    question: frozenset[str]


def _content(tokens: Sequence[Token]) -> list[Token]:
    return [t for t in tokens if t.kind != "function"]


def _grams(keys: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(keys[i : i + n]) for i in range(len(keys) - n + 1)]


def _char_grams(text: str) -> set[str]:
    text = re.sub(r"\W+", " ", text.lower())
    return {text[i : i + 5] for i in range(len(text) - 4)}


def _neighbours(tokens: Sequence[Token], i: int, reach: int = 4) -> set[str]:
    return {t.key for t in tokens[max(0, i - reach) : i + reach + 1] if t.kind == "word"}


def prepare(context: Sequence[Chunk], question: str | None = None) -> PreparedContext:
    """Tokenise a context once, so that each statement costs little."""
    texts = [tidy(c.text) for c in context]
    language = language_of(" ".join([*texts, question or ""]))
    sentences: list[_Piece] = []
    where: dict[str, set[int]] = defaultdict(set)
    bigrams: set[tuple[str, ...]] = set()
    trigrams: set[tuple[str, ...]] = set()
    pairs: set[tuple[str, str]] = set()
    neighbours: dict[str, set[str]] = defaultdict(set)
    chunk_keys: list[frozenset[str]] = []
    for number, text in enumerate(texts):
        in_chunk: set[str] = set()
        for sentence in split_sentences(text):
            tokens = tokenize(sentence, language)
            content = [t.key for t in _content(tokens)]
            keys = frozenset(content)
            for key in keys:
                where[key].add(len(sentences))
            sentences.append(_Piece(tokens, content, keys, any(t.negates for t in tokens), number))
            every = [t.key for t in tokens]
            bigrams.update(_grams(every, 2))
            trigrams.update(_grams(every, 3))
            pairs.update((a, b) for a, b in zip(content, content[1:], strict=False))
            for i, token in enumerate(tokens):
                if token.kind == "number":
                    neighbours[token.key] |= _neighbours(tokens, i)
            in_chunk |= keys
        chunk_keys.append(frozenset(in_chunk))
    keys = frozenset().union(*chunk_keys)
    joined = " ".join(texts)
    asked = tokenize(tidy(question or ""), language)
    return PreparedContext(
        language, sentences, chunk_keys, [c.id for c in context], keys, dict(where), frozenset(bigrams),
        frozenset(trigrams), frozenset(pairs), frozenset(_prefix(k) for k in keys), frozenset(_char_grams(joined)),
        dict(neighbours), re.sub(r"\W+", " ", joined.lower()), frozenset(t.key for t in _content(asked)),
    )  # fmt: skip


def _prefix(key: str) -> str:
    return key if key.startswith("#") or len(key) <= 4 else key[: max(4, round(len(key) * 0.65))][:6]


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def statement_signals(
    statement: str,
    context: Sequence[Chunk],
    *,
    question: str | None = None,
    prepared: PreparedContext | None = None,
) -> dict[str, float]:
    """All signals of one statement, each in its direction of `DIRECTIONS`.

    A statement without any content word (a list marker, “Yes.”) gets the values of a fully supported one.
    """
    p = prepared or prepare(context, question)
    text = tidy(statement)
    tokens = tokenize(text, p.language)
    content = _content(tokens)
    if not content:
        return {name: 1.0 if way > 0 else 0.0 for name, way in DIRECTIONS.items()}
    keys = [t.key for t in content]
    unique = list(dict.fromkeys(keys))
    novel = [k for k in unique if k not in p.keys]
    n = len(unique)
    s = len(p.sentences)
    rarity = {k: math.log(1 + s / (len(p.where.get(k, ())) or 0.5)) for k in unique}
    per_sentence = Counter(i for k in unique for i in p.where.get(k, ()))
    best = max(range(s), key=lambda i: (per_sentence[i], -len(p.sentences[i].keys), -i)) if s else None
    in_window, window = _best_window(unique, p, per_sentence)
    in_chunk = max((sum(k in c for k in unique) for c in p.chunk_keys), default=0)
    every = [t.key for t in tokens]
    bigrams, trigrams = _grams(every, 2), _grams(every, 3)
    pairs = list(zip(keys, keys[1:], strict=False))
    known = [k for k in unique if k in p.keys]
    together = [(a, b) for i, a in enumerate(known) for b in known[i + 1 : i + 4]]
    numbers = [(i, t) for i, t in enumerate(tokens) if t.kind == "number"]
    novel_numbers = [t for _, t in numbers if t.key not in p.keys]
    moved = [
        t for i, t in numbers
        if t.key in p.keys and (near := _neighbours(tokens, i)) and not near & p.number_neighbours[t.key]
    ]  # fmt: skip
    names = _names(tokens, text)
    novel_names = {t.key for t in names if t.key not in p.keys}
    overlap = _share(per_sentence[best], n) if best is not None else 0.0
    negated = any(t.negates for t in tokens)
    quotes = [" ".join(re.sub(r"\W+", " ", q.lower()).split()) for q in re.findall(r'"([^"]{12,})"', text)]
    window_keys = [k for i in window for k in p.sentences[i].content]
    grams = _char_grams(text)
    return {
        "novel_words": len(novel) / n,
        "novel_word_count": math.log1p(len(novel)),
        "novel_rare": _share(sum(rarity[k] for k in novel), sum(rarity.values())),
        "novel_beyond_question": sum(k not in p.question for k in novel) / n,
        "novel_fuzzy": sum(_prefix(k) not in p.prefixes for k in novel) / n,
        "novel_characters": _share(len(grams - p.characters), len(grams)),
        "novel_run": math.log1p(_longest([k not in p.keys for k in keys])),
        "novel_in_chunk": 1 - in_chunk / n,
        "novel_in_sentence": 1 - overlap,
        "novel_in_window": 1 - in_window / n,
        "novel_bigrams": _share(sum(g not in p.bigrams for g in bigrams), len(bigrams)),
        "novel_trigrams": _share(sum(g not in p.trigrams for g in trigrams), len(trigrams)),
        "novel_content_pairs": _share(sum(g not in p.content_pairs for g in pairs), len(pairs)),
        "apart_pairs": _share(sum(not p.where[a] & p.where[b] for a, b in together), len(together)),
        "out_of_order": 1 - _common_subsequence(keys, window_keys) / len(keys),
        "copied_run": _longest_copy(every, p) / len(every),
        "novel_numbers": _share(len(novel_numbers), len(numbers)),
        "novel_number_count": math.log1p(len(novel_numbers)),
        "moved_numbers": _share(len(moved), len(numbers)),
        "novel_names": _share(len(novel_names), len({t.key for t in names})),
        "novel_name_count": math.log1p(len(novel_names)),
        "negation_mismatch": overlap if best is not None and negated != p.sentences[best].negated else 0.0,
        "novel_quotes": _share(sum(q not in p.plain for q in quotes), len(quotes)),
        "scattered": (len(known) - in_chunk) / n,
        "question_words": sum(k in p.question for k in unique) / n,
    }


def _best_window(unique: Sequence[str], p: PreparedContext, per_sentence: Counter[int]) -> tuple[int, list[int]]:
    """Most of the words found in two sentences that follow each other, and which two."""
    best, window = 0, list(range(min(1, len(p.sentences))))
    for i in per_sentence:
        for pair in ([i, i + 1], [i - 1, i]):
            inside = [j for j in pair if 0 <= j < len(p.sentences)]
            count = sum(any(j in p.where.get(k, ()) for j in inside) for k in unique)
            if (count, -inside[0]) > (best, -window[0]):
                best, window = count, inside
    return best, window


def _names(tokens: Sequence[Token], text: str) -> list[Token]:
    """Capitalised words that do not begin a sentence, and words with two capitals anywhere."""
    names = []
    for i, t in enumerate(tokens):
        if t.kind != "word" or not t.raw[0].isupper():
            continue
        before = text[: t.start].rstrip(" \"'(*-")
        if sum(c.isupper() for c in t.raw) >= 2 or (i > 0 and before and before[-1] not in ".!?:\n"):
            names.append(t)
    return names


def _longest(flags: Sequence[bool]) -> int:
    best = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        best = max(best, run)
    return best


def _longest_copy(every: Sequence[str], p: PreparedContext) -> int:
    """Longest run of tokens of which all trigrams are in the context."""
    if len(every) < 3:
        return len(every) if len(every) == 1 or tuple(every) in p.bigrams else 0
    run = _longest([g in p.trigrams for g in _grams(every, 3)])
    return run + 2 if run else 0


def _common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, start=1):
            above = row[j]
            row[j] = diagonal + 1 if x == y else max(above, row[j - 1])
            diagonal = above
    return row[-1]


def best_chunks(statement: str, prepared: PreparedContext, k: int = 2) -> tuple[int, ...]:
    """Ids of at most ``k`` chunks that share most of the statement's content words; a chunk that adds none is left out."""
    wanted = {t.key for t in _content(tokenize(tidy(statement), prepared.language))} & prepared.keys
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
