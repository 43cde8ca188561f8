"""rag_evals' own calls: whether each statement of an answer is supported, and by which chunks.

from faith_dspy.integrations.rag_evals import Faithfulness
Faithfulness.grade(question=question, answer=answer, context=chunks, client="openai/gpt-4o-mini").score
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Sequence
from logging import getLogger
from typing import Any

from pydantic import BaseModel

from faith_dspy.errors import ConfigError, FaithDspyError
from faith_dspy.integrations.adapters import explain, judge_of, prompt_of
from faith_dspy.judge import Judge
from faith_dspy.schema import Judgment

log = getLogger(__name__)
DEFAULTS = {
    "granularity": "statement",
    "reasoning": "after",
    "cite": True,
    "no_statements": 0,
    "abstention": 0,
}


class StatementEvaluation(BaseModel, use_attribute_docstrings=True):
    """One statement of the answer."""

    statement: str
    """What it says."""
    is_supported: bool
    """Whether the context supports it; false also if it could not be judged, which ``reasoning`` then says."""
    supporting_chunk_ids: list[int] | None = None
    """0-based positions in the context; every one exists. None, or empty, where no chunk supports it, not even
    partly."""
    found_by: list[str] | None = None
    """How each of them was found: cited or quoted by the LM, or by shared words."""
    reasoning: str = ""
    """Why; empty where the judge gave no reason."""
    confidence: float | None = None
    """Probability that it is supported; None where the LM tells none."""


class FaithfulnessResult(BaseModel, use_attribute_docstrings=True):
    """The statements of one answer. It can be made by hand."""

    statements: list[StatementEvaluation]
    """All statements of the answer, in its order."""
    unscored: str | None = None
    """Why there is no score, where the LM failed or there is nothing to judge by."""
    refused_chunk_ids: int = 0
    """Chunk ids the LM named that do not exist."""

    @property
    def score(self) -> float | None:
        """Supported statements over all, 0.0 without any; None where `unscored` says why."""
        if self.unscored is not None:
            return None
        supported = sum(one.is_supported for one in self.statements)
        return supported / max(1, len(self.statements))


class ContextEvaluation:
    """What grades answers. ``prompt`` replaces ours; ``options`` are those of `JudgeConfig`.

    ``examples``, whatever their form, stand behind the prompt as JSON. ``chunk_template`` is not used, with a warning:
    the form of a request stays ours.

    ``response_model`` is made of ``statements`` and whatever else of our result it has fields for; without a field
    ``unscored``, answers and statements that could not be judged raise `FaithDspyError`.
    """

    def __init__(
        self,
        prompt: str | None = None,
        response_model: type[Any] = FaithfulnessResult,
        examples: Sequence[Any] | None = None,
        chunk_template: str | None = None,
        **options: Any,
    ) -> None:
        if "{{" in (prompt or ""):
            raise ConfigError(
                "the prompt is no template: question, context and answer follow it; leave out what is in {{…}}"
            )
        is_own = prompt and prompt != prompt_of(DEFAULTS | options)
        self._prompt = prompt if is_own else None
        if chunk_template is not None:
            log.warning(
                "chunk_template is not used: question, statement and numbered chunks are laid out as ever"
            )
        if examples:
            shown = [
                json.dumps(one, default=str, ensure_ascii=False) for one in examples
            ]
            criteria = filter(None, [options.get("criteria"), "Examples:", *shown])
            options["criteria"] = "\n".join(criteria)
        self.response_model, self._options = response_model, options
        self._last: tuple[Any, Judge] | None = None
        """The last client and its judge: any other would be kept for good."""

    @property
    def prompt(self) -> str:
        """What is asked about a statement: ours, or the one given in its place."""
        return self._prompt or prompt_of(DEFAULTS | self._options)

    def grade(
        self, question: str | None, answer: str, context: list[Any], client: Any = None
    ) -> Any:
        """Grade one answer. ``context``: chunks in order of their ids. ``client``: whatever `judge_of` takes; with an
        asynchronous one of instructor's the result is to be awaited, as there."""
        if inspect.iscoroutinefunction(getattr(client, "create", None)):
            return self.agrade(question, answer, context, client)
        return self._result(self._judge(client)(question, context, answer))

    async def agrade(
        self, question: str | None, answer: str, context: list[Any], client: Any = None
    ) -> Any:
        """Grade without blocking the event loop; once cancelled, no further LM call is made."""
        return self._result(await self._judge(client).acall(question, context, answer))

    def _judge(self, client: Any) -> Judge:
        if self._last is None or self._last[0] is not client:
            options = {"system_prompt": self._prompt} | self._options
            self._last = client, judge_of(DEFAULTS, client, **options)
        return self._last[1]

    def _result(self, judgment: Judgment) -> Any:
        fields = self.response_model.model_fields
        unscored = judgment.unscored and explain(judgment)
        if "unscored" not in fields and (
            unscored or judgment.verdict_counts["unjudged"]
        ):
            name = self.response_model.__name__
            raise FaithDspyError(
                f"{explain(judgment)}\n{name} has no field 'unscored' that could say so."
            )
        statements = []
        for one in judgment.statements:
            statement = {
                "statement": one.text,
                "is_supported": bool(one.is_supported),
                "supporting_chunk_ids": list(one.supporting_chunk_ids),
                "found_by": list(one.found_by) or None,
                "reasoning": one.reason or one.error or "",
                "confidence": one.confidence,
            }
            statements.append(statement)
        result = {
            "statements": statements,
            "unscored": unscored,
            "refused_chunk_ids": judgment.dropped_chunk_ids,
        }
        shared = {name: result[name] for name in fields if name in result}
        return self.response_model.model_validate(shared)


Faithfulness = ContextEvaluation()
base = sys.modules[__name__]
"""As rag_evals' module of this name: ``base.ContextEvaluation``."""
