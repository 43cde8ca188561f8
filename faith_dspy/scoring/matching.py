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
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from faith_dspy.schema import LabelledExample, Statement, Verdict
from faith_dspy.text.sentences import sentences
from faith_dspy.text.words import content_tokens, language_of, tidy, tokenize

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


class _Word(NamedTuple):
    key: str
    sentence: int
    start: int


class _Words(NamedTuple):
    """The content words of an answer; of a sentence without any, all of its words."""

    text: str
    """The answer's sentences, typography brought to one form, with a space after each; offsets count in it."""
    language: str
    words: tuple[_Word, ...]


def locate(texts: Sequence[str], answer: str, named: Sequence[int | None] = ()) -> list[Place]:
    """Where each of these statements stands in the answer, in their order; ``named``: indices of their sentences."""
    within = _words_of(answer)
    known = {w.sentence for w in within.words}
    places: list[Place] = []
    before, start = -1, -1
    for text, index in zip(texts, named or [None] * len(texts), strict=True):
        index = index if index in known else None
        place, at = _literally(text, within, index, start)
        if place is None:
            place, at = _by_words(text, within, index, before), start
        if place.sentence is not None:
            before, start = place.sentence, at
        places.append(place)
    return places


def match_statements(labelled: Sequence[str], judged: Sequence[Statement], answer: str) -> list[tuple[int, ...]]:
    """For each labelled statement, the positions of the judged statements it matches, ascending; ``()`` if none."""
    theirs = [p.words for p in locate(labelled, answer)]
    judges = [p.words for p in locate([s.text for s in judged], answer, [s.sentence_index for s in judged])]
    shares = [[len(a & b) / max(1, min(len(a), len(b))) for b in judges] for a in theirs]
    matches = [tuple(i for i, share in enumerate(row) if share > CONTAINED) for row in shares]
    left = [i for i in range(len(judged)) if not any(i in match for match in matches)]
    for k, row in enumerate(shares):
        if not matches[k] and left and row[best := max(left, key=lambda i: row[i])] > 0.5:
            matches[k] = (best,)
    return matches


def statement_labels(judged: Sequence[Statement], example: LabelledExample) -> list[bool | None]:
    """For each judged statement, whether people call it supported; None where their labels do not say.

    A judged statement is supported when all labelled statements that match it are. A single judged statement that is
    the whole answer has the answer's label. No other has: those of faithful answers alone would be all of one kind.
    """
    if len(judged) == 1 and _plain(judged[0].text) == _plain(example.answer):
        return [example.label]
    labelled = [(s.text, s.verdict) for s in example.statements if s.verdict is not None]
    if not labelled:
        return [None] * len(judged)
    matched, _ = match_verdicts(judged, labelled, example.answer)
    return [all(v.is_supported for v in found) if found else None for found in matched]


def match_verdicts(
    judged: Sequence[Statement], labelled: Sequence[tuple[str, Verdict]], answer: str
) -> tuple[list[list[Verdict]], list[Verdict]]:
    """For each judged statement, the verdicts of the labelled ones that match it; and those that match none."""
    matched: list[list[Verdict]] = [[] for _ in judged]
    unmatched: list[Verdict] = []
    matches = match_statements([text for text, _ in labelled], judged, answer)
    for (_, verdict), match in zip(labelled, matches, strict=True):
        for i in match:
            matched[i].append(verdict)
        if not match:
            unmatched.append(verdict)
    return matched, unmatched


@lru_cache(maxsize=256)
def _words_of(answer: str) -> _Words:
    text, words, language = "", [], language_of(answer)
    for s in sentences(answer):
        piece = tidy(s.text)
        tokens = tokenize(piece, language)
        words += [_Word(t.key, s.index, len(text) + t.start) for t in content_tokens(tokens) or tokens]
        text += piece + " "
    return _Words(text, language, tuple(words))


def _literally(text: str, within: _Words, named: int | None, before: int) -> tuple[Place | None, int]:
    """Where the answer has the text literally, and the offset; None where it does not."""
    pieces = tidy(text).split()
    if not pieces:
        return None, before
    pattern = r"(?<!\w)" + r"\s+".join(map(re.escape, pieces)) + r"(?!\w)"
    found = []
    for match in re.finditer(pattern, within.text, re.IGNORECASE):
        if words := [w for w in within.words if match.start() <= w.start < match.end()]:
            held = [w.sentence for w in words]
            place = Place(max(held, key=held.count), frozenset(w.start for w in words))
            at = match.start()
            found.append(((named not in (None, place.sentence), at <= before, abs(at - before)), place, at))
    if not found:
        return None, before
    _, place, at = min(found, key=lambda f: f[0])
    return place, at


def _by_words(text: str, within: _Words, named: int | None, before: int) -> Place:
    """The statement's content words in its sentence, and in those that it merges with it."""
    keys = {t.key for t in content_tokens(tokenize(tidy(text), within.language))}
    by_sentence: defaultdict[int, list[_Word]] = defaultdict(list)
    for w in within.words:
        by_sentence[w.sentence].append(w)
    shared = {s: {w.key for w in words} & keys for s, words in by_sentence.items()}
    if named is not None:
        mine = [w for w in by_sentence[named] if w.key in keys] or by_sentence[named]
        return Place(named, frozenset(w.start for w in mine))
    home = max(shared, key=lambda s: (len(shared[s]), s > before, -abs(s - before)), default=None)
    if home is None or not keys or len(shared[home]) < MIN_FOUND * len(keys):
        return Place(None, frozenset())
    told, held = set(shared[home]), {home}
    for s, words in by_sentence.items():
        if shared[s] - told and sum(w.key in keys for w in words) > CONTAINED * len(words):
            told |= shared[s]
            held.add(s)
    return Place(home, frozenset(w.start for s in held for w in by_sentence[s] if w.key in keys))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
