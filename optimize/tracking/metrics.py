"""MLflow's metrics of a study, by name.

``dev/balanced_accuracy``, ``test/auroc`` … agreement on answers; ``…/statements/…``, ``…/evidence/…`` and
``…/extraction/…`` on the rest; ``…_low`` and ``…_high`` are the ends of the 95 % interval
``test/untuned/…``, ``test/lexical-baseline/…`` the same for what the champion is compared with
``cost/prompt_tokens``, ``cost/seconds`` … per answer; ``compile/…`` and ``study/…`` in total
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.optimize.results import VariantResult
from faith_dspy.scoring.agreement import JudgeAgreement
from faith_dspy.scoring.statistics import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.results import StudyResult, TestsetResult
    from faith_dspy.schema import Usage
    from faith_dspy.scoring.agreement import Agreement, StatementAgreement
    from faith_dspy.scoring.evidence import EvidenceAgreement
    from faith_dspy.scoring.extraction import ExtractionAgreement

    Metrics = dict[str, float | None]

_MAIN = ("balanced_accuracy", "auroc", "cohen_kappa")
_ALL = (*_MAIN, "mcc", "f1_unfaithful", "recall_unfaithful", "recall_faithful", "ece", "brier")
_COSTS = {
    "calls": "calls",
    "prompt_tokens": "prompt_tokens",
    "cached_tokens": "cached_tokens",
    "computed_tokens": "computed_tokens",
    "completion_tokens": "output_tokens",
    "seconds": "seconds",
}
"""Name of the metric, and field of `Usage`."""


def result_metrics(
    prefix: str, found: VariantResult | TestsetResult | JudgeAgreement, names: Sequence[str] = _ALL
) -> Metrics:
    """Agreement on all levels, as far as it is known."""
    answers = found.answers if isinstance(found, JudgeAgreement) else found.agreement
    extraction = None if isinstance(found, VariantResult) else found.extraction
    recalls = found.statements.recall_by_verdict if found.statements else {}
    return {
        **agreement_metrics(prefix, answers, names),
        **agreement_metrics(f"{prefix}/statements", found.statements, (*_MAIN, "weighted_kappa")),
        **{f"{prefix}/statements/recall/{verdict}": e.value for verdict, e in recalls.items()},
        **agreement_metrics(f"{prefix}/evidence", found.evidence, ("precision", "recall", "f1")),
        **agreement_metrics(f"{prefix}/extraction", extraction, ("found", "fidelity")),
    }


def agreement_metrics(
    prefix: str,
    found: Agreement | StatementAgreement | EvidenceAgreement | ExtractionAgreement | None,
    names: Sequence[str] = _MAIN,
) -> Metrics:
    """These metrics with their intervals, n and coverage."""
    if found is None:
        return {}
    out: Metrics = {f"{prefix}/n": found.n, f"{prefix}/coverage": found.coverage}
    for name in names:
        estimate = getattr(found, name)
        if isinstance(estimate, Estimate):
            out |= _interval(f"{prefix}/{name}", estimate)
    return out


def _interval(name: str, found: Estimate) -> Metrics:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def usage_metrics(prefix: str, usage: Usage, answers: int = 1) -> Metrics:
    """Calls, tokens and seconds per answer, and dollars per thousand answers; empty for no answers."""
    if not answers:
        return {}
    out: Metrics = {f"{prefix}/{name}": getattr(usage, field) / answers for name, field in _COSTS.items()}
    if usage.dollars is not None and answers > 1:  # of one answer it would be all zeros
        out[f"{prefix}/dollars_per_1000_answers"] = 1000 * usage.dollars / answers
    return out


def study_metrics(result: StudyResult) -> Metrics:
    """All metrics of a finished study."""
    champion = result.tested("champion")
    metrics = result_metrics("test", champion)
    for t in result.test:
        if t is not champion:
            metrics |= result_metrics(f"test/{t.name}", t, _MAIN)
        if t.kind != "baseline":
            metrics |= usage_metrics("cost" if t is champion else f"cost/{t.name}", t.usage, t.agreement.n)
    for name, c in result.comparisons.items():
        metrics |= _interval(f"test/gain_over_{name}", c.balanced_accuracy)
    metrics |= agreement_metrics("dev", result.variant(result.champion).agreement)
    metrics["dev/flip_rate"] = result.flip_rate
    metrics |= agreement_metrics("people", result.ceiling)
    return metrics | usage_metrics("study", result.usage) | {"study/seconds": result.seconds}
