"""A judge as a scorer in MLflow's evaluation, over rows and over traces.

from faith_dspy.integrations.mlflow_scorer import FaithfulnessScorer
mlflow.genai.evaluate(data=rows_or_traces, scorers=[FaithfulnessScorer("models:/faithfulness@champion")])
"""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from faith_dspy.artifact import load_judge
from faith_dspy.errors import needs
from faith_dspy.integrations.datum import explain, value
from faith_dspy.integrations.mlflow_traces import record_of
from faith_dspy.judge import Judge

with needs("mlflow", "tune", "A judge as an MLflow scorer"):
    from mlflow.entities import AssessmentError, AssessmentSource, Feedback
    from mlflow.genai.judges import Judge as MlflowJudge
    from mlflow.genai.judges.base import JudgeField
    from mlflow.genai.scorers.base import ScorerKind
    from mlflow.tracing.constant import AssessmentMetadataKey

from pydantic import PrivateAttr

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mlflow.entities import Trace

    from faith_dspy.schema import Judgment, StatementVerdict


class FaithfulnessScorer(MlflowJudge):
    """`Judge` as a scorer of `mlflow.genai.evaluate`, and an MLflow judge that can be aligned.

    ``judge``: a `Judge`, the folder of one, or its place in MLflow (``models:/faithfulness@champion``).

    **Input.** The answer is the output (of a mapping the first of answer, response, output …), the question the input.
    The context is what ``inputs``, ``expectations`` or ``outputs`` name as such (context, contexts, retrieved_contexts
    …); if none does, what the trace's RETRIEVER and tool spans returned.

    **Output.** A list of `Feedback` per answer:

    - ``faithfulness``: the calibrated probability of a tuned judge, else the score; rationale: every statement's
      verdict; metadata: score, level, each statement with verdict, confidence and chunk ids, and the cost. An unscored
      answer has no value but an error, whose code is the reason (``no_context``, ``lm_failed`` …).
    - ``faithfulness/faithful``: whether the answer passes. Missing when unscored.
    - ``faithfulness/scored``: whether there is a score, so that its mean over a run is the coverage.
    - ``faithfulness/statement``: one per unsupported statement (``statements="all"``: one per statement; ``"none"``);
      the value is the verdict, the rationale the statement and the reason.

    So a run's metrics are ``faithfulness/mean`` over the scored answers, ``faithfulness/faithful/mean`` (the share that
    passes) and ``faithfulness/scored/mean``.

    It may be called from any number of MLflow's threads. An embedded LM judges one answer at a time, as it has a single
    prefix cache. ``timeout``: seconds for one answer. MLflow's registry takes functions alone: to register a scorer,
    call this one in a function decorated with `mlflow.genai.scorer`.
    """

    statements: Literal["unsupported", "all", "none"] = "unsupported"
    _judge: Judge = PrivateAttr()
    _place: str = PrivateAttr()
    """Of the judge, as the assessments' source names it."""
    _turn: Any = PrivateAttr()

    def __init__(
        self,
        judge: Judge | str | Path,
        *,
        name: str = "faithfulness",
        description: str | None = "How far the answer says only what its context supports.",
        **options: Any,
    ) -> None:
        super().__init__(name=name, description=description, **options)
        self._judge = judge if isinstance(judge, Judge) else load_judge(judge)
        self._place = f"faith_dspy {judge.lm_name}" if isinstance(judge, Judge) else str(judge)
        embedded = any(lm.endpoint.sha256 for lm in self._judge.ready())  # made before any thread uses them
        self._turn = threading.Lock() if embedded else nullcontext()

    @property
    def judge(self) -> Judge:
        """The judge."""
        return self._judge

    def judgment(
        self, inputs: Any = None, outputs: Any = None, expectations: Any = None, trace: Trace | None = None
    ) -> Judgment:
        """The judgment; arguments as MLflow passes them to a scorer."""
        import dspy

        # MLflow traces DSPy while it evaluates; the judge's own traces would mix with those that are scored.
        with self._turn, dspy.context(callbacks=[]):
            return self._judge.batch([record_of(inputs, outputs, expectations, trace)], num_threads=1)[0]

    def __call__(  # type: ignore[override]  # MLflow gives what the signature names; there is no session here
        self,
        *,
        inputs: Any = None,
        outputs: Any = None,
        expectations: dict[str, Any] | None = None,
        trace: Trace | None = None,
    ) -> list[Feedback]:
        """The judgment as `Feedback`. Raises `LMUnavailableError` when the endpoint is not there, which MLflow shows as
        the error of each row."""
        return self.feedback(self.judgment(inputs, outputs, expectations, trace))

    def feedback(self, judgment: Judgment) -> list[Feedback]:
        """A judgment as MLflow's assessments."""
        source = AssessmentSource("LLM_JUDGE", self._place)

        def one(suffix: str, value: Any, **fields: Any) -> Feedback:
            return Feedback(name=self.name + suffix, value=value, source=source, **fields)

        why = {"rationale": explain(judgment), "metadata": _metadata(judgment)}
        if judgment.unscored is not None:
            error = AssessmentError(error_code=judgment.unscored.value, error_message=judgment.detail)
            return [one("", None, error=error, **why), one("/scored", False)]
        found = [one("", value(judgment), **why), one("/faithful", judgment.faithful), one("/scored", True)]
        for i, s in enumerate(judgment.statements):
            if self.statements == "all" or (self.statements == "unsupported" and not s.is_supported):
                reason = s.reason or s.error
                rationale = f"{s.text} – {reason}" if reason else s.text
                fields = _fields(i, s)
                found.append(one("/statement", fields["verdict"], rationale=rationale, metadata=_as_texts(fields)))
        return found

    @property
    def instructions(self) -> str:
        """The compiled prompts."""
        return "\n\n".join(str(p.signature.instructions) for p in self._judge.program.predictors())

    @property
    def feedback_value_type(self) -> Any:
        """A number in [0, 1]."""
        return float

    def get_input_fields(self) -> list[JudgeField]:
        """Question, answer and context, from a row or from a trace."""
        fields = {
            "inputs": "The question, and the context if it is not in the trace",
            "outputs": "The answer",
            "expectations": "The context, if it is neither in inputs nor in the trace",
        }
        return [JudgeField(name=name, description=text) for name, text in fields.items()]

    @property
    def kind(self) -> ScorerKind:
        """A class: MLflow does not register it."""
        return ScorerKind.CLASS


def _metadata(judgment: Judgment) -> dict[str, str]:
    """The judgment, with its cost under the keys that MLflow's pages show."""
    u = judgment.usage
    fields = judgment.model_dump(mode="json", include={"score", "probability", "level", "needs_review", "unscored"})
    return _as_texts(
        fields
        | {
            "verdicts": judgment.verdict_counts,
            "statements": [_fields(i, s) for i, s in enumerate(judgment.statements)],
            "calls": u.calls,
            "cached_tokens": u.cached_tokens,
            AssessmentMetadataKey.JUDGE_INPUT_TOKENS: u.prompt_tokens,
            AssessmentMetadataKey.JUDGE_OUTPUT_TOKENS: u.output_tokens,
            AssessmentMetadataKey.JUDGE_COST: u.dollars,
        }
    )


def _fields(i: int, s: StatementVerdict) -> dict[str, Any]:
    kept = s.model_dump(mode="json", include={"sentence_index", "confidence", "supporting_chunk_ids"})
    return {"statement": s.text, "index": i, "verdict": s.verdict.value if s.verdict else "unjudged", **kept}


def _as_texts(fields: Mapping[str, Any]) -> dict[str, str]:
    """As MLflow's metadata: texts as they are, anything else as JSON; without what is None."""
    known = {k: v for k, v in fields.items() if v is not None}
    return {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in known.items()}
