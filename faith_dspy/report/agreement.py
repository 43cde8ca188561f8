"""A judge's agreement with people, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.report.numbers import NONE, each, estimate
from faith_dspy.report.tables import Table, table_of

if TYPE_CHECKING:
    from faith_dspy.schema import Usage
    from faith_dspy.scoring.agreement import Agreement, JudgeAgreement

_METRICS = {
    "balanced accuracy": "balanced_accuracy",
    "AUROC": "auroc",
    "Cohen's κ": "cohen_kappa",
    "weighted κ": "weighted_kappa",
    "MCC": "mcc",
    "unfaithful ones failed (recall)": "recall_unfaithful",
    "faithful ones passed (recall)": "recall_faithful",
    "F1 of the unfaithful": "f1_unfaithful",
    "calibration error (ECE)": "ece",
}


def agreement_tables(found: JudgeAgreement, usage: Usage, answers: int) -> list[Table]:
    """Agreement on answers, statements and evidence, and what judging so many answers cost."""
    levels = {k: a for k, a in (("answers", found.answers), ("statements", found.statements)) if a is not None}
    rows = [(name, *(estimate(getattr(a, field, None)) for a in levels.values())) for name, field in _METRICS.items()]
    rows = [row for row in rows if set(row[1:]) != {NONE}]
    rows.append(("scored", *(_scored(a) for a in levels.values())))
    tables = [
        Table(
            "Agreement with people",
            ("", *levels),
            tuple(rows),
            caption="In brackets 95 % intervals, from resampling contexts. For statements read supported for faithful.",
        )
    ]
    if found.evidence is not None:
        e = found.evidence
        metrics = (("precision", e.precision), ("recall", e.recall), ("F1", e.f1))
        columns = {"": lambda m: m[0], "chunk ids": lambda m: estimate(m[1])}
        tables.append(table_of(f"Evidence of {e.n} labelled statements", columns, metrics))
    cost = (
        f"{each(usage.computed_tokens, answers)} prompt tokens that were not cached, "
        f"{each(usage.output_tokens, answers)} completion tokens, {each(usage.seconds, answers)} seconds."
    )
    return [*tables, Table("Cost of an answer", notes=(cost,))]


def _scored(a: Agreement) -> str:
    return f"{a.scored} of {a.n} ({a.coverage:.0%})"
