"""A system in a process of its own: one that hangs is killed, and its imports, prints and settings stay there."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import in_short

from .systems import SYSTEMS, Endpoint, RawVerdict, Record

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

SETUP_SECONDS = 900.0
WARM_UP = Record("What colour is the kettle?", ("The kettle is blue.",), "The kettle is blue.")
"""Judged once, uncounted, so that nobody's imports and fixed prompt count as the first answer's."""
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
}


class NotReadyError(Exception):
    """A system cannot be set up; the text says why."""


class Worker:
    """A running system. ``fingerprint`` changes whenever its verdicts may."""

    def __init__(self, name: str, at: Endpoint, judge: str | None, log: Path) -> None:
        self.name = name
        self._given = (name, at, judge, str(log.absolute()))
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *self._given), daemon=True)
        self._process.start()
        theirs.close()
        self.fingerprint, failed = self._reply(SETUP_SECONDS)
        if failed:
            self.close()
            raise NotReadyError(failed)

    def judge(self, record: Record, timeout: float) -> RawVerdict:
        """Its verdict; a process that takes longer than ``timeout`` seconds is killed, and has none."""
        if not self._process.is_alive():
            self._start()
        with contextlib.suppress(BrokenPipeError):  # it has just ended: there is no reply either
            self._pipe.send(record)
        verdict, failed = self._reply(timeout)
        return verdict or RawVerdict(why=failed)

    def _reply(self, timeout: float) -> tuple[Any, str]:
        """What the process sends, and why it sends nothing."""
        failed = f"no verdict within {timeout:g} s"
        if self._pipe.poll(timeout):
            try:
                found: tuple[Any, str] = self._pipe.recv()
            except (EOFError, OSError):
                failed = "its process ended"
            else:
                return found
        self.close()
        return None, failed

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join(10)
        self._pipe.close()


def _serve(pipe: Connection, name: str, at: Endpoint, judge: str | None, log: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to hear
    os.environ.update(QUIET)
    with open(log, "a", encoding="utf-8") as sink:  # noqa: PTH123 - a plain path from another process
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    os.chdir(tempfile.mkdtemp(prefix=f"benchmark-{name}-"))  # some write into the working folder
    try:
        find, fingerprint = SYSTEMS[name].make(at, judge)
    except BaseException as exc:  # noqa: BLE001 - whatever it is, the report says so
        pipe.send((None, in_short(exc)))
        sys.exit(1)
    _found(find, WARM_UP)
    pipe.send((fingerprint, ""))
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(_found(find, pipe.recv()))


def _found(find: Any, record: Record) -> tuple[RawVerdict | None, str]:
    try:
        return find(record), ""
    except Exception as exc:  # noqa: BLE001 - a system's failure is a result
        return None, in_short(exc)
