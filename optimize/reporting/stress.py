"""A judge under stress, as a table with examples of its worst perturbation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.report.numbers import NONE, estimate, number
from faith_dspy.report.tables import MARK, Table, table_of

if TYPE_CHECKING:
    from faith_dspy.optimize.diagnostics.stress import Perturbed, StressReport


def stress_tables(report: StressReport) -> list[Table]:
    """A row for each perturbation; the worst one is marked and its misses are shown."""

    def name(p: Perturbed) -> str:
        return (MARK if p.name == report.worst else "") + p.name

    columns = {
        "perturbation": name,
        "must be": lambda p: p.must,
        "n": lambda p: str(p.n),
        "share": lambda p: estimate(p.share),
        "score falls": lambda p: estimate(p.lowered),
        "mean change": lambda p: NONE if p.moved is None else f"{p.moved:+.2f}",
    }
    caption = (
        "caught: an answer that passed fails once it is made unfaithful; unchanged: the verdict stays. share: how "
        "often. score falls: how often at least the score does. In brackets 95 % intervals (Wilson)."
    )
    tables = [table_of(f"{report.answers} answers under stress", columns, report.perturbed, caption=caption)]
    worst = next((p for p in report.perturbed if p.name == report.worst), None)
    if worst is not None and worst.misses:
        misses = tuple(f"{_score(m.before)} → {_score(m.after)}  {m.answer}" for m in worst.misses)
        tables.append(Table(f"Worst: {worst.what}. Not {worst.must}, for example", notes=misses))
    return tables


def _score(value: float | None) -> str:
    return "unscored" if value is None else number(value)
