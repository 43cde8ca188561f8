"""Strands evals' own calls over a judge, and the turns of a Strands session as records for a judge.

from faith_dspy.integrations.strands import FaithfulnessEvaluator
Experiment(cases=cases, evaluators=[FaithfulnessEvaluator()]).run_evaluations(task)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from faith_dspy.errors import ConfigError, optional_dependency
from faith_dspy.integrations.adapters import explain, judge_of, passes, value
from faith_dspy.integrations.traces import record_of_call
from faith_dspy.io.conversation import from_conversation
from faith_dspy.io.inputs import AnswerInput
from faith_dspy.judge import Judge
from faith_dspy.schema import Chunk, Judgment, Unscored
from faith_dspy.text.sentences import split_answer

with optional_dependency("strands_evals", "strands", "A judge as a Strands evaluator"):
    from strands_evals.evaluators import Evaluator
    from strands_evals.extractors import TraceExtractor
    from strands_evals.types.evaluation import NOT_APPLICABLE, EvaluationOutput
    from strands_evals.types.trace import EvaluationLevel, Session

DEFAULTS = {
    "granularity": "answer",
    "verdicts": "five_level",
    "reasoning": "after",
    "threshold": 0.5,
}
NO_CONFLICT = """You check whether an assistant's answer conflicts with a conversation. It may say more than that.

completely: nothing in it conflicts. generally: hardly anything does. mixed: half of it does. hardly: most of it does.
not: nearly all of it does."""
"""What is asked where nobody stated anything, as Strands asks everywhere."""


class FaithfulnessEvaluator(Evaluator):
    """The last turn of a case, judged against what users said and tools returned before it.

    ``model`` and ``options``: what `judge_of` takes, a `Model` of Strands or one's own among it.
    ``system_prompt`` replaces the judge's own. There is one ``version``.

    ``actual_trajectory`` may be a `Session`, or a list of messages such as ``agent.messages``. Without one, the case's
    ``input`` and ``actual_output`` are judged against what its ``metadata`` name as context. Where
    users only asked, and no tool was used, a model is asked whether the answer conflicts with the question, and the
    reason says so; a judge of one's own leaves it unscored.

    The label is one of five levels, the score the number behind it; there is always a reason. An answer passes from the
    score ``threshold`` on, 0.5 unless given; without it a judge of one's own decides. An unscored answer has the label
    ``not_applicable``, a reason that begins with ``unscored``, and the score 0.0, which Strands writes where there is
    none. If there was nothing to judge (it declines, or states nothing) it passes and is left out of the report's
    mean; if judging failed it does not pass, and Strands' mean counts it as 0: look at the labels before the mean.
    """

    evaluation_level = EvaluationLevel.TRACE_LEVEL

    def __init__(
        self,
        model: Any = None,
        system_prompt: str | None = None,
        name: str | None = None,
        version: str = "v0",
        threshold: float | None = None,
        **options: Any,
    ) -> None:
        if version != "v0":
            raise ConfigError(
                f"there is no version {version!r} of the prompt here; give a system_prompt of your own"
            )
        super().__init__(name=name)
        # Strands writes public attributes into files, and makes an evaluator of them again.
        self._judge = judge_of(DEFAULTS, model, system_prompt=system_prompt, **options)
        self._judge_of_questions: Judge | None = None
        with suppress(ConfigError):  # a judge of one's own takes no prompt
            prompt = system_prompt or NO_CONFLICT
            self._judge_of_questions = judge_of(
                DEFAULTS, model, system_prompt=prompt, **options
            )
        self.model = model
        self.system_prompt = system_prompt
        self.version = version
        self.threshold = threshold
        self.__dict__.update(options)

    @classmethod
    def get_type_name(cls) -> str:
        """Return the name in files, which is not that of Strands' own evaluator."""
        return f"faith_dspy.{cls.__name__}"

    def evaluate(self, evaluation_case: Any) -> list[EvaluationOutput]:
        """Return one output."""
        judge, record = self._question_of(evaluation_case)
        (judgment,) = judge.batch([record], 1)
        return [self._output(judgment, record)]

    async def evaluate_async(self, evaluation_case: Any) -> list[EvaluationOutput]:
        """Evaluate without blocking the event loop."""
        judge, record = self._question_of(evaluation_case)
        (judgment,) = await judge.abatch([record], 1)
        return [self._output(judgment, record)]

    def _question_of(self, case: Any) -> tuple[Judge, AnswerInput]:
        """Return who judges a case, and what; the question is the context where a conversation has nothing else."""
        record = _input(case)
        judge, asked = self._judge_of_questions, record.question
        if judge is None or record.chunks or not (asked and case.actual_trajectory):
            return self._judge, record
        chunk = Chunk(id=0, text=asked, source="user")
        return judge, replace(record, chunks=(chunk,))

    def _output(self, judgment: Judgment, record: AnswerInput) -> EvaluationOutput:
        reason = explain(judgment)
        if not any(split_answer(chunk.text).stating for chunk in record.chunks):
            reason += "\nNobody stated anything before it, and no tool was used."
        label = judgment.level
        score = value(judgment)
        passed = passes(judgment, score, self.threshold)
        if label is None:
            label = NOT_APPLICABLE
            passed = judgment.unscored in (Unscored.ABSTAINED, Unscored.NO_STATEMENTS)
        return EvaluationOutput(
            score=score or 0.0, test_pass=passed, label=label, reason=reason
        )


def _input(case: Any) -> AnswerInput:
    trajectory = case.actual_trajectory
    if isinstance(trajectory, Session):
        nothing = {"error": "the Session has no agent's answer"}
        return AnswerInput.of([nothing, *records(trajectory)][-1])
    if trajectory and all(isinstance(m, Mapping) and "role" in m for m in trajectory):
        return AnswerInput.of({"conversation": trajectory})
    return AnswerInput.of(record_of_call(case.input, case.actual_output, case.metadata))


def records(session: Session) -> list[dict[str, Any]]:
    """Return one record per turn of a strands_evals `Session`, in order.

    Each is judged against what users said and tools returned before it. Strands' own extractor splits the session,
    at the level its faithfulness evaluator uses. ``source`` reads ``turn 1: tool search_docs``; turns count from 0
    over the session, and the tools of one answer are one turn.
    """
    turns = []
    for turn in TraceExtractor(EvaluationLevel.TRACE_LEVEL).extract(session):
        answer = {"role": "assistant", "content": turn.agent_response.text}
        history = [
            _tool_runs(item, i) if isinstance(item, list) else item
            for i, item in enumerate(turn.session_history)
        ]
        question, context, text = from_conversation([*history, answer])
        record = {"question": question, "context": context, "answer": text}
        turns.append({"id": turn.span_info.span_id, **record})
    return turns


def _tool_runs(runs: list[Any], turn: int) -> dict[str, Any]:
    """Return the tool runs of an answer, a list in Strands' history, as a message."""
    blocks: list[dict[str, Any]] = []
    for i, run in enumerate(runs):
        result, tool_id = run.tool_result, f"{turn}.{i}"
        shown = {
            "toolUseId": tool_id,
            "content": result.content or result.error or "",
            "status": "error" if result.error else "success",
        }
        blocks.append({"toolUse": {"toolUseId": tool_id, "name": run.tool_call.name}})
        blocks.append({"toolResult": shown})
    return {"role": "tool", "content": blocks}
