"""ReAnchor: the probability from which a statement counts as supported, fitted on labelled statements.

`dspy.experimental.ReAnchor` moves the numbers by which DSPy turns probabilities into decisions. It would ask the LM to
write its probabilities down as JSON; ours are read off the reply's first token. But it takes any client that answers
*decision requests*, so it is given one that answers with what the verifier observed: every statement is asked once,
and all thresholds are tried on those replies.
"""

from __future__ import annotations

from typing import Any

import dspy
from dspy.experimental import ReAnchor

from faith_dspy.errors import ConfigError
from faith_dspy.optimize.compile.metric import agreement_metric
from faith_dspy.optimize.compile.task import Found, Task, balanced, reweighted
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.program.verifier import Verifier


class _Supported(dspy.Signature):
    """Whether the context supports the statement."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    statement: str = dspy.InputField()
    supported: bool = dspy.OutputField(desc="whether the context supports all of the statement")


class _Observed:
    """A client for decision requests that answers from recorded probabilities."""

    supports_decision_requests = True

    def __init__(self, recorded: dict[tuple[str, ...], float]) -> None:
        self.recorded = recorded

    def __call__(self, state: dict[str, Any], questions: dict[str, Any]) -> dict[str, Any]:
        return {"supported": {"noul": self.recorded[_key(state["inputs"])]}}


def reanchor(task: Task) -> Found:
    """The verifier with a fitted `supported_from`; unchanged where no threshold holds up across ReAnchor's folds."""
    verifier = task.student.part
    assert isinstance(verifier, Verifier)
    recorded, rows = {}, []
    for row in balanced(task.train, task.effort.compare_on, task.seed):
        seen = task.student(**row.inputs())
        task.metric(row, seen)
        probability = seen.get("probability")
        if probability is not None:
            recorded[_key(row)] = probability
            rows.append(row)
    if not rows:
        raise ConfigError("reanchor fits a threshold on token probabilities, and this LM tells none; take another.")
    known = INSTRUCTIONS[verifier.names[0]].verdicts
    worth = INSTRUCTIONS[verifier.names[0]].labels
    labels = {
        ok: min((k for k, v in known.items() if v.is_supported is ok), key=worth.__getitem__) for ok in (True, False)
    }

    def metric(gold: Any, pred: Any) -> Any:
        return agreement_metric(gold, dspy.Prediction(verdict=labels[pred.supported]))

    student = dspy.Predict(_Supported)
    student.lm = _Observed(recorded)
    optimizer = ReAnchor(metric, num_threads=1, require_cache=False)
    optimizer.compile(student, trainset=reweighted(rows))
    fitted = optimizer.report["fitted"][0]
    if "value" in fitted:
        verifier.supported_from = float(fitted["value"])
        note = f"supported from {verifier.supported_from:g} on"
    else:
        note = "no threshold beat the LM's own across folds"
    before, after = optimizer.report["train_score_before"], optimizer.report["train_score"]
    return Found(task.student, note=f"{note} (n = {len(rows)}; balanced accuracy on train {before:.2f} → {after:.2f})")


def _key(inputs: Any) -> tuple[str, ...]:
    return (*inputs["context"], inputs["statement"])
