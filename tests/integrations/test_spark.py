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

from tests.support.documents import ROOT
from tests.support.judges import blue
from tests.support.needs import JAVA
from tests.support.studies import ENVIRONMENT

pytest.importorskip("pyspark")
if JAVA is None:
    pytest.skip(
        "Spark needs Java, which is not on this machine", allow_module_level=True
    )

import mlflow
import pandas as pd
from pyspark.sql import SparkSession, functions

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.integrations.mlflow_model import RESULT_TYPE
from faith_dspy.integrations.spark import judge_table

pytestmark = pytest.mark.all

KEY = "sk-test-51b0d7e2c9"
YES = {"It is blue.": 0.9, "It is red.": 0.2}
ANSWERS = [*YES, None, "It is odd."]
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
LOCAL = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def environment(server, cache):
    """Of what judges: the LM's address and key."""
    return {
        "OPENAI_API_BASE": server.base,
        "OPENAI_API_KEY": KEY,
        "PYTHONPATH": str(ROOT),
        "DSPY_CACHEDIR": str(cache),
        **LOCAL,
        **ENVIRONMENT,
    }


@pytest.fixture(scope="module")
def spark(lasting_server, tmp_path_factory):
    """Two executors of one core each, as processes of their own."""
    executor = environment(lasting_server, tmp_path_factory.mktemp("cache"))
    settings = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.ui.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
        "spark.sql.shuffle.partitions": "2",
        **{f"spark.executorEnv.{name}": value for name, value in executor.items()},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LOCAL.items():
            patch.setenv(name, value)
        session = SparkSession.builder.config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        home = session.sparkContext._jvm.System.getenv("SPARK_HOME") or ""
        app = session.sparkContext.applicationId
        yield session
        session.stop()
        shutil.rmtree(Path(home, "work", app), ignore_errors=True)


@pytest.fixture(autouse=True)
def server(lasting_server):
    """The endpoint of the module, with its replies as they were."""
    lasting_server.says = lasting_server._yes(YES)
    lasting_server.requests.clear()
    return lasting_server


@pytest.fixture(scope="module")
def table(spark):
    """Forty answers; every fourth is missing, every fourth is one that the LM fails for."""
    rows = [(i, ["The kettle is blue."], ANSWERS[i % 4], "a") for i in range(40)]
    columns = "id int, context array<string>, answer string, team string"
    return spark.createDataFrame(rows, columns).repartition(2)


@pytest.fixture(scope="module")
def untuned(tmp_path_factory):
    """Folder of an untuned judge."""
    folder = tmp_path_factory.mktemp("judge")
    Judge("openai/tiny").save(folder)
    return folder


OUTCOMES = [(1.0, None), (0.0, None), (None, "parse_failed"), (None, "lm_failed")]


def outcomes(judged):
    """Score or reason of the first four rows."""
    rows = [row.judgment for row in judged.orderBy("id").collect()[:4]]
    return [(judgment.score, judgment.unscored) for judgment in rows]


def test_parquet_in_parquet_out(spark, server, untuned, table, tmp_path):
    """Every row comes back with its columns and a judgment; those that failed are unscored, the rest is judged."""
    source, target = str(tmp_path / "in"), str(tmp_path / "out")
    table.write.parquet(source)
    judge_table(spark.read.parquet(source), untuned).write.parquet(target)
    judged = spark.read.parquet(target)
    assert outcomes(judged) == OUTCOMES
    rows = judged.orderBy("id").collect()
    assert [(row.id, row.team) for row in rows] == [(i, "a") for i in range(40)]
    first, second, _, failed = [row.judgment for row in rows[:4]]
    assert first.faithful
    assert first.verdict_counts.fully_supported == 1
    assert failed.verdict_counts.unjudged == 1
    assert first.usage.calls <= 1  # none where another row with the same text paid
    assert json.loads(second.statements)[0]["verdict"] == "not_supported"
    assert set(server.keys) == {f"Bearer {KEY}"}


def test_a_function(table, tmp_path):
    """Workers import it by the caller's name, not by the judge's."""
    Judge(blue).save(tmp_path / "judge")
    name = "tests.support.judges:blue"
    judged = judge_table(table.where("id < 4"), tmp_path / "judge", function=name)
    assert [score for score, _ in outcomes(judged)] == [1.0, 0.0, None, 0.0]


def test_a_registered_judge(server, table, registry, monkeypatch):
    """A judge from the registry judges a table, and filtering by the judgment pays for no row twice; MLflow's own
    `spark_udf` gives the same rows."""
    address = "models:/faithfulness@champion"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry)
    judged = judge_table(table.where("id < 8"), address, threads=2)
    assert judged.where("judgment.score = 1").count() == 2
    asked = [a for a in server.statements if a != "It is odd."]
    assert len(asked) <= 4
    udf = mlflow.pyfunc.spark_udf(
        table.sparkSession,
        address,
        result_type=RESULT_TYPE,
        params={"nested": True, "threads": 4},
        env_manager="local",
    )
    column = udf(functions.struct("context", "answer")).judgment
    assert outcomes(table.where("id < 4").withColumn("judgment", column)) == OUTCOMES


def test_a_killed_job_goes_on(chat_server, untuned, tmp_path):
    """Killed in the middle and run again, a job loses no row, and asks again only what was in flight."""
    answers = [f"Kettle {i} is blue." for i in range(120)]
    rows = [{"id": i, "context": [a], "answer": a} for i, a in enumerate(answers)]
    pd.DataFrame(rows).to_parquet(tmp_path / "in.parquet")
    server = chat_server()
    server.delay = 0.1
    command = [sys.executable, "-c", JOB]
    command += [str(tmp_path / "in.parquet"), str(untuned), str(tmp_path / "out")]
    env = os.environ | environment(server, tmp_path / "cache")
    log = tmp_path / "log"
    with log.open("wb") as out:
        how = {"env": env, "cwd": tmp_path, "stdout": out, "stderr": out}
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
    """Context may be chunks with a text; a null chunk does not change the ids of the others."""
    context = [("x", None), ("y", ""), ("z", "It is blue.")]
    rows = [(1, context, "It is blue."), (2, None, "It is blue.")]
    columns = "id int, context array<struct<source:string,text:string>>, answer string"
    table = spark.createDataFrame(rows, columns)
    row, bare = judge_table(table, "none").orderBy("id").collect()
    (statement,) = json.loads(row.judgment.statements)
    assert statement["supporting_chunk_ids"] == [2]
    assert bare.judgment.unscored == "no_context"


def test_tables_that_cannot_be_judged(spark, untuned):
    """Missing columns and a column that is there already are reported before the LM is called."""
    why = "; expected answer and context, and no judgment"
    for schema in ("text string", "context string, answer string, judgment int"):
        with pytest.raises(InputError, match=why):
            judge_table(spark.createDataFrame([], schema), untuned)
