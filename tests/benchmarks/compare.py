"""Judges beside each other: the same model, the same answers, in turns. ``python -m tests.benchmarks.compare``

Every result is kept as it comes; the same command goes on where the last one stopped.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console

from faith_dspy import load_judge
from faith_dspy.errors import FaithDspyError, short_message
from faith_dspy.schema import LabelledExample, digest

from . import DATA, HERE
from .answers import SEED, SETS, AnswerSet, read_set
from .log import Log
from .proxy import MeteringProxy
from .systems import QUIET, SYSTEMS, TUNED, Endpoint, RawVerdict, Record

CHAMPIONS = HERE / "champions"
WARM_UP = Record(
    "What colour is the kettle?", ("The kettle is blue.",), "The kettle is blue."
)
"""Judged once, uncounted, so that nobody's imports and fixed prompt count as the first answer's."""
console = Console(stderr=True)


def main(
    data: Path = DATA,
    system: list[str] = list(SYSTEMS),
    answers: int = 40,
    timeout: float = 180,
    out: Path = HERE / "results",
    report: bool = False,
) -> None:
    """Judge so many answers of each set, then report what is there; with ``--report`` only that.

    ``timeout``: seconds that a call may take.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from .report import write

    try:
        if not report:
            out.mkdir(parents=True, exist_ok=True)
            sets = [read_set(data / f"{name}.jsonl", answers) for name in SETS]
            measure(sets, system, timeout, Log(out / "answers.jsonl"))
    except KeyboardInterrupt:
        console.print(
            "Stopped; what was measured is kept, and the same command goes on."
        )
    except FaithDspyError as exc:
        console.print(str(exc), markup=False)
        raise typer.Exit(2) from exc
    write(Log(out / "answers.jsonl").rows, out, Console())


def measure(
    sets: Sequence[AnswerSet], systems: Sequence[str], timeout: float, log: Log
) -> None:
    """Every set in turn."""
    from .server import NUM_CTX, serve

    server = serve("local")
    served = Endpoint(server.url, server.model, NUM_CTX, server.sha256)
    marks = {name: s.mark for name, s in SYSTEMS.items()}
    proxy = MeteringProxy(server.url, marks, timeout)
    try:
        for one in sets:
            run_set(one, champion(one), served, proxy, log, systems)
    finally:
        proxy.close()


def champion(one: AnswerSet) -> str | None:
    """The shipped judge, where it was tuned on these labels with the seed of the split: it saw no answer it judges."""
    folder = CHAMPIONS / one.name
    manifest = load_judge(folder).manifest
    known = (manifest.get("label_set_hash"), manifest.get("seed"))
    return str(folder) if known == (one.label_hash, SEED) else None


class Running(NamedTuple):
    """A system that was set up."""

    name: str
    find: Callable[[Record], RawVerdict]
    made_by: str
    """Hash of all that its verdicts depend on: rows of an older judge or library do not count."""


def set_up(name: str, at: Endpoint, judge: str | None) -> Running | None:
    """The system, warmed up; None, and why, where it cannot be set up."""
    console.print(f"setting up {name} …")
    try:
        find, fingerprint = SYSTEMS[name].make(at, judge if name in TUNED else None)
        find(WARM_UP)
    except Exception as exc:  # noqa: BLE001 - whatever it is, the others go on
        console.print(f"{name} takes no part: {short_message(exc)}", markup=False)
        return None
    return Running(name, find, digest(fingerprint))


def run_set(
    one: AnswerSet,
    judge: str | None,
    served: Endpoint,
    proxy: MeteringProxy,
    log: Log,
    names: Sequence[str],
) -> None:
    """Judge the set's answers, system by system on each answer, in an order that rotates."""
    made = (
        set_up(name, served._replace(base=proxy.base(name)), judge) for name in names
    )
    running = [system for system in made if system is not None]
    for i, e in enumerate(one.answers):
        console.print(f"{one.name}: answer {i + 1} of {len(one.answers)}")
        first = i % len(running) if running else 0
        for system in running[first:] + running[:first]:
            place = {
                "set": one.name,
                "system": system.name,
                "answer": e.id,
                "made_by": system.made_by,
            }
            if not log.has(**place):
                log.add(
                    **place,
                    group=e.group_key,
                    label=bool(e.label),
                    **judged(e, system, proxy),
                )


def judged(
    example: LabelledExample, system: Running, proxy: MeteringProxy
) -> dict[str, Any]:
    """One system's turn on one answer, and what it cost as the proxy counted."""
    record = Record(
        example.question, tuple(c.text for c in example.context), example.answer
    )
    proxy.take(system.name)
    began = time.perf_counter()
    try:
        verdict = system.find(record)
    except Exception as exc:  # noqa: BLE001 - a system's failure is a result
        verdict = RawVerdict(why=short_message(exc))
    seconds, u = time.perf_counter() - began, proxy.take(system.name)
    read = {
        "computed": u.computed_tokens,
        "cached": u.cached_tokens,
        "output": u.output_tokens,
    }
    return verdict._asdict() | {"calls": u.calls, **read, "seconds": seconds}


if __name__ == "__main__":
    typer.run(main)
