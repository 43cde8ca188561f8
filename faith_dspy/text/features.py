"""Features of support that need no LM: what of a statement is not in the context, and how the rest hangs together.

Every signal is a number with a fixed direction (`DIRECTIONS`): -1 for novelty, which never speaks for a statement;
+1 for support. Their names are stored in exported judges and shown to people.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from faith_dspy.text.context import IndexedContext, index_context, neighbours, read
from faith_dspy.text.languages import LIGHT_WORDS
from faith_dspy.text.sentences import carries_statement, sentence_texts
from faith_dspy.text.sequences import character_grams, common_subsequence, longest_run, ngrams, plain, signs
from faith_dspy.text.tokens import Token, content_tokens, tidy

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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

CLASSIFIER_FEATURES = (
    "novel_run", "novel_in_window", "novel_pairs", "novel_name_count", "novel_number_count", "admits_gap",
)  # fmt: skip
"""What a classifier uses by default. More features did not separate better in any of our sets (optimize/LOG.md); the others
are there for whoever has the labels to find out."""


def lexical_features(
    statement: str,
    context: Sequence[Chunk],
    *,
    question: str | None = None,
    indexed: IndexedContext | None = None,
    names: Collection[str] = DIRECTIONS.keys(),
) -> dict[str, float]:
    """Features of one statement, all of them or those of ``names``; `DIRECTIONS` has their meanings and directions.

    A statement without any content word (a list marker, “So it is.”) gets the values of a fully supported one.
    """
    p = indexed or index_context(context, question)
    known = p.known[statement]
    if missing := [name for name in names if name not in known]:
        compared = _Compared(statement, p)
        known.update((name, compared.signal(name)) for name in missing)
    return {name: known[name] for name in names}


class _Compared:
    """A statement beside a context: a method for each signal, by its name. What several look at is made once."""

    def __init__(self, statement: str, context: IndexedContext) -> None:
        self.context = context
        self.text, self.tokens = read(statement, context.language)
        self.content = [t.key for t in content_tokens(self.tokens)]
        self.words = set(self.content)

    def signal(self, name: str) -> float:
        if not self.content and name != "admits_gap":
            return float(name == "copied_run")
        value: float = getattr(self, name)()
        return value

    @cached_property
    def novel(self) -> set[str]:
        light = LIGHT_WORDS.get(self.context.language, frozenset())
        return {k for k in self.words if k not in self.context.keys and k not in light}

    @cached_property
    def shared(self) -> Counter[int]:
        """How many of the words each sentence has that has any."""
        where = self.context.where
        return Counter(chain.from_iterable(where[k] for k in self.words if k in where))

    @cached_property
    def window(self) -> tuple[int, range]:
        """How many of the words two sentences that follow each other have at most, and which two."""
        sentences, shared = self.context.sentences, self.shared
        best, window = 0, range(0)
        for first in sorted({first for i in shared for first in (i - 1, i)}):
            if shared[first] + shared[first + 1] > best:
                pair = range(max(first, 0), min(first + 2, len(sentences)))
                count = len(self.words.intersection(chain.from_iterable(sentences[i].keys for i in pair)))
                if count > best:
                    best, window = count, pair
        return best, window

    @cached_property
    def numbers(self) -> list[tuple[int, str]]:
        """Place and key of each."""
        return [(i, t.key) for i, t in enumerate(self.tokens) if t.kind == "number"]

    def novel_words(self) -> float:
        return len(self.novel) / len(self.words)

    def novel_word_count(self) -> float:
        return math.log1p(len(self.novel))

    def novel_run(self) -> float:
        return math.log1p(longest_run([k in self.novel for k in self.content]))

    def novel_characters(self) -> float:
        grams, known = character_grams(self.text), self.context.characters
        return _share(sum(g not in known for g in grams), len(grams))

    def novel_in_chunk(self) -> float:
        return 1 - max((len(self.words & keys) for keys in self.context.chunk_keys), default=0) / len(self.words)

    def novel_in_window(self) -> float:
        return 1 - self.window[0] / len(self.words)

    def novel_pairs(self) -> float:
        pairs, known = ngrams(self.content, 2), self.context.pairs
        return _share(sum(pair not in known for pair in pairs), len(pairs))

    def novel_name_count(self) -> float:
        return math.log1p(len({k for k in _names(self.tokens, self.text) if k not in self.context.keys}))

    def novel_number_count(self) -> float:
        return math.log1p(len({k for _, k in self.numbers if k not in self.context.keys}))

    def moved_numbers(self) -> float:
        near = [(k, neighbours(self.tokens, i)) for i, k in self.numbers if k in self.context.keys]
        moved = [k for k, words in near if words and not words & self.context.number_neighbours.get(k, set())]
        return _share(len(moved), len(self.numbers))

    def novel_quotes(self) -> float:
        quotes = [plain(q) for q in _QUOTED.findall(self.text)]
        return _share(sum(q not in self.context.plain for q in quotes), len(quotes))

    def out_of_order(self) -> float:
        content = self.content[:_COMPARED]
        best = [k for i in self.window[1] for k in self.context.sentences[i].content][:_COMPARED]
        return 1 - common_subsequence(content, best) / len(content)

    def negation_mismatch(self) -> float:
        sentences, shared = self.context.sentences, self.shared
        best = min(shared, key=lambda i: (-shared[i], len(sentences[i].keys), i), default=None)
        if best is None or _negates(self.tokens) == _negates(sentences[best].tokens):
            return 0.0
        return shared[best] / len(self.words)

    def admits_gap(self) -> float:
        return float(bool(_NOT_TOLD.search(self.text) and _SOURCE.search(self.text)))

    def copied_run(self) -> float:
        """Longest run of tokens of which all trigrams are in the context, as a share; of short ones, their words."""
        keys, p = [t.key for t in self.tokens], self.context
        if len(keys) < 3:
            return float(all(k in p.keys or k in p.plain for k in keys))
        run = longest_run([g in p.trigrams for g in ngrams(keys, 3)])
        return (run + 2) / len(keys) if run else 0.0


_DOUBTS = ("novel_word_count", "novel_name_count", "novel_number_count", "moved_numbers", "negation_mismatch")
_STEP = re.compile(r"\b(?:section|step|étape|schritt|paso|abschnitt)\w*\s+#?\d{1,2}\b", re.IGNORECASE)


def is_covered(statement: str, indexed: IndexedContext) -> bool:
    """Whether nothing in a statement is foreign to the context, so that no LM need be asked about it.

    Each word that carries content, name, number and quotation occurs there, no number stands beside other words, no
    sentence negates otherwise, and signs (``$``, ``<``, ✗) are the context's. Without content words it is not clear.
    Words of the context put together to say something else are, and so are other small words (“after” for “before”);
    whoever cannot have that asks about everything.
    """
    parts = [text for _, text in sentence_texts(statement) if carries_statement(text)]
    if len(parts) > 1:
        return all(is_covered(p, indexed) for p in parts)
    text, tokens = read(statement, indexed.language)
    if not content_tokens(tokens) or not signs(tidy(statement)) <= indexed.signs:
        return False
    literal = [*re.findall(r'"([^"]*)"', text), *_STEP.findall(tidy(statement))]
    doubts = lexical_features(statement, (), indexed=indexed, names=_DOUBTS)
    return not any(doubts.values()) and all(f" {plain(words)} " in f" {indexed.plain} " for words in literal)


def novelty(statement: str, indexed: IndexedContext) -> float:
    """How much of a statement is new to the context, from 0: the sum of those `CLASSIFIER_FEATURES` that are about it."""
    names = [name for name in CLASSIFIER_FEATURES if DIRECTIONS[name] < 0]
    return math.fsum(lexical_features(statement, (), indexed=indexed, names=names).values())


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


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _negates(tokens: Sequence[Token]) -> bool:
    return any(t.negates for t in tokens)


def _names(tokens: Sequence[Token], text: str) -> list[str]:
    """Capitalised words that do not begin a sentence, and words with two capitals anywhere."""
    names = []
    for i, t in enumerate(tokens):
        if t.kind == "word" and t.raw[0].isupper():
            before = text[max(0, t.start - 12) : t.start].rstrip(" \"'(*-")
            if sum(c.isupper() for c in t.raw) >= 2 or (i > 0 and before and before[-1] not in ".!?:\n"):
                names.append(t.key)
    return names


def best_chunks(statement: str, indexed: IndexedContext, k: int = 2) -> tuple[int, ...]:
    """Ids of at most ``k`` chunks that share most of the statement's content words, by id.

    A chunk that adds no word to the one before is left out.
    """
    _, tokens = read(statement, indexed.language)
    wanted = {t.key for t in content_tokens(tokens)} & indexed.keys
    chosen: list[int] = []
    for _ in range(k):
        gains = [len(wanted & keys) for keys in indexed.chunk_keys]
        best = max(range(len(gains)), key=lambda i: (gains[i], -i), default=None)
        if best is None or not gains[best]:
            break
        chosen.append(indexed.chunk_ids[best])
        wanted -= indexed.chunk_keys[best]
    return tuple(sorted(chosen))


LENGTH_FEATURES = ("answer_words", "answer_sentences", "answer_words_per_sentence")
"""Things that are not evidence; the length baseline shows what they alone would reach."""


def length_features(answer: str, n_sentences: int) -> dict[str, float]:
    """The shape of an answer, which says nothing about its support. Kept apart from the features on purpose."""
    words = len(re.findall(r"\w+", answer))
    return {
        "answer_words": math.log1p(words),
        "answer_sentences": math.log1p(n_sentences),
        "answer_words_per_sentence": words / max(1, n_sentences),
    }
