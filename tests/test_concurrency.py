from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from faith_dspy.concurrency import Turn, in_order, in_thread, waiting


def test_results_are_in_order() -> None:
    """The last to be done is not the last to come out, and no more threads are busy than were asked for."""
    most, busy, lock = 0, 0, threading.Lock()

    def work(i: int) -> int:
        nonlocal most, busy
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.02 if i % 3 == 0 else 0.001)
        with lock:
            busy -= 1
        return i

    assert list(in_order(work, range(40), 4)) == list(range(40))
    assert 2 <= most <= 4


def test_few_items_are_taken_ahead() -> None:
    """At most twice as many as there are threads wait behind the result that is due."""
    taken = []
    results = in_order(lambda i: i, (taken.append(i) or i for i in range(100)), 2)
    assert next(results) == 0
    assert len(taken) == 5
    results.close()


def test_many_are_awaited_at_a_time() -> None:
    """A hundred things that wait for each other are all done: each has a thread, and the caller's context."""
    all_there = threading.Barrier(100)
    who = ContextVar("who")

    async def run() -> list[str]:
        who.set("caller")
        return await asyncio.gather(*(in_thread(lambda: (all_there.wait(60), who.get())[1]) for _ in range(100)))

    assert asyncio.run(run()) == ["caller"] * 100


def test_closing_begins_nothing_more() -> None:
    """After a close nothing that was waiting is begun, and what goes on is not waited for."""
    begun, release = [], threading.Event()

    def work(i: int) -> int:
        begun.append(i)
        if i:
            release.wait(30)
        return i

    results = in_order(work, range(100), 2)
    assert next(results) == 0
    started = time.monotonic()
    results.close()
    assert time.monotonic() - started < 5
    release.set()
    time.sleep(0.2)
    assert len(begun) <= 3


def test_a_fault_is_raised_in_its_place() -> None:
    """What work raises comes out where its result would have."""

    def work(i: int) -> float:
        return 1 / (2 - i)

    results = in_order(work, range(5), 3)
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_the_process_ends_while_work_goes_on() -> None:
    """A call that hangs does not keep the interpreter alive."""
    code = (
        "import time; from faith_dspy.concurrency import in_order\n"
        "r = in_order(lambda i: time.sleep(60 * i), range(9), 2); next(r)"
    )
    started = time.monotonic()
    assert subprocess.run([sys.executable, "-c", code], timeout=40, check=False).returncode == 0
    assert time.monotonic() - started < 30


def test_turns_are_for_work_and_not_for_waiting() -> None:
    """Of four threads one works at a time, while all four wait together."""
    all_there, working, most = threading.Barrier(4), 0, 0

    def work(i: int) -> int:
        nonlocal working, most
        for _ in range(3):
            working += 1
            most = max(most, working)
            time.sleep(0.002)
            working -= 1
            with waiting():
                all_there.wait(60)
        return i

    assert list(in_order(Turn().taken(work), range(8), 4)) == list(range(8))
    assert most == 1


def test_a_turn_ends_with_an_error() -> None:
    """What raises, at work or while it waits, holds nobody up; and what waits while it waits is no second release."""
    turn = Turn()

    def work(where: str) -> str:
        with waiting(), waiting():
            if where == "waiting":
                raise ValueError(where)
        if where == "working":
            raise ValueError(where)
        return where

    for where in ("waiting", "working"):
        with pytest.raises(ValueError, match=where):
            turn.taken(work)(where)
    assert list(in_order(turn.taken(work), ["done"] * 3, 2)) == ["done"] * 3


def test_waiting_without_a_turn() -> None:
    """Outside of any turn it does nothing."""
    with waiting():
        assert time.monotonic()


def test_work_that_waits_for_work_of_the_same_turn() -> None:
    """What is asked for within a turn is done without waiting for the turn, which would never come."""
    turn = Turn()

    def outer() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(turn.taken(lambda: 42)).result(timeout=10)

    assert turn.taken(outer)() == 42
