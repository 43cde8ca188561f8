"""Chunk ids checked against the context: what is not there is never shown as evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from faith_dspy.schema import Chunk


def valid_chunk_ids(named: Iterable[int], context: Sequence[Chunk]) -> tuple[tuple[int, ...], int]:
    """Ids that exist, ascending and once each; and how many named ids do not exist."""
    known = {c.id for c in context}
    ids = list(dict.fromkeys(named))
    return tuple(sorted(i for i in ids if i in known)), sum(i not in known for i in ids)
