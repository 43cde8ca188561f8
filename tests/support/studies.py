"""Labels, an LM that knows them, studies of both, and servers, for the tests of studies and of what MLflow shows."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zlib
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from faith_dspy.optimize.plan import Options, Variant
from faith_dspy.optimize.results import StudyResult
from faith_dspy.optimize.study import run
from faith_dspy.optimize.tracking import tracker
from faith_dspy.optimize.tracking.store import connect
from faith_dspy.optimize.tracking.tracker import MlflowTracker
from tests.support.chat_server import yes_or_no
from tests.support.files import write_lines

CITIES = (
    "Arlen",
    "Brome",
    "Corvin",
    "Dunmore",
    "Eskel",
    "Farrow",
    "Galt",
    "Hesper",
    "Ilmen",
    "Jarrow",
    "Kelm",
    "Lund",
)


def labels(path, *, parts=True, swapped=False, cities=CITIES):
    """Three answers over a context for each city, half of them unfaithful, of two sentences each.

    ``swapped``: what is false is said in the context's own words, so that no words tell it.
    """
    rows = []
    for i, city in enumerate(cities):
        context = [
            f"{city} has {i + 20} bridges and a harbour.",
            f"The mayor of {city} resigned in {1950 + i}.",
        ]
        if swapped:
            context.append(f"Its bishop died in {1950 + i}.")
        for j in range(3):
            false = (i + j) % 2 == 0
            lie = (
                f"Its mayor died in {1950 + i}."
                if swapped
                else f"The mayor of {city} won a medal in Paris."
            )
            second = lie if false else f"Its mayor resigned in {1950 + i}."
            first = f"There are {i + 20} bridges in {city}{('', ', it is said', ', we read')[j]}."
            verdicts = (
                (first, "fully_supported"),
                (second, "no_evidence" if false else "fully_supported"),
            )
            rows.append(
                {
                    "id": f"{i}-{j}",
                    "question": f"What is known of {city}?",
                    "context": context,
                    "answer": f"{first} {second}",
                    "statements": [
                        {"text": text, "verdict": verdict} for text, verdict in verdicts
                    ],
                    **({"split": ("train", "dev", "test")[i % 3]} if parts else {}),
                }
            )
    return write_lines(path, rows)


def knowing(asked):
    """An LM that mostly sees through false mayors; the rest is chance, the same for the same request."""
    text = asked["messages"][-1]["content"]
    noise = zlib.crc32(text.encode()) % 100 / 250
    false = any(
        told in text.partition("Statement:")[2] for told in ("medal", "mayor died")
    )
    p = 0.25 + noise if false else 0.5 + noise
    return yes_or_no(p)


class Quiet:
    """A view that keeps what it was told, and how many ``requests`` had been made when each task began."""

    def __init__(self, requests=()):
        self.lines, self.tasks, self.requests = [], {}, requests

    def say(self, text):
        self.lines.append(text)

    def task(self, what, total):
        self.tasks[what] = len(self.requests)
        return nullcontext(lambda n: None)


class Record(AbstractContextManager):
    """A tracker that keeps nothing."""

    page = ""

    def __init__(self, setup): ...

    def __exit__(self, *_): ...

    def finish(self, result):
        return ""


def quick_study(folder, server, *names, swapped=False, view=None, **more):
    """A quick study of these variants at that endpoint, or of those of ``variants``; its judge is folder/judge."""
    given = {
        "lm": "openai/tiny",
        "api_base": server.base,
        "out": folder / "judge",
        "variants": names,
        **more,
    }
    path = labels(folder / "cities.jsonl", swapped=swapped)
    return run(path, Options(**given), view or Quiet(), tracker=Record)


class Recorded(NamedTuple):
    """A finished study, logged nowhere yet."""

    result: StudyResult
    view: Quiet
    server: Any
    """Which still answers."""
    folder: Path
    """With ``cities.jsonl`` and the judge."""


def fail(student, trainset, metric):
    """An optimizer that does."""
    raise ValueError("nothing came to its mind")


def recorded_study(server, folder):
    """A study of labels that no words tell apart: two variants that are tried and one whose optimizer fails."""
    view = Quiet(server.requests)
    broken = Variant(
        name="broken", granularity="sentence", optimizer="tests.support.studies:fail"
    )
    names = ("sentence", "sentence-few-shot", broken)
    return Recorded(
        quick_study(folder, server, *names, swapped=True, view=view),
        view,
        server,
        folder,
    )


def log_study(uri, result, register=True):
    """Log a study to a store as it would have been while it ran."""
    tracker = MlflowTracker(connect(uri), result, register=register)
    tracker.finish(result)
    return tracker


def log_little(patch):
    """Log no traces: they take most of the time."""
    patch.setattr(tracker, "log_traces", lambda *_: None)


ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    # Nobody listens there: what asks for anything but loopback fails.
    **dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"
    ),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost"),
}


def free_port():
    """A port nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def mlflow_server(folder, store, *options):
    """`mlflow server` on loopback over a store, its address; what goes to it goes over HTTP."""
    port = free_port()
    words = f"-m mlflow server --workers 1 --backend-store-uri {store} --port {port}"
    with serving([sys.executable, *words.split(), *options], folder, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serving(command, folder, port):
    """A server without a network, from when its page answers."""
    log, started = folder / "server.log", time.monotonic()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with log.open("w") as out:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | ENVIRONMENT,
            stdout=out,
            stderr=out,
            start_new_session=True,
            # Where pytest runs in the background, it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        while server.poll() is None and time.monotonic() - started < 400:
            with (
                suppress(OSError),
                opener.open(f"http://127.0.0.1:{port}/health", timeout=30),
            ):
                break
            time.sleep(0.1)
        else:
            raise AssertionError(log.read_text())
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
