"""The metric that optimizers maximise: agreement of a verdict with a person's."""

from __future__ import annotations

from typing import Any

import dspy

from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import Verdict

CONFUSED = 0.1
"""Penalty where *no evidence* and *contradictory* are confused: both are unsupported, so most of it is right."""
EVIDENCE_SHARE = 0.2
"""Weight of the evidence in a score where both the person and the LM name chunks; the verdict has the rest."""
MAX_QUOTED = 300
"""Characters of each chunk, and of two chunks at most, that feedback quotes."""

_VERDICTS = {label: v for i in INSTRUCTIONS.values() for label, v in i.verdicts.items()}
_SUPPORT = {
    label: support for i in INSTRUCTIONS.values() for label, support in i.labels.items()
}
_UNSUPPORTED_KINDS = {Verdict.NO_EVIDENCE, Verdict.CONTRADICTORY}


def agreement_metric(
    gold: dspy.Example,
    pred: dspy.Prediction,
    trace: Any = None,
    pred_name: str | None = None,
    pred_trace: Any = None,
    *,
    cite: bool = False,
) -> Any:
    """Class-weighted agreement of the verdict with the person's; its mean over a set is a soft balanced accuracy.

    For a yes-or-no verdict it is the probability of the person's. A graded one scores 1 - |distance| on the scale
    fully 1, partly ½, none 0, less `CONFUSED` where *no evidence* and *contradictory* are confused. Where person and
    LM both name chunks, `EVIDENCE_SHARE` of the score is the F1 of the LM's; where the LM is to ``cite``, it is 0 for a
    supported statement for which it names none.

    With a ``trace`` (bootstrapping), whether the verdict is right; with a ``pred_name`` (GEPA), score and feedback. A
    reply without a label scores 0 and the feedback says so; it is never taken for a verdict: see `failed`.
    """
    verdict = None if failed(pred) else pred.verdict
    right = verdict is not None and _VERDICTS[verdict].is_supported == gold.supported
    if trace is not None:
        return right
    score = 0.0 if verdict is None else _score(gold, pred, cite)
    if pred_name is not None or pred_trace is not None:
        return dspy.Prediction(score=score, feedback=_feedback(gold, verdict, right))
    return score * gold.weight


def failed(pred: Any) -> bool:
    """Whether there is no verdict to compare: the LM failed, or its reply had no label."""
    return pred is None or pred.get("verdict") is None


def _score(gold: dspy.Example, pred: dspy.Prediction, cite: bool) -> float:
    probability = pred.get("probability")
    score: float = 1 - abs(
        gold.support - (_SUPPORT[pred.verdict] if probability is None else probability)
    )
    if {Verdict(gold.person), _VERDICTS[pred.verdict]} == _UNSUPPORTED_KINDS:
        score = max(0.0, score - CONFUSED)
    named = pred.get("supporting_chunk_ids") or []
    expected = cite and _VERDICTS[pred.verdict].is_supported
    if gold.supporting_chunk_ids and (named or expected):
        said, true = set(named), set(gold.supporting_chunk_ids)
        score = (1 - EVIDENCE_SHARE) * score + EVIDENCE_SHARE * 2 * len(said & true) / (
            len(said) + len(true)
        )
    return score


def _feedback(gold: dspy.Example, verdict: str | None, right: bool) -> str:
    """What a reflecting LM can learn from: the verdict, the person's, their reason and the chunks they named."""
    said = "supports all of it" if gold.supported else "does not support all of it"
    finer = (
        ""
        if gold.person in (Verdict.FULLY_SUPPORTED, Verdict.NOT_SUPPORTED)
        else f" ({gold.person})"
    )
    outcome = "Right" if right else "Wrong"
    given = (
        f"{outcome}: the verdict was {verdict}"
        if verdict
        else "The reply did not start with a label"
    )
    why = f" Their reason: {gold.reason}" if gold.reason else ""
    quoted = "".join(
        f" Their evidence, passage {i}: {gold.context[i][:MAX_QUOTED]}"
        for i in gold.supporting_chunk_ids[:2]
    )
    return f"{given}; people say the context {said}{finer}.{why}{quoted}"
