"""A look at a judge in use, in the terminal: what changed, and which verdicts flipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Group
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

_MOST = 20
_WORDS = {True: "faithful", False: "unfaithful", None: "unscored"}


def watch_view(sentences: Sequence[str], flips: Sequence[Any]) -> RenderableType:
    """Sentences, then the flips (`faith_dspy.optimize.monitoring.drift.Flip`), the first twenty."""
    parts: list[RenderableType] = ["", *(f"• {escape(s)}" for s in sentences)]
    if flips:
        table = Table(box=SIMPLE, pad_edge=False)
        for title in ("people", "before", "now"):
            table.add_column(title, no_wrap=True)
        table.add_column("answer", overflow="ellipsis", no_wrap=True)
        for f in flips[:_MOST]:
            style = "" if f.now == f.label else "yellow"
            table.add_row(_WORDS[f.label], _WORDS[f.before], _WORDS[f.now], escape(f.answer), style=style)
        parts.append(table)
        if len(flips) > _MOST:
            parts.append(f"and {len(flips) - _MOST} more, in MLflow's flips.json and with --json")
    return Group(*parts)
