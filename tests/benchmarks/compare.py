"""Judges beside each other: the same model, the same answers, in turns. ``python -m tests.benchmarks.compare``

Every result is kept as it comes; the same command goes on where the last one stopped.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from faith_dspy import load_judge
from faith_dspy.errors import FaithDspyError, short_message
from faith_dspy.schema import LabelledExample, digest

from .answers import SEED, SETS, AnswerSet, read_set
from .log import Log
from .proxy import MeteringProxy
from .systems import QUIET, SYSTEMS, TUNED, Endpoint, RawVerdict, Record

HERE = Path(__file__).parent
CHAMPIONS = HERE / "champions"
WARM_UP = Record(
    "What colour is the kettle?", ("The kettle is blue.",), "The kettle is blue."
)
"""Judged once, uncounted, so that nobody's imports and fixed prompt count as the first answer's."""
console = Console(stderr=True)


def main() -> int:
    """Run, then report what is there."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.compare", description=__doc__
    )
    data = HERE.parents[2] / "shared" / "data"
    parser.add_argument(
        "--data",
        type=Path,
        default=data,
        help="folder of labelled sets (default: ../shared/data)",
    )
    parser.add_argument(
        "--systems", nargs="*", default=list(SYSTEMS), choices=list(SYSTEMS)
    )
    parser.add_argument(
        "--answers",
        type=int,
        default=40,
        help="so many of each set's test part (default: 40)",
    )
    parser.add_argument(
        "--timeout", type=float, default=180, help="seconds a call may take"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument(
        "--report", action="store_true", help="measure nothing, write the report anew"
    )
    asked = parser.parse_args()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from .report import write

    try:
        if not asked.report:
            measure(asked)
    except KeyboardInterrupt:
        console.print(
            "Stopped; what was measured is kept, and the same command goes on."
        )
    except FaithDspyError as exc:
        console.print(str(exc), markup=False)
        return 2
    write(Log(asked.out / "answers.jsonl").rows, asked.out, Console())
    return 0


def measure(asked: argparse.Namespace) -> None:
    """Every set in turn."""
    from .server import NUM_CTX, serve

    asked.out.mkdir(parents=True, exist_ok=True)
    sets = [read_set(asked.data / f"{name}.jsonl", asked.answers) for name in SETS]
    server = serve("local")
    served = Endpoint(server.url, server.model, NUM_CTX, server.sha256)
    proxy = MeteringProxy(
        server.url, {name: s.mark for name, s in SYSTEMS.items()}, asked.timeout
    )
    try:
        for one in sets:
            run_set(
                one,
                champion(one),
                served,
                proxy,
                Log(asked.out / "answers.jsonl"),
                asked.systems,
            )
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
    sys.exit(main())
