"""MLflow's metrics of a study, by name.

``dev/balanced_accuracy``, ``test/auroc`` … agreement on answers; ``…/statements/…`` and ``…/evidence/…`` on the rest
``test/untuned/…``, ``test/lexical-baseline/…`` the same for what the champion is compared with
``cost/prompt_tokens``, ``cost/seconds`` … per answer; ``compile/…`` and ``study/…`` in total
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.scoring.statistics import Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from faith_dspy.optimize.results import StudyResult, TestResult, VariantResult
    from faith_dspy.schema import Usage

    Metrics = dict[str, float | None]

MAIN = ("balanced_accuracy", "auroc", "cohen_kappa")
ALL = (*MAIN, "mcc", "f1_unfaithful", "recall_unfaithful", "recall_faithful", "ece", "brier")


def agreement_metrics(prefix: str, found: BaseModel | None, names: Sequence[str] = MAIN) -> Metrics:
    """Metrics of an `Agreement` or its like, and its coverage; balanced accuracy with its interval."""
    if found is None:
        return {}
    out: Metrics = {f"{prefix}/coverage": getattr(found, "coverage", None)}
    for name in names:
        estimate = getattr(found, name, None)
        if isinstance(estimate, Estimate):
            out[f"{prefix}/{name}"] = estimate.value
            if name == "balanced_accuracy":
                out |= {f"{prefix}/{name}_low": estimate.low, f"{prefix}/{name}_high": estimate.high}
    return out


def result_metrics(prefix: str, result: VariantResult | TestResult, names: Sequence[str] = ALL) -> Metrics:
    """Agreement on answers, statements and evidence, as far as it is known."""
    out = agreement_metrics(prefix, result.agreement, names)
    out |= agreement_metrics(f"{prefix}/statements", result.statements, (*MAIN, "weighted_kappa"))
    return out | ({f"{prefix}/evidence/f1": result.evidence.f1.value} if result.evidence else {})


def usage_metrics(prefix: str, usage: Usage, answers: int = 1) -> Metrics:
    """Calls, tokens and seconds per answer, and dollars per thousand answers; empty for no answers."""
    if not answers:
        return {}
    fields = {"calls": "calls", "prompt_tokens": "prompt_tokens", "cached_tokens": "cached_tokens",
              "computed_tokens": "computed_tokens",
              "completion_tokens": "output_tokens", "seconds": "seconds"}  # fmt: skip
    out: Metrics = {f"{prefix}/{name}": getattr(usage, field) / answers for name, field in fields.items()}
    if usage.dollars is not None and answers > 1:  # of one answer it would be all zeros
        out[f"{prefix}/dollars_per_1000_answers"] = 1000 * usage.dollars / answers
    return out


def study_metrics(result: StudyResult) -> Metrics:
    """All metrics of a finished study."""
    champion = result.tested("champion")
    metrics = result_metrics("test", champion)
    for t in result.test:
        if t is not champion:
            metrics |= result_metrics(f"test/{t.name}", t, MAIN)
        if t.kind != "baseline":
            metrics |= usage_metrics("cost" if t is champion else f"cost/{t.name}", t.usage, t.agreement.n)
    for name, c in result.comparisons.items():
        gain, d = f"test/gain_over_{name}", c.balanced_accuracy
        metrics |= {gain: d.value, f"{gain}_low": d.low, f"{gain}_high": d.high}
    metrics |= agreement_metrics("dev", result.variant(result.champion).agreement)
    metrics |= agreement_metrics("people", result.ceiling)
    return metrics | usage_metrics("study", result.usage) | {"study/seconds": result.seconds}
