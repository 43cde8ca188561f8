"""People's labels brought to the pieces a judge judges: sentences or statements that are not worded as theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.schema import Chunk
from faith_dspy.text.context import index_context
from faith_dspy.text.features import lexical_features

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

MIN_SHARED = 0.25
"""Share of a labelled statement's content words that the piece it is brought to must have."""
STEP = 0.05


def align(pieces: Sequence[str], example: LabelledExample) -> list[bool | None]:
    """Label of each piece: supported, not supported, or None where people's labels do not tell.

    Labelled statements that are a piece, word by word or as a part of it, go there. The others are brought to pieces
    in order – statements follow the answer – so that as many content words as possible are shared. A piece is
    supported when all statements brought to it are. Without labelled statements every piece of a faithful answer is
    supported, and the only piece of an unfaithful one is not.
    """
    if not pieces:
        return []
    labelled = [(s.text, s.verdict.is_supported) for s in example.statements if s.verdict is not None]
    if not labelled:
        label = example.label
        return [label if label or len(pieces) == 1 else None] * len(pieces)
    if len(pieces) == 1 and _plain(pieces[0]) == _plain(example.answer):
        return [example.label]
    shared = _shared([text for text, _ in labelled], pieces)
    brought: list[list[bool]] = [[] for _ in pieces]
    for row, place, (_, supported) in zip(shared, _in_order(shared), labelled, strict=True):
        everywhere = [i for i, s in enumerate(row) if s >= 2]
        for i in everywhere or ([place] if row[place] >= MIN_SHARED else []):
            brought[i].append(supported)
    return [all(b) if b else None for b in brought]


def places(texts: Sequence[str], pieces: Sequence[str]) -> list[int | None]:
    """The piece each text is brought to, in order; None where it shares too few content words with it."""
    if not texts or not pieces:
        return [None] * len(texts)
    shared = _shared(texts, pieces)
    return [j if row[j] >= MIN_SHARED else None for row, j in zip(shared, _in_order(shared), strict=True)]


def _shared(texts: Sequence[str], pieces: Sequence[str]) -> list[list[float]]:
    """Per text and piece: share of the text's content words in the piece; 2 where one contains the other literally."""
    indexed = [index_context([Chunk(id=0, text=p)]) for p in pieces]
    plain = [_plain(p) for p in pieces]
    return [
        [
            2.0 if _plain(t) in p or p in _plain(t) else 1 - lexical_features(t, [], indexed=q)["novel_words"]
            for p, q in zip(plain, indexed, strict=True)
        ]
        for t in texts
    ]


def _in_order(shared: Sequence[Sequence[float]]) -> list[int]:
    """The piece for each text, never going back, with the largest sum of shares (dynamic programming).

    A step on to another piece is worth `STEP`, so that of two equal places the one not yet told of is taken.
    """
    best = list(shared[0])
    steps: list[list[int]] = []
    for row in shared[1:]:
        came = [max(range(j + 1), key=lambda i: (best[i] + STEP * (i < j), i)) for j in range(len(row))]
        best = [best[i] + STEP * (i < j) + row[j] for j, i in enumerate(came)]
        steps.append(came)
    places = [max(range(len(best)), key=lambda j: (best[j], -j))]
    for came in reversed(steps):
        places.append(came[places[-1]])
    return places[::-1]


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
