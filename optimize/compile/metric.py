"""The metric every optimizer maximises: agreement of a verdict with a person's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import Verdict
from faith_dspy.scoring.evidence import shared_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample, LabelledStatement

CONFUSED = 0.1
"""Taken off where *no evidence* and *contradictory* are confused: both are unsupported, so most of it was right."""
EVIDENCE_SHARE = 0.2
"""Of a score, what the evidence counts for where both the person and the LM name chunks; the verdict is the rest."""
MAX_QUOTED = 300
"""Characters of each chunk, and of two chunks at most, that feedback quotes."""

_VERDICTS = {label: v for i in INSTRUCTIONS.values() for label, v in i.verdicts.items()}
_SUPPORT = {label: worth for i in INSTRUCTIONS.values() for label, worth in i.labels.items()}
_UNSUPPORTED_KINDS = {Verdict.NO_EVIDENCE, Verdict.CONTRADICTORY}


def statement_examples(
    examples: Sequence[tuple[LabelledExample, Sequence[str], Sequence[bool | None]]], instruction: str
) -> list[dspy.Example]:
    """Labelled pieces of answers as DSPy examples of a verifier, with class weights.

    Per answer: the example, its pieces, and their labels. ``verdict`` is the instruction's label for the person's
    verdict, ``support`` what that label stands for, ``evidence`` the chunks the person named, ``weight`` makes both
    classes count the same in sum: n / (2 · n of the class).
    """
    asked = INSTRUCTIONS[instruction]
    rows = [
        (example, piece, label)
        for example, pieces, labels in examples
        for piece, label in zip(pieces, labels, strict=True)
        if label is not None
    ]
    count = {ok: sum(label is ok for _, _, label in rows) for ok in (True, False)}
    out = []
    for example, piece, label in rows:
        person = _statement_of(example, piece, label)
        told = person.verdict if person else None
        # People's finer verdict where the instruction has a label for it, else the binary one.
        verdict = next((k for k, v in asked.verdicts.items() if v is told), None) or min(
            (k for k, v in asked.verdicts.items() if v.is_supported is label), key=lambda k: asked.labels[k]
        )
        evidence = list(person.supporting_chunk_ids or ()) if person else []
        out.append(
            dspy.Example(
                context=[c.text for c in example.context],
                question=example.question or "",
                statement=piece,
                verdict=verdict,
                supporting_chunk_ids=evidence,
                supported=label,
                support=asked.labels[verdict] if told is asked.verdicts[verdict] else float(label),
                told=(told or (Verdict.FULLY_SUPPORTED if label else Verdict.NOT_SUPPORTED)).value,
                reason=person.reason if person else None,
                weight=len(rows) / (2 * count[label]),
            ).with_inputs("context", "question", "statement")
        )
    return out


def _statement_of(example: LabelledExample, piece: str, label: bool) -> LabelledStatement | None:
    """The person's statement behind a piece's label: the first in or around it with a verdict of that side."""
    return next(
        (
            s
            for s in example.statements
            if s.verdict is not None and s.verdict.is_supported is label and (s.text in piece or piece in s.text)
        ),
        None,
    )


def agreement_metric(
    gold: dspy.Example, pred: dspy.Prediction, trace: Any = None, pred_name: str | None = None, pred_trace: Any = None
) -> Any:
    """Class-weighted agreement of the verdict with the person's; over a set, a soft balanced accuracy.

    For a yes-or-no verdict it is the probability of the person's. A graded one scores 1 - |distance| on the scale
    fully 1, partly ½, none 0, less `CONFUSED` where *no evidence* and *contradictory* are confused. Where person and
    LM both name chunks, `EVIDENCE_SHARE` of the score is the F1 of the LM's.

    With a ``trace`` (bootstrapping) whether the verdict is right; with a ``pred_name`` (GEPA) score and feedback. A
    reply without a label scores 0 and says so in the feedback; it is never taken for a verdict: see `failed`.
    """
    verdict = None if failed(pred) else pred.verdict
    right = verdict is not None and _VERDICTS[verdict].is_supported == gold.supported
    if trace is not None:
        return right
    score = 0.0 if verdict is None else _score(gold, pred)
    if pred_name is not None or pred_trace is not None:
        return dspy.Prediction(score=score, feedback=feedback(gold, verdict, right))
    return score * gold.weight


def failed(pred: Any) -> bool:
    """Whether there is no verdict to compare: the LM failed, or its reply had no label."""
    return pred is None or pred.get("verdict") is None


def _score(gold: dspy.Example, pred: dspy.Prediction) -> float:
    probability = pred.get("probability")
    score: float = 1 - abs(gold.support - (_SUPPORT[pred.verdict] if probability is None else probability))
    if {Verdict(gold.told), _VERDICTS[pred.verdict]} == _UNSUPPORTED_KINDS:
        score = max(0.0, score - CONFUSED)
    named = pred.get("supporting_chunk_ids") or []
    if named and gold.supporting_chunk_ids:
        shared, both = shared_ids(named, gold.supporting_chunk_ids)
        score = (1 - EVIDENCE_SHARE) * score + EVIDENCE_SHARE * shared / both
    return score


def feedback(gold: dspy.Example, verdict: str | None, right: bool) -> str:
    """What a reflecting LM can learn from: the verdict, the person's, their reason and the chunks they named."""
    said = "supports all of it" if gold.supported else "does not support all of it"
    finer = "" if gold.told in (Verdict.FULLY_SUPPORTED, Verdict.NOT_SUPPORTED) else f" ({gold.told})"
    parts = [f"people say the context {said}{finer}."]
    if gold.reason:
        parts.append(f"Their reason: {gold.reason}")
    for i in gold.supporting_chunk_ids[:2]:
        parts.append(f"Their evidence, passage {i}: {gold.context[i][:MAX_QUOTED]}")
    people = " ".join(parts)
    if verdict is None:
        return f"The reply did not start with a label; {people}"
    return f"{'Right' if right else 'Wrong'}: the verdict was {verdict}; {people}"
