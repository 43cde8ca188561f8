"""Match people's statements to a judge's, where the two are worded or divided differently, by where they stand.

A judge takes its statements from the answer; people labelled statements of their own. Both are located in the answer
(`locate`), and compared by the offsets of the content words they stand on:

1. Two statements match where they share more than `CONTAINED` of the words of the one that has fewer. So a labelled
   statement that the judge split matches its parts, and two that the judge merged match the same one.
2. Of those that match nothing yet, on either side, a labelled one matches the judged one it shares most with, if that
   is more than half of the words of the one that has fewer: both were reworded.

A statement is located thus:

- One that the answer has literally (but for white space, case and typography) stands there; of several such places it
  is in its own sentence, if the judge named that, and else after the statement before it.
- Any other stands on those of its content words that its sentence has: the one the judge named, or else the sentence
  that has most of them, of equals the next one. Without a named sentence, other sentences belong to it, too, that have
  words of it the first lacks and are told all but wholly (`CONTAINED`): it merges them.
- One without a named sentence that finds less than `MIN_FOUND` of its content words stands nowhere, and matches none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from faith_dspy.schema import LabelledExample, Statement, Verdict
from faith_dspy.text.languages import language_of
from faith_dspy.text.sentences import sentences
from faith_dspy.text.words import content_tokens, tidy, tokenize

CONTAINED = 0.75
"""Above this share of its words a statement, or a sentence, counts as contained in another statement."""
MIN_FOUND = 0.25
"""Share of its content words that a statement's sentence must have."""


class Place(NamedTuple):
    """Where a statement stands in an answer."""

    sentence: int | None
    """Index of its sentence, of several the one with most of it; None if it stands nowhere."""
    words: frozenset[int]
    """Offsets of the content words it stands on."""


class _Answer(NamedTuple):
    text: str
    """The answer's sentences, typography brought to one form, with a space after each; offsets count in it."""
    language: str
    words: dict[int, dict[int, str]]
    """Of each sentence that has any, its content words' keys by offset; of one without those, all its words'."""


def locate(
    texts: Sequence[str],
    answer: str,
    named: Sequence[int | None] = (),
) -> list[Place]:
    """Return where each of these statements stands in the answer, in their order; ``named``: indices of their
    sentences."""
    within = _read(answer)
    places: list[Place] = []
    before = start = -1
    indices = named or [None] * len(texts)
    for text, index in zip(texts, indices, strict=True):
        if index not in within.words:
            index = None
        literal = _literally(text, within, index, start)
        if literal is not None:
            place, start = literal
        else:
            place = _by_words(text, within, index, before)
        if place.sentence is not None:
            before = place.sentence
        places.append(place)
    return places


def match_statements(
    labelled: Sequence[str],
    judged: Sequence[Statement],
    answer: str,
) -> list[tuple[int, ...]]:
    """Return for each labelled statement, the positions of the judged statements it matches, ascending; ``()`` if
    none."""
    if not labelled:
        return []
    texts = [statement.text for statement in judged]
    indices = [statement.sentence_index for statement in judged]
    places = locate(texts, answer, indices)
    shares = []
    matches = []
    unmatched = set(range(len(judged)))
    for labelled_place in locate(labelled, answer):
        row = [_share(labelled_place, place) for place in places]
        match = [i for i, share in enumerate(row) if share > CONTAINED]
        unmatched.difference_update(match)
        shares.append(row)
        matches.append(tuple(match))
    for k, row in enumerate(shares):
        if unmatched and not matches[k]:
            best = max(sorted(unmatched), key=row.__getitem__)
            if row[best] > 0.5:
                matches[k] = (best,)
    return matches


def _share(one: Place, other: Place) -> float:
    """Return how much two places share, of the one with fewer words."""
    shared = one.words & other.words
    fewer = min(len(one.words), len(other.words))
    return len(shared) / max(1, fewer)


def statement_labels(
    judged: Sequence[Statement], example: LabelledExample
) -> list[bool | None]:
    """Return for each judged statement, whether people call it supported; None where their labels do not say.

    A judged statement is supported when all labelled statements that match it are. A single judged statement that is
    the whole answer has the answer's label. No other has: those of faithful answers alone would be all of one kind.
    """
    if len(judged) == 1:
        words = judged[0].text.casefold().split()
        if words == example.answer.casefold().split():
            return [example.label]
    labels: list[bool | None] = []
    for verdicts in match_verdicts(judged, example)[0]:
        label = None
        if verdicts:
            label = all(verdict.is_supported for verdict in verdicts)
        labels.append(label)
    return labels


def match_verdicts(
    judged: Sequence[Statement], example: LabelledExample
) -> tuple[list[list[Verdict]], list[Verdict]]:
    """Return for each judged statement, the verdicts of the labelled ones that match it; and those that match none."""
    texts = []
    verdicts = []
    for statement in example.statements:
        if statement.verdict is not None:
            texts.append(statement.text)
            verdicts.append(statement.verdict)
    matched: list[list[Verdict]] = [[] for _ in judged]
    unmatched: list[Verdict] = []
    matches = match_statements(texts, judged, example.answer)
    for verdict, match in zip(verdicts, matches, strict=True):
        for i in match:
            matched[i].append(verdict)
        if not match:
            unmatched.append(verdict)
    return matched, unmatched


@lru_cache(maxsize=256)
def _read(answer: str) -> _Answer:
    text = ""
    words = {}
    language = language_of(answer)
    for sentence in sentences(answer):
        piece = tidy(sentence.text)
        tokens = tokenize(piece, language)
        tokens = content_tokens(tokens) or tokens
        start = len(text)
        if tokens:
            words[sentence.index] = {start + t.start: t.key for t in tokens}
        text += piece + " "
    return _Answer(text, language, words)


def _literally(
    text: str,
    within: _Answer,
    named: int | None,
    before: int,
) -> tuple[Place, int] | None:
    """Return where the answer has the text literally, and the offset; None where it does not."""
    pieces = [re.escape(piece) for piece in tidy(text).split()]
    if not pieces:
        return None
    spaced = r"\s+".join(pieces)
    pattern = rf"(?<!\w){spaced}(?!\w)"
    places: list[tuple[Place, int]] = []
    for match in re.finditer(pattern, within.text, re.IGNORECASE):
        start, end = match.span()
        inside: dict[int, int] = {}
        for sentence, words in within.words.items():
            inside |= {at: sentence for at in words if start <= at < end}
        if inside:
            sentence = Counter(inside.values()).most_common(1)[0][0]
            places.append((Place(sentence, frozenset(inside)), start))

    def order(occurrence: tuple[Place, int]) -> tuple[bool, bool, int]:
        place, start = occurrence
        is_elsewhere = named not in (None, place.sentence)
        return is_elsewhere, start <= before, abs(start - before)

    return min(places, key=order, default=None)


def _by_words(
    text: str,
    within: _Answer,
    named: int | None,
    before: int,
) -> Place:
    """Return the statement's content words in its sentence, and in those that it merges with it."""
    tokens = content_tokens(tokenize(tidy(text), within.language))
    keys = {token.key for token in tokens}
    offsets: dict[int, list[int]] = {}
    shared: dict[int, set[str]] = {}
    for index, words in within.words.items():
        offsets[index] = [offset for offset, key in words.items() if key in keys]
        shared[index] = keys.intersection(words.values())
    if named is not None:
        return Place(named, frozenset(offsets[named] or within.words[named]))

    def order(index: int) -> tuple[int, bool, int]:
        distance = abs(index - before)
        return len(shared[index]), index > before, -distance

    home = max(shared, key=order, default=None)
    if home is None or not keys or len(shared[home]) < MIN_FOUND * len(keys):
        return Place(None, frozenset())
    covered = set(shared[home])
    merged = set(offsets[home])
    for index, words in within.words.items():
        is_merged = len(offsets[index]) > CONTAINED * len(words)
        if is_merged and not shared[index] <= covered:
            covered |= shared[index]
            merged.update(offsets[index])
    return Place(home, frozenset(merged))
