"""A judge as an evaluator in a Strands `Experiment`, and the turns of a Strands session as records for a judge.

from faith_dspy.integrations.strands import FaithfulnessEvaluator
Experiment(cases=cases, evaluators=[FaithfulnessEvaluator(load_judge("judges/champion"))]).run_evaluations(task)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError, needs
from faith_dspy.integrations.datum import explain, record, value
from faith_dspy.io.conversation import from_conversation
from faith_dspy.schema import Unscored

with needs("strands_evals", "strands", "A judge as a Strands evaluator"):
    from strands_evals.evaluators import Evaluator
    from strands_evals.extractors import TraceExtractor
    from strands_evals.types.evaluation import NOT_APPLICABLE, EvaluationOutput
    from strands_evals.types.trace import EvaluationLevel, Session

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment


class FaithfulnessEvaluator(Evaluator):
    """A judge for the last turn of a case: against everything before it, tool results included.

    ``actual_trajectory`` may be a `Session`, or a list of messages such as ``agent.messages``. Without one, the case's
    ``input`` and ``actual_output`` are judged against ``context`` or ``retrieved_contexts`` of its ``metadata``.

    The score is the probability of a tuned judge, the score of an untuned one; the label is the judgment's level. An
    answer passes if the judge calls it faithful, so that one unsupported addition among supported statements fails.
    With ``threshold=0.5`` it passes from the middle level on, as in Strands' own evaluator.

    An unscored answer has the label ``not_applicable``, a reason that begins with ``unscored``, and the score 0.0,
    which Strands writes where there is none. As in Strands, there are two kinds: an answer with nothing to judge (it
    declines, or states nothing) passes and is left out of the report's mean; an answer whose judging failed does not
    pass, and Strands' mean counts it as 0 (so look at the labels before the mean).
    """

    evaluation_level = EvaluationLevel.TRACE_LEVEL

    def __init__(self, judge: Judge, threshold: float | None = None, name: str | None = None) -> None:
        super().__init__(name=name)
        self._judge = judge  # private, so that Strands does not try to write it into an experiment's file
        self.threshold = threshold

    def evaluate(self, evaluation_case: Any) -> list[EvaluationOutput]:
        """One output."""
        return [self._output(self._judge(**_asked(evaluation_case)))]

    async def evaluate_async(self, evaluation_case: Any) -> list[EvaluationOutput]:
        """As `evaluate`, without blocking the event loop."""
        return [self._output(await self._judge.acall(**_asked(evaluation_case)))]

    def _output(self, judgment: Judgment) -> EvaluationOutput:
        score = value(judgment)
        if score is None:
            nothing = judgment.unscored in (Unscored.ABSTAINED, Unscored.NO_STATEMENTS)
            return EvaluationOutput(score=0.0, test_pass=nothing, label=NOT_APPLICABLE, reason=explain(judgment))
        passed = judgment.faithful if self.threshold is None else score >= self.threshold
        return EvaluationOutput(score=score, test_pass=bool(passed), label=judgment.level, reason=explain(judgment))


def _asked(case: Any) -> dict[str, Any]:
    trajectory = case.actual_trajectory
    if isinstance(trajectory, Session):
        turns = records(trajectory)
        if not turns:
            raise InputError("the Session has no agent's answer; expected at least one AgentInvocationSpan")
        return record(turns[-1])
    if trajectory and all(isinstance(m, Mapping) and "role" in m for m in trajectory):
        return {"conversation": trajectory}
    context = {k: v for k, v in (case.metadata or {}).items() if k in ("context", "retrieved_contexts")}
    texts = {"question": case.input, "answer": case.actual_output}
    return record({**context, **{k: v if v is None else str(v) for k, v in texts.items()}})


def records(session: Session) -> list[dict[str, Any]]:
    """One record per turn of a strands_evals `Session`, in order, each judged against all that went before it.

    Strands' own extractor splits the session, at the level its faithfulness evaluator uses: what users said, what
    tools returned and what the agent said before. ``source`` reads ``turn 1: tool search_docs``; turns count from 0
    over the session, and the tools of one answer are one turn.
    """
    out = []
    for turn in TraceExtractor(EvaluationLevel.TRACE_LEVEL).extract(session):
        answer = {"role": "assistant", "content": turn.agent_response.text}
        history = [_message(item, i) for i, item in enumerate(turn.session_history)]
        question, context, text = from_conversation([*history, answer])
        out.append({"id": turn.span_info.span_id, "question": question, "context": context, "answer": text})
    return out


def _message(item: Any, turn: int) -> dict[str, Any]:
    """An entry of Strands' history as a message: what somebody said, or the list of an answer's tool runs."""
    if not isinstance(item, list):
        return {"role": item.role.value, "content": [{"text": b.text} for b in item.content if hasattr(b, "text")]}
    blocks: list[dict[str, Any]] = []
    for i, run in enumerate(item):
        text, status = run.tool_result.content or run.tool_result.error, "error" if run.tool_result.error else "success"
        blocks.append({"toolUse": {"toolUseId": f"{turn}.{i}", "name": run.tool_call.name}})
        blocks.append({"toolResult": {"toolUseId": f"{turn}.{i}", "content": text or "", "status": status}})
    return {"role": "tool", "content": blocks}
