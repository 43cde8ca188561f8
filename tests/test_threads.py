from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextvars import ContextVar

import pytest

from faith_dspy.threads import MAX_AWAITED, map_in_order, run_in_thread


def test_results_are_in_order() -> None:
    """The last to be done is not the last to come out, and no more are done at a time than there are threads."""
    lock = threading.Lock()
    most = busy = 0

    def work(i: int) -> int:
        nonlocal most, busy
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.02 if i % 3 == 0 else 0.001)
        with lock:
            busy -= 1
        return i

    assert list(map_in_order(work, range(40), 4)) == list(range(40))
    assert most == 4


def test_few_items_are_read_ahead() -> None:
    """At most twice as many items as threads wait behind the result that is due."""
    taken: list[int] = []
    results = map_in_order(lambda i: time.sleep(0.3 * (i == 0)) or i, (taken.append(i) or i for i in range(100)), 2)
    assert next(results) == 0
    assert len(taken) == 5
    results.close()


def test_a_source_that_fails() -> None:
    """The results of the items before the fault come out, and then the fault."""

    def source():
        yield from range(5)
        raise LookupError("torn")

    results = map_in_order(lambda i: time.sleep(0.05) or i, source(), 4)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(LookupError, match="torn"):
        next(results)


def test_closing_begins_nothing_more() -> None:
    """After a close nothing that was waiting is begun, and what goes on is not waited for."""
    begun, release = [], threading.Event()

    def work(i: int) -> int:
        begun.append(i)
        if i:
            release.wait(200)
        return i

    results = map_in_order(work, range(100), 2)
    assert next(results) == 0
    started = time.monotonic()
    results.close()
    assert time.monotonic() - started < 60
    release.set()
    time.sleep(0.2)
    assert len(begun) <= 3


def test_the_process_ends_while_work_goes_on() -> None:
    """Calls that hang do not keep the interpreter alive."""
    code = """
import asyncio, time
from faith_dspy.threads import map_in_order, run_in_thread

results = map_in_order(lambda i: time.sleep(200 * i), range(9), 2)
next(results)

async def hang():
    await asyncio.wait_for(run_in_thread(lambda: time.sleep(200)), 0.1)

try:
    asyncio.run(hang())
except TimeoutError:
    print("ended")
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], timeout=300, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    assert time.monotonic() - started < 150


def test_many_are_awaited_at_a_time() -> None:
    """As many things as there are threads wait for each other and are done, each with its caller's context."""
    all_there = threading.Barrier(MAX_AWAITED)
    who: ContextVar[int] = ContextVar("who")

    def work() -> int:
        all_there.wait(60)
        return who.get()

    async def one(i: int) -> int:
        who.set(i)
        return await run_in_thread(work)

    async def run() -> list[int]:
        return await asyncio.gather(*map(one, range(2 * MAX_AWAITED)))

    assert asyncio.run(run()) == list(range(2 * MAX_AWAITED))


def test_what_is_cancelled_in_the_queue_never_begins() -> None:
    """More are awaited than there are threads; those cancelled while they wait for one are not begun."""
    release, begun = threading.Event(), []

    def work(i: int) -> None:
        begun.append(i)
        release.wait(60)

    async def run() -> None:
        calls = [asyncio.create_task(run_in_thread(lambda i=i: work(i))) for i in range(MAX_AWAITED + 8)]
        while len(begun) < MAX_AWAITED:
            await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        release.set()
        assert await asyncio.wait_for(run_in_thread(lambda: "next"), 5) == "next"

    asyncio.run(run())
    assert sorted(begun) == list(range(MAX_AWAITED))
