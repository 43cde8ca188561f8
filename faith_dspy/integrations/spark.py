"""Tables of any size through a judge, on Spark, by MLflow's own `mlflow.pyfunc.spark_udf`.

    judged = judge_table(spark.read.parquet("answers.parquet"), "models:/faithfulness@champion")
    judged.write.parquet("judged.parquet")

The executors call the LM: faith_dspy and MLflow are installed there, the endpoint can be reached from there, and its
key is in their environment (``spark.executorEnv.OPENAI_API_KEY``). The model that is sent to them holds no key.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import FaithDspyError, InputError, in_short, needs
from faith_dspy.export import load_judge
from faith_dspy.integrations.mlflow_model import EXAMPLE, PARAMS, RESULT_TYPE
from faith_dspy.io.records import NAMES
from faith_dspy.lm.make import is_local
from faith_dspy.runner import REPLIES_IN_MEMORY, Tally
from faith_dspy.schema import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

COLUMN = "judgment"
"""Name of the column that is added: a struct with the fields of `faith_dspy.integrations.mlflow_model.JudgedRow`."""
_LINES = (".jsonl", ".json", ".ndjson", ".jsonl.gz")


def judge_table(
    table: DataFrame,
    judge: str | Path,
    *,
    lm: str | None = None,
    api_base: str | None = None,
    timeout: float | None = None,
    threads: int | None = None,
) -> DataFrame:
    """The table with a column ``judgment``; lazy, as Spark is.

    ``table``: columns ``answer`` (string), ``context`` (array of strings, or of structs with ``text``; or a string)
    and ``question`` (string, optional); all other columns stay. ``judge``, ``lm``, ``api_base``,
    ``timeout``: as for `faith_dspy.load_judge`. ``threads``: answers in flight per worker (default 8).
    An executor has as many workers as cores.

    A row that cannot be judged, or whose LM fails, has the reason in ``judgment.unscored`` and never fails the job. A
    task that Spark repeats is paid for again. A judge on the embedded model gets a single partition, as every worker
    would load a model of its own.

    Raises `InputError` for missing columns.
    """
    import mlflow
    from pyspark.sql import functions as F

    inputs = _inputs(table)
    found = load_judge(judge, lm=lm)
    if any(j.asks_lm and is_local(j.lm_name) for j in found.chain):
        table = table.coalesce(1)
    with TemporaryDirectory() as folder:
        found.save(f"{folder}/judge")
        mlflow.pyfunc.save_model(
            path=f"{folder}/model",
            python_model=str(Path(__file__).with_name("mlflow_model.py")),
            artifacts={"judge": f"{folder}/judge"},
            input_example=(EXAMPLE, PARAMS),
            pip_requirements=["faith_dspy"],
            model_config={
                "api_base": api_base,
                "timeout": timeout,
                "replies_in_memory": REPLIES_IN_MEMORY,
            },
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


def judge_file(
    source: str, judge: str | Path, out: str, *, settings: Mapping[str, str] | None = None, **options: Any
) -> Tally:
    """Parquet (or JSON lines) in, Parquet out, on the Spark that is configured here; ``settings`` are added to it.

    ``source`` and ``out`` are whatever Spark reads and writes: local paths, s3a://, hdfs://… A small table is spread
    over all cores. ``options`` are those of `judge_table`. An active session is used as it is. Raises `InputError`
    for a table that cannot be read, judged or written.
    """
    with needs("pyspark", "spark", "Judging on Spark"):
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    started = time.monotonic()
    active = SparkSession.getActiveSession()
    try:
        spark = active or _new_session(settings or {})
    except (PySparkException, OSError) as exc:
        raise FaithDspyError(f"Spark does not start ({in_short(exc)}). It needs Java 17 or newer on PATH.") from exc
    try:
        table = spark.read.json(source) if source.endswith(_LINES) else spark.read.parquet(source)
        cores = spark.sparkContext.defaultParallelism
        if table.rdd.getNumPartitions() < cores:
            table = table.repartition(cores)
        judge_table(table, judge, **options).write.parquet(out)
        return _tally(spark.read.parquet(out), time.monotonic() - started)
    except PySparkException as exc:
        raise InputError(f"Spark cannot judge {source} into {out} ({in_short(exc)}).") from exc
    finally:
        if active is None:
            spark.stop()


def beside(source: str) -> str:
    """Where the judgments of ``source`` go by default: ``answers.parquet`` → ``answers.judged.parquet``.

    `InputError` for a pattern, which names several files.
    """
    if re.search(r"[*?{\[]", source):
        raise InputError(f"{source} is a pattern; say where the judgments go with --out.")
    return re.sub(r"(\.parquet|\.jsonl|\.json|\.ndjson|\.jsonl\.gz)?/*$", ".judged.parquet", source, count=1)


def _inputs(table: DataFrame) -> list[Column]:
    """Question, context and answer, of the types that the model's signature has."""
    from pyspark.sql import functions as F

    types = dict(table.dtypes)
    names = {field: next((n for n in given if n in types), None) for field, given in NAMES.items()}
    if not (names["answer"] and names["context"]):
        raise InputError(f"the table has the columns {', '.join(types) or '(none)'}; expected answer and context.")
    column, kind = names["context"], types[names["context"]]
    if COLUMN in types:
        raise InputError(f"the table already has a column {COLUMN!r}, the name of the one to be added; rename it.")
    context = F.col(f"{column}.text") if kind.startswith("array<struct") else F.col(column)
    if kind == "string":
        context = F.when(context.isNotNull(), F.array(context))
    context = F.transform(context, lambda chunk: F.coalesce(chunk, F.lit("")))  # chunk ids are positions
    question = F.col(names["question"]) if names["question"] else F.lit(None)
    texts = {"question": question.cast("string"), "context": context, "answer": F.col(names["answer"]).cast("string")}
    return [column.alias(name) for name, column in texts.items()]


def _new_session(settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("faith-dspy judge")
    for key, value in {"spark.sql.execution.arrow.maxRecordsPerBatch": "500", **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _tally(judged: DataFrame, seconds: float) -> Tally:
    from pyspark.sql import functions as F

    sums = {name: F.sum(f"{COLUMN}.usage.{name}").alias(name) for name in Usage.model_fields if name != "dollars"}
    tally = Tally(seconds=seconds)
    for row in judged.groupBy(f"{COLUMN}.unscored").agg(F.count("*").alias("n"), *sums.values()).collect():
        if row.unscored is None:
            tally.scored = row.n
        else:
            tally.unscored[row.unscored] = row.n
        tally.usage += Usage.model_validate({name: row[name] for name in sums})
    return tally
