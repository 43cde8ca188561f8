"""A context told apart into words, once for all statements that are compared with it."""

from __future__ import annotations

from collections import defaultdict
from contextvars import ContextVar
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.text.sentences import sentence_texts
from faith_dspy.text.sequences import character_grams, ngrams, plain, signs
from faith_dspy.text.tokens import Token, content_tokens, language_of, tidy, tokenize, without_markers

if TYPE_CHECKING:
    from collections.abc import KeysView, Sequence

    from faith_dspy.schema import Chunk

_SHORT = 2000
"""Characters up to which a text is searched in less time than the set of its parts is made."""


class _Piece(NamedTuple):
    tokens: list[Token]
    content: list[str]
    keys: frozenset[str]


class IndexedContext:
    """A tokenised context, made once by `index_context` for all statements of an answer.

    What only some features look at is made when the first of them does: most judges go by a few.
    """

    def __init__(self, context: Sequence[Chunk], question: str | None = None) -> None:
        texts = [tidy(c.text) for c in context]
        self.text = " ".join(texts)
        self.language = language_of(" ".join([*texts, question or ""]))
        self.chunk_ids = [c.id for c in context]
        self._chunks = [[self._piece(sentence) for _, sentence in sentence_texts(text)] for text in texts]
        self.sentences = [*chain.from_iterable(self._chunks)]
        where: defaultdict[str, list[int]] = defaultdict(list)
        for i, piece in enumerate(self.sentences):
            for key in piece.keys:
                where[key].append(i)
        self.where = dict(where)
        """The sentences that each key occurs in."""
        self.known: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """By statement: its features looked at so far."""

    def _piece(self, sentence: str) -> _Piece:
        tokens = tokenize(sentence, self.language)
        content = [t.key for t in content_tokens(tokens)]
        return _Piece(tokens, content, frozenset(content))

    @property
    def keys(self) -> KeysView[str]:
        """Of all its content."""
        return self.where.keys()

    @cached_property
    def chunk_keys(self) -> list[set[str]]:
        """Those of each chunk."""
        return [{key for piece in pieces for key in piece.keys} for pieces in self._chunks]

    @cached_property
    def pairs(self) -> set[tuple[str, ...]]:
        """Keys of content that stand beside each other."""
        return {pair for piece in self.sentences for pair in ngrams(piece.content, 2)}

    @cached_property
    def trigrams(self) -> set[tuple[str, ...]]:
        """The same of any three tokens."""
        return {three for piece in self.sentences for three in ngrams([t.key for t in piece.tokens], 3)}

    @cached_property
    def number_neighbours(self) -> dict[str, set[str]]:
        """The words that each number stands near."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for piece in self.sentences:
            for i, token in enumerate(piece.tokens):
                if token.kind == "number":
                    found[token.key] |= neighbours(piece.tokens, i)
        return dict(found)

    @cached_property
    def plain(self) -> str:
        """Its words, as `plain` has them."""
        return plain(self.text)

    @cached_property
    def characters(self) -> str | set[str]:
        """Where strings of five characters are looked for: a short text as it is, of a long one the set of them."""
        return self.plain if len(self.plain) < _SHORT else character_grams(self.plain)

    @cached_property
    def signs(self) -> frozenset[str]:
        """Characters that are neither of words nor common punctuation."""
        return signs(self.text)


def index_context(context: Sequence[Chunk], question: str | None = None) -> IndexedContext:
    """Tokenise a context once, so that each statement, and each answer over the same document, costs little.

    The question only helps to tell the language: what it says is no evidence.
    """
    key = (tuple(context), question)
    own = _own.get()
    if own is not None and own[0] == key:
        return own[1]
    indexed = _indexed(*key)
    if len(indexed.text) < _KEPT:
        _own.set((key, indexed))
    return indexed


_own: ContextVar[tuple[Any, IndexedContext] | None] = ContextVar("faith_dspy_prepared", default=None)
"""What this piece of work looked at last: with many going on at a time, others have taken its place in the cache."""
_KEPT = 50_000
"""Characters of a context that is kept for as long as the work on it goes on."""
_indexed = lru_cache(maxsize=4)(IndexedContext)  # few: a long document's takes tens of megabytes


@lru_cache(maxsize=256)  # its chunks are looked for after its features, by then others have been read
def read(statement: str, language: str) -> tuple[str, list[Token]]:
    """A statement's text without layout, and its tokens."""
    text = without_markers(tidy(statement))
    return text, tokenize(text, language)


def neighbours(tokens: Sequence[Token], i: int, reach: int = 4) -> set[str]:
    """Keys of the words near a token."""
    return {t.key for t in tokens[max(0, i - reach) : i + reach + 1] if t.kind == "word"}
