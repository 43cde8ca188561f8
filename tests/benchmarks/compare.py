"""Judges beside each other: the same model, the same answers, in turns. ``python -m tests.benchmarks.compare``

Every result is kept as it comes; the same command goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .answers import SETS, AnswerSet, find_sets, read_set, record_of
from .rows import Book, Row
from .worker import QUIET, NotReadyError, Worker

if TYPE_CHECKING:
    from .proxy import MeteringProxy
    from .served import Served

HERE = Path(__file__).parent
CHAMPIONS = HERE / "champions"
console = Console(stderr=True)


class Team(NamedTuple):
    """The systems of a run over one set."""

    workers: dict[str, Worker]
    absent: dict[str, str]
    """Why a system that was asked for takes no part."""

    def close(self) -> None:
        """End all of them."""
        for worker in self.workers.values():
            worker.close()


def main() -> int:
    """Run, then report what is there."""
    from faith_dspy.errors import FaithDspyError

    asked = _arguments()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        if not asked.report:
            measure(asked)
        return _report(asked.out)
    except KeyboardInterrupt:
        console.print("Stopped; what was measured is kept, and the same command goes on.")
        return _report(asked.out)
    except FaithDspyError as exc:
        console.print(str(exc), markup=False)
        return 2


def measure(asked: argparse.Namespace) -> None:
    """Every set in turn, the minutes shared among them."""
    from .proxy import MeteringProxy
    from .served import serve
    from .systems import SYSTEMS

    began = time.monotonic()
    asked.out.mkdir(parents=True, exist_ok=True)
    sets = [read_set(path, asked.answers or None) for path in find_sets(asked.data, asked.sets)]
    judges = champions(sets, asked)
    server = serve(asked.lm)
    proxy = MeteringProxy(server.url, {name: s.mark for name, s in SYSTEMS.items()})
    book = Book(asked.out / "answers.jsonl")
    try:
        for i, one in enumerate(sets):
            left = None if asked.minutes is None else asked.minutes * 60 - (time.monotonic() - began)
            until = None if left is None else time.monotonic() + left / (len(sets) - i)
            run_set(one, judges[one.name], server, proxy, book, until, asked)
    finally:
        proxy.close()
        server.stop()


def champions(sets: list[AnswerSet], asked: argparse.Namespace) -> dict[str, str | None]:
    """The judge tuned on each set: one of those given or shipped, one from an earlier run, or tuned now.

    Those that are shipped were tuned by the command in the README, on all of the set but its test part.
    """
    from faith_dspy import load_judge
    from faith_dspy.errors import InputError
    from faith_dspy.optimize import tune

    from .answers import SEED
    from .systems import TUNED

    shipped = [] if asked.tune or asked.lm != "local" else [f.parent for f in CHAMPIONS.glob("*/judge.json")]
    known = {folder: load_judge(folder).manifest for folder in [*asked.judge, *shipped]}
    found: dict[str, str | None] = {}
    for one in sets:
        fits = [f for f, m in known.items() if (m.get("label_set_hash"), m.get("seed")) == (one.label_hash, SEED)]
        out = asked.out / "judges" / one.name
        if not set(TUNED) & set(asked.systems):
            found[one.name] = None
        elif fits:
            found[one.name] = str(fits[0].absolute())
        else:
            if not (out / "judge.json").is_file():
                console.print(f"Tuning on {one.name} ({asked.budget}); --judge takes a judge that is tuned already.")
                store = f"sqlite:///{(asked.out / 'mlflow.db').absolute()}"
                tune(one.path, lm=asked.lm, budget=asked.budget, seed=SEED, out=out, tracking_uri=store, register=False)
            found[one.name] = str(out.absolute())
    if unused := [f for f in asked.judge if str(f.absolute()) not in found.values()]:
        names = ", ".join(one.name for one in sets)
        raise InputError(
            f"{unused[0]}: was not tuned on {names} with seed {SEED}, so it may have seen the answers it would be "
            "tested on. Tune one with faith-dspy tune, or leave --judge out."
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
    """Judge the set's answers, system by system on each answer, in an order that rotates."""
    team = assemble(one, judge, server, proxy, asked)
    try:
        book.begin(one, team.workers, team.absent, server)
        names = list(team.workers)
        with _bar(one.name, len(one.answers)) as bar:
            for i, example in enumerate(one.answers):
                for name in names[i % len(names) :] + names[: i % len(names)] if names else []:
                    worker = team.workers[name]
                    if book.has(one.name, name, example.id, worker.fingerprint):
                        continue
                    bar.update(bar.task_ids[0], description=f"{one.name}: {name}")
                    book.add(judged(one.name, example, worker, proxy, asked.timeout))
                bar.advance(bar.task_ids[0])
                if until is not None and time.monotonic() > until:
                    console.print(f"{one.name}: the minutes are over after {i + 1} of {len(one.answers)} answers.")
                    return
    finally:
        team.close()


def judged(set_name: str, example: object, worker: Worker, proxy: MeteringProxy, timeout: float) -> Row:
    """One system's turn on one answer, with what it cost."""
    proxy.take(worker.name)
    began = time.perf_counter()
    raw_verdict = worker.judge(record_of(example), timeout)
    seconds = time.perf_counter() - began
    proxy.stop(worker.name)
    return Row.of(set_name, example, worker, raw_verdict, proxy.take(worker.name), seconds, timeout)


def assemble(
    one: AnswerSet, judge: str | None, server: Served, proxy: MeteringProxy, asked: argparse.Namespace
) -> Team:
    """Start the systems. One that cannot be set up keeps its row, and says why."""
    from .align import aligned_prompt
    from .systems import TUNED, Endpoint

    team = Team({}, {})
    for name in asked.systems:
        at = Endpoint(proxy.base(name), server.model, server.num_ctx, server.sha256)
        console.print(f"{one.name}: setting up {name} …")
        try:
            indexed = judge if name in TUNED else None
            if name == "aligned":
                indexed = aligned_prompt(one, at, proxy, asked)
            team.workers[name] = Worker(name, at, indexed, asked.out / "systems.log")
        except NotReadyError as exc:
            team.absent[name] = str(exc)
            console.print(f"{name} takes no part: {exc}", markup=False)
        except KeyboardInterrupt:
            team.close()
            raise
    return team


def _bar(name: str, total: int) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=console)
    bar.add_task(name, total=total)
    return bar


def _report(out: Path) -> int:
    from .report import write

    return write(Book(out / "answers.jsonl"), out, Console())


def _arguments() -> argparse.Namespace:
    from .systems import SYSTEMS, TUNED

    p = argparse.ArgumentParser(prog="python -m tests.benchmarks.compare", description=__doc__)
    names = lambda text: [n.strip() for n in text.split(",") if n.strip()]  # noqa: E731
    p.add_argument("--data", type=Path, default=_data(), help="folder of labelled sets (default: ../shared/data)")
    p.add_argument("--sets", type=names, default=list(SETS), help=f"default: {','.join(SETS)}")
    p.add_argument("--systems", type=names, default=list(SYSTEMS), help=f"default: {','.join(SYSTEMS)}")
    p.add_argument(
        "--judge", type=Path, action="append", default=[], help="a judge tuned on one of the sets; repeatable"
    )
    p.add_argument("--tune", action="store_true", help="tune the judges anew instead of taking the shipped ones")
    p.add_argument("--answers", type=int, default=40, help="so many of each set's test part (default: 40; 0: all)")
    p.add_argument("--minutes", type=float, help="end cleanly after so many minutes; tuning counts")
    p.add_argument("--timeout", type=float, default=180, help="seconds a system may take over an answer")
    p.add_argument("--budget", default="standard", help="of the tuning, where it is done")
    p.add_argument("--align-steps", type=int, default=1, help="SIMBA's steps for judge.align")
    p.add_argument("--align-labels", type=int, default=12, help="labelled answers for judge.align")
    p.add_argument("--align-minutes", type=float, default=30, help="time for judge.align, once per set")
    p.add_argument("--lm", default="local", help="local, or local:FILE.gguf")
    p.add_argument("--out", type=Path, default=HERE / "results")
    p.add_argument("--report", action="store_true", help="measure nothing, write the report anew")
    asked = p.parse_args()
    if asked.answers < 0:
        p.error(f"--answers is {asked.answers}, expected a number from 1, or 0 for all")
    if asked.judge and not set(TUNED) & set(asked.systems):
        p.error(f"--judge is for the systems {' and '.join(TUNED)}; --systems names neither")
    if odd := [n for n in asked.systems if n not in SYSTEMS]:
        p.error(f"there is no system {odd[0]!r}; there are {', '.join(SYSTEMS)}")
    return asked


def _data() -> Path:
    return HERE.parents[2] / "shared" / "data"


if __name__ == "__main__":
    sys.exit(main())
