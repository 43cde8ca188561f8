from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (extra spark)")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java, which is not on this machine", allow_module_level=True)

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from faith_dspy import Judge, cli
from faith_dspy.errors import ConfigError, InputError, LMUnavailableError
from faith_dspy.integrations.rows import RESULT_TYPE
from faith_dspy.integrations.spark import _packed, beside, judge_file, judge_table

KEY = "sk-test-51b0d7e2c9"
CONTEXT = ["The kettle is blue."]
YES = {"It is blue.": 0.9, "It is red.": 0.2}
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


@pytest.fixture
def table(spark):
    """Makes tables of answers; every fourth has none, every fourth is one that the LM fails for."""

    def make(n, partitions=2):
        answers = ["It is blue.", "It is red.", None, "It is odd."]
        rows = [(i, None, CONTEXT, answers[i % 4], "a") for i in range(n)]
        return spark.createDataFrame(rows, TABLE).repartition(partitions)

    return make


def test_parquet_in_parquet_out(spark, server, table, tmp_path):
    """Every row comes back with its columns and a judgment; those that failed are unscored, the rest is judged."""
    source, out = str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet")
    table(40).write.parquet(source)
    tally = judge_file(source, Judge("openai/tiny"), out)
    found = spark.read.parquet(out).orderBy("id").collect()
    assert [row.id for row in found] == list(range(40))
    assert {row.team for row in found} == {"a"}
    judged = [row.judgment for row in found[:4]]
    assert [j.score for j in judged] == [1.0, 0.0, None, None]
    assert [j.faithful for j in judged] == [True, False, None, None]
    assert [j.unscored for j in judged] == [None, None, "parse_failed", "lm_failed"]
    assert judged[0].verdict_counts.fully_supported == judged[3].verdict_counts.unjudged == 1
    assert (judged[0].usage.calls, judged[0].usage.prompt_tokens) == (1, 100)
    assert json.loads(judged[1].statements)[0]["verdict"] == "not_supported"
    assert (tally.rows, tally.scored, dict(tally.unscored)) == (40, 20, {"parse_failed": 10, "lm_failed": 10})
    assert (tally.usage.calls, tally.usage.prompt_tokens) == (20, 2000)
    assert set(server.authorization) == {f"Bearer {KEY}"}


def test_the_registered_judge_as_a_udf(spark, server, table, registry, monkeypatch):
    """MLflow's `spark_udf` gives the same rows: nulls stay nulls beside rows that have values."""
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry)
    mlflow.set_tracking_uri(registry)
    try:
        udf = mlflow.pyfunc.spark_udf(
            spark,
            "models:/faithfulness@champion",
            result_type=RESULT_TYPE,
            params={"nested": True, "threads": 2},
            env_manager="local",
        )
    finally:
        mlflow.set_tracking_uri(None)
    made = udf(F.struct("question", "context", "answer")).judgment
    rows = table(8).withColumn("judgment", made).orderBy("id").collect()
    judged = [row.judgment for row in rows[:4]]
    assert [j.score for j in judged] == [1.0, 0.0, None, None]
    assert [j.faithful for j in judged] == [True, False, None, None]
    assert [j.unscored for j in judged] == [None, None, "parse_failed", "lm_failed"]
    assert judged[0].verdict_counts.fully_supported == 1
    assert judged[0].usage.prompt_tokens == 100


def test_a_worker_keeps_its_judge_and_its_limit(spark, server, table):
    """Two workers of three answers each: never more than six calls at once, and each worker makes one judge."""
    now, most, lock = [0], [0], threading.Lock()

    def say(asked):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with lock:
            now[0] -= 1
        return "Yes"

    server.says = say
    judge = Judge("openai/tiny", system_prompt="Another judge than the other tests'.")
    answers = table(64).withColumn("answer", F.concat(F.lit("Kettle "), "id", F.lit(" is blue.")))
    judged = judge_table(answers, judge, threads=3)
    assert judged.where("judgment.score = 1").count() == 64
    assert 3 < most[0] <= 6

    def ask(batches, here):
        import pyarrow as pa

        from faith_dspy.integrations.spark import _judge

        before = _judge.cache_info().misses
        here()
        yield pa.RecordBatch.from_pydict({"made": [_judge.cache_info().misses - before]})

    made = spark.range(2).repartition(2).mapInArrow(partial(ask, here=_packed(judge)), "made long").collect()
    assert [row.made for row in made] == [0, 0]


def test_the_command_line(spark, server, table, tmp_path, monkeypatch, capsys):
    """`judge --engine spark` writes beside its input and says what it came to; an exported folder judges there too."""
    table(4).write.parquet(str(tmp_path / "in.parquet"))
    Judge("openai/tiny").save(tmp_path / "judge")
    args = ["judge", str(tmp_path / "in.parquet"), "--judge", str(tmp_path / "judge"), "--engine", "spark"]
    monkeypatch.setattr(sys, "argv", ["faith-dspy", *args])
    cli.app(args, standalone_mode=False)
    assert "4 judged: 2 scored, 2 unscored" in capsys.readouterr().err
    assert spark.read.parquet(str(tmp_path / "in.judged.parquet")).count() == 4
    monkeypatch.setattr(sys, "argv", ["faith-dspy", *args])
    with pytest.raises(InputError, match="is there already"):
        cli.app(args, standalone_mode=False)


def test_json_lines(spark, server, tmp_path):
    """JSON lines are read too; a line that is none is a row without a score."""
    lines = [json.dumps({"context": CONTEXT, "answer": "It is blue."}), '{"context": [']
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    tally = judge_file(str(tmp_path / "in.jsonl"), Judge("openai/tiny"), str(tmp_path / "out.parquet"))
    assert (tally.scored, dict(tally.unscored)) == (1, {"parse_failed": 1})


def test_tables_that_cannot_be_judged(spark, tmp_path):
    """A missing file, missing columns and columns of another type are told before anything is asked."""
    judge = Judge("openai/tiny")
    with pytest.raises(InputError, match="Spark cannot read it"):
        judge_file(str(tmp_path / "none.parquet"), judge, str(tmp_path / "out"))
    for schema, told in {
        "id int, text string": "the table has the columns id, text; expected answer and context",
        "context array<string>, answer int": "column answer is int, expected string",
        "context map<string,string>, answer string": "column context is map<string,string>, expected array<string>",
        "context array<string>, answer string, judgment int": "has a column 'judgment' already",
    }.items():
        with pytest.raises(InputError, match=told):
            judge_table(spark.createDataFrame([], schema), judge)


def test_an_endpoint_that_is_not_there_is_found_before_any_row(spark, table, tmp_path):
    """The first thing an executor does is to ask the LM for a sign of life."""
    table(4).write.parquet(str(tmp_path / "in"))
    with pytest.raises(LMUnavailableError, match="from an executor: connection refused"):
        judge_file(str(tmp_path / "in"), Judge("openai/tiny", api_base="http://127.0.0.1:9/v1"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_no_key_is_sent():
    """A judge is sent as files, LM and address; one whose LM is an object, which may hold a key, is refused."""
    import pickle

    from faith_dspy.lm import make_lm

    assert KEY.encode() not in pickle.dumps(_packed(Judge("openai/tiny", api_key=KEY)))
    with pytest.raises(ConfigError, match="model string"):
        _packed(Judge(make_lm("openai/tiny", api_key=KEY)))


@pytest.mark.parametrize(
    ("source", "there"),
    [
        ("a/answers.parquet", "a/answers.judged.parquet"),
        ("s3a://bucket/answers/", "s3a://bucket/answers.judged.parquet"),
        ("answers.jsonl", "answers.judged.parquet"),
    ],
)
def test_judgments_lie_beside_their_answers(source, there):
    """Without --out the name of the input says where they go."""
    assert beside(source) == there


def test_a_pattern_has_no_place_beside_it():
    """Many files have no one name."""
    with pytest.raises(InputError, match="--out"):
        beside("answers/*.parquet")
