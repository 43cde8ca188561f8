"""What a piece of work cost, and what it may cost: counters that stay open around it.

DSPy's own usage tracking loses the tokens of nested batches and reports none for cached replies. Here every call of a
`MeteredLM` is added to all meters that are open around it, in threads and tasks too.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.errors import ConfigError, FaithDspyError, LimitReachedError
from faith_dspy.schema import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

_METERS = "faith_dspy_meters"
"""Our key in `dspy.context`. A context variable of our own would not reach the threads of `dspy.Parallel`."""


@dataclass(frozen=True)
class Limits:
    """What may be spent. None: no limit. Replies from DSPy's cache cost nothing."""

    calls: int | None = None
    tokens: int | None = None
    """Computed (uncached) prompt tokens and output tokens."""
    dollars: float | None = None
    seconds: float | None = None
    """By the clock, from when the meter is opened."""
    calls_per_second: float | None = None
    """A call that comes earlier waits for its turn. Replies from DSPy's cache wait too."""

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.calls, self.tokens, self.dollars, self.seconds))

    def describe(self, name: str) -> str:
        """One limit in words: ``3 LM calls``, ``$1.50``."""
        seconds = self.seconds or 0.0
        return {
            "calls": f"{self.calls or 0:,} LM calls",
            "tokens": f"{self.tokens or 0:,} tokens",
            "dollars": f"${self.dollars or 0:.2f}",
            "seconds": f"{seconds / 60:.3g} minutes" if seconds >= 60 else f"{seconds:.3g} seconds",
        }[name]


@dataclass
class Call:
    """One call of an LM; the LM fills in what it cost."""

    usage: Usage = field(default_factory=lambda: Usage(calls=1))
    replayed: bool = False
    """Whether the reply came from DSPy's cache."""


class Meter:
    """Adds up calls. Several threads may share one."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._lock = threading.Lock()
        self._usage = self._paid = Usage()
        self._in_flight = self._replayed = self._failed = self._refused = 0
        self._stopped = False
        self._started = self._next_turn = time.monotonic()
        self.limits = Limits() if limits is None else limits

    @property
    def usage(self) -> Usage:
        """All calls so far. `seconds` is the sum over calls: with parallel calls it exceeds the time by the clock.

        Replies from DSPy's cache are included with the token counts that they carry, and zero seconds.
        """
        return self._usage

    @property
    def paid(self) -> Usage:
        """`usage` without the replies from DSPy's cache: what was spent under this meter."""
        return self._paid

    @property
    def replayed(self) -> int:
        """Number of calls that DSPy's cache answered."""
        return self._replayed

    @property
    def failed(self) -> int:
        """Number of calls that raised; no other count includes them."""
        return self._failed

    @property
    def refused(self) -> int:
        """Number of calls that were not made because a limit was reached."""
        return self._refused

    @property
    def seconds(self) -> float:
        """By the clock, since the meter was opened."""
        return time.monotonic() - self._started

    @property
    def reached(self) -> str | None:
        """The name of the limit that is reached, if any."""
        with self._lock:
            return self._limit_reached()

    def stop(self) -> None:
        """Let no further call begin: each raises `LimitReachedError` from now on."""
        self._stopped = True

    @contextmanager
    def counting(self, call: Call) -> Iterator[float]:
        """Count the call made in the block; yields the seconds it must wait for its turn before it is made.

        Raises `LimitReachedError` instead if the budget is spent. Calls in flight count as made, so the limit of calls
        is never exceeded; tokens and dollars are known only afterwards, so calls in flight can exceed theirs.
        """
        wait = self._begin()
        try:
            yield wait
        except BaseException as exc:
            # A call that another meter refused, or that Ctrl-C or a cancelled task ended, is no failure of the LM.
            failed = isinstance(exc, Exception) and not isinstance(exc, FaithDspyError)
            with self._lock:
                self._in_flight -= 1
                self._failed += failed
            raise
        with self._lock:
            self._in_flight -= 1
            self._usage += call.usage
            self._replayed += call.replayed
            if not call.replayed:
                self._paid += call.usage

    def _begin(self) -> float:
        with self._lock:
            if self._stopped:
                self._refused += 1
                raise LimitReachedError("the work that this call belongs to was cancelled")
            if which := self._limit_reached():
                self._refused += 1
                raise LimitReachedError(f"the limit of {self.limits.describe(which)} is reached")
            self._in_flight += 1
            if not self.limits.calls_per_second:
                return 0.0
            now = time.monotonic()
            turn = max(now, self._next_turn)
            self._next_turn = turn + 1 / self.limits.calls_per_second
            return turn - now

    def _limit_reached(self) -> str | None:
        if not self.limits:
            return None
        paid = self._paid
        if self.limits.dollars is not None and paid.calls and paid.dollars is None:
            raise ConfigError(
                "a limit in dollars needs a price, and LiteLLM's list has none for this LM; set a limit in tokens."
            )
        spent = {
            "calls": paid.calls + self._failed + self._in_flight,
            "tokens": paid.computed_tokens + paid.output_tokens,
            "dollars": paid.dollars or 0.0,
            "seconds": self.seconds,
        }
        return next(
            (k for k, v in spent.items() if (limit := getattr(self.limits, k)) is not None and v >= limit), None
        )


@contextmanager
def metered(limits: Limits | None = None, *, meter: Meter | None = None, **settings: Any) -> Iterator[Meter]:
    """Count all calls of `MeteredLM`s inside the block, in DSPy's threads and asyncio's tasks too. Blocks nest.

    With ``limits``, a call beyond them raises `LimitReachedError` instead of being made. ``meter`` is an existing one
    to go on with, e.g. shared by several threads. ``settings`` are those of `dspy.context`, for the same block.

    As for `dspy.context`, a plain `ThreadPoolExecutor` needs `contextvars.copy_context().run`.
    """
    meter = meter or Meter(limits)
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
