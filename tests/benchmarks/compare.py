"""Judges beside each other: the same model, the same answers, in turns. ``python -m tests.benchmarks.compare``

Every result is kept as it comes; the same command goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from .answers import SEED, SETS, AnswerSet, find_sets, read_set, record_of
from .rows import Book, Row
from .worker import QUIET, NotReadyError, Worker

if TYPE_CHECKING:
    from .proxy import MeteringProxy
    from .served import Served

HERE = Path(__file__).parent
CHAMPIONS = HERE / "champions"
console = Console(stderr=True)


def main() -> int:
    """Run, then report what is there."""
    from faith_dspy.errors import FaithDspyError

    from .report import write

    asked = _arguments()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        if not asked.report:
            measure(asked)
    except KeyboardInterrupt:
        console.print("Stopped; what was measured is kept, and the same command goes on.")
    except FaithDspyError as exc:
        console.print(str(exc), markup=False)
        return 2
    return write(Book(asked.out / "answers.jsonl"), asked.out, Console())


def measure(asked: argparse.Namespace) -> None:
    """Every set in turn, the minutes shared among them."""
    from .proxy import MeteringProxy
    from .served import serve
    from .systems import SYSTEMS

    end = None if asked.minutes is None else time.monotonic() + asked.minutes * 60
    asked.out.mkdir(parents=True, exist_ok=True)
    sets = [read_set(path, asked.answers or None) for path in find_sets(asked.data, asked.sets)]
    judges = champions(sets, asked)
    server = serve(asked.lm)
    proxy = MeteringProxy(server.url, {name: s.mark for name, s in SYSTEMS.items()})
    book = Book(asked.out / "answers.jsonl")
    try:
        for i, one in enumerate(sets):
            now = time.monotonic()
            until = None if end is None else now + (end - now) / (len(sets) - i)
            run_set(one, judges.get(one.name), server, proxy, book, until, asked)
    finally:
        proxy.close()
        server.stop()


def champions(sets: list[AnswerSet], asked: argparse.Namespace) -> dict[str, str]:
    """The judge tuned on each set with the seed of the split, of those given or, for the embedded model, shipped."""
    from faith_dspy import load_judge
    from faith_dspy.errors import InputError

    shipped = [f.parent for f in CHAMPIONS.glob("*/judge.json")] if asked.lm == "local" else []
    found: dict[str, str] = {}
    for folder in [*shipped, *asked.judge]:
        manifest = load_judge(folder).manifest
        tuned_on = [s for s in sets if (s.label_hash, SEED) == (manifest.get("label_set_hash"), manifest.get("seed"))]
        found |= {one.name: str(folder.absolute()) for one in tuned_on}
        if folder in asked.judge and not tuned_on:
            raise InputError(
                f"{folder}: was not tuned on {', '.join(one.name for one in sets)} with seed {SEED}, so it may have "
                "seen the answers it would be tested on. Tune one with faith-dspy tune, or leave --judge out."
            )
    return found


def run_set(
    one: AnswerSet,
    judge: str | None,
    server: Served,
    proxy: MeteringProxy,
    book: Book,
    until: float | None,
    asked: argparse.Namespace,
) -> None:
    """Judge the set's answers, system by system on each answer, in an order that rotates.

    A system that cannot be set up keeps its row in the report, and says why.
    """
    from .systems import TUNED, Endpoint

    workers: dict[str, Worker] = {}
    absent: dict[str, str] = {}
    try:
        for name in asked.systems:
            at = Endpoint(proxy.base(name), server.model, server.num_ctx, server.sha256)
            console.print(f"{one.name}: setting up {name} …")
            try:
                workers[name] = Worker(name, at, judge if name in TUNED else None, asked.out / "systems.log")
            except NotReadyError as exc:
                absent[name] = str(exc)
                console.print(f"{name} takes no part: {exc}", markup=False)
        book.begin(one, workers, absent, server)
        turns = list(workers.values())
        for i, example in enumerate(one.answers):
            console.print(f"{one.name}: answer {i + 1} of {len(one.answers)}")
            for worker in turns:
                if not book.has(one.name, worker.name, example.id, worker.fingerprint):
                    book.add(judged(one.name, example, worker, proxy, asked.timeout))
            turns = turns[1:] + turns[:1]
            if until is not None and time.monotonic() > until:
                console.print(f"{one.name}: the minutes are over after {i + 1} of {len(one.answers)} answers.")
                return
    finally:
        for worker in workers.values():
            worker.close()


def judged(set_name: str, example: object, worker: Worker, proxy: MeteringProxy, timeout: float) -> Row:
    """One system's turn on one answer, with what it cost."""
    proxy.take(worker.name)
    began = time.perf_counter()
    verdict = worker.judge(record_of(example), timeout)
    seconds = time.perf_counter() - began
    proxy.stop(worker.name)
    return Row.of(set_name, example, worker, verdict, proxy.take(worker.name), seconds)


def _arguments() -> argparse.Namespace:
    from .systems import SYSTEMS

    p = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare", description=__doc__)
    names = lambda text: [n.strip() for n in text.split(",") if n.strip()]  # noqa: E731
    data = HERE.parents[2] / "shared" / "data"
    p.add_argument("--data", type=Path, default=data, help="folder of labelled sets (default: ../shared/data)")
    p.add_argument("--sets", type=names, default=list(SETS), help=f"default: {','.join(SETS)}")
    p.add_argument("--systems", type=names, default=list(SYSTEMS), help=f"default: {','.join(SYSTEMS)}")
    p.add_argument("--judge", type=Path, action="append", default=[], help="tuned on one of the sets; repeatable")
    p.add_argument("--answers", type=int, default=40, help="so many of each set's test part (default: 40; 0: all)")
    p.add_argument("--minutes", type=float, help="end cleanly after so many minutes")
    p.add_argument("--timeout", type=float, default=180, help="seconds a system may take over an answer")
    p.add_argument("--lm", default="local", help="local, or local:FILE.gguf")
    p.add_argument("--out", type=Path, default=HERE / "results")
    p.add_argument("--report", action="store_true", help="measure nothing, write the report anew")
    asked = p.parse_args()
    if odd := [n for n in asked.systems if n not in SYSTEMS]:
        p.error(f"there is no system {odd[0]!r}; there are {', '.join(SYSTEMS)}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
