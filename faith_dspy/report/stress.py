"""A judge under stress, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from faith_dspy.report.study import interval

if TYPE_CHECKING:
    from rich.console import RenderableType


def stress_view(report: Any) -> RenderableType:
    """`faith_dspy.optimize.diagnostics.stress.StressReport` → a row for each change, the worst one marked and shown."""
    table = Table(box=SIMPLE, pad_edge=False)
    for title in ("change", "must be"):
        table.add_column(title, no_wrap=True)
    for title in ("n", "share", "score falls", "mean change"):
        table.add_column(title, justify="right", no_wrap=True)
    for p in report.perturbed:
        moved = "–" if p.moved is None else f"{p.moved:+.2f}"
        style = "yellow" if p.name == report.worst else ""
        table.add_row(p.name, p.must, str(p.n), interval(p.share), interval(p.lowered), moved, style=style)
    parts: list[RenderableType] = [
        table,
        f"[dim]{report.answers} answers. caught: an answer that passed fails when it is made unfaithful; unchanged: "
        "the verdict stays. In brackets 95 % intervals (Wilson).[/dim]",
    ]
    worst = next((p for p in report.perturbed if p.name == report.worst), None)
    if worst is not None and worst.misses:
        parts += ["", f"Worst: {worst.what}. Not {worst.must}, for example:"]
        parts += [f"  {_score(m.before)} → {_score(m.after)}  {escape(m.answer)}" for m in worst.misses]
    return Group(*parts)


def _score(value: float | None) -> str:
    return "unscored" if value is None else f"{value:.2f}"
