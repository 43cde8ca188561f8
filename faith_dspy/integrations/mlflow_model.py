"""An exported judge as an MLflow model, on HTTP and as a UDF on Spark: every record becomes a row.

MLflow copies this file into the model ("models from code") beside the exported folder and runs it to load the model, so
it depends on nothing but the packages it imports: JSON and this file instead of a pickle. The LM's key and address come
from the environment; FAITH_DSPY_LM replaces the LM the judge was tuned on, and FAITH_DSPY_FUNCTION
(``package.module:function``) is the function that it asks. Requests and replies: `README.md` beside it.

``model_config`` may hold ``api_base`` (the LM's address), ``timeout`` (see `Judge`), ``function``, and
``replies_in_memory`` (see `limit_replies_in_memory`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from mlflow.models import ModelSignature, set_model
from mlflow.pyfunc.model import PythonModel
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType

from faith_dspy import Judge, Judgment, load_judge
from faith_dspy.errors import LMUnavailableError, ModelFileError
from faith_dspy.runner import limit_replies_in_memory
from faith_dspy.schema import Unscored

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


def signature(columns: Iterable[str] = ()) -> ModelSignature:
    """Return the signature of a judge that reads these columns, too (`Judge.columns`).

    Values are of any type, and any may be missing: what cannot be judged is a row that says why.
    """
    fields: list[Any] = []
    for name in ("question", "context", "answer", *columns):
        fields.append(ColSpec(AnyType(), name, required=False))  # type: ignore[no-untyped-call]
    params = [
        ParamSpec("nested", DataType.boolean, PARAMS["nested"]),
        ParamSpec("threads", DataType.long, PARAMS["threads"]),
    ]
    return ModelSignature(Schema(fields), params=ParamSchema(params))


def judge_rows(
    judge: Judge, records: Sequence[Any], threads: int | None = None
) -> list[dict[str, Any]]:
    """Return `Judgment.to_dict` of each record as a row, statements and citations as JSON. What cannot be judged, also
    for want of the LM or its file, says why.

    Raises:
        ConfigError: `threads` is not a number of threads, or the judge cannot be used as it was made.
    """
    if not records:
        return []
    try:
        judgments = judge.batch(records, threads)
    except (LMUnavailableError, ModelFileError) as exc:
        lost = Judgment(unscored=Unscored.LM_FAILED, detail=str(exc))
        judgments = [lost] * len(records)
    rows = [judgment.to_dict() for judgment in judgments]
    for row in rows:
        del row["id"], row["turn"]
        for name in ("statements", "citations"):
            if row[name] is not None:
                row[name] = json.dumps(row[name], ensure_ascii=False)
    return rows


_USAGE = (
    "struct<calls long, prompt_tokens long, cached_tokens long, output_tokens long, seconds double, "
    "dollars double>"
)
RESULT_TYPE = (
    "struct<judgment struct<score double, faithful boolean, probability double, threshold double, statement_threshold "
    "double, fitted_to string, level string, needs_review boolean, unscored string, detail string, verdict_counts "
    "struct<fully_supported long, partially_supported long, no_evidence long, contradictory long, not_supported long, "
    "unjudged long>, statements string, citations string, dropped_chunk_ids long, dropped_quotes long, fallbacks long, "
    f"stand_ins long, escalated long, usage {_USAGE}, replayed {_USAGE}>>"
)
"""For ``mlflow.pyfunc.spark_udf(…, result_type=RESULT_TYPE, params={"nested": True})``: one field, ``judgment``, that
holds a row. Without nesting, MLflow 3.17 turns null texts into 'nan' and null booleans into false as soon as another
row of the batch has a value."""


class FaithfulnessModel(PythonModel):
    """A judge behind MLflow's ``predict``."""

    judge: Judge

    def load_context(self, context: Any) -> None:
        """Load the exported judge; its LM is not contacted before the first prediction."""
        folder = Path(context.artifacts["judge"])
        config = dict(context.model_config or {})
        config.setdefault("function", os.environ.get("FAITH_DSPY_FUNCTION") or None)
        if kept := config.pop("replies_in_memory", None):
            limit_replies_in_memory(kept)
        self.judge = load_judge(
            folder, lm=os.environ.get("FAITH_DSPY_LM") or None, **config
        )

    def predict(
        self,
        context: Any,
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> list[dict[str, object]]:  # MLflow warns of a hint that says Any
        """Return one row per row, in order."""
        options = PARAMS | (params or {})
        cells = model_input.astype(object)
        records = cells.where(cells.notna(), None).to_dict("records")
        rows = judge_rows(self.judge, records, options["threads"] or None)
        return [{"judgment": row} if options["nested"] else row for row in rows]


set_model(FaithfulnessModel())
