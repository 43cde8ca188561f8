"""Contexts longer than an LM's window: cut into parts that fit one call, and the verdicts on the parts merged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from faith_dspy.lm.capabilities import experience_of
from faith_dspy.schema import Chunk, RawVerdict, Verdict
from faith_dspy.text.sentences import sentence_texts

BYTES_PER_TOKEN = 2.5
"""Careful guess for UTF-8 text; English has about 4, Hindi about 3."""
CONTEXT_SHARE = 0.7
"""Of the LM's context window that the answer's context may fill."""
NUMBER_BYTES = 12
"""Room for a chunk's number in the prompt: five tokens, in the bytes that windows are measured in."""
_CHARACTER_BYTES = 4
"""Of UTF-8, at most."""
_EVIDENT = (Verdict.FULLY_SUPPORTED, Verdict.PARTIALLY_SUPPORTED, Verdict.CONTRADICTORY)


class Window(NamedTuple):
    """A part of the context that fits one call."""

    ids: list[int]
    """Chunk id of each text."""
    texts: list[str]


def context_bytes(lm: Any, demos: Sequence[Any] = ()) -> int | None:
    """Return the bytes of context that fit one call beside its demos; None if the LM's window is unknown.

    Demos hold contexts of their own. A quarter of the room is the context's, whatever they take.
    """
    window = getattr(lm, "context_window", None)
    if not window:
        return None
    tokens = window * CONTEXT_SHARE - experience_of(lm).capabilities.room
    room: int = max(int(tokens * BYTES_PER_TOKEN), window // 4)
    shown = "".join(str(dict(demo)) for demo in demos)
    return max(room - utf8_size(shown), room // 4)


def cut_into_windows(context: Sequence[Chunk], limit: int | None) -> list[Window]:
    """Return the chunks in order, in as few windows as possible; long chunks are cut between sentences.

    Args:
        context: The chunks.
        limit: Bytes of UTF-8 in a window: a single character of Hindi or Chinese may be a token of its own. None: all
            chunks are one window.
    """
    most = math.inf if limit is None else limit
    window = Window([], [])
    windows = [window]
    used = 0
    for chunk in context:
        for text in _pieces(chunk.text, most - NUMBER_BYTES):
            size = utf8_size(text) + NUMBER_BYTES
            if window.texts and used + size > most:
                window = Window([], [])
                windows.append(window)
                used = 0
            used += size
            window.ids.append(chunk.id)
            window.texts.append(text)
    return windows


def utf8_size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _pieces(text: str, limit: float) -> Iterator[str]:
    """Cut a text between sentences; a sentence that is too long, anywhere."""
    if utf8_size(text) <= limit:
        yield text
        return
    width = max(int(limit) // _CHARACTER_BYTES, 1)
    piece = ""
    for _, sentence in sentence_texts(text):
        for start in range(0, len(sentence), width):
            part = sentence[start : start + width]
            if piece and utf8_size(piece + part) > limit:
                yield piece.strip()
                piece = ""
            piece += part
        piece += " "
    yield piece.strip()


def merge_windows(verdicts: Sequence[RawVerdict]) -> RawVerdict:
    """Return one verdict from those by each window: the best support, else a contradiction, else the nearest.

    Ids and quotes of other windows with the same verdict follow its own, where it has evidence. A contradiction beside
    full support is its reason's last word. A window that could not be read leaves the statement unjudged, because the
    support may be there.
    """
    if len(verdicts) == 1:
        return verdicts[0]
    unread = [verdict for verdict in verdicts if verdict.error]
    if unread:
        return unread[0]
    best = max(verdicts, key=lambda verdict: (_logit(verdict), verdict.level or 0.0))
    against = [raw for raw in verdicts if raw.verdict is Verdict.CONTRADICTORY]
    changes: dict[str, Any] = {}
    if against:
        if best.verdict is Verdict.FULLY_SUPPORTED:
            reasons = (best.reason, "Another part of the context contradicts it.")
            changes["reason"] = " ".join(filter(None, reasons))
        else:
            best = min(against, key=_logit)
    if best.verdict in _EVIDENT:
        chunk_ids = list(best.chunk_ids)
        quotes = list(best.quotes)
        for other in verdicts:
            if other.verdict is best.verdict:
                chunk_ids += other.chunk_ids
                quotes += other.quotes
        changes["chunk_ids"] = tuple(dict.fromkeys(chunk_ids))
        changes["quotes"] = tuple(dict.fromkeys(quotes))
    return best.model_copy(update=changes)


def _logit(verdict: RawVerdict) -> float:
    return verdict.logit or 0.0
