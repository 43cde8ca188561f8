"""Chunk ids and quotes checked against the context: what is not there is never shown as evidence."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from faith_dspy.schema import Chunk


def valid_chunk_ids(named: Iterable[int], context: Sequence[Chunk]) -> tuple[tuple[int, ...], int]:
    """Ids that exist, ascending and once each; and how many named ids do not exist."""
    known = {c.id for c in context}
    ids = list(dict.fromkeys(named))
    return tuple(sorted(i for i in ids if i in known)), sum(i not in known for i in ids)


def quote_is_in(quote: str, chunk: Chunk) -> bool:
    """Whether a quote stands in a chunk, whatever its case, white space and typographic variants of characters."""
    wanted = _plain(quote)
    return bool(wanted) and wanted in _plain(chunk.text)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()
