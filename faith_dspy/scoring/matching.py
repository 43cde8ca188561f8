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
    words: dict[int, list[tuple[int, str]]]
    """Of each sentence that has any, offset and key of its content words; of one without those, of all its words."""


def locate(
    texts: Sequence[str], answer: str, named: Sequence[int | None] = ()
) -> list[Place]:
    """Return where each of these statements stands in the answer, in their order; ``named``: indices of their
    sentences."""
    within = _read(answer)
    places: list[Place] = []
    before, start = -1, -1
    for text, index in zip(texts, named or [None] * len(texts), strict=True):
        index = index if index in within.words else None
        if literal := _literally(text, within, index, start):
            place, start = literal
        else:
            place = _by_words(text, within, index, before)
        before = before if place.sentence is None else place.sentence
        places.append(place)
    return places


def match_statements(
    labelled: Sequence[str], judged: Sequence[Statement], answer: str
) -> list[tuple[int, ...]]:
    """Return for each labelled statement, the positions of the judged statements it matches, ascending; ``()`` if
    none."""
    sentences_named = [statement.sentence_index for statement in judged]
    places = locate([statement.text for statement in judged], answer, sentences_named)
    rows, matches = [], []
    for one in locate(labelled, answer):
        row = [_share(one, other) for other in places]
        rows.append(row)
        matches.append(tuple(i for i, share in enumerate(row) if share > CONTAINED))
    matched = set().union(*matches)
    left = [i for i in range(len(judged)) if i not in matched]
    for k, row in enumerate(rows):
        if left and not matches[k]:
            best = max(left, key=row.__getitem__)
            if row[best] > 0.5:
                matches[k] = (best,)
    return matches


def _share(one: Place, other: Place) -> float:
    """Return how much two places share, of the one with fewer words."""
    fewer = min(len(one.words), len(other.words))
    return len(one.words & other.words) / max(1, fewer)


def statement_labels(
    judged: Sequence[Statement], example: LabelledExample
) -> list[bool | None]:
    """Return for each judged statement, whether people call it supported; None where their labels do not say.

    A judged statement is supported when all labelled statements that match it are. A single judged statement that is
    the whole answer has the answer's label. No other has: those of faithful answers alone would be all of one kind.
    """
    if (
        len(judged) == 1
        and judged[0].text.casefold().split() == example.answer.casefold().split()
    ):
        return [example.label]
    labelled = [
        (s.text, s.verdict) for s in example.statements if s.verdict is not None
    ]
    matched, _ = match_verdicts(judged, labelled, example.answer)
    return [
        all(v.is_supported for v in verdicts) if verdicts else None
        for verdicts in matched
    ]


def match_verdicts(
    judged: Sequence[Statement], labelled: Sequence[tuple[str, Verdict]], answer: str
) -> tuple[list[list[Verdict]], list[Verdict]]:
    """Return for each judged statement, the verdicts of the labelled ones that match it; and those that match none."""
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
def _read(answer: str) -> _Answer:
    text, words, language = "", {}, language_of(answer)
    for s in sentences(answer):
        piece = tidy(s.text)
        tokens = tokenize(piece, language)
        if tokens:
            words[s.index] = [
                (len(text) + t.start, t.key) for t in content_tokens(tokens) or tokens
            ]
        text += piece + " "
    return _Answer(text, language, words)


def _literally(
    text: str, within: _Answer, named: int | None, before: int
) -> tuple[Place, int] | None:
    """Return where the answer has the text literally, and the offset; None where it does not."""
    pieces = tidy(text).split()
    if not pieces:
        return None
    pattern = r"(?<!\w)" + r"\s+".join(map(re.escape, pieces)) + r"(?!\w)"
    places = []
    for match in re.finditer(pattern, within.text, re.IGNORECASE):
        start, end = match.span()
        inside, offsets = [], []
        for sentence, words in within.words.items():
            held = [at for at, _ in words if start <= at < end]
            inside += [sentence] * len(held)
            offsets += held
        if offsets:
            sentence = max(inside, key=inside.count)
            places.append((Place(sentence, frozenset(offsets)), start))
    return min(
        places,
        key=lambda f: (
            named not in (None, f[0].sentence),
            f[1] <= before,
            abs(f[1] - before),
        ),
        default=None,
    )


def _by_words(text: str, within: _Answer, named: int | None, before: int) -> Place:
    """Return the statement's content words in its sentence, and in those that it merges with it."""
    keys = {t.key for t in content_tokens(tokenize(tidy(text), within.language))}
    mine: dict[int, list[tuple[int, str]]] = {}
    shared: dict[int, set[str]] = {}
    for s, words in within.words.items():
        mine[s] = [(at, key) for at, key in words if key in keys]
        shared[s] = {key for _, key in mine[s]}
    if named is not None:
        words = mine[named] or within.words[named]
        return Place(named, frozenset(at for at, _ in words))
    home = max(
        shared,
        key=lambda s: (len(shared[s]), s > before, -abs(s - before)),
        default=None,
    )
    if home is None or not keys or len(shared[home]) < MIN_FOUND * len(keys):
        return Place(None, frozenset())
    covered, merged = set(shared[home]), list(mine[home])
    for s, words in within.words.items():
        if shared[s] - covered and len(mine[s]) > CONTAINED * len(words):
            covered |= shared[s]
            merged += mine[s]
    return Place(home, frozenset(at for at, _ in merged))
