"""Tables of any size through a judge, on Spark, by MLflow's own `mlflow.pyfunc.spark_udf`.

    judged = judge_table(spark.read.parquet("answers.parquet"), "models:/faithfulness@champion")
    judged.write.parquet("judged.parquet")

The executors call the LM: faith_dspy and MLflow are installed there, the endpoint can be reached from there, and its
key is in their environment (``spark.executorEnv.OPENAI_API_KEY``). The model that is sent to them holds no key.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from faith_dspy.errors import InputError, optional_dependency
from faith_dspy.io.inputs import columns_named
from faith_dspy.io.names import NAMES
from faith_dspy.judge import Judge
from faith_dspy.lm.make import is_local
from faith_dspy.load import open_judge
from faith_dspy.runner import REPLIES_IN_MEMORY

with optional_dependency("mlflow", "spark", "Judging on Spark"):
    import mlflow

    from faith_dspy.integrations.mlflow_model import RESULT_TYPE, signature
with optional_dependency("pyspark", "spark", "Judging on Spark"):
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as F

COLUMN = "judgment"
"""Name of the column that is added: a struct with the fields of `Judgment.to_dict`."""


def judge_table(
    table: DataFrame,
    judge: Judge | str | Path,
    *,
    lm: str | None = None,
    threads: int | None = None,
    **endpoint: Any,
) -> DataFrame:
    """Return the table with a column ``judgment``; lazy, as Spark is. `InputError` for missing columns.

    ``table``: columns ``answer`` (string), ``context`` (array of strings, or of structs with ``text``; or a string)
    and ``question`` (string, optional); all other columns stay. ``judge``, ``lm`` and ``endpoint`` (``api_base``,
    ``timeout``): as for `faith_dspy.open_judge`. ``threads``: answers in flight per worker (default 8).
    ``function``: what a judge of a function asks, ``package.module:function``; the workers import it.

    A row that cannot be judged, or whose LM fails, has the reason in ``judgment.unscored`` and never fails the job. A
    judge on the embedded model gets a single partition, as every worker would load a model of its own.
    """
    opened = open_judge(judge, lm=lm)
    inputs = _inputs(table, opened.columns)
    if any(is_local(one.lm_name) for one in opened.cascade):
        table = table.coalesce(1)
    with TemporaryDirectory() as folder:
        opened.save(f"{folder}/judge")
        mlflow.pyfunc.save_model(
            path=f"{folder}/model",
            python_model=str(Path(__file__).with_name("mlflow_model.py")),
            artifacts={"judge": f"{folder}/judge"},
            signature=signature(opened.columns),
            pip_requirements=["faith_dspy"],
            model_config={**endpoint, "replies_in_memory": REPLIES_IN_MEMORY},
        )
        udf = mlflow.pyfunc.spark_udf(
            table.sparkSession,
            f"{folder}/model",
            result_type=RESULT_TYPE,
            params={"nested": True, "threads": threads or 0},
            env_manager="local",
        )
    # Spark evaluates a deterministic function twice where the result is filtered.
    return table.withColumn(COLUMN, udf.asNondeterministic()(F.struct(*inputs))[COLUMN])


def _inputs(table: DataFrame, further: Sequence[str]) -> list[Column]:
    """Return question, context and answer, of the types that the model's signature has, and those of the ``further``
    columns that are there."""
    types = dict(table.dtypes)
    names = columns_named(types, NAMES)
    if COLUMN in types or not (names["answer"] and names["context"]):
        wanted = f"answer and context, and no {COLUMN}, which is added"
        raise InputError(
            f"the table has the columns {', '.join(types)}; expected {wanted}."
        )
    context = names["context"][0]
    if types[context].startswith("array<struct"):
        context = f"{context}.text"
    inputs = [F.col(context).alias("context")]
    for field in ("question", "answer"):
        for name in names[field][:1]:
            inputs.append(F.col(name).cast("string").alias(field))
    return inputs + [F.col(name) for name in further if name in types]
