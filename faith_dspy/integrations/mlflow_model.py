"""An exported judge as an MLflow model, on HTTP and as a UDF on Spark: every record becomes a row.

MLflow copies this file into the model ("models from code") beside the exported folder and runs it to load the model, so
it depends on nothing but the packages it imports: JSON and this file instead of a pickle. The LM's key and address come
from the environment; FAITH_DSPY_LM replaces the LM the judge was tuned on. Requests and replies: `README.md` beside it.

``model_config`` may hold ``api_base`` (the LM's address), ``timeout`` (see `Judge`), and
``replies_in_memory`` (see `limit_replies_in_memory`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_args

from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel
from pydantic import BaseModel

from faith_dspy import Judge, Judgment, load_judge
from faith_dspy.errors import FaithDspyError
from faith_dspy.runner import limit_replies_in_memory
from faith_dspy.schema import Unscored, Usage

PARAMS = {"nested": False, "threads": 0}
"""Parameters of a request: whether each row is nested under ``judgment``, as `RESULT_TYPE` needs it; answers judged at
the same time (0: the judge's default)."""
EXAMPLE = [
    {
        "question": "When did the museum open?",
        "context": [],
        "answer": "The museum opened in 1932.",
    }
]
"""A request, for a model's signature; without a context no LM is asked when MLflow tries it."""


class Row(BaseModel):
    """One answer to judge. All fields are optional, so that a row without an answer fails no other row."""

    question: str | None = None
    context: list[str] | None = None
    answer: str | None = None


class VerdictCounts(BaseModel):
    """Statements per verdict."""

    fully_supported: int = 0
    partially_supported: int = 0
    no_evidence: int = 0
    contradictory: int = 0
    not_supported: int = 0
    unjudged: int = 0


class JudgedRow(BaseModel, extra="forbid"):
    """`Judgment.to_dict` of one answer, its statements as JSON."""

    score: float | None = None
    faithful: bool | None = None
    probability: float | None = None
    threshold: float | None = None
    statement_threshold: float | None = None
    fitted_to: str | None = None
    level: str | None = None
    needs_review: bool | None = None
    unscored: str | None = None
    detail: str | None = None
    verdict_counts: VerdictCounts = VerdictCounts()
    statements: str = "[]"
    citations: str | None = None
    dropped_chunk_ids: int = 0
    dropped_quotes: int = 0
    fallbacks: int = 0
    stand_ins: int = 0
    escalated: int = 0
    usage: Usage = Usage()
    replayed: Usage = Usage()


def judge_rows(
    judge: Judge, records: Sequence[Any], threads: int | None = None
) -> list[dict[str, Any]]:
    """Return a `JudgedRow` as a dictionary for each record. What cannot be judged, also for want of an LM, says why."""
    try:
        judgments = judge.batch(records, threads)
    except FaithDspyError as exc:  # the LM cannot be made
        judgments = [Judgment(unscored=Unscored.LM_FAILED, detail=str(exc))] * len(
            records
        )
    rows = [judgment.to_dict() for judgment in judgments]
    for row in rows:
        del row["id"]
        row["statements"] = json.dumps(row["statements"], ensure_ascii=False)
        row["citations"] = row["citations"] and json.dumps(
            row["citations"], ensure_ascii=False
        )
    return rows


def _spark_type(model: type[BaseModel]) -> str:
    names = {float: "double", bool: "boolean", int: "long", str: "string"}
    fields = []
    for name, field in model.model_fields.items():
        kind = next(
            k
            for k in (*get_args(field.annotation), field.annotation)
            if k is not NoneType
        )
        fields.append(f"{name} {names.get(kind) or _spark_type(kind)}")
    return f"struct<{', '.join(fields)}>"


RESULT_TYPE = f"struct<judgment {_spark_type(JudgedRow)}>"
"""For ``mlflow.pyfunc.spark_udf(…, result_type=RESULT_TYPE, params={"nested": True})``: one field, ``judgment``, that
holds a `JudgedRow`. Without nesting, MLflow 3.17 turns null texts into 'nan' and null booleans into false as soon as
another row of the batch has a value."""


class FaithfulnessModel(PythonModel):
    """A judge behind MLflow's ``predict``."""

    judge: Judge | None = None

    def load_context(self, context: Any) -> None:
        """Load the exported judge; its LM is not contacted before the first prediction."""
        folder = Path(context.artifacts["judge"])
        # While a model is being saved MLflow runs its example on the folder as exported: that must not call the LM.
        if not (folder.parents[1] / "MLmodel").exists():
            return
        config = dict(context.model_config or {})
        if kept := config.pop("replies_in_memory", None):
            limit_replies_in_memory(kept)
        self.judge = load_judge(
            folder, lm=os.environ.get("FAITH_DSPY_LM") or None, **config
        )

    def predict(
        self, context: Any, model_input: list[Row], params: dict[str, Any] | None = None
    ) -> list[JudgedRow]:
        """Return one row per row, in order."""
        if self.judge is None:
            return []
        options = {**PARAMS, **(params or {})}
        found = judge_rows(
            self.judge,
            [row.model_dump() for row in model_input],
            options["threads"] or None,
        )
        # MLflow takes the signature from the annotation; Spark and data frames want plain dictionaries.
        return cast(
            "list[JudgedRow]",
            [{"judgment": row} for row in found] if options["nested"] else found,
        )


set_model(FaithfulnessModel())
