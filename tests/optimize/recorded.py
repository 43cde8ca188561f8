"""Servers and studies for the tests of what MLflow shows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from test_study import Quiet, Record, knowing, labels

from faith_dspy.optimize.plan import Options
from faith_dspy.optimize.study import run
from faith_dspy.optimize.tracking.store import connect
from faith_dspy.optimize.tracking.study_run import MlflowTracker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from faith_dspy.optimize.results import StudyResult

ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    # Nobody listens there: what asks for anything but loopback fails.
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
}


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def serving(command: list[str], folder: Path, port: int, seconds: float = 400) -> Iterator[None]:
    """A server without a network, from when its page answers."""
    log = folder / "server.log"
    started = time.monotonic()
    with log.open("w") as out:
        server = subprocess.Popen(
            command, cwd=folder, env=os.environ | ENVIRONMENT, stdout=out, stderr=out, start_new_session=True
        )
    try:
        while not _answers(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() - started < seconds, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def _answers(port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/health", timeout=30) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def recorded_study(endpoint: Any, folder: Path) -> StudyResult:
    """A study on labels that need an LM, with the recorded one of `test_study`; its judge is in the folder."""
    server = endpoint(says=knowing)
    try:
        options = Options(lm="openai/tiny", api_base=server.base, out=folder / "judge", variants=("sentence",))
        return run(labels(folder / "cities.jsonl", swapped=True), options, Quiet(), tracker=Record)
    finally:
        server.close()


def log_study(uri: str, result: StudyResult) -> str:
    """Log a study to a store as it would have been while it ran; the id of its run."""
    tracker = MlflowTracker(connect(uri), result)
    for v in result.variants:
        tracker.variant(v)
    tracker.finish(result)
    return tracker.run_id
