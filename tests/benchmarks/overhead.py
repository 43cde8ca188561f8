"""The judge's own time beside plain `dspy.Predict`: the same calls, on the same endpoint, in turns.

    python -m tests.benchmarks.overhead [--in-flight 1 --in-flight 64] [--seconds 5] [--turns 4] [--first]

Answers have about two statements; with ``--first`` one, the dearest case, as no two calls share a document then. The
endpoint answers after 50 ms, so N calls in flight can make at most N / 50 ms. Plain DSPy gets the judge's predictor,
adapter and LM settings, and the inputs of the judge's own calls, in a `ThreadPoolExecutor`; neither uses DSPy's cache
of replies. Of the judge's time everything counts: sentences, prompts, lexical features, evidence, score.
"""

from __future__ import annotations

import contextvars
import datetime
import importlib.metadata
import json
import logging
import os
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from .endpoint import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faith_dspy import Judge

    Plain = Callable[[list[dict[str, Any]], int], int]

DELAY = 0.05
"""Seconds until the endpoint answers."""
RESULTS = Path(__file__).parent / "results" / "overhead.json"


def records(first: bool = False) -> Iterator[dict[str, Any]]:
    """Records of the shipped set without end, each document numbered; with ``first`` only answers' first sentences."""
    import faith_dspy.eval_sets.hard_cases as shipped
    from faith_dspy.text.sentences import carries_statement, sentences

    lines = (
        (Path(shipped.__file__).parent / "hard_cases.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    rows = [json.loads(line) for line in lines]
    firsts = [
        next(
            (s.text for s in sentences(row["answer"]) if carries_statement(s.text)),
            None,
        )
        for row in rows
    ]
    texts = [
        (row, text if first else row["answer"])
        for row, text in zip(rows, firsts, strict=True)
        if text
    ]
    for number, (row, answer) in zip(count(1), cycle(texts)):  # both are endless
        yield {
            "question": row["question"],
            "context": [f"Document {number}.", *row["context"]],
            "answer": answer,
        }


def judge_at(port: int) -> Judge:
    """A judge of sentences at the endpoint."""
    from faith_dspy import Judge
    from faith_dspy.lm.make import make_lm

    base = f"http://127.0.0.1:{port}/v1"
    lm = make_lm("openai/tiny", api_base=base, cache=False)
    return Judge(lm, granularity="sentence", classifier=None)


def inputs_of(judge: Judge, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the judge passes to `dspy.Predict` for these records."""
    import dspy
    from dspy.utils.callback import BaseCallback

    seen: list[dict[str, Any]] = []

    class Recorder(BaseCallback):
        def on_module_start(
            self, call_id: str, instance: Any, inputs: dict[str, Any]
        ) -> None:
            if isinstance(instance, dspy.Predict):
                # Plain DSPy asks an LM of its own.
                kwargs = inputs["kwargs"]
                seen.append({k: kwargs[k] for k in kwargs if k != "lm"})

    with dspy.context(callbacks=[Recorder()]):
        judge.batch(given, num_threads=16)
    return seen


def plain_dspy(judge: Judge, port: int) -> Plain:
    """Runs `dspy.Predict` on inputs with so many threads; returns the number of calls."""
    import dspy

    from faith_dspy.program.prompt import CompactAdapter

    lm = dspy.LM(
        "openai/tiny",
        api_base=f"http://127.0.0.1:{port}/v1",
        api_key="none",
        temperature=0.0,
        cache=False,
    )
    predict = dspy.Predict(judge.program.predictors()[0].signature)

    def run(inputs: list[dict[str, Any]], in_flight: int) -> int:
        with (
            dspy.context(lm=lm, adapter=CompactAdapter()),
            ThreadPoolExecutor(in_flight) as pool,
        ):
            futures = [
                pool.submit(contextvars.copy_context().run, predict, **given)
                for given in inputs
            ]
            return sum(future.result() is not None for future in futures)

    return run


def timed(work: Callable[[], int], expected: int) -> dict[str, float]:
    """Calls, seconds by the clock and processor seconds of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    calls = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert calls == expected, f"{calls} calls, expected {expected}"
    return {"calls": calls, "seconds": wall, "cpu": cpu}


def compare(
    judge: Judge,
    recorder: Judge,
    plain: Plain,
    source: Iterator[dict[str, Any]],
    in_flight: int,
    seconds: float,
    turns: int,
) -> dict[str, Any]:
    """One row: both ways with so many calls in flight, in turns of about so many seconds each."""

    def both(n: int) -> dict[str, dict[str, float]]:
        given = list(islice(source, n))
        inputs = inputs_of(recorder, given)
        ways = {
            "judge": lambda: sum(
                j.usage.calls for j in judge.batch(given, num_threads=in_flight)
            ),
            "plain": lambda: plain(inputs, in_flight),
        }
        order = sorted(ways, reverse=bool(next(turn) % 2))
        return {way: timed(ways[way], len(inputs)) for way in order}

    turn = count()
    warm = both(5 * in_flight)  # connections are made; it does not count
    n = max(
        5 * in_flight, int(seconds * warm["plain"]["calls"] / warm["plain"]["seconds"])
    )
    found = [both(n) for _ in range(turns)]
    row: dict[str, Any] = {"in_flight": in_flight}
    for way in ("judge", "plain"):
        calls = sum(f[way]["calls"] for f in found)
        row[way] = {
            "calls": int(calls),
            "cpu_ms_per_call": round(
                1e3 * sum(f[way]["cpu"] for f in found) / calls, 2
            ),
            "calls_per_second": round(calls / sum(f[way]["seconds"] for f in found), 1),
        }
    for name in ("cpu_ms_per_call", "calls_per_second"):
        row[f"{name}_ratio"] = round(row["judge"][name] / row["plain"][name], 2)
    return row


def table(found: dict[str, Any]) -> Table:
    """For people."""
    out = Table(
        "in flight",
        "CPU ms/call",
        "plain",
        "ratio",
        "calls/s",
        "plain",
        "ratio",
        title=str(found["machine"]),
    )
    for row in found["rows"]:
        cells = [row["in_flight"]]
        for name in ("cpu_ms_per_call", "calls_per_second"):
            cells += [row["judge"][name], row["plain"][name], row[f"{name}_ratio"]]
        out.add_row(*map(str, cells))
    return out


def main(
    in_flight: list[int] = [1, 16, 64],
    seconds: float = 5,
    turns: int = 4,
    first: bool = False,
    out: Path = RESULTS,
) -> None:
    """Measure, show, write ``results/overhead.json``.

    ``seconds``: of each turn. ``turns``: of each way. ``first``: only the first statement of each answer.
    """
    os.environ["DSPY_CACHEDIR"] = tempfile.mkdtemp(
        prefix="overhead-"
    )  # before dspy is imported
    logging.getLogger("dspy.clients.lm").addFilter(
        lambda record: False
    )  # a truncation warning for each plain reply
    found: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("faith_dspy", "dspy", "litellm")
        },
        "delay": DELAY,
        "first": first,
    }
    with serving(0.0) as quick, serving(DELAY) as port:
        judge, recorder, source = judge_at(port), judge_at(quick), records(first)
        plain = plain_dspy(recorder, port)
        found["rows"] = [
            compare(judge, recorder, plain, source, n, seconds, turns)
            for n in in_flight
        ]
    Console().print(table(found))
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
