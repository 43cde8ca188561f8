"""Labelled answers as `dspy.Example`s of a verifier, samples of them, and the metric that optimizers maximise on them:
agreement of a verdict with a person's."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.config import Granularity
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import Statement, Verdict
from faith_dspy.scoring.matching import match_statements, statement_labels
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

MAX_DEMO_WORDS = 450
"""Of a demo's context. Demos stand in every prompt, and long ones cost more than they teach."""
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


def labelled_texts(
    e: LabelledExample, granularity: Granularity
) -> list[tuple[str, bool | None]]:
    """The texts of an answer that are verified, and whether people call each supported (None: unknown).

    The whole answer, its sentences, or people's own statements (its sentences where they wrote none).
    """
    if granularity is Granularity.ANSWER:
        return [(e.answer, e.label)]
    own = [
        (s.text, s.verdict.is_supported) for s in e.statements if s.verdict is not None
    ]
    if granularity is Granularity.STATEMENT and own:
        return list(own)
    pieces = [
        Statement(text=s.text, sentence_index=s.index)
        for s in sentences(e.answer)
        if carries_statement(s.text)
    ]
    return [
        (s.text, label)
        for s, label in zip(pieces, statement_labels(pieces, e), strict=True)
    ]


def statement_examples(
    examples: Sequence[LabelledExample], granularity: Granularity, instruction: str
) -> list[dspy.Example]:
    """Labelled texts as DSPy examples of a verifier that asks ``instruction``; texts without a label are left out.

    ``verdict`` is the instruction's label for the person's verdict, ``support`` what that label stands for, in [0, 1];
    ``person`` is the person's verdict itself, ``supporting_chunk_ids`` and ``reason`` are theirs. ``weight`` makes
    both classes count the same in sum: n / (2 · n of the class).
    """
    pairs = [
        (e, text, label)
        for e in examples
        for text, label in labelled_texts(e, granularity)
        if label is not None
    ]
    return reweighted(
        [_statement_example(e, text, label, instruction) for e, text, label in pairs]
    )


def _statement_example(
    e: LabelledExample, text: str, label: bool, instruction: str
) -> dspy.Example:
    bank = INSTRUCTIONS[instruction]
    judged = [
        s
        for s in e.statements
        if s.verdict is not None and s.verdict.is_supported is label
    ]
    matches = match_statements(
        [s.text for s in judged], [Statement(text=text)], e.answer
    )
    statement = next(
        (s for s, match in zip(judged, matches, strict=True) if match), None
    )
    person = statement.verdict if statement else None
    # The person's finer verdict where the instruction has a label for it, else the binary one.
    verdict = next((k for k, v in bank.verdicts.items() if v is person), None) or min(
        (k for k, v in bank.verdicts.items() if v.is_supported is label),
        key=lambda k: bank.labels[k],
    )
    return dspy.Example(
        context=[c.text for c in e.context],
        question=e.question or "",
        statement=text,
        verdict=verdict,
        supporting_chunk_ids=list(statement.supporting_chunk_ids or ())
        if statement
        else [],
        supported=label,
        support=bank.labels[verdict]
        if person is bank.verdicts[verdict]
        else float(label),
        person=(
            person or (Verdict.FULLY_SUPPORTED if label else Verdict.NOT_SUPPORTED)
        ).value,
        reason=statement.reason if statement else None,
        weight=1.0,
    ).with_inputs("context", "question", "statement")


def short(rows: Sequence[Any]) -> list[Any]:
    """Examples whose context is no longer than the median, and than `MAX_DEMO_WORDS`; all if that loses a class."""
    sizes = [sum(len(c.split()) for c in r.context) for r in rows]
    limit = min(sorted(sizes)[len(rows) // 2], MAX_DEMO_WORDS)
    kept = [r for r, size in zip(rows, sizes, strict=True) if size <= limit]
    return (
        kept
        if {r.supported for r in kept} == {r.supported for r in rows}
        else list(rows)
    )


def balanced(rows: Sequence[Any], n: int, seed: int) -> list[Any]:
    """Up to ``n`` examples, classes in turn, each class from different contexts first.

    Their weights are those of the sample: with those of all ``rows`` the rarer class would count twice over.
    """
    rng = random.Random(seed)
    pools: list[list[Any]] = []
    for want in (False, True):
        pool = [r for r in rows if r.supported is want]
        rng.shuffle(pool)
        seen: Counter[str] = Counter()
        first: list[Any] = []
        repeated: list[Any] = []
        for row in pool:
            key = "\n".join(row.context)
            (repeated if seen[key] else first).append(row)
            seen[key] += 1
        pools.append(first + repeated)
    out: list[Any] = []
    while len(out) < n and any(pools):
        out += [pool.pop(0) for pool in pools if pool]
    return reweighted(out[:n])


def reweighted(rows: Sequence[Any]) -> list[Any]:
    """The examples with weights by which both classes count the same in sum."""
    count = Counter(r.supported for r in rows)
    return [r.copy(weight=len(rows) / (2 * count[r.supported])) for r in rows]


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
    score = 0.0 if verdict is None else _verdict_score(gold, pred, cite)
    if pred_name is not None or pred_trace is not None:
        return dspy.Prediction(score=score, feedback=_feedback(gold, verdict, right))
    return score * gold.weight


def failed(pred: Any) -> bool:
    """Whether there is no verdict to compare: the LM failed, or its reply had no label."""
    return pred is None or pred.get("verdict") is None


def _verdict_score(gold: dspy.Example, pred: dspy.Prediction, cite: bool) -> float:
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
