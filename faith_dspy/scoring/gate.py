"""When a judge may pass a gate: measured on enough new labels, scored nearly throughout, and good enough."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from faith_dspy.errors import InputError, counted
from faith_dspy.io.labels import answer_key
from faith_dspy.schema import Chunk, Judgment, LabelledExample, digest
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.statistics import SIGNIFICANT_FROM
from faith_dspy.text.words import comparable, plain_words

MIN_COVERAGE = 0.9
"""The share of labelled answers that must be scored for a minimum to hold."""


def words_key(context: Iterable[Chunk], answer: str) -> str:
    """Hash the words of an answer and its context, whatever stands between them, and however the context is divided."""
    texts = [comparable(chunk.text) for chunk in context]
    words = plain_words(" ".join(texts)).split()
    return digest([sorted({*words}), plain_words(comparable(answer))])


def count_tuned_on(
    answer_keys: Collection[str], examples: Sequence[LabelledExample]
) -> int:
    """Count the answers that had a part in the study whose answers have these keys: `words_key`, or `answer_key` in
    exports of before."""
    tuned_on = set(answer_keys)
    seen = 0
    for e in examples:
        keys = {words_key(e.context, e.answer)}
        keys.add(answer_key(e.question, e.context, e.answer))
        seen += not keys.isdisjoint(tuned_on)
    return seen


def refuse_tuned_on(
    answer_keys: Collection[str],
    examples: Sequence[LabelledExample],
    file: str,
    use: str,
) -> None:
    """Raise `InputError` where some of the answers had a part in the study that tuned the judge.

    Args:
        answer_keys: of the study's answers.
        examples: the labels.
        file: what they are called.
        use: what they are given for.
    """
    seen = count_tuned_on(answer_keys, examples)
    if seen:
        raise InputError(
            f"{file}: {counted(seen, 'answer')} of {len(examples)} had a part in the study that tuned this judge, so "
            f"that {use} would say nothing about new answers. Give labels of other answers (faith-dspy labels push has "
            "some labelled), or leave the option out."
        )


def gate_checks(
    examples: Sequence[LabelledExample],
    judgments: Sequence[Judgment],
    minimum: float | None,
    min_coverage: float | None = None,
) -> dict[str, str | None]:
    """Check what a gate asks of a judge.

    Args:
        examples: labelled answers, some of which have a label of the whole answer.
        judgments: of these answers.
        minimum: the least balanced accuracy, an unscored answer counted as wrong; it takes ten sources of each label.
        min_coverage: the least share of scored answers; without it `MIN_COVERAGE` where there is a ``minimum``.

    Returns:
        Each check by name, with a sentence that says why it fails, or None where it holds.
    """
    pairs = [
        (example, judgment)
        for example, judgment in zip(examples, judgments, strict=True)
        if example.label is not None
    ]
    n = counted(len(pairs), "labelled answer")
    scored = sum(judgment.faithful is not None for _, judgment in pairs)
    none = None if scored else f"none of {n} was scored (coverage 0.00)."
    checks = {"an answer is scored": none}
    if minimum is not None:
        labels = [bool(example.label) for example, _ in pairs]
        verdicts = []
        for label, (_, judgment) in zip(labels, pairs, strict=True):
            is_scored = judgment.faithful is not None
            verdicts.append(judgment.faithful if is_scored else not label)
        sources = [example.group_key for example, _ in pairs]
        agreement = measure(labels, verdicts, [None for _ in pairs], groups=sources)
        accuracy = agreement.balanced_accuracy.value
        below = _below(accuracy, len(pairs) - scored, minimum)
        least = agreement.least_sources or 0
        few = None
        if least < SIGNIFICANT_FROM:
            few = f"--min needs {SIGNIFICANT_FROM} sources with each label; the rarer label has {least}."
        checks[f"balanced accuracy at least {minimum:g}"] = below
        checks[f"{SIGNIFICANT_FROM} sources of each label"] = few
        if min_coverage is None:
            min_coverage = MIN_COVERAGE
    if min_coverage is not None:
        coverage = scored / len(pairs)
        lost = f"coverage is {coverage:.2f} ({scored} of {n} scored), below the minimum of {min_coverage:g}."
        checks[f"coverage at least {min_coverage:g}"] = (
            lost if coverage < min_coverage else None
        )
    return checks


def _below(accuracy: float | None, unscored: int, minimum: float) -> str | None:
    """Say that balanced accuracy, unscored answers counted as wrong, is below a minimum; None where it is not."""
    if accuracy is None:
        return f"balanced accuracy is unknown: all labels are the same; the minimum of {minimum:g} is not shown."
    if accuracy >= minimum:
        return None
    note = ""
    if unscored:
        note = f" ({counted(unscored, 'unscored answer')} counted as wrong)"
    return (
        f"balanced accuracy is {accuracy:.3f}{note}, below the minimum of {minimum:g}."
    )
