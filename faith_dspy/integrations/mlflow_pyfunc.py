"""An exported judge as an MLflow model: JSON and this file instead of a pickle.

MLflow copies this file into the model ("models from code") beside the exported folder and runs it to load the model, so
it must stand alone but for the packages it imports. The LM's key and address come from the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel
from pydantic import BaseModel

from faith_dspy import Judge, Judgment, load_judge


class Row(BaseModel):
    """One answer to judge."""

    question: str | None = None
    context: list[str]
    answer: str


class Finding(BaseModel):
    """What is found of it; all but ``unscored`` and ``statements`` are None when it is unscored."""

    score: float | None = None
    faithful: bool | None = None
    probability: float | None = None
    level: str | None = None
    unscored: str | None = None
    statements: str
    """JSON: a list of statements with verdict, chunk ids, quotes, confidence."""


class FaithfulnessModel(PythonModel):
    """A judge behind MLflow's ``predict``."""

    judge: Judge | None = None

    def load_context(self, context: Any) -> None:
        """Load the exported judge; its LM is not contacted before the first prediction."""
        folder = Path(context.artifacts["judge"])
        # While a model is being saved MLflow tries its example on the folder as exported: no LM is paid for that.
        saved = (folder.parents[1] / "MLmodel").exists()
        self.judge = load_judge(folder) if saved else None

    def predict(self, context: Any, model_input: list[Row], params: dict[str, Any] | None = None) -> list[Finding]:
        """One finding per row, in order."""
        if self.judge is None:
            return []
        found = [_finding(j) for j in self.judge.batch(row.model_dump() for row in model_input)]
        # MLflow takes the signature from the annotation; Spark and data frames want plain dictionaries.
        return cast("list[Finding]", found)


def _finding(judgment: Judgment) -> dict[str, Any]:
    statements = [s.model_dump_json(exclude={"signals"}) for s in judgment.statements]
    fields = judgment.model_dump(mode="json", include=set(Finding.model_fields) - {"statements"})
    return fields | {"statements": f"[{', '.join(statements)}]"}


set_model(FaithfulnessModel())
