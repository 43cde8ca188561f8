"""What a piece of work cost, and what it may cost: counters that stay open around it.

DSPy's own usage tracking loses the tokens of nested batches and reports none for cached replies. Here every call of a
`MeteredLM` is added to all meters that are open around it, in threads and tasks too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import dspy
from dspy.utils.exceptions import LMAuthError, LMBillingError, is_retryable_lm_error

from faith_dspy.errors import ConfigError, FaithDspyError, LimitReachedError, LMUnavailableError, in_short, redact
from faith_dspy.schema import Usage
from faith_dspy.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Out = TypeVar("_Out")

_METERS = "faith_dspy_meters"
"""Our key in `dspy.context`. A context variable of our own would not reach the threads of `dspy.Parallel`."""
MAX_FAILURES = 20
"""Calls that fail in a row, each after its retries, before a study or a batch takes the endpoint for dead."""


@dataclass(frozen=True)
class Limits:
    """What may be spent. None: no limit. Replies from DSPy's cache cost nothing."""

    calls: int | None = None
    tokens: int | None = None
    """Computed (uncached) prompt tokens and output tokens."""
    dollars: float | None = None
    seconds: float | None = None
    """By the clock, from when the meter is opened."""

    def describe(self, name: str) -> str:
        """One limit in words: ``3 calls``, ``1.5 dollars``."""
        return f"{getattr(self, name) or 0:,} {name}"


@dataclass
class Call:
    """One call of an LM; the LM fills in what it cost."""

    lm: Any
    one_token: bool = False
    """Whether one token is all that was asked for."""
    usage: Usage = field(default_factory=lambda: Usage(calls=1))
    replayed: bool = True
    """Whether the reply came from DSPy's cache, unless told otherwise."""
    started: float = field(default_factory=time.perf_counter)


class Meter:
    """Adds up calls. Several threads may share one.

    ``usage``: all calls so far. Its seconds are summed over calls, so parallel calls exceed the time by the clock;
    replies from DSPy's cache count with the tokens that they carry and zero seconds. ``paid``: without those replies,
    ``replayed`` of them. ``failed``: calls that raised, which no other count includes. ``refused``: calls that were not
    made because a limit was reached.

    ``max_failures``: after so many calls in a row to which the endpoint had no answer (no connection, a time-out, a
    status of 5xx, a key that is refused), no further one is made: each raises `LMUnavailableError`.
    """

    def __init__(self, limits: Limits | None = None, max_failures: int | None = None) -> None:
        self.limits = limits or Limits()
        self.max_failures = max_failures
        self._failing = 0  # calls in a row
        self._failure = ""
        self.usage = self.paid = Usage()
        self.replayed = self.failed = self.refused = 0
        self._in_flight = 0
        self._stopped = False
        self._lock = threading.Lock()
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """By the clock, since the meter was opened."""
        return time.monotonic() - self._started

    @property
    def spent(self) -> dict[str, float]:
        """What counts against each limit. Calls in flight count as made; their tokens and dollars are not known yet."""
        return {
            "calls": self.paid.calls + self.failed + self._in_flight,
            "tokens": self.paid.computed_tokens + self.paid.output_tokens,
            "dollars": self.paid.dollars or 0.0,
            "seconds": self.seconds,
        }

    @property
    def reached(self) -> str | None:
        """The name of the limit that is reached, if any."""
        if self.limits.dollars is not None and self.paid.calls and self.paid.dollars is None:
            raise ConfigError(
                "a limit in dollars needs a price, and LiteLLM's list has none for this LM; set a limit in tokens."
            )
        limits = vars(self.limits)
        return next((k for k, v in self.spent.items() if limits[k] is not None and v >= limits[k]), None)

    def stop(self) -> None:
        """Let no further call begin: each raises `LimitReachedError` from now on."""
        self._stopped = True

    @contextmanager
    def counting(self, call: Call) -> Iterator[None]:
        """Count the call made in the block. Raises `LimitReachedError` instead when a limit is reached."""
        with self._lock:
            if self.max_failures is not None and self._failing >= self.max_failures:
                self.refused += 1
                raise LMUnavailableError(
                    f"{self._failing} calls in a row failed, the last with {self._failure}. No further one is made. "
                    "Check the endpoint and run again; what was answered is kept."
                )
            reached = self.reached
            if self._stopped or reached:
                self.refused += 1
                what = (
                    f"the limit of {self.limits.describe(reached)} is reached" if reached else "the work was cancelled"
                )
                raise LimitReachedError(what)
            self._in_flight += 1
        try:
            yield
        except Exception as exc:
            # A call that another meter refused, or that Ctrl-C or a cancelled task ended, is no failure of the LM.
            with self._lock:
                self.failed += not isinstance(exc, FaithDspyError)
                if is_retryable_lm_error(exc) or isinstance(exc, LMAuthError | LMBillingError):
                    self._failing += 1
                    self._failure = redact(in_short(exc), call.lm)
                elif isinstance(exc, dspy.LMError):  # the endpoint is there and says what is wrong
                    self._failing = 0
            raise
        else:
            with self._lock:
                self.usage += call.usage
                self.replayed += call.replayed
                if not call.replayed:
                    self._failing = 0
                    self.paid += call.usage
        finally:
            with self._lock:
                self._in_flight -= 1


@contextmanager
def metered(
    limits: Limits | None = None, *, meter: Meter | None = None, max_failures: int | None = None, **settings: Any
) -> Iterator[Meter]:
    """Count all calls of `MeteredLM`s inside the block, in DSPy's threads and asyncio's tasks too. Blocks nest.

    With ``limits``, a call beyond them raises `LimitReachedError` instead of being made. ``max_failures`` is that of
    `Meter`. ``meter`` is an existing one to go on with, e.g. shared by several threads. ``settings`` are those of
    `dspy.context`, for the same block.

    As for `dspy.context`, a plain `ThreadPoolExecutor` needs `contextvars.copy_context().run`.
    """
    meter = meter or Meter(limits, max_failures)
    with dspy.context(**settings, **{_METERS: (*open_meters(), meter)}):
        yield meter


def counted() -> Usage:
    """What the innermost open meter has counted so far; an empty usage if none is open."""
    meters = open_meters()
    return meters[-1].usage if meters else Usage()


def open_meters() -> tuple[Meter, ...]:
    """The meters around the current piece of work, outermost first."""
    meters: tuple[Meter, ...] = dspy.settings.get(_METERS, ())
    return meters


async def awaited(work: Callable[[], _Out]) -> _Out:
    """The result of ``work``, without blocking the event loop. Once cancelled, it makes no further LM call."""
    with metered() as meter:
        try:
            return await run_in_thread(work)
        except asyncio.CancelledError:
            meter.stop()
            raise
