"""What the judge itself costs: own time per LM call, share of the rate the endpoint could give, memory.

    python -m tests.benchmarks.overhead [--in-flight 1 16 64 256] [--seconds 5] [--records 100000]

Every answer is one statement about a document of its own, the dearest case: nothing is shared between calls. With
``--whole`` answers are whole, of about two statements. The endpoint answers after 50 ms, so that N calls in flight are
N / 50 ms at best (`ideal`).
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import importlib.metadata
import json
import os
import platform
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import count, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.endpoint import raw_rate, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faith_dspy import Judge

DELAY = 0.05
"""Seconds until the endpoint answers."""
RESULTS = Path(__file__).parent / "results"
_numbers = count(1)


@dataclass(frozen=True)
class Row:
    """One way of calling, with so many calls in flight."""

    way: str
    in_flight: int
    calls: int
    rate: float
    """Calls a second."""
    ideal: float
    raw: float
    """Calls a second of the cheapest possible client, measured right before."""
    cpu: float
    """Processor milliseconds of the whole client process per call."""
    added: float
    """Milliseconds by the clock that a call takes beyond the endpoint's own time."""


def records(whole: bool = False) -> Iterator[dict[str, Any]]:
    """Records without end: documents, questions and first sentences, or whole answers, of the shipped set.

    Each document has a number of its own.
    """
    import faith_dspy.eval_sets.quickstart as shipped
    from faith_dspy.text.sentences import carries_statement, sentences

    lines = (Path(shipped.__file__).parent / "quickstart.jsonl").read_text(encoding="utf-8").splitlines()
    texts = []
    for row in map(json.loads, lines):
        first = next((s.text for s in sentences(row["answer"]) if carries_statement(s.text)), None)
        if first and whole:
            texts.append((row["question"], row["context"], row["answer"]))
        elif first:
            texts.append((row["question"], row["context"], first))
    for question, context, answer in cycle(texts):
        n = next(_numbers)
        yield {"question": question, "context": [f"Document {n}.", *context], "answer": answer}


def by_batch(judge: Judge, given: list[dict[str, Any]], in_flight: int) -> int:
    """``judge.batch`` with so many threads."""
    return sum(j.usage.calls for j in judge.batch(given, num_threads=in_flight))


def by_stream(judge: Judge, given: list[dict[str, Any]], in_flight: int) -> int:
    """``judge.stream``, its judgments taken as they come."""
    return sum(j.usage.calls for j in judge.stream(given, num_threads=in_flight))


def by_acall(judge: Judge, given: list[dict[str, Any]], in_flight: int) -> int:
    """``judge.acall`` under ``asyncio.gather``, held back by a semaphore."""

    async def run() -> int:
        held = asyncio.Semaphore(in_flight)

        async def one(record: dict[str, Any]) -> int:
            async with held:
                return (await judge.acall(**record)).usage.calls

        return sum(await asyncio.gather(*map(one, given)))

    return asyncio.run(run())


WAYS: dict[str, Callable[[Judge, list[dict[str, Any]], int], int]] = {
    "batch": by_batch,
    "acall": by_acall,
    "stream": by_stream,
}


def measure(way: str, judge: Judge, port: int, in_flight: int, seconds: float, whole: bool) -> Row:
    """One row, of about so many seconds. A first round, in which connections are made, does not count."""
    started = time.perf_counter()
    warm = 10 * in_flight
    WAYS[way](judge, list(islice(records(whole), warm)), in_flight)
    pace = warm / (time.perf_counter() - started)
    given = list(islice(records(whole), max(2 * warm, int(pace * seconds))))
    raw = raw_rate(port, in_flight, min(seconds, 2))
    wall, cpu = time.perf_counter(), time.process_time()
    calls = WAYS[way](judge, given, in_flight)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert calls, "no record was judged"
    return Row(
        way=way,
        in_flight=in_flight,
        calls=calls,
        rate=calls / wall,
        ideal=in_flight / DELAY,
        raw=raw,
        cpu=cpu / calls * 1e3,
        added=(wall * in_flight / calls - DELAY) * 1e3,
    )


def make_judge(port: int, *, cache: bool) -> Judge:
    """A judge of sentences at the endpoint."""
    from faith_dspy import Judge
    from faith_dspy.lm import make_lm

    return Judge(make_lm("openai/tiny", api_base=f"http://127.0.0.1:{port}/v1", cache=cache), granularity="sentence")


def resident() -> float:
    """Megabytes of memory in use; the most so far where the system does not tell the present figure."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def memory(judge: Judge, n: int, in_flight: int = 16, samples: int = 20) -> list[tuple[int, float]]:
    """(records judged, megabytes) along a stream of ``n`` records, from an endpoint without delay."""
    taken = []
    for i, _ in enumerate(judge.stream(islice(records(), n), num_threads=in_flight), 1):
        if i % max(1, n // samples) == 0:
            taken.append((i, resident()))
    return taken


def machine() -> dict[str, Any]:
    """Where and with what."""
    names = ("faith_dspy", "dspy", "litellm", "httpx", "pydantic")
    versions = {name: importlib.metadata.version(name) for name in names}
    cpu = next(
        (line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.processor()
    )
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} × {cpu}, {platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **versions},
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def table(rows: list[Row], where: dict[str, Any]) -> Table:
    """For people."""
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items())
    out = Table(title=f"{where['date']} · {where['machine']} · load {where['load']}\n{versions}")
    for name in ("way", "in flight", "calls/s", "of ideal", "of raw client", "CPU ms/call", "added ms/call"):
        out.add_column(name, justify="left" if name == "way" else "right")
    for r in rows:
        out.add_row(
            r.way, str(r.in_flight), f"{r.rate:,.0f}", f"{r.rate / r.ideal:.1%}", f"{r.rate / r.raw:.1%}",
            f"{r.cpu:.2f}", f"{r.added:.1f}",
        )  # fmt: skip
    return out


def plot(rows: list[Row], taken: list[tuple[int, float]], where: dict[str, Any], path: Path) -> None:
    """Share of the ideal rate by calls in flight, and memory by records."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for way in dict.fromkeys(r.way for r in rows):
        mine = [r for r in rows if r.way == way]
        left.plot([r.in_flight for r in mine], [100 * r.rate / r.ideal for r in mine], "o-", label=way)
    left.set(xscale="log", ylim=(0, 105), xlabel="calls in flight", ylabel="% of the ideal rate")
    left.set_xticks([r.in_flight for r in rows], [str(r.in_flight) for r in rows])
    if rows:
        left.legend()
    right.plot(*zip(*taken, strict=True) if taken else ([], []), "o-")
    right.set(ylim=(0, None), xlabel="records judged", ylabel="MB resident")
    figure.suptitle(f"{where['date']} · {where['machine']} · load {where['load']}", fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, show, write ``results/overhead.json`` and ``.png``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-flight", type=int, nargs="*", default=[1, 16, 64, 256])
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seconds", type=float, default=5, help="of each row")
    parser.add_argument("--records", type=int, default=100_000, help="of the memory measurement; 0: none")
    parser.add_argument("--whole", action="store_true", help="whole answers instead of their first statements")
    parser.add_argument("--no-cache", action="store_true", help="without DSPy's cache of replies")
    parser.add_argument("--out", type=Path, default=RESULTS / "overhead.json")
    options = parser.parse_args()
    os.environ["DSPY_CACHEDIR"] = tempfile.mkdtemp(prefix="overhead-")  # before dspy is imported
    where = machine()
    console = Console()
    rows: list[Row] = []
    with serving(DELAY) as port:
        judge = make_judge(port, cache=not options.no_cache)
        for way in options.ways:
            for in_flight in options.in_flight:
                rows.append(measure(way, judge, port, in_flight, options.seconds, options.whole))
                console.print(rows[-1])
    console.print(table(rows, where))
    taken: list[tuple[int, float]] = []
    started = time.perf_counter()
    if options.records:
        with serving(0.0) as port:
            taken = memory(make_judge(port, cache=not options.no_cache), options.records)
        console.print(
            f"memory over {options.records:,} records in {time.perf_counter() - started:.0f} s: "
            + ", ".join(f"{mb:.0f} MB at {n:,}" for n, mb in taken[:: max(1, len(taken) // 5)])
        )
    found = {
        **where,
        "delay": DELAY,
        "cache": not options.no_cache,
        "whole": options.whole,
        "rows": [asdict(r) for r in rows],
        "memory_mb": taken,
    }
    options.out.parent.mkdir(exist_ok=True)
    plot(rows, taken, where, options.out.with_suffix(".png"))
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
