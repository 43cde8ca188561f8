"""Grading as in rag_evals: whether each statement is supported, and by which chunks; the score is supported / all.

    from faith_dspy.integrations.rag_evals import grade
    grade(question, answer, context_chunks, judge=judge).overall_score

Needs no package. Reasoning, strictness, criteria and granularity are options of the judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment


class GradedStatement(BaseModel, extra="forbid", frozen=True):
    """One statement of the answer."""

    statement: str
    is_supported: bool | None
    """None when it could not be judged; it still counts in the denominator."""
    supporting_chunk_ids: tuple[int, ...] = ()
    """0-based positions in ``context_chunks``; every one exists."""
    reasoning: str | None = None
    """Why, where the judge was asked for reasons."""


class Grade(BaseModel, extra="forbid", frozen=True):
    """The grade of one answer."""

    statements: tuple[GradedStatement, ...] = ()
    overall_score: float | None = None
    """Supported statements over all; None when the answer could not be scored."""
    unscored: str | None = None
    """Why there is no score; an empty answer does not score 0."""
    refused_chunk_ids: int = 0
    """Chunk ids the LM named that do not exist."""


def grade(question: str | None, answer: str, context_chunks: list[Any], *, judge: Judge) -> Grade:
    """Grade one answer. ``context_chunks``: texts, `Chunk` objects or mappings with ``text``, in order of their ids.

    Chunk ids that do not exist are counted and left out.
    """
    return _grade(judge(question=question, context=context_chunks, answer=answer))


async def agrade(question: str | None, answer: str, context_chunks: list[Any], *, judge: Judge) -> Grade:
    """As `grade`, without blocking the event loop."""
    return _grade(await judge.acall(question=question, context=context_chunks, answer=answer))


def _grade(judgment: Judgment) -> Grade:
    statements = tuple(
        GradedStatement(
            statement=s.text,
            is_supported=s.is_supported,
            supporting_chunk_ids=s.supporting_chunk_ids if s.is_supported else (),
            reasoning=s.reason or s.error,
        )
        for s in judgment.statements
    )
    score, unscored = judgment.score, None
    if judgment.unscored is not None:
        unscored = f"{judgment.unscored.value}: {judgment.detail or 'no more is known'}"
    elif statements:  # without statements the judge's policy decides the score
        score = sum(bool(s.is_supported) for s in statements) / len(statements)
    return Grade(
        statements=statements, overall_score=score, unscored=unscored, refused_chunk_ids=judgment.dropped_chunk_ids
    )
