"""The few metrics by which MLflow compares runs; all else that was measured is in the runs' artifacts.

``labelled/…`` a judge in use · ``…_low`` and ``…_high`` the ends of the 95 % interval · ``cost/…`` for each answer
"""

from __future__ import annotations

from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import JudgeAgreement
from faith_dspy.scoring.statistics import Estimate

Metrics = dict[str, float | None]


def agreement_metrics(part: str, levels: JudgeAgreement) -> Metrics:
    """Return agreement on answers, statements and evidence, as far as it is known."""
    metrics: Metrics = {}
    a, statements, evidence = levels.answers, levels.statements, levels.evidence
    if a is not None:
        metrics |= with_ends(f"{part}/balanced_accuracy", a.balanced_accuracy)
        metrics |= with_ends(f"{part}/auroc", a.auroc)
        metrics[f"{part}/cohen_kappa"] = a.cohen_kappa.value
        metrics[f"{part}/coverage"] = a.coverage
    if statements is not None:
        name = f"{part}/statements/balanced_accuracy"
        metrics[name] = statements.balanced_accuracy.value
    if evidence is not None:
        metrics[f"{part}/evidence/f1"] = evidence.f1.value
    return metrics


def cost_metrics(usage: Usage, answers: int) -> Metrics:
    """Return prompt tokens that were not cached, seconds and dollars."""
    dollars = None if usage.dollars is None else 1000 * usage.dollars / answers
    return {
        "cost/computed_tokens": usage.computed_tokens / answers,
        "cost/seconds": usage.seconds / answers,
        "cost/dollars_per_1000_answers": dollars,
    }


def with_ends(name: str, e: Estimate) -> Metrics:
    """Return an estimate and the ends of its interval."""
    return {name: e.value, f"{name}_low": e.low, f"{name}_high": e.high}
