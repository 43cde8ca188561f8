"""Labelled answers as `dspy.Example`s of a verifier, and samples of them."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from faith_dspy.config import Granularity
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import Verdict
from faith_dspy.scoring.matching import statement_labels
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample, LabelledStatement

MAX_DEMO_WORDS = 450
"""Of a demo's context. Demos stand in every prompt, and long ones cost more than they teach."""


class LabelledTexts(NamedTuple):
    """An answer as the texts that are verified, and their labels."""

    example: LabelledExample
    texts: Sequence[str]
    labels: Sequence[bool | None]
    """Whether people call each text supported; None where their labels do not say."""


def labelled_texts(examples: Sequence[LabelledExample], granularity: Granularity) -> list[LabelledTexts]:
    """Each answer as a whole, as its sentences, or as people's own statements (its sentences where they wrote none)."""
    out = []
    for e in examples:
        own = [(s.text, s.verdict.is_supported) for s in e.statements if s.verdict is not None]
        if granularity is Granularity.ANSWER:
            out.append(LabelledTexts(e, [e.answer], [e.label]))
        elif granularity is Granularity.STATEMENT and own:
            out.append(LabelledTexts(e, [text for text, _ in own], [label for _, label in own]))
        else:
            texts = [s.text for s in sentences(e.answer) if carries_statement(s.text)]
            out.append(LabelledTexts(e, texts, statement_labels(texts, e)))
    return out


def statement_examples(answers: Sequence[LabelledTexts], instruction: str) -> list[dspy.Example]:
    """Labelled texts as DSPy examples of a verifier that asks ``instruction``; texts without a label are left out.

    ``verdict`` is the instruction's label for the person's verdict, ``support`` what that label stands for, in [0, 1];
    ``person`` is the person's verdict itself, ``supporting_chunk_ids`` and ``reason`` are theirs. ``weight`` makes
    both classes count the same in sum: n / (2 · n of the class).
    """
    bank = INSTRUCTIONS[instruction]
    out = []
    for example, texts, labels in answers:
        for text, label in zip(texts, labels, strict=True):
            if label is None:
                continue
            statement = _statement_behind(example, text, label)
            person = statement.verdict if statement else None
            # The person's finer verdict where the instruction has a label for it, else the binary one.
            verdict = next((k for k, v in bank.verdicts.items() if v is person), None) or min(
                (k for k, v in bank.verdicts.items() if v.is_supported is label), key=lambda k: bank.labels[k]
            )
            out.append(
                dspy.Example(
                    context=[c.text for c in example.context],
                    question=example.question or "",
                    statement=text,
                    verdict=verdict,
                    supporting_chunk_ids=list(statement.supporting_chunk_ids or ()) if statement else [],
                    supported=label,
                    support=bank.labels[verdict] if person is bank.verdicts[verdict] else float(label),
                    person=(person or (Verdict.FULLY_SUPPORTED if label else Verdict.NOT_SUPPORTED)).value,
                    reason=statement.reason if statement else None,
                    weight=1.0,
                ).with_inputs("context", "question", "statement")
            )
    return reweighted(out)


def _statement_behind(example: LabelledExample, text: str, label: bool) -> LabelledStatement | None:
    """The person's statement behind a text's label: the first in or around it with a verdict of that side."""
    return next(
        (
            s
            for s in example.statements
            if s.verdict is not None and s.verdict.is_supported is label and (s.text in text or text in s.text)
        ),
        None,
    )


def short(rows: Sequence[Any]) -> list[Any]:
    """Examples whose context is no longer than the median, and than `MAX_DEMO_WORDS`; all if that loses a class."""
    size = {id(r): sum(len(c.split()) for c in r.get("context", ())) for r in rows}
    limit = sorted(size.values())[len(rows) // 2]
    kept = [r for r in rows if size[id(r)] <= min(limit, MAX_DEMO_WORDS)]
    return kept if {r.get("supported") for r in kept} == {r.get("supported") for r in rows} else list(rows)


def balanced(rows: Sequence[Any], n: int, seed: int) -> list[Any]:
    """Up to ``n`` examples, classes in turn, each class from different contexts first.

    Their weights are those of the sample: with those of all ``rows`` the rarer class would count twice over.
    """
    rng = random.Random(seed)
    pools: list[list[Any]] = []
    for want in (False, True, None):
        pool = [r for r in rows if r.get("supported") is want]
        rng.shuffle(pool)
        seen: set[str] = set()
        first: list[Any] = []
        repeated: list[Any] = []
        for row in pool:
            key = "\n".join(row.get("context", row.get("sentences", ())))
            (repeated if key in seen else first).append(row)
            seen.add(key)
        pools.append(first + repeated)
    out: list[Any] = []
    while len(out) < n and any(pools):
        for pool in pools:
            if pool and len(out) < n:
                out.append(pool.pop(0))
    return reweighted(out)


def reweighted(rows: Sequence[Any]) -> list[Any]:
    """The examples with weights by which both classes count the same in sum; those without a weight as they are."""
    count = Counter(r.get("supported") for r in rows)
    return [r.copy(weight=len(rows) / (2 * count[r.supported])) if "weight" in r else r for r in rows]
