import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.cases import CITES, LONG
from tests.support.documents import ROOT
from tests.support.judges import blue
from tests.support.needs import JAVA
from tests.support.studies import ENVIRONMENT

pytest.importorskip("pyspark")
if JAVA is None:
    pytest.skip(
        "Spark needs Java, which is not on this machine", allow_module_level=True
    )

from pyspark.sql import SparkSession, functions

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow_model import RESULT_TYPE
from faith_dspy.integrations.spark import _inputs, judge_table

pytestmark = pytest.mark.all

KEY = "sk-test-51b0d7e2c9"
CONTEXT = ["The kettle is blue."]
YES = {"It is blue.": 0.9, "It is blue [2].": 0.9, "It is red.": 0.2}
JOB = """
import sys
from pyspark.sql import SparkSession
from faith_dspy.integrations.spark import judge_table

source, judge, target = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.sql.execution.arrow.maxRecordsPerBatch": "4"}
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
table = spark.read.parquet(source).repartition(2)
judge_table(table, judge, threads=4).write.mode("overwrite").parquet(target)
"""
IN_FLIGHT = 2 * 4
TABLE = "id int, question string, context array<string>, answer string, team string"


@pytest.fixture(scope="module")
def spark(lasting_server, tmp_path_factory):
    """Two executors of one core each, as processes of their own; the LM's address and key are in their environment."""
    before = dict(os.environ)
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    settings = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.ui.enabled": "false",
        "spark.executorEnv.OPENAI_API_BASE": lasting_server.base,
        "spark.executorEnv.OPENAI_API_KEY": KEY,
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.executorEnv.DSPY_CACHEDIR": str(tmp_path_factory.mktemp("cache")),
        "spark.executorEnv.LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "spark.executorEnv.MLFLOW_DISABLE_TELEMETRY": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
        "spark.sql.shuffle.partitions": "2",
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    work = Path(session.sparkContext._jvm.System.getenv("SPARK_HOME") or "") / "work"
    app = session.sparkContext.applicationId
    yield session
    session.stop()
    shutil.rmtree(work / app, ignore_errors=True)
    os.environ.clear()
    os.environ |= before


@pytest.fixture
def server(lasting_server):
    """The endpoint of the module, with its replies as they were."""
    lasting_server.says = lasting_server._yes(YES)
    lasting_server.requests.clear()
    lasting_server.authorization.clear()
    return lasting_server


@pytest.fixture(scope="module")
def table(spark):
    """Forty answers; every fourth is missing, every fourth is one that the LM fails for."""
    answers = ["It is blue.", "It is red.", None, "It is odd."]
    return spark.createDataFrame(
        [(i, None, CONTEXT, answers[i % 4], "a") for i in range(40)], TABLE
    ).repartition(2)


@pytest.fixture(scope="module")
def untuned(tmp_path_factory):
    """Folder of an untuned judge."""
    folder = tmp_path_factory.mktemp("judge")
    Judge("openai/tiny").save(folder)
    return folder


def test_parquet_in_parquet_out(spark, server, untuned, table, tmp_path):
    """Every row comes back with its columns and a judgment; those that failed are unscored, the rest is judged."""
    table.write.parquet(str(tmp_path / "in"))
    judge_table(spark.read.parquet(str(tmp_path / "in")), untuned).write.parquet(
        str(tmp_path / "out")
    )
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [(row.id, row.team) for row in found] == [(i, "a") for i in range(40)]
    judged = [row.judgment for row in found[:4]]
    assert [(j.score, j.faithful, j.unscored) for j in judged] == [
        (1.0, True, None),
        (0.0, False, None),
        (None, None, "parse_failed"),
        (None, None, "lm_failed"),
    ]
    assert (
        judged[0].verdict_counts.fully_supported
        == judged[3].verdict_counts.unjudged
        == 1
    )
    assert judged[0].usage.calls in {
        0,
        1,
    }  # 0 where another row with the same text paid
    assert json.loads(judged[1].statements)[0]["verdict"] == "not_supported"
    assert set(server.authorization) == {f"Bearer {KEY}"}


def test_a_function(table, tmp_path):
    """Workers import it by the caller's name, not by the judge's."""
    Judge(blue).save(tmp_path / "judge")
    judged = judge_table(
        table.where("id < 3"),
        tmp_path / "judge",
        function="tests.support.judges:blue",
    )
    rows = judged.orderBy("id").collect()
    assert [row.judgment.faithful for row in rows] == [True, False, None]
    assert rows[2].judgment.unscored == "parse_failed"


def test_a_registered_judge(server, table, registry, monkeypatch):
    """A judge from the registry judges a table; filtering by the judgment pays for no row twice."""
    import mlflow

    mlflow.set_tracking_uri(registry)
    try:
        judged = judge_table(
            table.where("id < 8"), "models:/faithfulness@champion", threads=2
        )
        assert judged.where("judgment.score = 1").count() == 2
    finally:
        mlflow.set_tracking_uri(None)
    asked = [a for a in server.statements if a != "It is odd."]
    assert len(asked) <= 4


def test_mlflow_alone(spark, server, registry):
    """MLflow's own `spark_udf` gives the same rows: what is cited is checked, a long context judged in windows."""
    import mlflow

    rows = [(None, row["context"], row["answer"]) for row in (CITES, LONG)]
    columns = "question string, context array<string>, answer string"
    table = spark.createDataFrame(rows, columns)
    mlflow.set_tracking_uri(registry)
    try:
        udf = mlflow.pyfunc.spark_udf(
            spark,
            "models:/faithfulness@champion",
            result_type=RESULT_TYPE,
            params={"nested": True, "threads": 4},
            env_manager="local",
        )
        column = udf(functions.struct("question", "context", "answer")).judgment
        judged = table.select(column.alias("judgment"))
        cites, long = [row.judgment for row in judged.collect()]
    finally:
        mlflow.set_tracking_uri(None)
    citations = {
        "precision": 1.0,
        "recall": 1.0,
        "cited": 1,
        "unknown": [],
        "unchecked": 0,
    }
    assert json.loads(cites.citations) == citations
    assert (long.score, long.unscored) == (1.0, None)
    assert server.statements.count(LONG["answer"]) > 1


def test_a_killed_job_goes_on(chat_server, untuned, tmp_path):
    """Killed in the middle and run again, a job loses no row, and asks again only what was in flight."""
    import pandas as pd

    rows = [
        {"id": i, "context": [f"Kettle {i} is blue."], "answer": f"Kettle {i} is blue."}
        for i in range(120)
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "in.parquet")
    server = chat_server()
    server.delay = 0.1
    command = [sys.executable, "-c", JOB]
    command += [str(tmp_path / "in.parquet"), str(untuned), str(tmp_path / "out")]
    environment = {
        "OPENAI_API_BASE": server.base,
        "OPENAI_API_KEY": KEY,
        "DSPY_CACHEDIR": str(tmp_path / "cache"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    how = {"env": os.environ | ENVIRONMENT | environment, "cwd": tmp_path}
    log = tmp_path / "log"
    with log.open("wb") as out:
        how |= {"stdout": out, "stderr": out}
        with subprocess.Popen(command, start_new_session=True, **how) as job:
            while len(server.requests) < len(rows) // 2:
                assert job.poll() is None, log.read_text()
                time.sleep(0.05)
            os.killpg(job.pid, signal.SIGKILL)
        done = subprocess.run(command, check=False, **how)
    assert done.returncode == 0, log.read_text()
    judged = pd.read_parquet(tmp_path / "out")
    assert sorted(judged["id"]) == list(range(len(rows)))
    assert {judgment["score"] for judgment in judged["judgment"]} == {1.0}
    asked = Counter(server.statements)
    assert len(asked) == len(rows)
    assert asked.total() <= len(rows) + IN_FLIGHT


def test_types_of_context(spark):
    """Context may be one text, texts, or chunks with a text; a null chunk does not change the ids of the others."""
    for context_type, given, expected in [
        ("string", "a", ["a"]),
        ("string", None, None),
        ("array<string>", ["a", None, "b"], ["a", "", "b"]),
        (
            "array<struct<source:string,text:string>>",
            [("x", None), ("y", "b")],
            ["", "b"],
        ),
    ]:
        table = spark.createDataFrame(
            [(given, "x")], f"context {context_type}, answer string"
        )
        assert [row.context for row in table.select(*_inputs(table, ())).collect()] == [
            expected
        ]


def test_tables_that_cannot_be_judged(spark, untuned):
    """Missing columns and a column that is there already are reported before the LM is called."""
    for schema in (
        "id int, text string",
        "context array<string>, answer string, judgment int",
    ):
        with pytest.raises(
            InputError, match="; expected answer and context, and no judgment"
        ):
            judge_table(spark.createDataFrame([], schema), untuned)
