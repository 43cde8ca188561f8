"""Runs, n-grams and common subsequences of tokens and characters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def ngrams(keys: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All runs of ``n`` keys."""
    return list(zip(*(keys[i:] for i in range(n)), strict=False))


def plain(text: str) -> str:
    """Lower-case words with one space between, nothing else."""
    return " ".join(re.findall(r"\w+", text.lower()))


def signs(text: str) -> frozenset[str]:
    """Characters that are neither of words nor common punctuation: ``$``, ``<``, ✗."""
    return frozenset(_SIGN.findall(text))


_SIGN = re.compile(r"[^\w\s.,;:!?'\"()\[\]*#…-]")


def character_grams(text: str) -> set[str]:
    """All strings of five characters of the plain text."""
    text = plain(text)
    return {text[i : i + 5] for i in range(len(text) - 4)}


def longest_run(flags: Sequence[bool]) -> int:
    """Length of the longest run of true flags."""
    best = run = 0
    for flag in flags:
        run = run + 1 if flag else 0
        best = max(best, run)
    return best


def common_subsequence(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence.

    A row of the usual table is one number, a bit for each of ``b``: 0 where the length grows (Hyyrö, “Bit-parallel LCS
    length computation revisited”, 2004). Tables of 400 words are compared in a fraction of a millisecond.
    """
    at: dict[str, int] = {}
    for j, y in enumerate(b):
        at[y] = at.get(y, 0) | 1 << j
    whole = row = (1 << len(b)) - 1
    for x in a:
        same = row & at.get(x, 0)
        row = (row + same | row - same) & whole
    return len(b) - row.bit_count()
