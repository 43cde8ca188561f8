"""An exported judge as an MLflow model: JSON and this file instead of a pickle.

MLflow copies this file into the model ("models from code") beside the exported folder and runs it to load the model, so
it must stand alone but for the packages it imports. The LM's key and address come from the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel
from pydantic import BaseModel

from faith_dspy import Judge, Judgment, load_judge


class Row(BaseModel):
    """One answer to judge."""

    question: str | None = None
    context: list[str]
    answer: str


class FaithfulnessModel(PythonModel):
    """A judge behind MLflow's ``predict``."""

    judge: Judge | None = None

    def load_context(self, context: Any) -> None:
        """Load the exported judge; its LM is not contacted before the first prediction."""
        folder = Path(context.artifacts["judge"])
        # While a model is being saved MLflow tries its example on the folder as exported: no LM is paid for that.
        saved = (folder.parents[1] / "MLmodel").exists()
        self.judge = load_judge(folder) if saved else None

    def predict(
        self, context: Any, model_input: list[Row], params: dict[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """One finding per row, in order. All but ``unscored`` and ``statements`` are None when it is unscored."""
        if self.judge is None:
            return []
        return [_finding(j) for j in self.judge.batch(row.model_dump() for row in model_input)]


def _finding(judgment: Judgment) -> dict[str, Any]:
    fields = {"score", "faithful", "probability", "level", "unscored"}
    statements = [s.model_dump_json(exclude={"signals"}) for s in judgment.statements]
    return judgment.model_dump(mode="json", include=fields) | {"statements": f"[{', '.join(statements)}]"}


set_model(FaithfulnessModel())
