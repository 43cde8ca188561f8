"""A `dspy.LM` that counts its calls in all open meters.

A reply replayed from DSPy's cache counts as much as the call that paid for it: its counts and seconds are kept in
DSPy's cache beside the reply.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import dspy
from dspy.clients.backend_selection import select_backend
from dspy.clients.base_lm import GLOBAL_HISTORY
from dspy.utils.exceptions import ContextWindowExceededError

from faith_dspy.concurrency import elsewhere, pause
from faith_dspy.lm.direct import SECONDS, ask
from faith_dspy.lm.meter import open_meters
from faith_dspy.schema import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faith_dspy.lm.meter import Meter

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
            kwargs = self._salted(kwargs)
            outputs = ask(self, prompt, messages, kwargs)
            if outputs is None:
                outputs = elsewhere(partial(self._by_dspy, prompt, messages, kwargs))
            return outputs

    def _by_dspy(self, prompt: Any, messages: Any, kwargs: dict[str, Any]) -> Any:
        _load_litellm(self, kwargs)
        return super().__call__(prompt, messages=messages, **kwargs)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """As `dspy.LM`, counted."""
        with self._counting(kwargs):
            kwargs = self._salted(kwargs)
            _load_litellm(self, kwargs)
            return await super().acall(prompt, messages=messages, **kwargs)

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
        for meter in open_meters():
            meter.add(usage, replayed=replayed)
        super().update_history(entry)
        for owner in (self, *(dspy.settings.caller_modules or ())):
            del owner.history[:-_HISTORY]
        del GLOBAL_HISTORY[:-_HISTORY]

    @contextmanager
    def _counting(self, kwargs: dict[str, Any]) -> Iterator[None]:
        limit = kwargs.get("max_tokens", self.kwargs.get("max_tokens"))
        meters = open_meters()
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
        dollars = 0.0 if self.endpoint.sha256 else entry.get("cost")
        if isinstance(entry["response"], dict) and SECONDS in entry["response"]:  # it holds what it cost
            paid = entry["response"]
            return _counts(paid["usage"], calls=1, seconds=paid[SECONDS], dollars=dollars), not entry["usage"]
        responses = entry["response"] if isinstance(entry["response"], tuple) else (entry["response"],)
        receipt = self._receipt_key(entry, responses) if call and call.cached else None
        if not entry["usage"]:  # a replay, or an endpoint that does not count
            hit = any(getattr(r, "cache_hit", False) for r in responses)
            kept = _kept(receipt, hit) if receipt else None
            if kept is not None:
                return Usage(**{"dollars": 0.0 if self.endpoint.sha256 else None, **kept}), True
            found = sum((_counts(r.usage) for r in responses if hasattr(r, "usage")), Usage())
            if found.prompt_tokens or hit:
                return found.model_copy(update={"calls": 1}), True
        usage = _counts(entry["usage"], calls=1, seconds=seconds, dollars=dollars)
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


def _load_litellm(lm: MeteredLM, kwargs: dict[str, Any]) -> None:
    """Where DSPy goes by way of it: DSPy imports it at the first call, and threads that do so together deadlock."""
    if _loaded.is_set() or not isinstance(lm.engine, str) or select_backend(lm, kwargs).native:
        return
    with _loading, suppress(ImportError):
        import litellm  # noqa: F401
    _loaded.set()


_loading, _loaded = threading.Lock(), threading.Event()


def _kept(receipt: dict[str, Any], hit: bool) -> Any:
    """What the call that paid for a reply cost. Another process may have kept the reply and not yet its receipt."""
    kept = dspy.cache.get(receipt)
    for wait in (0.01, 0.05, 0.2) if hit else ():
        if kept is not None:
            break
        pause(wait)
        kept = dspy.cache.get(receipt)
    return kept


def _counts(usage: Any, **known: Any) -> Usage:
    """Token counts out of OpenAI's dictionary or lm15's object, 0 for those not given; beside what else is known."""

    def first(*names: str) -> int:
        values = (usage.get(n) if isinstance(usage, dict) else getattr(usage, n, None) for n in names)
        return next((int(value) for value in values if isinstance(value, int | float)), 0)

    details = (usage.get("prompt_tokens_details") if isinstance(usage, dict) else None) or {}
    return Usage(
        prompt_tokens=first("prompt_tokens", "input_tokens"),
        cached_tokens=int(details.get("cached_tokens") or first("cache_read_tokens", "cache_read_input_tokens")),
        output_tokens=first("completion_tokens", "output_tokens"),
        **known,
    )


def _is_news(record: logging.LogRecord) -> bool:
    """False for DSPy's warning that a reply was cut, when one token was all that was asked for."""
    call = _call.get()
    return not (call and call.one_token and "response was truncated" in record.getMessage())


logging.getLogger("dspy.clients.lm").addFilter(_is_news)
