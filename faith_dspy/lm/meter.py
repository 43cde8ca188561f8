"""What a piece of work cost, and what it may cost: counters that stay open around it.

DSPy's own usage tracking loses the tokens of nested batches and reports none for cached replies. Here every call of a
`MeteredLM` is added to all meters that are open around it, through threads, tasks and caches.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.concurrency import pause
from faith_dspy.errors import ConfigError, LimitReachedError
from faith_dspy.schema import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

_METERS = "faith_dspy_meters"
"""Key in DSPy's settings. A context variable of our own would not reach the threads of `dspy.Parallel`."""


@dataclass(frozen=True)
class Limits:
    """What may be spent. None: no limit. Replies that were paid for before cost nothing."""

    calls: int | None = None
    tokens: int | None = None
    """Computed prompt tokens and output tokens."""
    dollars: float | None = None
    seconds: float | None = None
    """By the clock, from when the meter is opened."""
    calls_per_second: float | None = None
    """A call that comes earlier waits, in its thread, for its turn. Replies from DSPy's cache wait too."""

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.calls, self.tokens, self.dollars, self.seconds))

    def words(self, name: str) -> str:
        """One of them as people say it."""
        seconds = self.seconds or 0.0
        return {
            "calls": f"{self.calls or 0:,} LM calls",
            "tokens": f"{self.tokens or 0:,} tokens",
            "dollars": f"${self.dollars or 0:.2f}",
            "seconds": f"{seconds / 60:.3g} minutes" if seconds >= 60 else f"{seconds:.3g} seconds",
        }[name]


class Meter:
    """Adds up calls. Safe to read and to add to from several threads."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._lock = threading.Lock()
        self._usage = self._paid = Usage()
        self._begun = 0
        self._replayed = 0
        self._failed = 0
        self._refused = 0
        self._started = self._turn = time.monotonic()
        self.limits = Limits() if limits is None else limits

    @property
    def usage(self) -> Usage:
        """Everything counted so far. `seconds` is the time spent in calls, added up: parallel calls exceed the clock.

        Replies from DSPy's cache are included with the counts and seconds of the calls that paid for them.
        """
        with self._lock:
            return self._usage

    @property
    def replayed(self) -> int:
        """How many of the calls were answered from DSPy's cache."""
        with self._lock:
            return self._replayed

    @property
    def failed(self) -> int:
        """Calls that raised; they are in no other count."""
        with self._lock:
            return self._failed

    @property
    def paid(self) -> Usage:
        """`usage` without the replies from DSPy's cache: what was spent under this meter."""
        with self._lock:
            return self._paid

    @property
    def seconds(self) -> float:
        """By the clock, since the meter was opened."""
        return time.monotonic() - self._started

    def add(self, usage: Usage, *, replayed: bool = False) -> None:
        """Count a call that was answered."""
        with self._lock:
            self._begun -= 1
            self._usage = self._usage + usage
            self._replayed += replayed
            if not replayed:
                self._paid = self._paid + usage

    def add_failure(self) -> None:
        """Count a call that raised."""
        with self._lock:
            self._begun -= 1
            self._failed += 1

    def begin(self) -> None:
        """A call begins, when it is its turn. `LimitReachedError` before it is made, when what may be spent is spent.

        Calls in flight count as made, so that the limit of calls is never exceeded; tokens and dollars are known
        afterwards only, and can be exceeded by those of the calls in flight.
        """
        with self._lock:
            if which := self._reached():
                self._refused += 1
                raise LimitReachedError(f"the limit of {self.limits.words(which)} is reached")
            self._begun += 1
            now = time.monotonic()
            wait = max(0.0, self._turn - now)
            if self.limits.calls_per_second:
                self._turn = now + wait + 1 / self.limits.calls_per_second
        if wait:
            pause(wait)

    def cancel(self) -> None:
        """A call that began ends without an answer or a failure: it was never made, or stopped by Ctrl-C."""
        with self._lock:
            self._begun -= 1

    @property
    def reached(self) -> str | None:
        """The name of the limit that is reached."""
        with self._lock:
            return self._reached()

    @property
    def refused(self) -> int:
        """Calls that were not made because a limit was reached."""
        with self._lock:
            return self._refused

    def _reached(self) -> str | None:
        may, paid = self.limits, self._paid
        if may.dollars is not None and paid.calls and paid.dollars is None:
            raise ConfigError(
                "a limit in dollars needs a price, and LiteLLM's list has none for this LM; set a limit in tokens."
            )
        spent = {
            "calls": paid.calls + self._failed + self._begun,
            "tokens": paid.computed_tokens + paid.output_tokens,
            "dollars": paid.dollars or 0.0,
            "seconds": time.monotonic() - self._started,
        }
        return next((k for k, v in spent.items() if (limit := getattr(may, k)) is not None and v >= limit), None)


@contextmanager
def metered(limits: Limits | None = None, **settings: Any) -> Iterator[Meter]:
    """Count all calls of `MeteredLM`s inside the block, in DSPy's threads and asyncio's tasks too. Blocks nest.

    With ``limits`` a call beyond them raises `LimitReachedError` instead of being made. ``settings`` are those of
    `dspy.context`, for the same block.

    A plain `ThreadPoolExecutor` needs `contextvars.copy_context().run`, as for `dspy.context`, which this is.
    """
    meter = Meter(limits)
    with dspy.context(**settings, **{_METERS: (*open_meters(), meter)}):
        yield meter


def counted() -> Usage:
    """What the innermost open meter has counted so far; nothing outside of any."""
    meters = open_meters()
    return meters[-1].usage if meters else Usage()


def open_meters() -> tuple[Meter, ...]:
    """The meters around the present piece of work, the outermost first."""
    meters: tuple[Meter, ...] = dspy.settings.get(_METERS, ())
    return meters
