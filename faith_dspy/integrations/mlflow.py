"""A judge as a scorer of MLflow's evaluation, and MLflow's traces as records for a judge.

from faith_dspy.integrations.mlflow import FaithfulnessScorer, records
mlflow.genai.evaluate(data=rows_or_traces, scorers=[FaithfulnessScorer("models:/faithfulness@champion")])
judgments = judge.batch(records(mlflow.search_traces(return_type="list")))
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import dspy
from pydantic import PrivateAttr

from faith_dspy.errors import InputError, optional_dependency
from faith_dspy.integrations.adapters import explain, judge_of, value
from faith_dspy.integrations.traces import (
    Span,
    named_context,
    record_of_call,
    record_of_spans,
    records_of,
)
from faith_dspy.judge import Judge
from faith_dspy.lm.make import is_local
from faith_dspy.report.judgment import citation_faults
from faith_dspy.schema import Judgment

with optional_dependency("mlflow", "tune", "A judge as an MLflow scorer"):
    from mlflow.entities import AssessmentError, AssessmentSource, Feedback, Trace
    from mlflow.genai.scorers import Scorer, scorer
    from mlflow.tracing.constant import AssessmentMetadataKey


class FaithfulnessScorer(Scorer):
    """`Judge` as a scorer of `mlflow.genai.evaluate` and `mlflow.genai.optimize_prompts`.

    ``judge``: what `judge_of` takes: a `Judge`, its folder or MLflow address, a model (``openai:/gpt-4o-mini``). What
    it judges of a row or a trace: `record_of`. It gives a list of `Feedback` per answer:

    - ``faithfulness``: the calibrated probability of a tuned judge, else the score; rationale: every statement's
      verdict; metadata: the judgment, and its cost. An unscored answer has no value but an error, whose code is the
      reason (``no_context``, ``lm_failed`` …).
    - ``faithfulness/faithful``: whether the answer passes. Missing when unscored.
    - ``faithfulness/scored``: whether there is a score, so that its mean over a run is the coverage.
    - ``faithfulness/statement``: one per unsupported statement (``statements="all"``: one per statement; ``"none"``);
      the value is the verdict, the rationale the statement and the reason. With ``statements=None`` there is
      ``faithfulness`` alone, no list: what `optimize_prompts` and `make_scorer_ensemble` take.
    - ``faithfulness/citation_recall`` and ``faithfulness/citation_precision``, as ALCE defines them, of an answer that
      cites; the rationale says which statements cite nothing, or what does not support them.

    It may be called from any number of MLflow's threads.
    """

    statements: Literal["unsupported", "all", "none"] | None = "unsupported"
    _judge: Judge = PrivateAttr()
    _place: str = PrivateAttr()
    """Of the judge, as the assessments' source names it."""
    _address: str | None = PrivateAttr()
    """Where another process finds the judge."""
    _turn: Any = PrivateAttr()

    def __init__(
        self,
        judge: Any,
        *,
        name: str = "faithfulness",
        description: str
        | None = "How far the answer says only what its context supports.",
        **options: Any,
    ) -> None:
        super().__init__(name=name, description=description, **options)
        self._judge = judge_of({}, judge)
        if isinstance(judge, str | Path):
            self._place = str(judge)
            is_folder = Path(judge).exists()
            self._address = str(Path(judge).resolve()) if is_folder else self._place
        else:
            self._place, self._address = f"faith_dspy {self._judge.lm_name}", None
        # The prefix cache of an embedded model holds one context.
        is_embedded = any(is_local(one.lm_name) for one in self._judge.cascade)
        self._turn = threading.Lock() if is_embedded else nullcontext()

    @property
    def judge(self) -> Judge:
        """The judge."""
        return self._judge

    def __call__(  # type: ignore[override]  # MLflow gives what the signature names; there is no session here
        self,
        *,
        inputs: Any = None,
        outputs: Any = None,
        expectations: dict[str, Any] | None = None,
        trace: Trace | None = None,
    ) -> Feedback | list[Feedback]:
        """Return the judgment as `Feedback`; an LM that fails leaves the answer unscored."""
        record = record_of(inputs, outputs, expectations, trace)
        # MLflow traces DSPy while it evaluates; the judge's own traces would mix with those that are scored.
        with self._turn, dspy.context(callbacks=[]):
            (judgment,) = self._judge.batch([record], 1)
        feedback = self._feedback(judgment)
        return feedback if self.statements else feedback[0]

    def _feedback(self, judgment: Judgment) -> list[Feedback]:
        """Return a judgment as `Feedback`."""
        source = AssessmentSource("LLM_JUDGE", self._place)

        def one(suffix: str, value: Any, **fields: Any) -> Feedback:
            return Feedback(
                name=self.name + suffix, value=value, source=source, **fields
            )

        cost = {
            AssessmentMetadataKey.JUDGE_INPUT_TOKENS: judgment.usage.prompt_tokens,
            AssessmentMetadataKey.JUDGE_OUTPUT_TOKENS: judgment.usage.output_tokens,
            AssessmentMetadataKey.JUDGE_COST: judgment.usage.dollars,
        }
        why = {
            "rationale": explain(judgment),
            "metadata": _as_texts(judgment.to_dict() | cost),
        }
        if judgment.unscored is not None:
            error = AssessmentError(
                error_code=judgment.unscored.value, error_message=judgment.detail
            )
            return [one("", None, error=error, **why), one("/scored", False)]
        feedback = [
            one("", value(judgment), **why),
            one("/faithful", judgment.faithful),
            one("/scored", True),
        ]
        if judgment.citations is not None:
            faults = "\n".join(citation_faults(judgment))
            for measure in ("recall", "precision"):
                share = getattr(judgment.citations, measure)
                if share is not None:
                    faulty = one(f"/citation_{measure}", share, rationale=faults)
                    feedback.append(faulty)
        shown = judgment.statements if self.statements != "none" else ()
        for statement in shown:
            if self.statements == "all" or not statement.is_supported:
                fields = statement.model_dump(mode="json", exclude={"features"})
                verdict = fields["verdict"] or "unjudged"
                reason = statement.reason or statement.error
                words = " – ".join(filter(None, (statement.text, reason)))
                details = {"rationale": words, "metadata": _as_texts(fields)}
                feedback.append(one("/statement", verdict, **details))
        return feedback

    def register(
        self, *, name: str | None = None, experiment_id: str | None = None
    ) -> Scorer:
        """Register a function that opens the judge by its address and calls this scorer; returns its scorer.

        MLflow's registry takes no classes, and functions only where MLFLOW_SERVER_ENABLE_CUSTOM_SCORERS is set: on the
        server, and wherever `mlflow.genai.scorers.get_scorer` loads it.

        Raises:
            InputError: The judge was given as an object, which has no address.
        """
        if self._address is None:
            raise InputError(
                "a scorer made of a Judge cannot be registered; expected the judge's address, as in "
                'FaithfulnessScorer("models:/faithfulness@champion"), or its folder'
            )

        # MLflow keeps the body's text and the defaults' values.
        def score(
            inputs: Any = None,
            outputs: Any = None,
            expectations: Any = None,
            trace: Any = None,
            judge: str = self._address,
            name: str = name or self.name,
            statements: Any = self.statements,
        ) -> Any:
            from faith_dspy.integrations.mlflow import FaithfulnessScorer

            scorer = FaithfulnessScorer(judge, name=name, statements=statements)
            return scorer(
                inputs=inputs, outputs=outputs, expectations=expectations, trace=trace
            )

        function = scorer(score, name=self.name, description=self.description)
        return function.register(name=name, experiment_id=experiment_id)


def _as_texts(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return MLflow's metadata: texts as they are, anything else as JSON; without what is None."""
    texts = {}
    for name, field in fields.items():
        if isinstance(field, str):
            texts[name] = field
        elif field is not None:
            texts[name] = json.dumps(field, ensure_ascii=False)
    return texts


def records(traces: Trace | Iterable[Trace]) -> list[dict[str, Any]]:
    """Return records for a judge, one a trace, in their order; ``id`` is the trace's.

    What is in them: `record_of_spans`. A trace that cannot be read is a record with ``error``, which a judge leaves
    unscored.
    """
    several: list[Any] = [traces] if hasattr(traces, "data") else list(traces)
    if strange := [type(t).__name__ for t in several if not hasattr(t, "data")]:
        raise InputError(
            f"a trace is {strange[0]}, expected mlflow.entities.Trace, as mlflow.get_trace(id) or "
            'mlflow.search_traces(return_type="list") gives it'
        )
    return records_of((t.info.trace_id, partial(_spans, t)) for t in several)


def record_of(
    inputs: Any, outputs: Any, expected: Any = None, trace: Trace | None = None
) -> dict[str, Any]:
    """Return a record for a judge, from a row of MLflow's evaluation; with ``error`` where it cannot be read.

    The answer is the output, the question the input. The context is what ``inputs``, ``expected`` or ``outputs`` name
    as such; if none does, what `records` finds in the trace, else what ``inputs["messages"]`` holds.
    """
    named = named_context(inputs, expected, outputs)
    messages = inputs.get("messages") if isinstance(inputs, Mapping) else None
    if named is None and trace is not None:
        record = record_of_spans(trace.info.trace_id, partial(_spans, trace))
        if "error" in record or record["context"] or messages is None:
            return record
    if outputs is None:
        return {
            "error": "the row has no outputs; expected the answer, or a trace that has one"
        }
    return record_of_call(inputs, outputs, expected)


def record_of_trace(trace: Trace) -> dict[str, Any]:
    """`record_of` the inputs and outputs of a trace's root span, with the expectations people gave it."""
    root = next((s for s in trace.data.spans if s.parent_id is None), None)
    return record_of(
        root.inputs if root else None,
        root.outputs if root else None,
        expectations(trace),
        trace,
    )


def expectations(trace: Trace) -> dict[str, Any]:
    """Return the expectations that people gave a trace, by name."""
    assessments: list[Any] = trace.search_assessments(type="expectation")
    return {one.name: one.value for one in assessments}


def _spans(trace: Trace) -> list[Span]:
    return [
        Span(
            s.span_id,
            s.parent_id,
            s.name,
            s.start_time_ns or 0,
            str(s.span_type).upper(),
            s.inputs,
            s.outputs,
        )
        for s in trace.data.spans
    ]
