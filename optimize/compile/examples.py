"""Labelled answers as `dspy.Example`s of the program and of its parts, and samples of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice
from operator import itemgetter
from typing import Any

import dspy

from faith_dspy.config import Granularity
from faith_dspy.program.program import as_statement
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import (
    LabelledExample,
    LabelledStatement,
    Statement,
    Verdict,
)
from faith_dspy.scoring.matching import locate, match_statements, statement_labels
from faith_dspy.text.sentences import split_answer

MAX_DEMO_WORDS = 450
"""Of a demo's context. Demos stand in every prompt, and long ones cost more than they teach."""


def labelled_texts(
    e: LabelledExample, granularity: Granularity
) -> list[tuple[str, bool | None]]:
    """Return the texts of an answer that are verified, and whether people call each supported (None: unknown).

    The whole answer, its sentences, or people's own statements (its sentences where they wrote none).
    """
    if granularity is Granularity.ANSWER:
        return [(split_answer(e.answer).said, e.label)]
    own = [s for s in e.statements if s.verdict]
    if granularity is Granularity.STATEMENT and own:
        return [(s.text, s.verdict.is_supported) for s in own if s.verdict]
    pieces = [as_statement(s) for s in split_answer(e.answer).stating]
    labels = statement_labels(pieces, e)
    return [(s.text, label) for s, label in zip(pieces, labels, strict=True)]


def statement_examples(
    examples: Sequence[LabelledExample], granularity: Granularity, instruction: str
) -> list[dspy.Example]:
    """Labelled texts as DSPy examples of a verifier that asks ``instruction``; texts without a label are left out.

    ``verdict`` is the instruction's label for the person's verdict, ``support`` what that label stands for, in [0, 1];
    ``person`` is the person's verdict itself, ``supporting_chunk_ids`` and ``reason`` are theirs, ``source`` is the
    answer's.
    """
    rows = []
    for e in examples:
        for text, label in labelled_texts(e, granularity):
            if label is not None:
                rows.append(statement_example(e, text, label, instruction))
    return rows


def statement_example(
    e: LabelledExample,
    text: str,
    label: bool,
    instruction: str,
) -> dspy.Example:
    """Return one labelled text as `statement_examples` has it."""
    bank = INSTRUCTIONS[instruction]
    own = _own_statement(e, text, label)
    person = own.verdict
    assert person is not None
    # The person's finer verdict where the instruction has a label for it, else the one that claims least.
    same = [k for k, v in bank.verdicts.items() if v is person]
    alike = [k for k, v in bank.verdicts.items() if v.is_supported is label]
    verdict = min(same or alike, key=bank.labels.__getitem__)
    support = bank.labels[verdict] if same else float(label)
    row = dspy.Example(
        context=[c.text for c in e.context],
        question=e.question or "",
        statement=text,
        verdict=verdict,
        supporting_chunk_ids=list(own.supporting_chunk_ids or ()),
        supported=label,
        support=support,
        person=person.value,
        reason=own.reason,
        source=e.group_key,
    )
    return row.with_inputs("context", "question", "statement")


def _own_statement(e: LabelledExample, text: str, label: bool) -> LabelledStatement:
    """Return the statement that people wrote of this text and labelled so, else the text with its label."""
    judged = [s for s in e.statements if s.verdict and s.verdict.is_supported is label]
    texts = [s.text for s in judged]
    matches = match_statements(texts, [Statement(text=text)], e.answer)
    for statement, match in zip(judged, matches, strict=True):
        if match:
            return statement
    verdict = Verdict.FULLY_SUPPORTED if label else Verdict.NOT_SUPPORTED
    return LabelledStatement(text=text, verdict=verdict)


def answer_examples(
    examples: Sequence[LabelledExample], instruction: str = "binary"
) -> list[dspy.Example]:
    """Labelled answers as DSPy examples of the whole program (`faith_dspy.Judge.program`).

    ``people`` are the statements that people wrote, ``labelled`` is the answer with all of its labels, ``supported``
    whether all of it is.
    """
    rows = []
    for e in examples:
        verdicts = [s.verdict.is_supported for s in e.statements if s.verdict]
        if e.label is None and not verdicts:
            continue
        row = dspy.Example(
            context=[c.text for c in e.context],
            question=e.question or "",
            answer=e.answer,
            people=[s.text for s in e.statements],
            labelled=e,
            instruction=instruction,
            supported=all(verdicts) if e.label is None else e.label,
            source=e.group_key,
        )
        rows.append(row.with_inputs("context", "question", "answer"))
    return rows


def extraction_examples(examples: Sequence[LabelledExample]) -> list[dspy.Example]:
    """Answers whose statements people wrote as DSPy examples of the extraction: ``statements`` are its reply."""
    rows = []
    for row in answer_examples(examples):
        carrying = split_answer(row.answer).stating
        texts_of: dict[int | None, list[str]] = {s.index: [] for s in carrying}
        places = [place.sentence for place in locate(row.people, row.answer)]
        if not places or not texts_of.keys() >= set(places):
            continue
        for place, text in zip(places, row.people, strict=True):
            texts_of[place].append(text)
        reply = []
        for number, texts in enumerate(texts_of.values(), 1):
            reply += [f"{number}. {text}" for text in texts or ["none"]]
        divided = row.copy(sentences=[s.text for s in carrying], statements=reply)
        rows.append(divided.with_inputs("question", "sentences"))
    return rows


def short(rows: Sequence[Any]) -> list[Any]:
    """Examples whose context is no longer than the median, and than `MAX_DEMO_WORDS`; all if that loses a class."""
    sizes = [len(" ".join(r.context).split()) for r in rows]
    median = sorted(sizes)[len(rows) // 2]
    limit = min(median, MAX_DEMO_WORDS)
    fitting = [r for r, size in zip(rows, sizes, strict=True) if size <= limit]
    if {r.supported for r in fitting} != {r.supported for r in rows}:
        return list(rows)
    return fitting


def drawn(rows: Sequence[Any], seed: int) -> list[Any]:
    """Return the examples in an order drawn at random, of each class one of every source before the second of any.

    In which order two of them come depends on nothing else: the first of all are for the most part the first of either
    half.
    """

    in_order = sorted(rows, key=lambda row: random.Random(f"{seed} {row}").random())
    turns: Counter[tuple[bool, str]] = Counter()
    placed = []
    for row in in_order:
        kind = row.supported, row.source
        placed.append((turns[kind], row))
        turns[kind] += 1
    return [row for _, row in sorted(placed, key=itemgetter(0))]


def balanced(rows: Sequence[Any], n: int, seed: int) -> list[Any]:
    """Return up to ``n`` examples of each class, drawn at random; those of the rarer class again and again, until there
    are as many: a reply that is in DSPy's cache costs nothing."""
    classes = [part[:n] for part in by_class(drawn(rows, seed))]
    most = max(map(len, classes))
    return [row for part in classes for row in islice(cycle(part), most)]


def by_class(rows: Sequence[Any]) -> list[list[Any]]:
    """Return the unsupported examples and the supported ones, where both occur; else all."""
    parts = [[row for row in rows if row.supported is label] for label in (False, True)]
    return [part for part in parts if part]


def classes_in_turn(rows: Sequence[Any]) -> list[Any]:
    """Return the first unsupported example, the first supported one, the second of each, and so on, until either class
    is used up; all examples of the only class."""
    return [row for pair in zip(*by_class(rows), strict=False) for row in pair]
