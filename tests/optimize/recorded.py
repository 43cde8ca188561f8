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

from test_study import Quiet, knowing, labels

from faith_dspy.optimize.study import Options, run
from faith_dspy.optimize.tracking import MlflowTracker, connect

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
def serving(command: list[str], folder: Path, port: int, seconds: float = 180) -> Iterator[float]:
    """A server without a network, until its page answers; gives the seconds that took."""
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
        yield time.monotonic() - started
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def _answers(port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def recorded_study(endpoint: Any, uri: str, folder: Path, *variants: str) -> tuple[StudyResult, str]:
    """A study on the labels and the recorded LM of `test_study`, logged to a store: its result and its run."""
    server = endpoint(says=knowing)
    made: list[MlflowTracker] = []

    def tracker(result: StudyResult) -> MlflowTracker:
        made.append(MlflowTracker(connect(uri), result))
        return made[-1]

    try:
        options = Options(lm="openai/tiny", api_base=server.base, out=folder / "judge", variants=variants)
        return run(labels(folder / "cities.jsonl"), options, Quiet(), tracker=tracker), made[0].run_id
    finally:
        server.close()
