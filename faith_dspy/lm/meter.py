"""Counting at the LM: what a piece of work cost, through threads, tasks and caches, and what it may cost.

DSPy's own usage tracking loses the tokens of nested batches and reports none for cached replies. Here every call of a
`MeteredLM` is added to all meters that are open around it. A reply replayed from DSPy's cache counts as much as the
call that paid for it: its counts and seconds are kept in DSPy's cache beside the reply.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dspy
from dspy.clients.base_lm import GLOBAL_HISTORY
from dspy.utils.exceptions import ContextWindowExceededError

from faith_dspy.errors import ConfigError, LimitReachedError
from faith_dspy.schema import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

_METERS = "faith_dspy_meters"
"""Key in DSPy's settings. A context variable of our own would not reach the threads of `dspy.Parallel`."""
_HISTORY = 64
"""Calls kept for `dspy.inspect_history`. Each holds its whole prompt, so DSPy's 10,000 would be gigabytes."""


@dataclass(frozen=True)
class Endpoint:
    """What is known of the place an LM's calls go to, beyond what DSPy holds."""

    salt: str | None = None
    """Tells the endpoint's replies apart from another's in DSPy's cache, whose keys ignore the address."""
    sha256: str | None = None
    """Of the model file, where we serve it."""
    num_ctx: int | None = None
    """Context window in tokens, where it is known."""
    response_schema: bool = False
    """Whether it holds replies to a JSON schema although DSPy does not know so."""


@dataclass(frozen=True)
class Limits:
    """What may be spent. None: no limit. Replies that were paid for before cost nothing."""

    calls: int | None = None
    tokens: int | None = None
    """Computed prompt tokens and output tokens."""
    dollars: float | None = None
    seconds: float | None = None
    """By the clock, from when the meter is opened."""

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.calls, self.tokens, self.dollars, self.seconds))

    def words(self, name: str) -> str:
        """One of them as people say it."""
        return {
            "calls": f"{self.calls or 0:,} LM calls",
            "tokens": f"{self.tokens or 0:,} tokens",
            "dollars": f"${self.dollars or 0:.2f}",
            "seconds": f"{(self.seconds or 0) / 60:.3g} minutes",
        }[name]


class Meter:
    """Adds up calls. Safe to read and to add to from several threads."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._lock = threading.Lock()
        self._usage = Usage()
        self._paid = Usage()
        self._begun = 0
        self._replayed = 0
        self._failed = 0
        self._refused = 0
        self._started = time.monotonic()
        self.limits = limits or Limits()

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
        """A call begins. `LimitReachedError` before it is made, when what may be spent is spent.

        Calls in flight count as made, so that the limit of calls is never exceeded; tokens and dollars are known
        afterwards only, and can be exceeded by those of the calls in flight.
        """
        with self._lock:
            if which := self._reached():
                self._refused += 1
                raise LimitReachedError(f"the limit of {self.limits.words(which)} is reached")
            self._begun += 1

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
def metered(limits: Limits | None = None) -> Iterator[Meter]:
    """Count all calls of `MeteredLM`s inside the block, in DSPy's threads and asyncio's tasks too. Blocks nest.

    With ``limits`` a call beyond them raises `LimitReachedError` instead of being made.

    A plain `ThreadPoolExecutor` needs `contextvars.copy_context().run`, as for `dspy.context`, which this is.
    """
    meter = Meter(limits)
    with dspy.context(**{_METERS: (*_open_meters(), meter)}):
        yield meter


def _open_meters() -> tuple[Meter, ...]:
    meters: tuple[Meter, ...] = dspy.settings.get(_METERS, ())
    return meters


@dataclass
class _Call:
    """The call going on in this thread or task."""

    started: float
    cached: bool
    one_token: bool
    settled: bool = False
    """Whether it was counted as answered or failed."""


_call: ContextVar[_Call | None] = ContextVar("faith_dspy_lm_call", default=None)


class MeteredLM(dspy.LM):
    """A `dspy.LM` that counts its calls, and keeps endpoints apart in DSPy's cache."""

    endpoint = Endpoint()

    def __init__(self, model: str, *args: Any, endpoint: Endpoint | None = None, **kwargs: Any) -> None:
        self.endpoint = endpoint or Endpoint()
        super().__init__(model, *args, **kwargs)

    @classmethod
    def adopt(cls, lm: Any) -> MeteredLM:
        """A metered copy of a plain `dspy.LM`, engine and settings included; a MeteredLM comes back as it is."""
        if isinstance(lm, cls):
            return lm
        if type(lm) is not dspy.LM:
            raise TypeError(f"got {type(lm).__name__}, expected dspy.LM")
        adopted = lm.copy()
        adopted.__class__ = cls
        return adopted  # type: ignore[no-any-return]

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """As `dspy.LM`, counted."""
        with self._counting(kwargs):
            return super().__call__(prompt, messages=messages, **self._salted(kwargs))

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """As `dspy.LM`, counted."""
        with self._counting(kwargs):
            return await super().acall(prompt, messages=messages, **self._salted(kwargs))

    @property
    def supports_response_schema(self) -> bool:
        """Whether replies can be held to a JSON schema."""
        return self.endpoint.response_schema or bool(super().supports_response_schema)

    @property
    def supported_params(self) -> set[str]:
        """Names of the OpenAI parameters that can be sent."""
        known: set[str] = super().supported_params
        return known | {"response_format"} if self.endpoint.response_schema else known

    def update_history(self, entry: dict[str, Any]) -> None:
        """Called by DSPy once per answered call, in the thread or task that made it."""
        usage, replayed = self._usage_of(entry)
        if call := _call.get():
            call.settled = True
        for meter in _open_meters():
            meter.add(usage, replayed=replayed)
        with dspy.context(max_history_size=min(_HISTORY, dspy.settings.max_history_size)):
            super().update_history(entry)
        del GLOBAL_HISTORY[:-_HISTORY]  # the one list that DSPy's setting does not shorten

    @contextmanager
    def _counting(self, kwargs: dict[str, Any]) -> Iterator[None]:
        limit = kwargs.get("max_tokens", self.kwargs.get("max_tokens"))
        meters = _open_meters()
        begun: list[Meter] = []
        call = _Call(time.perf_counter(), bool(kwargs.get("cache", self.cache)), limit == 1)
        token = _call.set(call)
        try:
            for meter in meters:
                meter.begin()
                begun.append(meter)
            try:
                yield
            except Exception as exc:
                call.settled = True
                for meter in meters:
                    meter.add_failure()
                if "exceeds the available context size" in str(exc):  # llama.cpp's words, which DSPy does not know
                    raise ContextWindowExceededError(message=str(exc), model=self.model) from exc
                raise
        finally:
            _call.reset(token)
            if not call.settled:
                for meter in begun:
                    meter.cancel()

    def _salted(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        # `rollout_id` is the one setting that is part of DSPy's cache key and sent nowhere. It is put in per call:
        # optimizers read it from `lm.kwargs`, expect a number there, and replace it.
        if self.endpoint.salt is None:
            return kwargs
        rollout = kwargs.get("rollout_id", self.kwargs.get("rollout_id"))
        return {**kwargs, "rollout_id": self.endpoint.salt if rollout is None else f"{self.endpoint.salt}/{rollout}"}

    def _warn_zero_temp_rollout(self, temperature: float | None, rollout_id: Any) -> None:
        # Our salt is no request for another sample.
        super()._warn_zero_temp_rollout(temperature, None if rollout_id == self.endpoint.salt else rollout_id)

    def _usage_of(self, entry: dict[str, Any]) -> tuple[Usage, bool]:
        """What the call of this history entry cost, and whether it was a replay."""
        call = _call.get()
        seconds = time.perf_counter() - call.started if call else 0.0
        responses = entry["response"] if isinstance(entry["response"], tuple) else (entry["response"],)
        receipt = self._receipt_key(entry, responses) if call and call.cached else None
        if not entry["usage"]:  # a replay, or an endpoint that does not count
            kept = dspy.cache.get(receipt) if receipt else None
            if kept is not None:
                return Usage(**{"dollars": 0.0 if self.endpoint.sha256 else None, **kept}), True
            found = sum((_counts(r.usage) for r in responses if hasattr(r, "usage")), Usage())
            if found.prompt_tokens or any(getattr(r, "cache_hit", False) for r in responses):
                return found.model_copy(update={"calls": 1}), True
        dollars = 0.0 if self.endpoint.sha256 else entry.get("cost")
        usage = _counts(entry["usage"]).model_copy(update={"calls": 1, "seconds": seconds, "dollars": dollars})
        if receipt:
            dspy.cache.put(receipt, usage.model_dump())
        return usage, False

    def _receipt_key(self, entry: dict[str, Any], responses: tuple[Any, ...]) -> dict[str, Any] | None:
        ids = [getattr(response, "id", None) for response in responses]
        if not any(ids):
            return None
        return {
            "_fn_identifier": "faith_dspy.lm.meter.receipt",
            "ids": ids,
            "model": self.model,
            "salt": self.endpoint.salt,
            "prompt": entry["prompt"] if isinstance(entry["prompt"], str) else None,
            "messages": entry["messages"],
        }


def _counts(usage: Any) -> Usage:
    """Token counts out of OpenAI's dictionary or lm15's object; 0 for those not given."""

    def first(*names: str) -> int:
        values = (usage.get(n) if isinstance(usage, dict) else getattr(usage, n, None) for n in names)
        return next((int(value) for value in values if isinstance(value, int | float)), 0)

    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    return Usage(
        prompt_tokens=first("prompt_tokens", "input_tokens"),
        cached_tokens=int((details or {}).get("cached_tokens") or 0) if details else first("cache_read_tokens"),
        output_tokens=first("completion_tokens", "output_tokens"),
    )


def _is_news(record: logging.LogRecord) -> bool:
    """False for DSPy's warning that a reply was cut, when one token was all that was asked for."""
    call = _call.get()
    return not (call and call.one_token and "response was truncated" in record.getMessage())


logging.getLogger("dspy.clients.lm").addFilter(_is_news)
