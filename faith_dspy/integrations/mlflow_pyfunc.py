"""An exported judge as an MLflow model: JSON and this file instead of a pickle.

MLflow copies this file into the model ("models from code") beside the exported folder and runs it to load the model, so
it depends on nothing but the packages it imports. The LM's key and address come from the environment; FAITH_DSPY_LM
replaces the LM the judge was tuned on. `SERVING.md` shows requests and replies.

``model_config`` may hold ``api_base`` (the LM's address), ``timeout`` and ``max_wait`` (see `Judge`), and
``replies_in_memory`` (see `limit_replies_in_memory`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel

from faith_dspy import Judge, load_judge
from faith_dspy.integrations.rows import PARAMS, JudgedRow, Row, judge_rows
from faith_dspy.runner import limit_replies_in_memory


class FaithfulnessModel(PythonModel):
    """A judge behind MLflow's ``predict``."""

    judge: Judge | None = None

    def load_context(self, context: Any) -> None:
        """Load the exported judge; its LM is not contacted before the first prediction."""
        folder = Path(context.artifacts["judge"])
        # While a model is being saved MLflow runs its example on the folder as exported: that must not call the LM.
        saved = (folder.parents[1] / "MLmodel").exists()
        if not saved:
            return
        config = context.model_config or {}
        if config.get("replies_in_memory"):
            limit_replies_in_memory(config["replies_in_memory"])
        given = {name: config.get(name) for name in ("api_base", "timeout", "max_wait")}
        self.judge = load_judge(folder, lm=os.environ.get("FAITH_DSPY_LM") or None, **given)

    def predict(self, context: Any, model_input: list[Row], params: dict[str, Any] | None = None) -> list[JudgedRow]:
        """One row per row, in order."""
        if self.judge is None:
            return []
        options = {**PARAMS, **(params or {})}
        records = (row.model_dump() for row in model_input)
        found = list(judge_rows(self.judge, records, options["threads"] or None))
        # MLflow takes the signature from the annotation; Spark and data frames want plain dictionaries.
        return cast("list[JudgedRow]", [{"judgment": row} for row in found] if options["nested"] else found)


set_model(FaithfulnessModel())
