"""People's feedback on traces in MLflow → a tuned judge, with its agreement on feedback it has not seen.

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

from faith_dspy.errors import InputError, MissingExtraError
from faith_dspy.integrations.mlflow_scorer import FaithfulnessScorer
from faith_dspy.optimize.data.imported import write_labels
from faith_dspy.optimize.tracking.feedback import NAME, labels_of

try:
    from mlflow.genai.judges import AlignmentOptimizer
except ModuleNotFoundError as exc:
    raise MissingExtraError("mlflow", "tune", "aligning an MLflow judge") from exc

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
    """Tune a judge on the human assessments called ``name``, and say how far it agrees with those it did not see.

    The feedback becomes labels (`labels_of`), these are split by context into train, dev and test, and a study runs as
    `faith_dspy.optimize.tune` does, which takes ``options`` (lm, budget, seed, operating_point, tracking_uri …). ``words``: what
    labels mean that are neither yes/no, true/false, a verdict nor a rating. ``out``: folder for the judge, default
    ``judges/<name>``.

    Raises `InputError` where too few traces have feedback that can be used.
    """
    from faith_dspy.artifact import load_judge
    from faith_dspy.optimize import tune

    pulled = labels_of(traces, name, words)
    if not pulled.rows:
        raise InputError(
            f"no trace has a usable human assessment called {name!r}: {pulled.sentence} Give traces with feedback "
            "whose source is HUMAN, or name it."
        )
    log.info("%s", pulled.sentence)
    out = Path("judges") / name.replace("/", "-") if out is None else Path(out)
    with tempfile.TemporaryDirectory() as folder:
        labels = Path(folder) / f"{name.replace('/', '-')}.jsonl"
        write_labels(pulled.rows, labels)
        study = tune(labels, out=out, api_base=api_base, api_key=api_key, **options)
    if len(pulled.rows) < pulled.n:
        study.notes.append(f"Of the feedback: {pulled.sentence}")
    return load_judge(study.judge_dir, api_base=api_base, api_key=api_key), study


class AlignedJudge(FaithfulnessScorer):
    """A tuned judge as an MLflow judge, with the study it comes from."""

    _study: Any = PrivateAttr()

    def __init__(self, judge: Judge, study: StudyResult, *, name: str, description: str | None = None) -> None:
        super().__init__(judge, name=name, description=description)
        self._study = study

    @property
    def study(self) -> StudyResult:
        """Variants, test, comparisons with the untuned judge and the baselines, and what to know beside the figures."""
        found: StudyResult = self._study
        return found

    @property
    def agreement(self) -> Agreement:
        """With people, on answers no part of tuning has seen."""
        return self.study.tested("champion").agreement


class FaithfulnessAlignment(AlignmentOptimizer):
    """`align` as the optimizer of MLflow's ``judge.align(traces, optimizer=…)``.

    It takes any MLflow judge of single answers, reads the human assessments of its name, and returns an `AlignedJudge`
    of that name. Of the judge that is aligned nothing but the name is used: what is tuned is our own program, on the LM
    given here. ``options`` are those of `align`.
    """

    def __init__(self, lm: str = "local", **options: Any) -> None:
        self._options = {"lm": lm, **options}

    def align(self, judge: MlflowJudge, traces: list[Trace]) -> AlignedJudge:
        """A judge tuned on what people said of the traces under this judge's name."""
        tuned, study = align(traces, **{"name": judge.name, **self._options})
        return AlignedJudge(tuned, study, name=judge.name, description=judge.description)
