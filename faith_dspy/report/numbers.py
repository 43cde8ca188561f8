"""How numbers are written, in the terminal, in Markdown and on HTML pages alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faith_dspy.scoring.statistics import Estimate

NONE = "–"
FEW = 100
"""With fewer answers the interval of balanced accuracy is mostly wider than twenty points."""


def number(value: float | None) -> str:
    """``.80``, as statisticians write what lies between -1 and 1; a dash for None."""
    return NONE if value is None else f"{value:.2f}".replace("0.", ".", 1)


def estimate(e: Estimate | None) -> str:
    """A value with its 95 % interval: ``.75 [.67, .82]``."""
    if e is None:
        return NONE
    return number(e.value) + ("" if e.low is None or e.high is None else f" [{number(e.low)}, {number(e.high)}]")


def percent(e: Estimate) -> str:
    """The same in per cent: ``75% [67%, 82%]``."""
    if e.value is None:
        return NONE
    return f"{e.value:.0%}" + ("" if e.low is None or e.high is None else f" [{e.low:.0%}, {e.high:.0%}]")


def points(d: Estimate) -> str:
    """A difference in percentage points: ``+3.4 [-1.0, +8.0]``; a dash without an interval."""
    if d.value is None or d.low is None or d.high is None:
        return NONE
    return f"{100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"


def each(total: float, n: int) -> str:
    """A total for each of n answers, such as seconds: three digits at least; a dash where there are none."""
    if not n:
        return NONE
    return f"{total / n:.0f}" if total / n >= 100 else f"{total / n:.1f}"


def roughly(n: int) -> str:
    """A number of labels that nobody should take literally: ``about 120``, ``a few``."""
    return "a few" if n < 10 else f"about {int(float(f'{n:.1g}' if n < 100 else f'{n:.2g}')):,}"


def few(n: int) -> str:
    """What is said of so few test answers, to be put after a sentence; nothing where they are enough."""
    return " Few answers: read the interval, not the figure." if n < FEW else ""


def capitalised(sentence: str) -> str:
    """The sentence with a capital at its beginning, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]
