"""The one place that calls an LM: counts, retries and ends its calls, and keeps endpoints apart in DSPy's cache."""

from __future__ import annotations

import hashlib
import inspect
import logging
import random
import time
import warnings
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dspy
from dspy.utils.exceptions import ContextWindowExceededError, LMTimeoutError, is_retryable_lm_error

from faith_dspy.lm.meter import Call, open_meters
from faith_dspy.schema import Usage
from faith_dspy.threads import run_in_thread, within

if TYPE_CHECKING:
    from collections.abc import Iterator

_HISTORY = 64
"""Calls that an LM keeps in its history, each with its whole prompt."""
TIMEOUT = 300.0
"""Seconds that a call may take with its retries, unless the LM has a ``timeout`` of its own."""
MAX_WAIT = 30.0
"""Seconds between two attempts at most, whatever ``Retry-After`` says."""
log = logging.getLogger(__name__)
_jitter = random.Random()  # of our own: a call must not move the random numbers of the caller


@dataclass(frozen=True)
class Endpoint:
    """What is known of the place an LM's calls go to, beyond what DSPy holds."""

    salt: str | None = None
    """Hex digits that tell the endpoint's replies from another's in DSPy's cache, whose keys ignore the address."""
    sha256: str | None = None
    """Of the model file, if we serve it."""
    num_ctx: int | None = None
    """Context window in tokens, if known."""
    response_schema: bool = False
    """Whether it can hold replies to a JSON schema although DSPy does not know it."""


_current: ContextVar[Call | None] = ContextVar("faith_dspy_lm_call", default=None)
"""The call that runs in this thread or task."""
_last: ContextVar[Call | None] = ContextVar("faith_dspy_lm_last_call", default=None)
"""The last call of this thread or task."""


class MeteredLM(dspy.LM):
    """A `dspy.LM` that counts its calls in all open meters, and keeps endpoints apart in DSPy's cache.

    A call ends after ``timeout`` seconds (`TIMEOUT` unless given), its retries included, even while bytes trickle in:
    the request is abandoned then. Before a retry it waits 1, 2, 4 … seconds, or as long as ``Retry-After`` says, but
    at most ``max_wait``, plus up to a second by chance.
    """

    def __init__(
        self, model: str, *args: Any, endpoint: Endpoint | None = None, max_wait: float = MAX_WAIT, **kwargs: Any
    ) -> None:
        self.endpoint = endpoint or Endpoint()
        self.max_wait = max_wait
        self.said_wait = False
        super().__init__(model, *args, **kwargs)
        # DSPy imports LiteLLM at the first call that needs it; threads that begin together would find it half-imported.
        # Asking for a capability imports it now, and only if this LM needs it.
        with suppress(dspy.LMError):  # the call itself will say what is wrong
            _ = self.supports_reasoning

    @classmethod
    def adopt(cls, lm: Any) -> MeteredLM:
        """A metered LM with the settings of a plain `dspy.LM` (but its `async_engine`); a MeteredLM as it is."""
        if isinstance(lm, cls):
            return lm
        if type(lm) is not dspy.LM:
            raise TypeError(f"got {type(lm).__name__}, expected dspy.LM")
        names = set(inspect.signature(dspy.LM).parameters) - {"kwargs", "async_engine"}
        settings = {name: getattr(lm, name) for name in names if hasattr(lm, name)} | lm.kwargs
        if "max_completion_tokens" in settings:  # DSPy renames it for reasoning models
            settings["max_tokens"] = settings.pop("max_completion_tokens")
        return cls(**settings)

    @property
    def num_retries(self) -> int:
        """0 for DSPy, whose retries wait as long as ``Retry-After`` says. What is set here is `retries`."""
        return 0

    @num_retries.setter
    def num_retries(self, number: int) -> None:
        self.retries = number

    def dump_state(self) -> dict[str, Any]:
        """As `dspy.LM`."""
        state: dict[str, Any] = super().dump_state()
        return state | {"num_retries": self.retries}

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """As `dspy.LM`, counted, and ended in time."""
        ask = partial(super().__call__, prompt, messages=messages, **self._salted(kwargs))
        if dspy.settings.send_stream is not None:  # which DSPy feeds from this very thread
            with self._counted(kwargs):
                return ask()
        given = kwargs.get("timeout", self.kwargs.get("timeout"))
        seconds = given if isinstance(given, int | float) else TIMEOUT
        ends = time.monotonic() + seconds
        with self._counted(kwargs):
            for attempt in range(self.retries + 1):
                try:
                    return within(max(0.0, ends - time.monotonic()), ask)
                except TimeoutError:
                    raise LMTimeoutError(f"no whole reply within {seconds:g} seconds", model=self.model) from None
                except dspy.LMError as exc:
                    wait = self._wait(exc, attempt)
                    if attempt == self.retries or not is_retryable_lm_error(exc) or time.monotonic() + wait >= ends:
                        raise
                time.sleep(wait)
        raise AssertionError  # the last attempt returns or raises

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """As a call, without blocking the event loop. All loops share the pool of connections and the cache's keys."""
        return await run_in_thread(partial(self, prompt, messages=messages, **kwargs))

    def _wait(self, failure: dspy.LMError, attempt: int) -> float:
        asked = failure.retry_after
        if asked is not None and asked > self.max_wait and not self.said_wait:
            self.said_wait = True
            log.warning(
                "%s asks to be left alone for %s s; the next attempt comes after %g s (max_wait)",
                *(self.model, f"{asked:,.0f}", self.max_wait),
            )
        wait = min(2.0**attempt if asked is None else asked, self.max_wait)
        return wait + _jitter.random() * min(wait, 1.0)

    def replayed(self) -> bool:
        """Whether DSPy's cache gave the last reply in this thread or task."""
        call = _last.get()
        return call is not None and call.lm is self and call.replayed

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
        """DSPy calls this once per answered call, in the thread or task that made it.

        The last 64 calls are kept here (`inspect_history`), and none in DSPy's global history: that holds 10,000
        prompts, which are gigabytes when contexts are long.
        """
        if call := _current.get():
            usage = _usage_of(entry)
            seconds = 0.0 if call.replayed else time.perf_counter() - call.started
            dollars = 0.0 if call.replayed or self.endpoint.sha256 else entry.get("cost")
            call.usage = usage.model_copy(update={"calls": 1, "seconds": seconds, "dollars": dollars})
        self.history.append(entry)
        del self.history[:-_HISTORY]

    @contextmanager
    def _counted(self, kwargs: dict[str, Any]) -> Iterator[None]:
        call = Call(self, one_token=kwargs.get("max_tokens", self.kwargs.get("max_tokens")) == 1)
        token = _current.set(call)
        _last.set(call)
        try:
            with ExitStack() as stack:
                for meter in open_meters():
                    stack.enter_context(meter.counting(call))
                stack.enter_context(dspy.context(usage_tracker=_Paid(call, dspy.settings.usage_tracker)))
                yield
        except dspy.LMError as exc:
            if "exceeds the available context size" in str(exc):  # llama.cpp's words, which DSPy does not know
                raise ContextWindowExceededError(message=str(exc), model=self.model) from exc
            raise
        finally:
            _current.reset(token)

    def _salted(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        # `rollout_id` is the one setting that is part of DSPy's cache key and sent nowhere. It is set per call because
        # optimizers read and replace the one in `lm.kwargs`.
        if self.endpoint.salt is None:
            return kwargs
        rollout = kwargs.get("rollout_id", self.kwargs.get("rollout_id"))
        salt = self.endpoint.salt
        if rollout is not None:
            salt = hashlib.sha256(f"{salt}/{rollout}".encode()).hexdigest()[:12]
        return {**kwargs, "rollout_id": int(salt, 16)}


# DSPy warns that a rollout_id at temperature 0 changes no reply. It still changes the cache key, which is what we want.
warnings.filterwarnings("ignore", message="rollout_id has no effect when temperature=0")


class _Paid:
    """DSPy's usage tracker during one call. DSPy tells it of each reply, but not of those that its cache gave."""

    def __init__(self, call: Call, outer: Any) -> None:
        self.call, self.outer = call, outer

    def add_usage(self, lm: str, usage_entry: dict[str, Any]) -> None:
        self.call.replayed = False
        if self.outer:
            self.outer.add_usage(lm, usage_entry)


def _usage_of(entry: dict[str, Any]) -> Usage:
    """Token counts of the call of this history entry.

    DSPy reports no usage for a cached reply; a reply of its native engines still carries its own.
    """
    if entry["usage"]:
        return _counts(entry["usage"])
    response = entry["response"]
    replies = response if isinstance(response, tuple) else (response,)
    return sum((_counts(getattr(reply, "usage", None) or {}) for reply in replies), Usage())


def _counts(usage: Any) -> Usage:
    """Token counts out of OpenAI's dictionary or lm15's object, 0 for those not given."""

    def first(counts: Any, *names: str) -> int:
        values = (counts.get(n) if isinstance(counts, dict) else getattr(counts, n, None) for n in names)
        return next((int(value) for value in values if isinstance(value, int | float)), 0)

    details = usage.get("prompt_tokens_details") or {} if isinstance(usage, dict) else usage
    return Usage(
        prompt_tokens=first(usage, "prompt_tokens", "input_tokens"),
        cached_tokens=first(details, "cached_tokens", "cache_read_tokens"),
        output_tokens=first(usage, "completion_tokens", "output_tokens"),
    )


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """False for DSPy's warning that a reply was truncated when one token was all that was asked for."""
    call = _current.get()
    return not (call and call.one_token and "response was truncated" in record.getMessage())


logging.getLogger("dspy.clients.lm").addFilter(_is_worth_logging)
