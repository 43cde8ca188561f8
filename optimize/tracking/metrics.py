"""The headline metrics of a run in MLflow, by which runs are compared. Its artifacts hold all else that was measured.

``test/…`` the champion on the testset, ``dev/…`` a variant on dev, ``labelled/…`` a judge whose drift is watched
``…_low`` and ``…_high`` the ends of the 95 % interval
``cost/…`` for each answer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faith_dspy.optimize.results import StudyResult
    from faith_dspy.schema import Usage
    from faith_dspy.scoring.agreement import JudgeAgreement
    from faith_dspy.scoring.statistics import Estimate

    Metrics = dict[str, float | None]


def agreement_metrics(part: str, found: JudgeAgreement) -> Metrics:
    """Agreement on answers, statements and evidence, as far as it is known."""
    out: Metrics = {}
    if (a := found.answers) is not None:
        out |= _interval(f"{part}/balanced_accuracy", a.balanced_accuracy)
        out |= _interval(f"{part}/auroc", a.auroc)
        out |= {f"{part}/cohen_kappa": a.cohen_kappa.value, f"{part}/coverage": a.coverage}
    if found.statements is not None:
        out[f"{part}/statements/balanced_accuracy"] = found.statements.balanced_accuracy.value
    if found.evidence is not None:
        out[f"{part}/evidence/f1"] = found.evidence.f1.value
    return out


def cost_metrics(usage: Usage, answers: int) -> Metrics:
    """Prompt tokens that were not cached, seconds and dollars; empty for no answers."""
    if not answers:
        return {}
    dollars = None if usage.dollars is None else 1000 * usage.dollars / answers
    return {
        "cost/computed_tokens": usage.computed_tokens / answers,
        "cost/seconds": usage.seconds / answers,
        "cost/dollars_per_1000_answers": dollars,
    }


def study_metrics(result: StudyResult) -> Metrics:
    """The metrics of a finished study."""
    champion = result.tested("champion")
    return {
        **agreement_metrics("test", champion.levels),
        **_interval("test/gain_over_untuned", result.comparisons["untuned"].balanced_accuracy),
        "dev/flip_rate": result.flip_rate,
        **cost_metrics(champion.usage, champion.agreement.n),
    }


def _interval(name: str, found: Estimate) -> Metrics:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
