"""A judge in use, as tables: what changed, which verdicts flipped, and the share of faithful answers in its traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.report.numbers import estimate
from faith_dspy.report.tables import Table, table_of

if TYPE_CHECKING:
    from faith_dspy.optimize.monitoring.drift import DriftReport
    from faith_dspy.optimize.monitoring.prevalence import Prevalence

_MOST = 20
"""Flips that are shown."""
_ANSWER = 44
"""Characters of an answer, to be recognised by."""
_WORDS = {True: "faithful", False: "unfaithful", None: "unscored"}


def drift_tables(report: DriftReport) -> list[Table]:
    """What changed, and the flips, those to wrong first."""
    changes = report.changes or ["This is the first report: there is nothing to compare it with."]
    tables = [Table("Drift", notes=tuple(changes))]
    if report.flips:
        columns = {
            "people": lambda f: _WORDS[f.label],
            "before": lambda f: _WORDS[f.before],
            "now": lambda f: _WORDS[f.now],
            "answer": lambda f: f.answer if len(f.answer) <= _ANSWER else f.answer[:_ANSWER].rstrip() + "…",
        }
        more = len(report.flips) - _MOST
        notes = (f"{more} more are in MLflow's flips.csv, and with --json.",) if more > 0 else ()
        tables.append(table_of("Flips", columns, report.flips[:_MOST], notes=notes))
    return tables


def traffic_table(share: Prevalence) -> Table:
    """The share of faithful answers in the traffic."""
    s = share.share
    sentence = (
        f"{estimate(s.powered)} of the traffic is faithful ({estimate(s.labels_only)} from the labels alone), "
        f"estimated from {s.labelled} labels and {s.unlabelled} unlabelled answers."
    )
    return Table("Traffic", notes=(sentence, share.sentence))
