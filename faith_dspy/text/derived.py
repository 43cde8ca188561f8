"""Derived numbers: what a text has but for rounding, or as a sum or a difference of two of its numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from itertools import combinations

_SUMMANDS = 8
"""Numbers at most of which two are added: of more, sums meet any number by chance."""
_YEARS = range(1900, 2101)
"""Nobody rounds them."""


def source_of(
    value: float,
    numbers: Mapping[str, float],
    summands: Collection[str],
) -> str | None:
    """Return the key of a number that a value is derived from; None where it is from none.

    Args:
        value: What the text does not have.
        numbers: The text's numbers by their keys.
        summands: Keys of those that may be added or subtracted.
    """
    for key, number in numbers.items():
        if _is_rounded(value, number):
            return key
    if len(summands) <= _SUMMANDS:
        for one, other in combinations(sorted(summands), 2):
            total = numbers[one] + numbers[other]
            difference = abs(numbers[one] - numbers[other])
            if math.isclose(value, total) or math.isclose(value, difference):
                return one
    return None


def is_bounded(value: float, number: float, direction: int) -> bool:
    """Tell whether a number lies behind a rounder value (“over 1,200”) by less than its last digit; no year does.

    A five at the end (“over 45”) counts as five.
    """
    _, step = _precision(value)
    if round(value / step) % 10 == 5:
        step *= 5
    return number not in _YEARS and 0 < direction * (number - value) < step


def _is_rounded(value: float, number: float) -> bool:
    """Tell whether a value is the nearest to a number that has as few digits; of a small whole one, none is."""
    digits, step = _precision(value)
    more_digits, _ = _precision(number)
    is_whole = number == int(number)
    if digits >= more_digits or (is_whole and (number < 100 or number in _YEARS)):
        return False
    if not is_whole and number < 100:
        step = min(step, 1)
    is_tie = math.isclose(abs(value - number), step / 2)
    return value > number if is_tie else abs(value - number) < step / 2


def _precision(value: float) -> tuple[int, float]:
    """Return how many digits a number has, zeros at its ends aside, and what the last of them counts."""
    _, digits, exponent = Decimal(str(value)).normalize().as_tuple()
    return len(digits), 10.0 ** int(exponent)
