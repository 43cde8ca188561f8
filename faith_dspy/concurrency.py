"""The same work on many things at a time, with the results in order."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_In = TypeVar("_In")
_Out = TypeVar("_Out")


MOST = 256
"""Things awaited by `in_thread` that are done at the same time; more wait their turn."""


async def in_thread(work: Callable[[], _Out]) -> _Out:
    """``work`` in a thread, with the caller's context. `asyncio.to_thread` has six threads on two processors."""
    return await asyncio.get_running_loop().run_in_executor(
        _pool(os.getpid()), partial(contextvars.copy_context().run, work)
    )


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:
    """Threads are made as they are needed; a forked child has none of its parent's."""
    return ThreadPoolExecutor(MOST, thread_name_prefix="faith_dspy")


def in_order(work: Callable[[_In], _Out], items: Iterable[_In], threads: int) -> Iterator[_Out]:
    """``work`` on each item, in the order of the items, on so many threads.

    At most ``2 * threads`` items are taken ahead of the result that is waited for. When the caller stops – closes the
    generator, raises, presses Ctrl-C – nothing more is begun and nothing waited for: the threads are daemons, so
    that a call in flight holds up neither the caller nor the end of the process, as `ThreadPoolExecutor` would.
    """
    todo: SimpleQueue[tuple[Future[_Out], Callable[[], _Out]] | None] = SimpleQueue()

    def serve() -> None:
        while (task := todo.get()) is not None:
            future, call = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as exc:  # noqa: BLE001 - raised where the result is taken
                future.set_exception(exc)

    def submit(item: _In) -> Future[_Out]:
        future: Future[_Out] = Future()
        todo.put((future, partial(contextvars.copy_context().run, work, item)))
        return future

    waiting: deque[Future[Any]] = deque()
    for _ in range(threads):
        threading.Thread(target=serve, daemon=True, name="faith_dspy").start()
    try:
        for item in items:
            waiting.append(submit(item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        for _ in range(threads):
            todo.put(None)
