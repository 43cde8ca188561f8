"""rag_evals' own calls: whether each statement of an answer is supported, and by which chunks.

from faith_dspy.integrations.rag_evals import Faithfulness
Faithfulness.grade(question=question, answer=answer, context=chunks, client=client).score
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from faith_dspy.integrations.datum import explain, judge_of

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment


class StatementEvaluation(BaseModel):
    """One statement of the answer; not supported also if it could not be judged, which ``reasoning`` then says."""

    statement: str
    is_supported: bool
    supporting_chunk_ids: list[int] | None = None
    """0-based positions in the context; every one exists. None where no chunk supports it, not even partly."""
    reasoning: str | None = None
    """Why, where the judge was asked for reasons."""


class FaithfulnessResult(BaseModel):
    """The statements of one answer. It can be made by hand."""

    statements: list[StatementEvaluation]
    unscored: str | None = None
    """Why there is no score, where the LM failed or there is nothing to judge by."""
    refused_chunk_ids: int = 0
    """Chunk ids the LM named that do not exist."""

    @property
    def score(self) -> float | None:
        """Supported statements over all, 0.0 without any; None where `unscored` says why."""
        if self.unscored is not None:
            return None
        return sum(s.is_supported for s in self.statements) / len(self.statements) if self.statements else 0.0


class ContextEvaluation:
    """What grades answers. ``prompt`` replaces ours; ``response_model`` is made from ``statements``."""

    def __init__(self, prompt: str | None = None, response_model: type[Any] = FaithfulnessResult) -> None:
        self._prompt = prompt
        self.response_model = response_model
        self._judges: dict[Any, tuple[Any, Judge]] = {}

    @property
    def prompt(self) -> str:
        """The instructions: ours, or those given in their place."""
        from faith_dspy.program.signatures import INSTRUCTIONS

        return self._prompt or INSTRUCTIONS["supported"].text

    def grade(self, question: str | None, answer: str, context: list[Any], client: Any = None) -> Any:
        """Grade one answer. ``context``: chunks in order of their ids. ``client``: whatever `judge_of` takes."""
        return self._result(self._judge(client)(question, context, answer))

    async def agrade(self, question: str | None, answer: str, context: list[Any], client: Any = None) -> Any:
        """As `grade`, without blocking the event loop; once cancelled, no further LM call is made."""
        return self._result(await self._judge(client).acall(question, context, answer))

    def _judge(self, client: Any) -> Judge:
        key = client if isinstance(client, str | None) else id(client)
        if key not in self._judges:
            own = {} if self._prompt is None else {"system_prompt": self._prompt}
            self._judges[key] = client, judge_of("rag_evals", client, **own)
        return self._judges[key][1]

    def _result(self, judgment: Judgment) -> Any:
        statements = [
            {
                "statement": s.text,
                "is_supported": bool(s.is_supported),
                "supporting_chunk_ids": list(s.supporting_chunk_ids) or None,
                "reasoning": s.reason or s.error,
            }
            for s in judgment.statements
        ]
        unscored = None if judgment.unscored is None else explain(judgment)
        more = {"unscored": unscored, "refused_chunk_ids": judgment.dropped_chunk_ids}
        known = {k: v for k, v in more.items() if k in self.response_model.model_fields}
        return self.response_model.model_validate({"statements": statements, **known})


Faithfulness = ContextEvaluation()
base = sys.modules[__name__]
"""As rag_evals' module of this name: ``base.ContextEvaluation``."""
