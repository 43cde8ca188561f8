"""From an answer's sentences to the statements that are verified."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from faith_dspy.schema import Chunk, Statement
from faith_dspy.text.context import index_context
from faith_dspy.text.features import lexical_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import Sentence
    from faith_dspy.text.context import IndexedContext

MAX_MISSING_WORDS = 1 / 3
"""Share of a sentence's content words that its statements may leave out."""


def assign_statements(lines: Sequence[str], carrying: Sequence[Sentence], question: str = "") -> list[Statement]:
    """Statements from the LM's numbered lines, in the order of the sentences; line numbers count ``carrying`` from 1.

    An LM that rewrites an answer may add or omit facts, and its rewriting must not be judged in place of the answer.
    A statement with a content word that is neither in the answer nor in the question is therefore dropped, and a
    sentence whose statements leave out more than a third of its content words stands as written. A sentence is
    skipped only if the LM writes "none" after its number, and only if it holds no number and no name.
    """
    by_number: dict[int, list[str]] = {}
    for line in lines:
        match = re.match(r"^[\s\-*\[(]*(\d{1,3})[\])]?[.:)\s]+(.+)$", line)
        if match and 1 <= int(match[1]) <= len(carrying):
            by_number.setdefault(int(match[1]), []).append(match[2].strip())
    known = _indexed([question, *(p.text for p in carrying)])
    out: list[Statement] = []
    for number, sentence in enumerate(carrying, 1):
        candidates = by_number.get(number, [])
        if candidates and all(re.fullmatch(r"\W*none\W*", t, re.IGNORECASE) for t in candidates):
            if not re.search(r"\d|\b[A-Z]\w+\s+[A-Z]", sentence.text):
                continue
            candidates = []
        texts = [t for t in dict.fromkeys(candidates) if _novel_words(t, known) == 0]
        if not texts or _novel_words(sentence.text, _indexed(texts)) > MAX_MISSING_WORDS:
            texts = [sentence.text]
        out += [Statement(text=t, sentence_index=sentence.index) for t in texts]
    return out


def _indexed(texts: Sequence[str]) -> IndexedContext:
    return index_context([Chunk(id=0, text=" ".join(texts))])


def _novel_words(text: str, indexed: IndexedContext) -> float:
    return lexical_features(text, [], indexed=indexed, names=["novel_words"])["novel_words"]
