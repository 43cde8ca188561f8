"""A context tokenised and indexed once, for all statements that are compared with it."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.text.sentences import sentence_texts
from faith_dspy.text.tokens import Token, content_tokens, language_of, plain_words, symbols, tidy, tokenize

if TYPE_CHECKING:
    from collections.abc import KeysView, Sequence

    from faith_dspy.schema import Chunk


class IndexedSentence(NamedTuple):
    """A sentence of the context."""

    chunk: int
    """Position of its chunk."""
    tokens: list[Token]
    content: list[str]
    """Keys of its content tokens, in order."""
    keys: frozenset[str]
    """The same, each once."""


class IndexedContext:
    """A tokenised context; made by `index_context`. What only some features need is computed when first asked for."""

    def __init__(self, context: Sequence[Chunk], question: str | None = None) -> None:
        texts = [tidy(c.text) for c in context]
        self.text = " ".join(texts)
        self.language = language_of(" ".join([*texts, question or ""]))
        self.chunk_ids = [c.id for c in context]
        self.sentences: list[IndexedSentence] = []
        places: defaultdict[str, list[int]] = defaultdict(list)
        for chunk, text in enumerate(texts):
            for _, sentence in sentence_texts(text):
                tokens = tokenize(sentence, self.language)
                content = [t.key for t in content_tokens(tokens)]
                keys = frozenset(content)
                for key in keys:
                    places[key].append(len(self.sentences))
                self.sentences.append(IndexedSentence(chunk, tokens, content, keys))
        self.places = dict(places)
        """By content key, the positions of the sentences that have it."""

    @property
    def keys(self) -> KeysView[str]:
        """All content keys."""
        return self.places.keys()

    @cached_property
    def chunk_keys(self) -> list[set[str]]:
        """The content keys of each chunk."""
        keys: list[set[str]] = [set() for _ in self.chunk_ids]
        for sentence in self.sentences:
            keys[sentence.chunk] |= sentence.keys
        return keys

    @cached_property
    def pairs(self) -> set[tuple[str, str]]:
        """Content keys that are neighbours in a sentence."""
        return {pair for sentence in self.sentences for pair in pairwise(sentence.content)}

    @cached_property
    def number_neighbours(self) -> dict[str, set[str]]:
        """By number, the words near it."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for sentence in self.sentences:
            for i, token in enumerate(sentence.tokens):
                if token.kind == "number":
                    found[token.key] |= neighbours(sentence.tokens, i)
        return dict(found)

    @cached_property
    def plain(self) -> str:
        """All words, as `plain_words` has them."""
        return plain_words(self.text)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """All `symbols`."""
        return symbols(self.text)


def index_context(context: Sequence[Chunk], question: str | None = None) -> IndexedContext:
    """The index of a context, kept for the next statement and the next answer over the same chunks.

    The question only helps to guess the language: what it says is no evidence.
    """
    return _indexed(tuple(context), question)


_indexed = lru_cache(maxsize=16)(IndexedContext)  # more than a batch has threads; a long document takes megabytes


def neighbours(tokens: Sequence[Token], i: int, reach: int = 4) -> set[str]:
    """Keys of the words near a token."""
    return {t.key for t in tokens[max(0, i - reach) : i + reach + 1] if t.kind == "word"}
