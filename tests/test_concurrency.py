from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from contextvars import ContextVar

import pytest

from faith_dspy.concurrency import Crew, awaited, connected, elsewhere, in_order, meanwhile, pause


@pytest.fixture
def echo(on_sockets):
    """Makes a server that sends back what it got, after a while; its port."""

    def make(delay: float = 0.0) -> int:
        def serve(connection: socket.socket) -> None:
            while said := connection.recv(1 << 20):
                time.sleep(delay)
                connection.sendall(said)

        return on_sockets(serve)

    return make


def test_results_are_in_order() -> None:
    """The last to be done is not the last to come out, and no more are begun at a time than were asked for."""
    most = busy = 0

    def work(i: int) -> int:
        nonlocal most, busy
        busy += 1
        most = max(most, busy)
        pause(0.02 if i % 3 == 0 else 0.001)
        busy -= 1
        return i

    assert list(in_order(work, range(40), 4)) == list(range(40))
    assert most == 4


def test_few_items_are_taken_ahead() -> None:
    """At most twice as many as are done at a time wait behind the result that is due."""
    taken: list[int] = []
    results = in_order(lambda i: pause(0.3 * (i == 0)) or i, (taken.append(i) or i for i in range(100)), 2)
    assert next(results) == 0
    assert len(taken) == 5
    results.close()


def test_a_result_does_not_wait_for_more_items() -> None:
    """From a slow source a result comes out before the item after the next is asked for."""
    came: list[int] = []

    def source():
        for i in range(4):
            assert len(came) >= i - 1
            time.sleep(0.05)
            yield i

    for result in in_order(lambda i: i, source(), 8):
        came.append(result)
    assert came == [0, 1, 2, 3]


def test_a_source_that_fails() -> None:
    """What was begun before comes out, and then the source's fault."""

    def source():
        yield from range(5)
        raise LookupError("torn")

    results = in_order(lambda i: pause(0.05) or i, source(), 4)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(LookupError, match="torn"):
        next(results)


def test_a_wait_that_is_over_twice_ends_once(echo) -> None:
    """A reply that comes while its deadline passes is no timeout of the next wait."""
    port = echo(0.05)

    def work(_: int) -> str:
        with connected("127.0.0.1", port, 0.05) as sock:
            sock.sendall(b"?")
            try:
                sock.recv(1)
            except TimeoutError:
                return "late"
            time.sleep(0.06)  # the others' deadlines pass while nobody looks
            sock.settimeout(5)
            sock.sendall(b"!")
            sock.recv(1)
        return "done"

    assert set(in_order(work, range(24), 12)) <= {"late", "done"}


def test_what_is_cancelled_is_left() -> None:
    """A cancelled wait gives its place free at once, and goes no further."""
    steps: list[str] = []

    def work() -> None:
        steps.append("begun")
        try:
            pause(30)
        finally:
            steps.append("left")
        steps.append("went on")

    async def run() -> None:
        waits = [asyncio.wait_for(awaited(work), 0.2) for _ in range(256)]
        found = await asyncio.gather(*waits, return_exceptions=True)
        assert {type(f) for f in found} == {TimeoutError}
        assert await asyncio.wait_for(awaited(lambda: "next"), 5) == "next"

    asyncio.run(run())
    assert sorted(set(steps)) == ["begun", "left"]


def test_many_are_awaited_at_a_time() -> None:
    """A hundred things that wait for each other are all done, each with the caller's context wherever it waits."""
    all_there = threading.Barrier(100)
    who: ContextVar[str] = ContextVar("who")

    def work() -> tuple[str, str]:
        elsewhere(lambda: all_there.wait(60))
        return who.get(), elsewhere(who.get)

    async def one(i: int) -> tuple[str, str]:
        who.set(str(i))
        return await awaited(work)

    async def run() -> list[tuple[str, str]]:
        return await asyncio.gather(*map(one, range(100)))

    assert asyncio.run(run()) == [(str(i), str(i)) for i in range(100)]


def test_closing_begins_nothing_more() -> None:
    """After a close nothing that was waiting is begun, and what goes on is not waited for."""
    begun, release = [], threading.Event()

    def work(i: int) -> int:
        begun.append(i)
        if i:
            elsewhere(lambda: release.wait(30))
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
    code = """
import asyncio, time
from faith_dspy.concurrency import awaited, elsewhere, in_order

results = in_order(lambda i: elsewhere(lambda: time.sleep(60 * i)), range(9), 2)
next(results)

async def hang():
    await asyncio.wait_for(awaited(lambda: elsewhere(lambda: time.sleep(60))), 0.1)

try:
    asyncio.run(hang())
except TimeoutError:
    print("ended")
"""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], timeout=40, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    assert time.monotonic() - started < 30


def test_one_thread_works_while_all_wait() -> None:
    """Of four things one is worked on at a time, in one thread, while all four wait together."""
    all_there, working, most, threads = threading.Barrier(4), 0, 0, set()

    def work(i: int) -> int:
        nonlocal working, most
        for _ in range(3):
            working += 1
            most = max(most, working)
            time.sleep(0.002)
            threads.add(threading.get_ident())
            working -= 1
            elsewhere(lambda: all_there.wait(60))
        return i

    assert list(in_order(work, range(8), 4)) == list(range(8))
    assert (most, len(threads)) == (1, 1)


def test_what_fails_elsewhere_fails_here() -> None:
    """An error in the other thread is raised where the work waits, and nobody else is held up."""

    def work(fails: bool) -> str:
        try:
            elsewhere(lambda: 1 / (not fails))
        except ZeroDivisionError:
            return "failed"
        return "done"

    assert list(in_order(work, [True, False] * 4, 2)) == ["failed", "done"] * 4


@pytest.mark.parametrize("size", [3, 3_000_000])
def test_sockets_wait_for_each_other(echo, size: int) -> None:
    """Eight connections wait at the same time, for short and for long messages; each gets its own bytes back."""
    port = echo(0.2 if size < 10 else 0.0)

    def work(i: int) -> bool:
        message = bytes([i]) * size
        sock = connected("127.0.0.1", port, 30)
        with sock:
            # What is sent comes back at once, and has to be taken while more is sent: another connection's work.
            for start in range(0, size, 1 << 16):
                part = message[start : start + (1 << 16)]
                sock.sendall(part)
                got = b""
                while len(got) < len(part):
                    got += sock.recv(1 << 20)
                if got != part:
                    return False
        return sock.heard > 0

    started = time.monotonic()
    assert list(in_order(work, range(8), 8)) == [True] * 8
    if size < 10:
        assert time.monotonic() - started < 8 * 0.2
    assert work(1)  # the same without a crew


def test_a_long_message_lets_others_go_on() -> None:
    """While one sends what nobody reads, the other is done."""
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts, and never reads

        def work(size: int) -> str:
            with connected("127.0.0.1", listening.getsockname()[1], 1.0) as sock:
                try:
                    sock.sendall(b"x" * size)
                except TimeoutError:
                    return "nobody reads"
            return "sent"

        assert list(in_order(work, [100_000_000, 10], 2)) == ["nobody reads", "sent"]


def test_a_socket_that_stays_silent(echo) -> None:
    """A wait ends with its timeout, in a crew and without one."""
    port = echo(5)

    def work(_: int) -> str:
        with connected("127.0.0.1", port, 0.2) as sock:
            sock.sendall(b"?")
            try:
                sock.recv(10)
            except TimeoutError:
                return "silent"
        return "heard"

    assert list(in_order(work, range(3), 3)) == ["silent"] * 3
    assert work(0) == "silent"


def test_stopping_ends_what_waits() -> None:
    """What waits is left with everything it opened closed; its result never comes."""
    ended = threading.Event()

    def work() -> None:
        try:
            pause(60)
        finally:
            ended.set()

    crew = Crew(1)
    begun = crew.submit(lambda: None)
    begun.result(10)
    crew.submit(work)
    crew.submit(lambda: None)  # never begun
    time.sleep(0.1)
    crew.stop()
    assert ended.wait(10)


def test_an_event_loop_within_what_is_awaited() -> None:
    """What is awaited within the work of the same thread is done without waiting for that thread."""

    def outer() -> int:
        return asyncio.run(awaited(lambda: (pause(0.01), 42)[1]))

    async def run() -> int:
        return await asyncio.wait_for(awaited(outer), 10)

    assert asyncio.run(run()) == 42


def test_without_a_crew() -> None:
    """Outside of any the functions simply wait."""
    pause(0)
    assert elsewhere(threading.get_ident) == threading.get_ident()


def test_what_is_done_meanwhile(echo) -> None:
    """It is done once, after the question is out and before its answer is there; never where nothing is waited for."""
    done: list[str] = []
    with connected("127.0.0.1", echo(0.2), 5) as sock, meanwhile(lambda: done.append("outer")):
        with meanwhile(lambda: done.append("unused")):
            pass
        sock.sendall(b"?")
        started = time.perf_counter()
        with meanwhile(lambda: (time.sleep(0.1), done.append("inner"))):
            sock.recv(1)
        assert time.perf_counter() - started < 0.28
        for _ in range(2):
            sock.sendall(b"?")
            sock.recv(1)
    assert done == ["inner", "outer"]
