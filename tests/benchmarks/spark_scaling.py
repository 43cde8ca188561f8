"""How the time of a table falls with Spark's workers, when the LM takes 50 ms and nothing else is in the way.

    python -m tests.benchmarks.spark_scaling

Each row is one answer of one sentence: one LM call. Every number of workers runs in a Spark of its own (``local[N]``),
and warms its workers up on a few rows before the clock starts. What the endpoint would allow is
``workers * in flight / delay`` rows a second; where the measured rate falls short of it, the CPU of this machine is
what is left: ``cpu_seconds`` is all that Spark, Java and workers used, their start included.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.endpoint import serving

RESULT = Path(__file__).parent / "results" / "spark_scaling.json"
DELAY = 0.05
WORKERS = (1, 2, 4, 8)


def measure(workers: int, in_flight: int, rows: int, base: str) -> dict[str, Any]:
    """One Spark with so many workers: Parquet in, Parquet out."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from faith_dspy import Judge
    from faith_dspy.integrations.spark import judge_file

    builder = SparkSession.builder.master(f"local[{workers}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        judge = f"{folder}/judge"
        Judge("openai/tiny").save(judge)
        options = {"api_base": base, "threads": in_flight}
        for name, n in (("warm", 8 * workers), ("table", rows)):
            answer = F.concat(F.lit(f"In the {name} the lamp numbered "), "id", F.lit(" can be returned."))
            table = spark.range(n).select(
                "id", F.array(F.lit("Lamps can be returned within 30 days.")).alias("context"), answer.alias("answer")
            )
            table.repartition(4 * workers).write.parquet(f"{folder}/{name}.parquet")
        judge_file(f"{folder}/warm.parquet", judge, f"{folder}/warmed", **options)
        started = time.monotonic()
        tally = judge_file(f"{folder}/table.parquet", judge, f"{folder}/judged", **options)
        seconds = time.monotonic() - started
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends, and with it the workers: what they used is known then
    gateway.proc.wait(60)
    used = os.times()
    assert tally.scored == rows, tally
    ideal = workers * in_flight / DELAY
    return {
        "workers": workers,
        "in_flight_each": in_flight,
        "rows": rows,
        "seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds, 1),
        "endpoint_allows": round(ideal, 1),
        "of_that": round(rows / seconds / ideal, 2),
        "cpu_seconds": round(used.user + used.system + used.children_user + used.children_system, 1),
    }


def main() -> None:
    """Measure each number of workers in a process of its own, print a table, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--in-flight", type=int, default=2, help="answers in flight in a worker")
    parser.add_argument("--workers", type=int, nargs="*", default=WORKERS)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print("RESULT", json.dumps(measure(args.workers[0], args.in_flight, args.rows, args.one)))
        return
    found = []
    print(f"{'workers':>8}{'seconds':>9}{'rows/s':>8}{'endpoint allows':>17}{'of that':>9}")
    with serving(DELAY) as port:
        for workers in args.workers:
            with tempfile.TemporaryDirectory() as cache:  # nothing is answered from an earlier run
                command = [sys.executable, "-m", "tests.benchmarks.spark_scaling", "--workers", str(workers)]
                command += ["--rows", str(args.rows), "--in-flight", str(args.in_flight)]
                command += ["--one", f"http://127.0.0.1:{port}/v1"]
                surroundings = {**os.environ, "DSPY_CACHEDIR": cache, "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                                "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}  # fmt: skip
                done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
            line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
            if line is None:
                sys.exit(f"{workers} workers failed:\n{done.stderr[-3000:]}")
            r = json.loads(line.removeprefix("RESULT "))
            found.append(r)
            print(
                f"{workers:8}{r['seconds']:9.1f}{r['rows_per_second']:8.1f}{r['endpoint_allows']:17.1f}{r['of_that']:9.0%}"
            )
    load = os.getloadavg()
    document = {
        "what": f"{args.rows:,} answers of one sentence through faith_dspy.integrations.spark, local[N]",
        "delay_seconds": DELAY,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_average_after": round(load[0], 1),
        "runs": found,
    }
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
