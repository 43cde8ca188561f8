"""Runs, n-grams and common subsequences of tokens and characters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def ngrams(keys: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All runs of ``n`` keys."""
    return [tuple(keys[i : i + n]) for i in range(len(keys) - n + 1)]


def plain(text: str) -> str:
    """Lower-case words with one space between, nothing else."""
    return " ".join(re.sub(r"\W+", " ", text.lower()).split())


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
    """Length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, start=1):
            above = row[j]
            row[j] = diagonal + 1 if x == y else max(above, row[j - 1])
            diagonal = above
    return row[-1]
