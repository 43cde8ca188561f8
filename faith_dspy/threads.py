"""Work on daemon threads: many items with the results in order, or one call that an event loop awaits."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from functools import cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_In = TypeVar("_In")
_Out = TypeVar("_Out")

_CALL = "faith_dspy call"
"""Name of the threads of `within`."""
MAX_AWAITED = 64
"""Calls of `run_in_thread` that run at the same time in a process; more wait for their turn."""


class DaemonThreads:
    """Up to ``size`` threads that work through one queue. They never delay the end of the process.

    `ThreadPoolExecutor` joins its threads at exit, so that Ctrl-C would wait for every call in flight.
    """

    def __init__(self, size: int, name: str = "faith_dspy") -> None:
        self._size, self._name, self._started = size, name, 0
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def submit(self, work: Callable[[], _Out]) -> Future[_Out]:
        """Run ``work`` with the caller's context variables, `dspy.context` among them."""
        future: Future[_Out] = Future()
        self._queue.put((future, partial(contextvars.copy_context().run, work)))
        if self._started < self._size:
            self._started += 1
            threading.Thread(target=self._run, daemon=True, name=self._name).start()
        return future

    def stop(self) -> None:
        """Let the threads end after what is queued."""
        for _ in range(self._started):
            self._queue.put(None)

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            future, work = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as exc:  # noqa: BLE001 - raised where the result is taken
                future.set_exception(exc)


def map_in_order(work: Callable[[_In], _Out], items: Iterable[_In], threads: int) -> Iterator[_Out]:
    """``work`` on each item on so many threads; results in the order of the items.

    At most ``2 * threads`` items are taken ahead of the result that is waited for. If the caller stops (closes the
    generator, raises, presses Ctrl-C), nothing more is begun and nothing waited for. If ``items`` raises, the results
    of the items before it come out first. With one thread the work is done in the caller's.
    """
    if threads == 1:
        yield from map(work, items)
        return
    pool = DaemonThreads(threads)
    waiting: deque[Future[_Out]] = deque()

    def begun() -> Iterator[Future[_Out]]:
        try:
            for item in items:
                yield pool.submit(partial(work, item))
        except Exception as exc:  # noqa: BLE001 - raised in its turn
            failed: Future[_Out] = Future()
            failed.set_exception(exc)
            yield failed

    try:
        for future in begun():
            waiting.append(future)
            while waiting and (len(waiting) > 2 * threads or waiting[0].done()):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        pool.stop()


def within(seconds: float, work: Callable[[], _Out]) -> _Out:
    """The result of ``work`` on a thread of its own. `TimeoutError` after so many seconds: then it runs on unheeded."""
    thread = DaemonThreads(1, _CALL)
    future = thread.submit(work)
    thread.stop()
    return future.result(seconds)


def wait_for_calls(seconds: float) -> None:
    """Return as soon as no work of `within` is left, after so many seconds at most."""
    ends = time.monotonic() + seconds
    while calls := [thread for thread in threading.enumerate() if thread.name == _CALL]:
        if (left := ends - time.monotonic()) <= 0:
            return
        calls[0].join(left)


async def run_in_thread(work: Callable[[], _Out]) -> _Out:
    """The result of ``work``, without blocking the event loop. Cancelled, it does not begin, or runs on unheeded."""
    return await asyncio.wrap_future(_pool(os.getpid()).submit(work))


@cache
def _pool(pid: int) -> DaemonThreads:
    """Shared by all event loops of a process; a forked child has none of its parent's threads, so it gets its own."""
    return DaemonThreads(MAX_AWAITED)
