"""Match people's statements to a judge's, where the two are worded or divided differently.

A judge takes its statements from the answer; people labelled statements of their own. Both follow the order of the
answer, so they are matched in order, by the words they share:

1. A labelled statement that contains a judged one literally, or is contained in one, matches every such statement.
   So a labelled statement that the judge split matches its parts, and two that the judge merged match the same one.
2. Any other matches the one judged statement that an order-preserving assignment gives it: of all assignments that
   never go back, the one with the largest sum of shared content words (`word_share`).
3. If that statement has less than `MIN_SHARE` of its content words, it matches none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.schema import Chunk
from faith_dspy.text.context import index_context
from faith_dspy.text.features import lexical_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample, Verdict
    from faith_dspy.text.context import IndexedContext

MIN_SHARE = 0.25
"""Share of a labelled statement's content words that a judged one must have to match it."""
_STEP = 0.05
"""What moving on to the next judged statement is worth, so that of two equal ones the unmatched one is taken."""
_LITERAL = 2.0
"""The share that stands for literal containment: above any share of words."""


def match_statements(labelled: Sequence[str], judged: Sequence[str]) -> list[tuple[int, ...]]:
    """For each labelled statement, the positions of the judged statements it matches, ascending; ``()`` if none."""
    if not labelled or not judged:
        return [()] * len(labelled)
    shares = _shares(labelled, judged)
    matches = []
    for row, place in zip(shares, _in_order(shares), strict=True):
        literal = tuple(i for i, share in enumerate(row) if share == _LITERAL)
        matches.append(literal or ((place,) if row[place] >= MIN_SHARE else ()))
    return matches


def match_in_order(labelled: Sequence[str], judged: Sequence[str]) -> list[int | None]:
    """For each labelled statement one judged statement, never one before the last; None if it shares too little."""
    if not labelled or not judged:
        return [None] * len(labelled)
    shares = _shares(labelled, judged)
    return [place if row[place] >= MIN_SHARE else None for row, place in zip(shares, _in_order(shares), strict=True)]


def statement_labels(judged: Sequence[str], example: LabelledExample) -> list[bool | None]:
    """For each judged statement, whether people call it supported; None where their labels do not say.

    A judged statement is supported when all labelled statements that match it are. Where no statement is labelled,
    the answer's label decides: every statement of a faithful answer is supported, and the only statement of an
    unfaithful one is not. A single judged statement that is the whole answer has the answer's label.
    """
    if not judged:
        return []
    labelled = [(s.text, s.verdict) for s in example.statements if s.verdict is not None]
    if not labelled:
        return [example.label if example.label or len(judged) == 1 else None] * len(judged)
    if len(judged) == 1 and _plain(judged[0]) == _plain(example.answer):
        return [example.label]
    return [all(v.is_supported for v in found) if found else None for found in match_verdicts(judged, labelled)[0]]


def match_verdicts(
    judged: Sequence[str], labelled: Sequence[tuple[str, Verdict]]
) -> tuple[list[list[Verdict]], list[Verdict]]:
    """For each judged statement, the verdicts of the labelled ones that match it; and those that match none."""
    matched: list[list[Verdict]] = [[] for _ in judged]
    unmatched: list[Verdict] = []
    for (_, verdict), match in zip(labelled, match_statements([text for text, _ in labelled], judged), strict=True):
        for i in match:
            matched[i].append(verdict)
        if not match:
            unmatched.append(verdict)
    return matched, unmatched


def word_share(text: str, within: str) -> float:
    """Share of the content words of ``text`` that ``within`` has; 1 if it has no content word."""
    return _share(text, index_context([Chunk(id=0, text=within)]))


def _shares(labelled: Sequence[str], judged: Sequence[str]) -> list[list[float]]:
    """`word_share` of each labelled statement in each judged one; `_LITERAL` where one contains the other."""
    others = [(_plain(j), index_context([Chunk(id=0, text=j)])) for j in judged]
    return [
        [_LITERAL if text in other or other in text else _share(given, indexed) for other, indexed in others]
        for given, text in ((text, _plain(text)) for text in labelled)
    ]


def _share(text: str, within: IndexedContext) -> float:
    return 1 - lexical_features(text, [], indexed=within, names=["novel_words"])["novel_words"]


def _in_order(shares: Sequence[Sequence[float]]) -> list[int]:
    """The column for each row, never going back, with the largest sum of shares (dynamic programming)."""
    best = list(shares[0])
    steps: list[list[int]] = []
    for row in shares[1:]:
        came = [max(range(j + 1), key=lambda i: (best[i] + _STEP * (i < j), i)) for j in range(len(row))]
        best = [best[i] + _STEP * (i < j) + row[j] for j, i in enumerate(came)]
        steps.append(came)
    places = [max(range(len(best)), key=lambda j: (best[j], -j))]
    for came in reversed(steps):
        places.append(came[places[-1]])
    return places[::-1]


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
