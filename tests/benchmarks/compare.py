"""Judges beside each other: the same model, the same answers, in turns. ``python -m tests.benchmarks.compare``

Every result is kept as it comes; the same command goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from rich.console import Console

from faith_dspy import load_judge
from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.schema import digest

from .answers import SEED, SETS, AnswerSet, find_sets, least_tokens, read_set
from .proxy import MeteringProxy
from .rows import Book, Row
from .systems import SYSTEMS, TUNED, Endpoint, Record
from .worker import QUIET, NotReadyError, Worker

if TYPE_CHECKING:
    from faith_dspy.schema import LabelledExample

HERE = Path(__file__).parent
CHAMPIONS = HERE / "champions"
console = Console(stderr=True)


def main() -> int:
    """Run, then report what is there."""
    from .report import write  # heavy, and every system's process imports this module

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
    from .server import NUM_CTX, serve

    end = None if asked.minutes is None else time.monotonic() + asked.minutes * 60
    asked.out.mkdir(parents=True, exist_ok=True)
    sets = [read_set(path, asked.answers or None) for path in find_sets(asked.data, asked.sets)]
    judges = champions(sets, asked)
    server = serve(asked.lm)
    served = Endpoint(server.url, server.model, NUM_CTX, server.sha256)
    proxy = MeteringProxy(server.url, {name: s.mark for name, s in SYSTEMS.items()})
    book = Book(asked.out / "answers.jsonl")
    try:
        for i, one in enumerate(sets):
            now = time.monotonic()
            until = None if end is None else now + (end - now) / (len(sets) - i)
            run_set(one, judges.get(one.name), served, proxy, book, until, asked)
    finally:
        proxy.close()


def champions(sets: list[AnswerSet], asked: argparse.Namespace) -> dict[str, str]:
    """The judge tuned on each set with the seed of the split, of those given or, for the embedded model, shipped."""
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
    served: Endpoint,
    proxy: MeteringProxy,
    book: Book,
    until: float | None,
    asked: argparse.Namespace,
) -> None:
    """Judge the set's answers, system by system on each answer, in an order that rotates.

    A system that cannot be set up keeps its row in the report, and says why.
    """
    workers: list[Worker] = []
    absent: dict[str, str] = {}
    try:
        for name in asked.systems:
            console.print(f"{one.name}: setting up {name} …")
            at = served._replace(base=proxy.base(name))
            try:
                workers.append(Worker(name, at, judge if name in TUNED else None, asked.out / "systems.log"))
            except NotReadyError as exc:
                absent[name] = str(exc)
                console.print(f"{name} takes no part: {exc}", markup=False)
        made_by = {w.name: digest(w.fingerprint) for w in workers}
        least = least_tokens(one.answers, partial(tokens, served.base))
        book.begin(one.name, least, made_by, absent, model=served.model, window=served.num_ctx)
        for i, example in enumerate(one.answers):
            console.print(f"{one.name}: answer {i + 1} of {len(one.answers)}")
            first = i % len(workers) if workers else 0
            for worker in workers[first:] + workers[:first]:
                if not book.has(one.name, worker.name, example.id, made_by[worker.name]):
                    book.add(judged(one.name, example, worker, proxy, asked.timeout))
            if until is not None and time.monotonic() > until:
                console.print(f"{one.name}: the minutes are over after {i + 1} of {len(one.answers)} answers.")
                return
    finally:
        for worker in workers:
            worker.close()


def judged(set_name: str, example: LabelledExample, worker: Worker, proxy: MeteringProxy, timeout: float) -> Row:
    """One system's turn on one answer, with what it cost."""
    record = Record(example.question, tuple(c.text for c in example.context), example.answer)
    proxy.take(worker.name)
    began = time.perf_counter()
    verdict = worker.judge(record, timeout)
    seconds = time.perf_counter() - began
    proxy.stop(worker.name)
    return Row(
        set=set_name,
        system=worker.name,
        made_by=digest(worker.fingerprint),
        answer=example.id,
        group=example.group_key,
        label=bool(example.label),
        usage=proxy.take(worker.name),
        seconds=seconds,
        **verdict._asdict(),
    )


def tokens(server: str, text: str) -> int:
    """Length of a text by the model's own tokenizer (llama.cpp's ``/tokenize``)."""
    reply = httpx.post(f"{server}/tokenize", json={"content": text}, timeout=60)
    return len(reply.raise_for_status().json()["tokens"])


def _arguments() -> argparse.Namespace:
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
