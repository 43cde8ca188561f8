"""A judge in use, as tables: what changed, which verdicts flipped, and the share of faithful answers in its traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.errors import counted
from faith_dspy.optimize.reporting.tables import OUTCOME
from faith_dspy.report.numbers import estimate
from faith_dspy.report.tables import Table, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.monitoring.drift import DriftReport, Flip, Prevalence

_MOST = 20
"""Flips that are shown."""


def drift_tables(report: DriftReport) -> list[Table]:
    """What changed, and the flips, those to wrong first."""
    if not report.changes:
        return [Table("Drift", notes=("This is the first report: there is nothing to compare it with.",))]
    wrong = sum(f.now != f.label for f in report.flips)
    version = "another version of the judge" if report.new_version else "the same judge"
    flipped = f"{counted(len(report.flips), 'verdict')} flipped, {wrong} of them to wrong or unscored; {version}."
    tables = [Table("Drift", notes=(*(c.sentence for c in report.changes), flipped))]
    if report.flips:
        more = len(report.flips) - _MOST
        notes = (f"MLflow's flips.csv and --json have {more} more.",) if more > 0 else ()
        tables.append(flips_table(report.flips[:_MOST], notes))
    return tables


def flips_table(flips: Sequence[Flip], notes: tuple[str, ...] = ()) -> Table:
    """Answers whose verdict flipped."""
    columns = {
        "answer": lambda f: f.answer,
        "people": lambda f: OUTCOME[f.label],
        "before": lambda f: OUTCOME[f.before],
        "now": lambda f: OUTCOME[f.now],
        "id": lambda f: f.id,
    }
    return table_of("Flips", columns, flips, notes=notes)


def traffic_table(share: Prevalence) -> Table:
    """The share of faithful answers in the traffic."""
    s = share.share
    sentence = (
        f"{estimate(s.powered)} of the traffic is faithful ({estimate(s.labels_only)} from the labels alone), "
        f"estimated from {counted(s.labelled, 'label')} and {counted(s.unlabelled, 'unlabelled answer')}."
    )
    return Table("Traffic", notes=(sentence, share.sentence))
