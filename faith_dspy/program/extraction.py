"""From an answer's sentences to the statements that are verified."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from faith_dspy.schema import Chunk, Sentence, Statement
from faith_dspy.text.features import Comparison, IndexedContext
from faith_dspy.text.languages import light_stems, stem, word_lists

_LINE = re.compile(r"^[\s\-*•\[(]*(?:(\d{1,3})(?:[\])][.:)\s]*|[.:)\s]+))?(.*)$")
_NUMBERS = ("sentence_index", "sentence", "index", "number")
_TEXTS = ("simpler_statements", "statements", "statement", "claims", "claim", "text")


class Extracted(NamedTuple):
    """What an answer was taken apart into."""

    statements: list[Statement]
    """In the order of the sentences."""
    stand_ins: int
    """Sentences that stand, as written, in the place of statements that the LM did not give, that could not be used or
    that leave a part of them out."""


def read_statements(lines: Sequence[str]) -> list[tuple[int | None, str]]:
    """Number of the sentence, from 1, and text of each statement in an LM's reply; None where it gives no number.

    Reads lines with and without numbers, and JSON: lists of texts or of objects, objects by number, one of them or one
    a line, in fences or not. Numbers may begin at 0. “None” is a statement's text here.
    """
    text = re.sub(r"^\s*```\w*\s*$", "", "\n".join(lines), flags=re.MULTILINE).strip()
    found: list[tuple[int | None, str]] = []
    if text[:1] in ("[", "{"):
        found = _from_json(text) or _from_json(
            f"[{','.join(line.rstrip(',') for line in text.splitlines())}]"
        )
    found = found or [pair for line in text.splitlines() for pair in _texts(line, None)]
    shift = min((n for n, _ in found if n is not None), default=1) == 0
    return [(n if n is None else n + shift, t) for n, t in found if t]


def _from_json(reply: str) -> list[tuple[int | None, str]]:
    try:
        return list(_texts(json.loads(reply), None))
    except (ValueError, RecursionError):
        return []


def _texts(value: Any, number: int | None) -> Iterator[tuple[int | None, str]]:
    if isinstance(value, str) and (match := _LINE.match(value.strip())):
        yield (
            (int(match[1]) if match[1] and number is None else number),
            match[2].strip(),
        )
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, number)
    elif isinstance(value, Mapping):
        own = next((value[k] for k in _NUMBERS if type(value.get(k)) is int), number)
        named = [value[k] for k in _TEXTS if k in value][:1]
        for item in named:
            yield from _texts(item, own)
        for key, item in () if named else value.items():
            yield from _texts(
                item, int(key) if re.fullmatch(r"\d{1,3}", str(key)) else own
            )


def assign_statements(
    lines: Sequence[str], carrying: Sequence[Sentence], question: str = ""
) -> Extracted:
    """Statements from the LM's reply; its numbers count ``carrying`` from 1, a statement without one belongs to the
    sentence that has most of its words.

    An LM that rewrites an answer may add or omit facts, and its rewriting must not be judged in place of the answer.
    So a statement may have no name or number that answer and question lack, and no qualifier (“not”, “only”, “may”)
    that sentence and question lack. Other new words may stand in place of the sentence's own, as synonyms do: no more
    of them than words of the sentence are left out, and no more than two thirds of the statement. What no statement
    says would go unjudged: so a sentence stands as written if they leave out a name, a number or a qualifier of it, or
    a content word that is neither replaced nor an intensifier. It is skipped only if the LM writes "none" after its
    number, and only if it holds no number and no name.
    """
    known = IndexedContext(
        [Chunk(id=0, text=" ".join([question, *(p.text for p in carrying)]))]
    )
    told = [Comparison(p.text, known) for p in carrying]
    by_number: dict[int, list[str]] = {}
    for number, text in read_statements(lines):
        place = _closest(Comparison(text, known), told) if number is None else number
        by_number.setdefault(place, []).append(text)
    asked = _qualifiers(Comparison(question, known))
    out: list[Statement] = []
    stand_ins = 0
    for place, sentence in enumerate(carrying, 1):
        candidates = list(dict.fromkeys(by_number.get(place, [])))
        if candidates and all(
            re.fullmatch(r"\W*none\W*", t, re.IGNORECASE) for t in candidates
        ):
            if not re.search(r"\d|\b[A-Z]\w+\s+[A-Z]", sentence.text):
                continue
            candidates = []
        kept, is_whole = _faithful(
            [Comparison(t, known) for t in candidates], told[place - 1], asked
        )
        texts = [candidates[i] for i in kept]
        if not is_whole:
            texts = [sentence.text]
            stand_ins += sentence.text not in candidates
        out += [Statement(text=t, sentence_index=sentence.index) for t in texts]
    return Extracted(out, stand_ins)


def _faithful(
    candidates: Sequence[Comparison], sentence: Comparison, asked: Counter[str]
) -> tuple[list[int], bool]:
    """Positions of those that say what the sentence says; and whether they leave no part of it out."""
    light, known = _slight(sentence.context.language), sentence.context.keys
    room = sum(
        not key.startswith("#") for key in sentence.keys - _keys(candidates) - light
    )
    qualified = _qualifiers(sentence)
    kept: list[int] = []
    replaced = 0
    for i, c in enumerate(candidates):
        new = len(c.novel)
        invents = (
            _named(c) - known or _qualifiers(c).keys() - qualified.keys() - asked.keys()
        )
        if not invents and new <= room - replaced and 3 * new <= 2 * len(c.keys):
            kept.append(i)
            replaced += new
    texts = [candidates[i] for i in kept]
    said = _keys(texts)
    # No synonym stands for a name, a number or a qualifier that is left out.
    if (
        not texts
        or _named(sentence) - said
        or qualified - sum(map(_qualifiers, texts), Counter[str]())
    ):
        return [], False
    return kept, len(sentence.keys - said - light) <= replaced


@cache
def _slight(language: str) -> frozenset[str]:
    """Stems of words that a statement may leave out and lose no fact."""
    return light_stems(language) | {
        stem(word, language) for word in word_lists(language).intensifiers
    }


def _keys(texts: Sequence[Comparison]) -> set[str]:
    return {key for c in texts for key in c.keys}


def _named(text: Comparison) -> set[str]:
    return text.names | {key for _, key in text.numbers}


def _qualifiers(text: Comparison) -> Counter[str]:
    """How often a text has each qualifier; a negation is one, whatever its word."""
    listed = word_lists(text.context.language).qualifiers
    words = (("not" if t.negates else t.raw.lower()) for t in text.tokens)
    return Counter(word for word in words if word == "not" or word in listed)


def _closest(text: Comparison, told: Sequence[Comparison]) -> int:
    """Number of the sentence that shares most content words with a text, of several most words; 0 if none does."""
    words = {t.key for t in text.tokens}
    shared = [
        (len(text.keys & one.keys), len(words & {t.key for t in one.tokens}))
        for one in told
    ]
    best = max(shared, default=(0, 0))
    return shared.index(best) + 1 if best[0] else 0
