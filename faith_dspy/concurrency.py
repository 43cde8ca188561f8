"""Many things at a time in one thread: where one waits for something outside, the others go on.

The interpreter runs one thread at a time anyhow, and handing it from thread to thread costs as much as the work
between two waits. So work runs in greenlets of one thread, and whatever waits – a socket, a pause, a library that
knows nothing of this – says so with the functions here. Outside of such a thread they simply wait.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import os
import select
import selectors
import socket
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_In = TypeVar("_In")
_Out = TypeVar("_Out")

MOST = 256
"""Things awaited that are done at the same time; more wait until one of them is done."""


_OFTEN = 0.005
"""Seconds after which it is looked who has heard something, while others work: so precisely is told when it came."""


class Crew:
    """A thread that works on at most ``most`` things at a time. It never keeps a process alive."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: deque[Callable[[], Any]] = deque()  # from other threads, done before anything else
        self._todo: deque[Callable[[], None]] = deque()
        self._ready: deque[tuple[greenlet, Any]] = deque()
        self._live: dict[greenlet, Future[Any]] = {}
        self._times: list[tuple[float, int, list[greenlet]]] = []  # an emptied list wakes nobody
        self._numbers = count()
        self._stopped = False
        self._asleep = False
        self._heard = 0.0
        self._bell, self._button = socket.socketpair()
        self._bell.setblocking(False)
        self._button.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ)
        threading.Thread(target=self._run, daemon=True, name="faith_dspy").start()

    def submit(self, work: Callable[[], _Out]) -> Future[_Out]:
        """Have ``work`` done, with the caller's context."""
        future: Future[_Out] = Future()
        context = contextvars.copy_context()

        def begin() -> None:
            if future.set_running_or_notify_cancel():
                worker = greenlet(partial(_settle, future, work))
                worker.gr_context = context
                self._live[worker] = future
                self._ready.append((worker, None))

        self._call(partial(self._todo.append, begin))
        return future

    def drop(self, future: Future[Any]) -> None:
        """Leave a piece of work where it is."""

        def leave() -> None:
            for worker in [w for w, its in self._live.items() if its is future]:
                worker.throw(GreenletExit)
                self._live.pop(worker, None)

        future.cancel()
        self._call(leave)

    def stop(self) -> None:
        """Begin nothing more and leave what is going on; nothing is waited for."""
        self._stopped = True
        self._ring()

    def _call(self, what: Callable[[], Any]) -> None:
        self._calls.append(what)
        if self._asleep:
            self._ring()

    def _ring(self) -> None:
        try:
            self._button.send(b"!")
        except OSError:  # rung often enough, or nobody is there any more
            return

    def _run(self) -> None:
        _mine.crew, self._hub = self, getcurrent()
        while not self._stopped:
            while self._calls:
                self._calls.popleft()()
            while self._todo and len(self._live) < self._most:
                self._todo.popleft()()
            for _ in range(len(self._ready)):
                worker, value = self._ready.popleft()
                worker.switch(value)
                if worker.dead:
                    self._live.pop(worker, None)
                if time.perf_counter() - self._heard > _OFTEN:
                    self._hear(0.0)
            self._look()
        for worker in [*self._live]:
            worker.throw(GreenletExit)
        self._selector.close()
        self._bell.close()
        self._button.close()

    def _look(self) -> None:
        """Whose wait is over; sleep until it is somebody's."""
        self._asleep = True
        if self._ready or self._calls or self._stopped or (self._todo and len(self._live) < self._most):
            patience: float | None = 0.0
        else:
            patience = max(0.0, self._times[0][0] - time.monotonic()) if self._times else None
        self._hear(patience)
        self._asleep = False
        due = time.monotonic()
        while self._times and (not self._times[0][2] or self._times[0][0] <= due):
            alarm = heapq.heappop(self._times)[2]
            self._ready += ((worker, None) for worker in alarm)
            alarm.clear()

    def _hear(self, patience: float | None) -> None:
        heard = self._selector.select(patience)
        self._heard = now = time.perf_counter()
        for key, _ in heard:
            if key.data is None:
                with suppress(BlockingIOError):
                    self._bell.recv(4096)
                continue
            if key.data:  # else its time was over first
                self._selector.unregister(key.fileobj)
                self._ready.append((key.data.pop(), now))

    # What follows is called by what works in the thread.

    def until(self, event: int, sock: socket.socket, timeout: float | None) -> float:
        """Let others go on until the socket is ready; when that was, by `time.perf_counter`. Raises TimeoutError."""
        alarm = [getcurrent()]
        self._selector.register(sock, event, alarm)
        self._set(alarm, timeout)
        at: float | None = None
        try:
            at = self._hub.switch()
        finally:
            alarm.clear()
            if at is None:
                self._selector.unregister(sock)
        if at is None:
            raise TimeoutError("timed out")
        return at

    def pause(self, seconds: float) -> None:
        """Let others go on for so long."""
        alarm = [getcurrent()]
        self._set(alarm, seconds)
        try:
            self._hub.switch()
        finally:
            alarm.clear()

    def elsewhere(self, work: Callable[[], _Out]) -> _Out:
        """Let others go on until ``work`` is done in a thread of its own."""
        me = getcurrent()
        future: Future[_Out] = Future()

        def do() -> None:
            _settle(future, work)
            self._call(partial(self._ready.append, (me, None)))

        threading.Thread(target=contextvars.copy_context().run, args=(do,), daemon=True, name="faith_dspy").start()
        self._hub.switch()
        return future.result()

    def _set(self, alarm: list[greenlet], seconds: float | None) -> None:
        """Wake who is in it after so long, unless it was emptied before."""
        if seconds is not None:
            heapq.heappush(self._times, (time.monotonic() + seconds, next(self._numbers), alarm))
            if len(self._times) > 4 * len(self._live) + 64:
                self._times = [t for t in self._times if t[2]]
                heapq.heapify(self._times)


def _settle(future: Future[_Out], work: Callable[[], _Out], _at: float | None = None) -> None:
    try:
        future.set_result(work())
    except BaseException as exc:  # noqa: BLE001 - raised where the result is taken
        future.set_exception(exc)


class _Mine(threading.local):
    crew: Crew | None = None
    """Whose thread this is."""


_mine = _Mine()


_errand: contextvars.ContextVar[list[Callable[[], Any]]] = contextvars.ContextVar("faith_dspy_errand", default=[])  # noqa: B039


@contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[None]:
    """Have ``work`` done during the first wait for a reply in the block; never, if nothing is waited for there."""
    token = _errand.set([work])
    try:
        yield
    finally:
        _errand.reset(token)


class PatientSocket(socket.socket):
    """A connected socket of which reading and sending let others go on. ``heard``: when something last came."""

    heard = 0.0

    def recv(self, *args: Any) -> bytes:
        """As of any socket."""
        if errand := _errand.get():
            with suppress(Exception):  # whoever needs what it makes meets the fault
                errand.pop()()
        crew = _mine.crew
        at = crew.until(selectors.EVENT_READ, self, self.gettimeout()) if crew else None
        data = super().recv(*args)
        self.heard = at or time.perf_counter()
        return data

    def recv_into(self, *args: Any) -> int:
        """As of any socket."""
        crew = _mine.crew
        at = crew.until(selectors.EVENT_READ, self, self.gettimeout()) if crew else None
        n = super().recv_into(*args)
        self.heard = at or time.perf_counter()
        return n

    def sendall(self, data: Any, flags: int = 0) -> None:
        """As of any socket."""
        crew = _mine.crew
        if crew is None:
            return super().sendall(data, flags)
        left = memoryview(data)
        while left:
            if not ready(self, selectors.EVENT_WRITE):
                crew.until(selectors.EVENT_WRITE, self, self.gettimeout())
            left = left[super().send(left, flags) :]
        return None


def ready(sock: socket.socket, event: int) -> bool:
    """Whether there is something to read (or the other end hung up), or room to write, at this moment."""
    if not hasattr(select, "poll"):
        reading = event == selectors.EVENT_READ
        return any(select.select([sock] if reading else [], [] if reading else [sock], [], 0))
    poll = select.poll()
    poll.register(sock, select.POLLIN if event == selectors.EVENT_READ else select.POLLOUT)
    return bool(poll.poll(0))


def connected(host: str, port: int, timeout: float | None) -> PatientSocket:
    """A connection; its name is looked up and its other end waited for while others go on."""
    plain = elsewhere(partial(socket.create_connection, (host, port), timeout))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    patient = PatientSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
    patient.settimeout(timeout)
    return patient


def pause(seconds: float) -> None:
    """As `time.sleep`, while others go on."""
    if _mine.crew is None:
        time.sleep(seconds)
    else:
        _mine.crew.pause(seconds)


def elsewhere(work: Callable[[], _Out]) -> _Out:
    """Do what waits in ways of its own, while others go on."""
    return work() if _mine.crew is None else _mine.crew.elsewhere(work)


async def awaited(work: Callable[[], _Out]) -> _Out:
    """``work``, with the caller's context, without holding up the event loop. Cancelled, it is left where it waits."""
    with _making:
        crew = _crew_of(os.getpid())
    if _mine.crew is not crew:
        future = crew.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            crew.drop(future)
            raise
    _mine.crew = None  # an event loop within this very thread: it cannot be left while it runs
    try:
        return work()
    finally:
        _mine.crew = crew


_making = threading.Lock()


@lru_cache(maxsize=1)
def _crew_of(pid: int) -> Crew:
    """Shared by all that is awaited in a process; a forked child has a thread of its own."""
    return Crew(MOST)


def in_order(work: Callable[[_In], _Out], items: Iterable[_In], most: int) -> Iterator[_Out]:
    """``work`` on each item, in the order of the items, on at most so many at a time.

    At most ``2 * most`` items are taken ahead of the result that is waited for. When the caller stops – closes the
    generator, raises, presses Ctrl-C – nothing more is begun and nothing waited for.
    """
    crew = Crew(most)
    ahead: deque[Future[_Out]] = deque()
    source, fault = iter(items), None
    try:
        while True:
            try:
                item = next(source)
            except StopIteration:
                break
            except Exception as exc:  # noqa: BLE001 - what was begun before it comes out first
                fault = exc
                break
            ahead.append(crew.submit(partial(work, item)))
            while ahead and (len(ahead) > 2 * most or ahead[0].done()):
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
        if fault is not None:
            raise fault
    finally:
        crew.stop()
