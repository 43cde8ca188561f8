"""A judge under stress, as a table with examples of its worst perturbation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.errors import counted
from faith_dspy.report.numbers import estimate, number
from faith_dspy.report.tables import MARK, Table, table_of

if TYPE_CHECKING:
    from faith_dspy.optimize.diagnostics.stress import StressReport


def stress_tables(report: StressReport) -> list[Table]:
    """A row for each perturbation; the worst one is marked and its misses are shown."""
    columns = {
        "perturbation": lambda p: (MARK if p.name == report.worst else "") + p.name,
        "must be": lambda p: p.must,
        "n": lambda p: str(p.n),
        "share": lambda p: estimate(p.share),
    }
    caption = (
        "caught: an answer that passed fails once it is made unfaithful; unchanged: the verdict stays. share: how "
        f"often. {MARK.strip()}: the lowest share. In brackets 95 % intervals (Wilson)."
    )
    tables = [table_of(f"{counted(report.answers, 'answer')} under stress", columns, report.perturbed, caption=caption)]
    worst = next((p for p in report.perturbed if p.name == report.worst), None)
    if worst is not None and worst.misses:
        scores = [[number(s) if s is not None else "unscored" for s in (m.before, m.after)] for m in worst.misses]
        misses = tuple(f"{' → '.join(s)}  {m.answer}" for s, m in zip(scores, worst.misses, strict=True))
        tables.append(Table(f"Worst: {worst.what}. Not {worst.must}, for example", notes=misses))
    return tables
