"""Grading as in rag_evals: per statement whether it is supported, by which chunks; the score is supported / all.

    from faith_dspy.integrations.rag_evals import grade
    grade(question, answer, context_chunks, judge=judge).overall_score

Needs no package. Reasoning, strict or lenient reading, prompt and granularity are options of the judge.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from faith_dspy.judge import Judge


class GradedStatement(BaseModel):
    """One statement of the answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    statement: str
    is_supported: bool | None
    """None when it could not be judged; it still counts in the denominator."""
    supporting_chunk_ids: tuple[int, ...] = ()
    """0-based positions in ``context_chunks``; every one exists."""
    reasoning: str | None = None
    """Why, where the judge was asked for reasons."""


class Grade(BaseModel):
    """What was found of one answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    statements: tuple[GradedStatement, ...] = ()
    overall_score: float | None = Field(default=None, ge=0, le=1)
    """Supported statements over all; None when the answer could not be scored."""
    unscored: str | None = None
    """Why there is no score; an empty answer is not worth 0."""
    refused_chunk_ids: int = 0
    """Ids the LM named that are no chunk's."""


def grade(question: str | None, answer: str, context_chunks: list[Any], *, judge: Judge) -> Grade:
    """Grade one answer. ``context_chunks``: texts, `Chunk` objects or mappings with ``text``, in order of their ids.

    Ids that do not exist are refused: they are in no statement, and counted.
    """
    judgment = judge(question=question, context=context_chunks, answer=answer)
    statements = tuple(
        GradedStatement(
            statement=s.text,
            is_supported=s.is_supported,
            supporting_chunk_ids=s.supporting_chunk_ids if s.is_supported else (),
            reasoning=s.reason or s.error,
        )
        for s in judgment.statements
    )
    if judgment.unscored is not None:
        reason = f"{judgment.unscored.value}: {judgment.detail or 'no more is known'}"
        return Grade(statements=statements, unscored=reason, refused_chunk_ids=judgment.dropped_chunk_ids)
    supported = sum(bool(s.is_supported) for s in statements)
    return Grade(
        statements=statements,
        # Without statements the judge's policy says what the answer is worth.
        overall_score=supported / len(statements) if statements else judgment.score,
        refused_chunk_ids=judgment.dropped_chunk_ids,
    )


async def agrade(question: str | None, answer: str, context_chunks: list[Any], *, judge: Judge) -> Grade:
    """As `grade`, without blocking the event loop."""
    return await asyncio.to_thread(grade, question, answer, context_chunks, judge=judge)
