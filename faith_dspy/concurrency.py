"""The same work on many things at a time, with the results in order."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_In = TypeVar("_In")
_Out = TypeVar("_Out")


MOST = 256
"""Things awaited by `in_thread` that are done at the same time; more wait their turn."""


class Turn:
    """One thread at a time works, until it waits for something outside: see `waiting`.

    The interpreter runs one thread at a time anyhow. Many that want to run at once cost nearly as much in being woken
    and put to sleep as the work itself: more than 80 times a call at 64 in flight, with turns some 15.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def taken(self, work: Callable[..., _Out]) -> Callable[..., _Out]:
        """``work``, done in its turn; at once where whoever asks for it has the turn and will wait for it."""
        if _mine.lock is self._lock:
            return work

        def in_turn(*args: Any) -> _Out:
            with self._lock:
                _mine.lock = self._lock
                try:
                    return work(*args)
                finally:
                    _mine.lock = None

        return in_turn


class _Mine(threading.local):
    lock: threading.Lock | None = None
    """What the present thread holds while it is its turn."""


_mine = _Mine()


@contextmanager
def waiting() -> Iterator[None]:
    """Around whatever waits for something outside – a reply, a clock – so that others work in the meantime."""
    lock = _mine.lock
    if lock is None:
        yield
        return
    _mine.lock = None
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
        _mine.lock = lock


async def in_thread(work: Callable[[], _Out]) -> _Out:
    """``work`` in a thread, with the caller's context. `asyncio.to_thread` has six threads on two processors."""
    return await asyncio.get_running_loop().run_in_executor(
        _pool(os.getpid()), partial(contextvars.copy_context().run, work)
    )


@lru_cache(maxsize=1)
def _pool(pid: int) -> ThreadPoolExecutor:
    """Threads are made as they are needed; a forked child has none of its parent's."""
    return ThreadPoolExecutor(MOST, thread_name_prefix="faith_dspy")


@lru_cache(maxsize=1)
def turn_of(pid: int) -> Turn:
    """Shared by all that is awaited in a process; a forked child's is free, whoever has the parent's."""
    return Turn()


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

    ahead: deque[Future[Any]] = deque()
    for _ in range(threads):
        threading.Thread(target=serve, daemon=True, name="faith_dspy").start()
    try:
        for item in items:
            ahead.append(submit(item))
            if len(ahead) > 2 * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()
        for _ in range(threads):
            todo.put(None)
