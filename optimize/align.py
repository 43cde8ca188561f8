"""A judge tuned on people's feedback on MLflow traces, as an optimizer of MLflow's ``judge.align``.

from faith_dspy.optimize.align import FaithfulnessAlignment
tuned = mlflow_judge.align(traces, optimizer=FaithfulnessAlignment(lm="openai/gpt-4o-mini"))
tuned.judge.manifest["agreement"]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError, needs
from faith_dspy.integrations.mlflow import FaithfulnessScorer
from faith_dspy.load import load_judge
from faith_dspy.optimize import tune
from faith_dspy.optimize.tracking.review import label_traces

with needs("mlflow", "tune", "Aligning an MLflow judge"):
    from mlflow.genai.judges import AlignmentOptimizer

if TYPE_CHECKING:
    from mlflow.entities import Trace
    from mlflow.genai.judges import Judge as MlflowJudge


class FaithfulnessAlignment(AlignmentOptimizer):
    """Tunes a judge on the human assessments that have the name of the MLflow judge; returns an MLflow judge of it.

    ``options`` are those of `faith_dspy.optimize.tune`; ``out`` is ``judges/<name>`` by default. `InputError` where too
    few traces have feedback that can be used.
    """

    def __init__(self, lm: str = "local", **options: Any) -> None:
        self._options = {"lm": lm, **options}

    def align(self, judge: MlflowJudge, traces: list[Trace]) -> FaithfulnessScorer:
        """Tune, and test on feedback that no part of tuning has seen."""
        labels = label_traces(traces, judge.name)
        if not labels.rows:
            raise InputError(
                f"no trace has a usable human assessment called {judge.name!r}: {labels.sentence}"
            )
        study = tune(
            labels.rows,
            **{"out": Path("judges", judge.name.replace("/", "-")), **self._options},
        )
        tuned = load_judge(
            study.judge_dir,
            **{k: v for k, v in self._options.items() if k in ("api_base", "api_key")},
        )
        return FaithfulnessScorer(tuned, name=judge.name, description=judge.description)
