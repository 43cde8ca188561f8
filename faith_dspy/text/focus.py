"""The sentences of a context that a statement is about, for an LM that is not shown the rest."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.text.sentences import sentences
from faith_dspy.text.words import content_tokens, language_of, tidy, tokenize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import Chunk

_REPEATED = 0.3
"""What a word is worth that a chosen sentence has already: a second mention may matter."""


class _Sentence(NamedTuple):
    chunk: int
    text: str
    keys: frozenset[str]


def focused(context: Sequence[Chunk], statement: str, k: int) -> list[Chunk]:
    """The context's ``k`` sentences for each sentence of the statement that together share most of its words.

    Sentences are chosen greedily by the words they add, each weighted by ``log(1 + n / sentences that have it)`` as in
    inverse document frequency. They keep their order and their chunks, which keep their ids. Where no words are shared
    the context's first sentences are taken.
    """
    pieces, language = _sentences(tuple(context))
    k *= max(1, len(sentences(statement)))
    if len(pieces) <= k:
        return list(context)
    wanted = _keys(statement, language)
    weight = {w: math.log(1 + len(pieces) / max(1, sum(w in p.keys for p in pieces))) for w in wanted}
    chosen: set[int] = set()
    left = set(wanted)
    for _ in range(k):
        worth = {
            i: math.fsum(weight[w] * (_REPEATED + (w in left)) for w in p.keys & wanted)
            for i, p in enumerate(pieces)
            if i not in chosen
        }
        best = max(worth, key=lambda i: (worth[i], -i))
        if not worth[best]:
            break
        chosen.add(best)
        left -= pieces[best].keys
    shown: defaultdict[int, list[str]] = defaultdict(list)
    for i in sorted(chosen) or range(k):
        shown[pieces[i].chunk].append(pieces[i].text)
    return [c.model_copy(update={"text": " ".join(shown[c.id])}) for c in context if c.id in shown]


@lru_cache(maxsize=16)  # once for all statements of an answer, and for the next answers over the same context
def _sentences(context: tuple[Chunk, ...]) -> tuple[list[_Sentence], str]:
    language = language_of(" ".join(c.text for c in context))
    return [_Sentence(c.id, s.text, _keys(s.text, language)) for c in context for s in sentences(c.text)], language


def _keys(text: str, language: str) -> frozenset[str]:
    return frozenset(t.key for t in content_tokens(tokenize(tidy(text), language)))
