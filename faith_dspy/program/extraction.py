"""From an answer's sentences to the statements that are verified."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from faith_dspy.schema import Chunk, Sentence, Statement
from faith_dspy.text.features import Comparison, IndexedContext
from faith_dspy.text.languages import light_stems, stem, word_lists

_LINE = re.compile(r"^[\s\-*•\[(]*(?:(\d{1,3})(?:[\])][.:)\s]*|[.:)\s]+))?(.*)$")
_NUMBERS = ("sentence_index", "sentence", "index", "number")
_TEXTS = (
    "simpler_statements",
    "statements",
    "statement",
    "claims",
    "claim",
    "text",
)


_NONE = re.compile(r"\W*none\W*", re.IGNORECASE)
_NUMBER_OR_NAME = re.compile(r"\d|\b[A-Z]\w+\s+[A-Z]")


_Numbered: TypeAlias = tuple[int | None, str]
"""A statement in a reply, behind the number of its sentence where the reply gives one."""


class Extracted(NamedTuple):
    """What an answer was taken apart into."""

    statements: list[Statement]
    """In the order of the sentences."""
    fallbacks: int
    """Sentences that stand, as written, in the place of statements that the LM did not give, that could not be used or
    that leave a part of them out."""


def read_statements(lines: Sequence[str]) -> list[_Numbered]:
    """Return each statement in an LM's reply: the sentence's number, from 1 or None where it gives none, and its text.

    Reads lines with and without numbers, and JSON: lists of texts or of objects, objects by number, one of them or one
    a line, in fences or not. Numbers may begin at 0. “None” is a statement's text here.
    """
    reply = "\n".join(lines)
    reply = re.sub(r"^\s*```\w*\s*$", "", reply, flags=re.MULTILINE).strip()
    rows = reply.splitlines()
    statements: list[_Numbered] = []
    if reply.startswith(("[", "{")):
        items = ",".join(row.rstrip(",") for row in rows)
        statements = _from_json(reply) or _from_json(f"[{items}]")
    if not statements:
        statements = list(_texts(rows, None))
    numbers = [number for number, _ in statements if number is not None]
    shift = min(numbers, default=1) == 0
    return [(n if n is None else n + shift, text) for n, text in statements if text]


def _from_json(reply: str) -> list[_Numbered]:
    try:
        return list(_texts(json.loads(reply), None))
    except (ValueError, RecursionError):
        return []


def _texts(value: Any, number: int | None) -> Iterator[_Numbered]:
    """Yield the statements in a value of JSON, each with the number nearest to it."""
    if isinstance(value, str):
        match = _LINE.match(value.strip())
        if match is None:
            return
        if match[1] and number is None:
            number = int(match[1])
        yield number, match[2].strip()
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, number)
    elif isinstance(value, Mapping):
        numbers = [value[key] for key in _NUMBERS if type(value.get(key)) is int]
        number = next(iter(numbers), number)
        named = [key for key in _TEXTS if key in value]
        for key in named[:1] or value:
            is_number = re.fullmatch(r"\d{1,3}", key)
            yield from _texts(value[key], int(key) if is_number else number)


def assign_statements(
    lines: Sequence[str],
    carrying: Sequence[Sentence],
    question: str = "",
    *,
    check: bool = True,
) -> Extracted:
    """Return the statements in an LM's reply; one without a number belongs to the sentence that has most of its words.

    An LM that rewrites an answer may add or omit facts, and its rewriting must not be judged in place of the answer.
    So a statement may have no name or number that answer and question lack, and no qualifier (“not”, “only”, “may”)
    that sentence and question lack. Other new words may stand in place of the sentence's own, as synonyms do: no more
    of them than words of the sentence are left out, and no more than two thirds of the statement. What no statement
    says would go unjudged: so a sentence stands as written if they leave out a name, a number or a qualifier of it, or
    a content word that is neither replaced nor an intensifier. It is skipped only if the LM writes "none" after its
    number, and only if it holds no number and no name.

    Args:
        lines: The reply; its numbers count ``carrying`` from 1.
        carrying: The answer's sentences that can carry statements.
        question: The question that the answer answers.
        check: If False, statements stand as the LM wrote them, whatever they add or leave out.
    """
    whole = " ".join([question, *(sentence.text for sentence in carrying)])
    indexed = IndexedContext([Chunk(id=0, text=whole)])
    compared = [Comparison(sentence.text, indexed) for sentence in carrying]
    by_number: dict[int, dict[str, Comparison]] = defaultdict(dict)
    for number, text in read_statements(lines):
        candidate = Comparison(text, indexed)
        if number is None:
            number = _closest(candidate, compared)
        by_number[number][text] = candidate
    allowed = _qualifiers(Comparison(question, indexed))
    statements: list[Statement] = []
    fallbacks = 0
    for number, sentence in enumerate(carrying, 1):
        candidates = by_number[number]
        usable = [text for text in candidates if not _NONE.fullmatch(text)]
        if candidates and not usable:
            if not _NUMBER_OR_NAME.search(sentence.text):
                continue
            candidates = {}
        if check:
            usable = _usable_statements(candidates, compared[number - 1], allowed)
        if not usable:
            fallbacks += sentence.text not in candidates
            usable = [sentence.text]
        for text in usable:
            statements.append(Statement(text=text, sentence_index=sentence.index))
    return Extracted(statements, fallbacks)


def _usable_statements(
    candidates: Mapping[str, Comparison],
    sentence: Comparison,
    allowed: Counter[str],
) -> list[str]:
    """Return the texts of those that say what the sentence says; none if they leave a part of it out."""
    droppable = _droppable_stems(sentence.context.language)
    qualifiers = _qualifiers(sentence)
    known_qualifiers = qualifiers.keys() | allowed.keys()
    left_out = sentence.keys - _keys(candidates.values()) - droppable
    room = sum(not key.startswith("#") for key in left_out)
    usable: dict[str, Comparison] = {}
    replaced = 0
    for text, candidate in candidates.items():
        new = len(candidate.novel)
        added = _qualifiers(candidate).keys() - known_qualifiers
        if added or _names(candidate) - sentence.context.keys:
            continue
        is_mostly_kept = 3 * new <= 2 * len(candidate.keys)
        if is_mostly_kept and replaced + new <= room:
            usable[text] = candidate
            replaced += new
    keys = _keys(usable.values())
    for candidate in usable.values():
        qualifiers = qualifiers - _qualifiers(candidate)
    lacking = len(sentence.keys - keys - droppable) - replaced
    # No synonym stands for a name, a number or a qualifier that is left out.
    is_cut = qualifiers or _names(sentence) - keys or lacking > 0
    return [] if is_cut else list(usable)


@cache
def _droppable_stems(language: str) -> frozenset[str]:
    """Return the stems of words that a statement may leave out and lose no fact."""
    intensifiers = word_lists(language).intensifiers
    stems = {stem(word, language) for word in intensifiers}
    return light_stems(language) | stems


def _keys(texts: Iterable[Comparison]) -> set[str]:
    return set().union(*(text.keys for text in texts))


def _names(text: Comparison) -> set[str]:
    return text.names | text.numbers


def _qualifiers(text: Comparison) -> Counter[str]:
    """Return how often a text has each qualifier; a negation is one, whatever its word."""
    qualifiers = {"not", *word_lists(text.context.language).qualifiers}
    counts: Counter[str] = Counter()
    for token in text.tokens:
        word = "not" if token.negates else token.raw.lower()
        if word in qualifiers:
            counts[word] += 1
    return counts


def _closest(text: Comparison, sentences: Sequence[Comparison]) -> int:
    """Return the number of the sentence that shares most content words, of several most words; 0 if none does."""
    words = {token.key for token in text.tokens}
    shared = [(0, 0)]
    for sentence in sentences:
        others = {token.key for token in sentence.tokens}
        shared.append((len(text.keys & sentence.keys), len(words & others)))
    most = max(shared)
    return shared.index(most) if most[0] else 0
