"""People's labels brought to the pieces a judge judges: sentences or statements that are not worded as theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.schema import Chunk
from faith_dspy.signals import prepare, statement_signals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

MIN_SHARED = 0.5
"""Share of a labelled statement's content words that the piece it is brought to must have."""


def align(pieces: Sequence[str], example: LabelledExample) -> list[bool | None]:
    """Label of each piece: supported, not supported, or None where people's labels do not tell.

    Each labelled statement goes to the piece that contains it, else to the one with most of its content words; a piece
    is supported when all statements brought to it are. Without labelled statements every piece of a faithful answer is
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
    prepared = [prepare([Chunk(id=0, text=p)]) for p in pieces]
    plain = [_plain(p) for p in pieces]
    brought: list[list[bool]] = [[] for _ in pieces]
    for text, supported in labelled:
        wanted = _plain(text)
        inside = [i for i, p in enumerate(plain) if wanted in p or p in wanted]
        if not inside:
            shared = [1 - statement_signals(text, [], prepared=p)["novel_words"] for p in prepared]
            best = max(range(len(pieces)), key=lambda i: (shared[i], -i))
            inside = [best] if shared[best] >= MIN_SHARED else []
        for i in inside:
            brought[i].append(supported)
    return [all(b) if b else None for b in brought]


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
