"""Tables of any size through a judge, on Spark.

    judged = judge_table(spark.read.parquet("answers.parquet"), load_judge("models:/faithfulness@champion"))
    judged.write.parquet("judged.parquet")

The driver reads the judge and sends its few kilobytes of JSON along; each Python worker of each executor makes one
judge of them, with one LM client, and keeps it. The LM is called by the executors: faith_dspy is installed there, the
endpoint can be reached from there, and its key is in their environment (``spark.executorEnv.OPENAI_API_KEY``).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from faith_dspy.artifact import load_judge
from faith_dspy.errors import ConfigError, FaithDspyError, InputError, LMUnavailableError, MissingExtraError, in_short
from faith_dspy.integrations.rows import JudgedRow, ddl, judge_rows
from faith_dspy.io.runner import Tally
from faith_dspy.lm.make import is_local
from faith_dspy.schema import Unscored, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from faith_dspy.judge import Judge

COLUMN = "judgment"
"""Name of the column that is added: a struct with the fields of `faith_dspy.integrations.rows.JudgedRow`."""
_COLUMNS = {
    "answer": "string",
    "question": "string",
    "context": r"string|array<(string|struct<(.*,)?text:string(,.*)?>)>",
    "conversation": "array<struct<.*>>",
}
"""What a judge reads, with the types it can be of."""
_LINES = (".jsonl", ".json", ".ndjson", ".jsonl.gz")
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def judge_table(
    table: DataFrame, judge: Judge, *, threads: int | None = None, calls_per_second: float | None = None
) -> DataFrame:
    """The table with a column ``judgment``; lazy, as Spark is.

    ``table``: columns ``answer`` (string), ``context`` (array of strings, or of structs with ``text``; or a string) and
    ``question`` (string, may be missing), or ``conversation``; all others stay. ``threads``: answers in flight in a
    worker (default 8); ``calls_per_second``: most LM calls of a worker. An executor has as many workers as cores.

    A row that cannot be judged, or whose LM fails, says so in ``judgment.unscored`` and never fails the job. What Spark
    does twice, as when an executor is lost, is paid twice. A judge on the embedded model gets a single partition: every
    worker would hold a model.

    Raises `InputError` when columns are missing or of another type, `ConfigError` for a judge on an LM object.
    """
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import DataType, StructField, StructType

    _check(table)
    if any(j.asks_lm and is_local(j.lm_name) for j in judge.chain):
        table = table.coalesce(1)
    column = DataType.fromDDL(ddl(JudgedRow))
    work = partial(
        _judged, here=_packed(judge), threads=threads, calls_per_second=calls_per_second, column=to_arrow_type(column)
    )
    return table.mapInArrow(work, StructType([*table.schema.fields, StructField(COLUMN, column)]))


def judge_file(
    source: str,
    judge: Judge,
    out: str,
    *,
    threads: int | None = None,
    calls_per_second: float | None = None,
    settings: Mapping[str, str] | None = None,
) -> Tally:
    """Parquet (or JSON lines) in, Parquet out, on the Spark that is configured here; ``settings`` are added to it.

    ``source`` and ``out`` are whatever Spark reads and writes: local paths, s3a://, hdfs://… A small table is spread
    over all cores. A session that is active is used as it is. Raises `InputError` for what cannot be read or written,
    `LMUnavailableError` when the LM does not answer an executor, both before anything is judged.
    """
    started = time.monotonic()
    spark, ours = _session(settings or {})
    try:
        table = _read(spark, source)
        _check(table)
        _check_out(spark, out)
        _preflight(spark, _packed(judge))
        cores = spark.sparkContext.defaultParallelism
        if table.rdd.getNumPartitions() < cores:
            table = table.repartition(cores)
        return _write(judge_table(table, judge, threads=threads, calls_per_second=calls_per_second), out, started)
    finally:
        if ours:
            spark.stop()


def beside(source: str) -> str:
    """Where the judgments of ``source`` go when nothing else is said: ``answers.parquet`` → ``answers.judged.parquet``.

    `InputError` for a pattern, which names no one place.
    """
    if re.search(r"[*?{\[]", source):
        raise InputError(f"{source} is a pattern; say where the judgments go with --out.")
    return re.sub(r"(\.parquet|\.jsonl|\.json|\.ndjson|\.jsonl\.gz)?/*$", ".judged.parquet", source, count=1)


# On the executors


def _judged(
    batches: Iterable[Any], *, here: partial[Judge], threads: int | None, calls_per_second: float | None, column: Any
) -> Iterator[Any]:
    """The Arrow batches of a partition with their column; judged as one stream: none waits for the last of another."""
    import pyarrow as pa

    taken: deque[Any] = deque()

    def records() -> Iterator[dict[str, Any]]:
        for batch in batches:
            if batch.num_rows:
                taken.append(batch)
                yield from batch.select([n for n in batch.schema.names if n in _COLUMNS]).to_pylist()

    rows: list[dict[str, Any]] = []
    for row in judge_rows(here(), records(), threads, calls_per_second):
        rows.append(row)
        if len(rows) == taken[0].num_rows:
            batch = taken.popleft()
            names, values = [*batch.schema.names, COLUMN], [*batch.columns, pa.array(rows, type=column)]
            yield pa.RecordBatch.from_arrays(values, names)
            rows = []


@lru_cache(maxsize=2)
def _judge(files: tuple[tuple[str, bytes], ...], lm: str | None, api_base: str | None) -> Judge:
    """The judge of this Python worker: made once, kept for all its tasks."""
    with TemporaryDirectory() as folder:
        for name, content in files:
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        return load_judge(folder, lm=lm, api_base=api_base)


def _asked(_: Iterable[Any], *, here: partial[Judge]) -> Iterator[Any]:
    """One row: why the LM does not answer this executor; empty when it does."""
    import pyarrow as pa

    why = ""
    try:
        here().preflight()
    except FaithDspyError as exc:
        why = str(exc)
    yield pa.RecordBatch.from_pydict({"why": [why]})


# On the driver


def _packed(judge: Judge) -> partial[Judge]:
    """What an executor makes the judge of: its exported files, LM and address. No key."""
    if not all(isinstance(j._given, str) for j in judge.chain):
        raise ConfigError(
            "a judge on an LM object cannot be sent to executors, as the object may hold a key. Make the judge with a "
            "model string and api_base; the key comes from the executors' environment."
        )
    with TemporaryDirectory() as folder:
        judge.save(folder)
        found = [p for p in sorted(Path(folder).rglob("*")) if p.is_file()]
        files = tuple((p.relative_to(folder).as_posix(), p.read_bytes()) for p in found)
    asking = next((j for j in judge.chain if j.asks_lm), None)  # whose LM and address `load_judge` takes
    return partial(_judge, files, asking and asking.lm_name, asking and asking._api_base)


def _session(settings: Mapping[str, str]) -> tuple[SparkSession, bool]:
    """The session there is, as it is, or a new one; and whether it is new."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise MissingExtraError("pyspark", "spark", "Judging on Spark") from exc
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if (active := SparkSession.getActiveSession()) is not None:
        return active, False
    builder = SparkSession.builder.appName("faith-dspy judge")
    for key, value in {_BATCH: "500", **settings}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, OSError) as exc:
        raise FaithDspyError(f"Spark does not start ({in_short(exc)}). It needs Java 17 or newer on PATH.") from exc
    spark.sparkContext.setLogLevel("ERROR")
    return spark, True


def _read(spark: SparkSession, source: str) -> DataFrame:
    from pyspark.errors import PySparkException

    try:
        return spark.read.json(source) if source.endswith(_LINES) else spark.read.parquet(source)
    except PySparkException as exc:
        raise InputError(f"{source}: Spark cannot read it ({in_short(exc)}); expected Parquet or JSON lines.") from exc


def _check(table: DataFrame) -> None:
    types = {f.name: f.dataType.simpleString() for f in table.schema.fields}
    if "conversation" not in types and not {"answer", "context"} <= set(types):
        raise InputError(
            f"the table has the columns {', '.join(types) or '(none)'}; expected answer and context, or conversation."
        )
    if COLUMN in types:
        raise InputError(f"the table has a column {COLUMN!r} already, the name of the one to be added; rename it.")
    for name, expected in _COLUMNS.items():
        if name in types and not re.fullmatch(expected, types[name]):
            wanted = {"context": "array<string>", "conversation": "array<struct<role:string,content:string>>"}
            raise InputError(f"column {name} is {types[name]}, expected {wanted.get(name, expected)}.")


def _check_out(spark: SparkSession, out: str) -> None:
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(out)
    try:
        there = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path)
    except Exception as exc:
        raise InputError(f"--out {out}: Spark cannot write there ({in_short(exc)}).") from exc
    if there:
        raise InputError(f"--out {out}: is there already. Give another --out, or remove it.")


def _preflight(spark: SparkSession, here: partial[Judge]) -> None:
    from pyspark.errors import PySparkException

    try:
        ((why,),) = spark.range(1).coalesce(1).mapInArrow(partial(_asked, here=here), "why string").collect()
    except PySparkException as exc:
        last = str(exc).strip().rpartition("\n")[2][:200]
        raise FaithDspyError(
            f"an executor cannot make the judge ({last}). Install faith_dspy there; PYSPARK_PYTHON names its Python."
        ) from exc
    if why:
        raise LMUnavailableError(f"from an executor: {why}")


def _write(judged: DataFrame, out: str, started: float) -> Tally:
    """Write it and count on the way: nothing is read, or judged, twice."""
    from pyspark.errors import PySparkException
    from pyspark.sql import RawJudgment
    from pyspark.sql import functions as F

    found = RawJudgment()
    row, usage = F.col(COLUMN), F.col(COLUMN).usage
    counts: list[Column] = [F.count(row.score).alias("scored")]
    counts += [F.count_if(row.unscored == u.value).alias(u.value) for u in Unscored]
    counts += [F.sum(usage[k]).alias(k) for k in Usage.model_fields]
    counts.append(F.count_if((usage.calls > 0) & usage.dollars.isNull()).alias("unpriced"))
    try:
        judged.verify(found, *counts).write.parquet(out)
    except PySparkException as exc:
        raise InputError(f"--out {out}: Spark could not write it ({in_short(exc)}).") from exc
    seen = {k: v or 0 for k, v in found.get.items()}
    tally = Tally(scored=seen["scored"], seconds=time.monotonic() - started)
    tally.unscored.update({u.value: seen[u.value] for u in Unscored if seen[u.value]})
    spent = {k: seen[k] for k in Usage.model_fields}
    tally.usage = Usage.model_validate(spent | ({"dollars": None} if seen["unpriced"] else {}))
    return tally
