"""A judge tuned on people's feedback on MLflow traces, with its agreement on feedback it has not seen.

from faith_dspy.optimize.monitoring.alignment import FaithfulnessAlignment, align
judge, study = align(mlflow.search_traces(return_type="list"), name="faithful", lm="openai/gpt-4o-mini")
tuned = mlflow_judge.align(traces, optimizer=FaithfulnessAlignment(lm="openai/gpt-4o-mini"))
tuned.study, tuned.agreement
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from faith_dspy.errors import InputError, needs
from faith_dspy.integrations.mlflow_scorer import FaithfulnessScorer
from faith_dspy.optimize.data.imports import write_labels
from faith_dspy.optimize.tracking.feedback import NAME, labels_of

with needs("mlflow", "tune", "Aligning an MLflow judge"):
    from mlflow.genai.judges import AlignmentOptimizer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mlflow.entities import Trace
    from mlflow.genai.judges import Judge as MlflowJudge

    from faith_dspy.judge import Judge
    from faith_dspy.optimize.results import StudyResult
    from faith_dspy.scoring.agreement import Agreement

log = logging.getLogger(__name__)


def align(
    traces: Iterable[Trace],
    *,
    name: str = NAME,
    words: Mapping[str, bool] | None = None,
    out: str | Path | None = None,
    api_base: str | None = None,
    api_key: str | None = None,
    **options: Any,
) -> tuple[Judge, StudyResult]:
    """Tune a judge on the human assessments called ``name``, and return it with the study.

    The feedback becomes labels (`labels_of`), and `faith_dspy.optimize.tune` runs a study on them, which tests the
    judge on answers that no part of tuning has seen.

    Args:
        traces: with human feedback.
        name: of the assessments.
        words: the meaning of labels that are neither yes/no, true/false, a verdict nor a rating.
        out: folder for the judge, default ``judges/<name>``.
        api_base, api_key: of the LM.
        options: what `tune` takes besides: ``lm, budget, seed, operating_point, tracking_uri`` …

    Raises:
        InputError: too few traces have feedback that can be used.
    """
    from faith_dspy.artifact import load_judge
    from faith_dspy.optimize import tune

    labels = labels_of(traces, name, words)
    if not labels.rows:
        raise InputError(
            f"no trace has a usable human assessment called {name!r}: {labels.sentence} Give traces with feedback "
            "whose source is HUMAN, or name it."
        )
    log.info("%s", labels.sentence)
    file_name = name.replace("/", "-")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{file_name}.jsonl"
        write_labels(labels.rows, path)
        study = tune(path, out=out or Path("judges", file_name), api_base=api_base, api_key=api_key, **options)
    if len(labels.rows) < labels.n:
        study = study.model_copy(update={"notes": (*study.notes, f"Of the feedback: {labels.sentence}")})
    return load_judge(study.judge_dir, api_base=api_base, api_key=api_key), study


class AlignedJudge(FaithfulnessScorer):
    """A tuned judge as an MLflow judge, with the study it comes from."""

    _study: Any = PrivateAttr()

    def __init__(self, judge: Judge, study: StudyResult, *, name: str, description: str | None = None) -> None:
        super().__init__(judge, name=name, description=description)
        self._study = study

    @property
    def study(self) -> StudyResult:
        """The study: its variants, its test, and the comparisons with the untuned judge and the baselines."""
        study: StudyResult = self._study
        return study

    @property
    def agreement(self) -> Agreement:
        """Agreement with people on answers that no part of tuning has seen."""
        return self.study.tested("champion").agreement


class FaithfulnessAlignment(AlignmentOptimizer):
    """`align` as the optimizer of MLflow's ``judge.align(traces, optimizer=…)``.

    It reads the human assessments that have the name of the MLflow judge, and returns an `AlignedJudge` of that name.
    Nothing else of the MLflow judge is used: what is tuned is the program of this package, on the LM given here.
    ``options`` are those of `align`.
    """

    def __init__(self, lm: str = "local", **options: Any) -> None:
        self._options = {"lm": lm, **options}

    def align(self, judge: MlflowJudge, traces: list[Trace]) -> AlignedJudge:
        """Tune a judge on what people said of the traces under this judge's name."""
        tuned, study = align(traces, **{"name": judge.name, **self._options})
        return AlignedJudge(tuned, study, name=judge.name, description=judge.description)
