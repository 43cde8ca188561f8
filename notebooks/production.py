"""From labels to production, in an empty folder: tune, register, load, serve, judge tables on Spark, evaluate.

    python notebooks/production.py                                    # the embedded model; half an hour on two cores
    python notebooks/production.py --lm openai/NAME --api-base http://127.0.0.1:8000/v1

Run it from the source tree, with the extras `tune` and `spark` (and `local` for the embedded model) and Java 17. Every
step is the command or the call a user would make, and stops the script when it does not come out right.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
CHAMPION = "models:/faithfulness@champion"
QUESTION = "How long may I return a lamp?"
CONTEXT = [
    "Lamps can be returned within 30 days, with the receipt.",
    "Sale items are exchanged only.",
]
ANSWERS = [
    "You can return a lamp within 30 days.",
    "You can return a lamp within 90 days. Shipping is free.",
]
ROWS = [{"question": QUESTION, "context": CONTEXT, "answer": a} for a in ANSWERS]


def step(text: str) -> None:
    """Say what comes."""
    print(f"\n== {time.strftime('%H:%M:%S')} {text}", flush=True)


def run(*command: str) -> None:
    """A command in the folder; its output is shown, its failure ends the script."""
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True)


@contextmanager
def process(*command: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command in the background, for the length of the block."""
    started = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield started
    finally:
        os.killpg(started.pid, 15)
        started.wait()


def served() -> None:
    """`mlflow models serve`, asked over HTTP: a batch, one row, and a row that cannot be judged."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{(port := free.getsockname()[1])}"
    serve = (
        "mlflow",
        "models",
        "serve",
        "-m",
        CHAMPION,
        "--env-manager",
        "local",
        "--host",
        "127.0.0.1",
    )
    with process(*serve, "--port", str(port)) as server:
        for _ in range(600):
            if server.poll() is not None:
                sys.exit("the server did not start")
            try:
                if httpx.get(f"{base}/ping").is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        for rows in (ROWS, ROWS[:1], [{"context": CONTEXT}]):
            reply = httpx.post(
                f"{base}/invocations", json={"inputs": rows}, timeout=600
            )
            found = reply.raise_for_status().json()["predictions"]
            assert len(found) == len(rows)
            for row in found:
                print(
                    {
                        k: row[k]
                        for k in (
                            "score",
                            "faithful",
                            "probability",
                            "unscored",
                            "usage",
                        )
                    }
                )
        refused = httpx.post(
            f"{base}/invocations", json={"inputs": [{"context": 1, "answer": 2}]}
        )
        print("a row of another type:", refused.status_code)
        assert refused.status_code == 400


def table(rows: int, path: Path) -> str:
    """Answers as Parquet, each different from the others."""
    import pandas as pd

    answers = [
        f"You can return lamp number {i} within {30 if i % 2 else 90} days."
        for i in range(rows)
    ]
    pd.DataFrame(
        {
            "id": range(rows),
            "question": QUESTION,
            "context": [CONTEXT] * rows,
            "answer": answers,
        }
    ).to_parquet(path)
    return str(path)


def judged(path: str, rows: int, **lm: str) -> None:
    """A table judged on Spark, and what came out, counted from the Parquet itself."""
    import pandas as pd
    from pyspark.sql import SparkSession

    from faith_dspy.integrations.spark import judge_table

    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    answers = spark.read.parquet(path).repartition(
        spark.sparkContext.defaultParallelism
    )
    judge_table(answers, CHAMPION, **lm).write.parquet(f"{path}.judged")
    found = pd.json_normalize(pd.read_parquet(f"{path}.judged")["judgment"].tolist())
    calls = int(found["usage.calls"].sum())
    print(
        f"{len(found):,} rows, {found['score'].notna().sum():,} scored, {calls:,} calls"
    )
    assert len(found) == rows
    assert found["score"].notna().all()


def evaluated() -> None:
    """The champion as a scorer of MLflow's evaluation."""
    import mlflow

    from faith_dspy.integrations.mlflow import FaithfulnessScorer

    data = [
        {"inputs": {"question": QUESTION, "context": CONTEXT}, "outputs": a}
        for a in ANSWERS
    ]
    found = mlflow.genai.evaluate(data=data, scorers=[FaithfulnessScorer(CHAMPION)])
    print({k: round(v, 3) for k, v in found.metrics.items()})
    assert any(k.startswith("faithfulness") for k in found.metrics)


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lm", default="local", help="the LM to tune on and to judge with"
    )
    parser.add_argument(
        "--api-base", help="where it is; its key comes from OPENAI_API_KEY"
    )
    parser.add_argument(
        "--labels", default="quickstart", help="labels file, or the shipped set"
    )
    parser.add_argument(
        "--rows", type=int, default=10_000, help="rows for the endpoint of 50 ms"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="an empty folder to work in; default: a temporary one",
    )
    args = parser.parse_args()
    labels = (
        args.labels if args.labels == "quickstart" else str(Path(args.labels).resolve())
    )
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="faith-dspy-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty")
    os.chdir(folder)
    os.environ |= {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT": "600",  # a small machine takes its time for the first request
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ["PATH"]]
        ),  # mlflow starts `uvicorn`
    }
    if args.api_base:  # in the environment, where servers and executors find it: exports hold no address
        os.environ |= {
            "OPENAI_API_BASE": args.api_base,
            "OPENAI_API_KEY": os.environ.get("OPENAI_API_KEY", "none"),
        }
    print(f"in {folder}")

    step("tuned on human labels and registered")
    run(
        "faith-dspy",
        "tune",
        labels,
        "--budget",
        "quick",
        "--lm",
        args.lm,
        "--out",
        "judges/production",
    )

    step("the champion, by its alias, in a new process")
    code = f"from faith_dspy import load_judge; print(load_judge({CHAMPION!r})(**{ROWS[1]!r}).pretty())"
    subprocess.run([sys.executable, "-c", code], check=True)

    step("served over HTTP")
    served()

    step(f"{args.rows:,} rows on Spark, an LM that takes 50 ms")
    big = table(args.rows, folder / "big.parquet")
    with process("tests.support.chat_server", "0.05", cwd=ROOT) as endpoint:
        assert endpoint.stdout is not None
        at = f"http://127.0.0.1:{int(endpoint.stdout.readline())}/v1"
        judged(big, args.rows, lm="openai/tiny", api_base=at)

    step("20 rows on Spark, the LM the judge was tuned on")
    judged(table(20, folder / "small.parquet"), 20)

    step("scored in mlflow.genai.evaluate")
    evaluated()
    print(
        f"\nAll of it worked. See it: mlflow ui --backend-store-uri {os.environ['MLFLOW_TRACKING_URI']}"
    )
    print(json.dumps({"folder": str(folder), "judge": CHAMPION}))


if __name__ == "__main__":
    main()
