"""The sentences of a context that a statement is about, for an LM that is not to read the rest."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.text.sentences import sentences
from faith_dspy.text.tokens import content_tokens, language_of, tidy, tokenize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import Chunk

_AGAIN = 0.3
"""What a word that a sentence chosen before has counts once more: something, so that a second mention is not lost."""


class _Piece(NamedTuple):
    chunk: int
    text: str
    keys: frozenset[str]


def focused(context: Sequence[Chunk], statement: str, k: int) -> list[Chunk]:
    """The context's ``k`` sentences that together share most of a statement's words; ``k`` for each of its sentences.

    One after the other is chosen by the words it adds, weighted by ``log(1 + n / sentences that have the word)`` as in
    inverse document frequency. They stay in their order and in their chunks, which keep their ids; where words tell
    nothing, the context's first sentences are taken.
    """
    pieces, language = _pieces(tuple(context))
    k *= max(1, len(sentences(statement)))
    if len(pieces) <= k:
        return list(context)
    wanted = {t.key for t in content_tokens(tokenize(tidy(statement), language))}
    weight = {w: math.log(1 + len(pieces) / max(1, sum(w in p.keys for p in pieces))) for w in wanted}
    chosen: set[int] = set()
    left = set(wanted)
    for _ in range(k):
        worth = {
            i: math.fsum(weight[w] * (_AGAIN + (w in left)) for w in p.keys & wanted)
            for i, p in enumerate(pieces)
            if i not in chosen
        }
        best = max(worth, key=lambda i: (worth[i], -i))
        if not worth[best]:
            break
        chosen.add(best)
        left -= pieces[best].keys
    shown: dict[int, list[str]] = {}
    for i in sorted(chosen) or range(k):
        shown.setdefault(pieces[i].chunk, []).append(pieces[i].text)
    return [c.model_copy(update={"text": " ".join(shown[c.id])}) for c in context if c.id in shown]


@lru_cache(maxsize=4)  # once for all statements of an answer, and for all answers over a document
def _pieces(context: tuple[Chunk, ...]) -> tuple[list[_Piece], str]:
    language = language_of(" ".join(c.text for c in context))
    found = [
        _Piece(c.id, s.text, frozenset(t.key for t in content_tokens(tokenize(tidy(s.text), language))))
        for c in context
        for s in sentences(c.text)
    ]
    return found, language
