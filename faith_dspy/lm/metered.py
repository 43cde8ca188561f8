"""The one place that calls an LM: counts its calls, limits what is spent, and keeps endpoints apart in DSPy's cache.

DSPy's own usage tracking loses the tokens of nested batches and reports none for cached replies. Here every call of a
`MeteredLM` is added to all meters that are open around it, in DSPy's threads and asyncio's tasks too.
"""

import asyncio
import hashlib
import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import dspy
from dspy import lm15
from dspy.utils.exceptions import (
    ContextWindowExceededError,
    LMAuthError,
    LMBillingError,
    LMConfigurationError,
    LMInvalidRequestError,
    LMRateLimitError,
    LMTransportError,
    LMUnexpectedError,
    LMUnsupportedFeatureError,
    LMUnsupportedModelError,
    is_retryable_lm_error,
)

from faith_dspy.errors import (
    ConfigError,
    FaithDspyError,
    LimitReachedError,
    LMUnavailableError,
    remember_secrets,
    short_message,
)
from faith_dspy.lm.addresses import Endpoint, unavailable
from faith_dspy.lm.capabilities import (
    CASES,
    MORE_ROOM,
    TOO_LONG,
    Capabilities,
    Experience,
    Lesson,
    named_window,
    own_words,
    without_thoughts,
)
from faith_dspy.schema import Usage

_Out = TypeVar("_Out")

MAX_FAILURES = 20
"""Calls that fail in a row, each after its retries, before the endpoint is taken for dead."""
PATIENT_RETRIES = 6
"""DSPy's retries of a call to an endpoint that limits the rate: after 1, 2, 4, … 32 seconds, a minute in all."""
NO_PRICE = "a limit in dollars needs a price, and DSPy's price list has none for this LM; set a limit in tokens."
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
    """Wall-clock seconds since the meter was opened."""


_NOT_TOLD = Usage(calls=1, dollars=None)


@dataclass
class Call:
    """One call of an LM, and DSPy's usage tracker while it lasts, which is told of no reply from DSPy's cache."""

    lm: Any
    settings: Any
    """DSPy's, around the call."""
    usage: Usage = _NOT_TOLD
    from_cache: bool = True
    """Whether the reply came from DSPy's cache, unless told otherwise."""
    is_cut: bool = False
    """Whether the reply ended for length."""
    started: float = field(default_factory=time.perf_counter)

    def add_usage(self, lm: str, usage_entry: dict[str, Any]) -> None:
        """Note that the reply was paid for."""
        self.from_cache = False
        if self.settings.usage_tracker:
            self.settings.usage_tracker.add_usage(lm, usage_entry)

    def add_entry(self, entry: dict[str, Any]) -> None:
        """Take over what DSPy's history says of the call."""
        counts = _token_counts(entry)
        seconds = time.perf_counter() - self.started
        dollars = entry.get("cost")
        if self.from_cache:
            seconds = dollars = 0.0
            counts = counts if any(counts) else _estimated_counts(entry)
        elif self.lm.endpoint.sha256:
            dollars = 0.0
        elif price := getattr(self.lm.engine, "price", None):
            dollars = price(*counts)
        prompt, cached, output = counts
        self.usage = Usage(
            calls=1,
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
            seconds=seconds,
            dollars=dollars,
        )
        response = entry["response"]
        replies = getattr(response, "choices", None) or [response]
        reasons = [getattr(reply, "finish_reason", None) for reply in replies]
        self.is_cut = "length" in reasons


class Meter:
    """Adds up calls. Several threads may share one.

    ``paid``: calls that were made, their seconds summed. ``replayed``: replies from DSPy's cache, with the tokens that
    they carry, or an estimate of them, and zero seconds. ``failed``: calls that raised. ``refused``: calls that were
    not made because a limit was reached.

    ``max_failures``: after so many calls in a row to which the endpoint had no answer (no connection, a time-out, a
    status of 5xx, a key that is refused), no further one is made: each raises `LMUnavailableError`.
    """

    def __init__(
        self, limits: Limits | None = None, max_failures: int | None = None
    ) -> None:
        named = vars(limits or Limits()).items()
        self.limits = {name: most for name, most in named if most is not None}
        self.max_failures = max_failures
        self._failing = 0  # calls in a row
        self._failure = ""
        self.paid = self.replayed = Usage()
        self.failed = self.refused = 0
        self._in_flight = 0
        self._stopped = False
        self._lock = threading.Lock()
        self._started = time.monotonic()

    @property
    def usage(self) -> Usage:
        """All calls so far, whoever paid for them."""
        return self.paid + self.replayed

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the meter was opened."""
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
        """The name of the limit that is reached, if any.

        Raises:
            ConfigError: The limit is in dollars, and the LM has no price.
        """
        paid = self.paid
        if "dollars" in self.limits and paid.calls and paid.dollars is None:
            raise ConfigError(NO_PRICE)
        spent = self.spent
        for name, most in self.limits.items():
            if spent[name] >= most:
                return name
        return None

    def stop(self) -> None:
        """Let no further call begin: each raises `LimitReachedError` from now on."""
        self._stopped = True

    @contextmanager
    def counting(self, call: Call) -> Iterator[None]:
        """Count the call made in the block.

        Raises:
            LMUnavailableError: Too many calls in a row had no answer.
            LimitReachedError: A limit is reached, or the meter was stopped.
        """
        with self._lock:
            error: FaithDspyError | None = None
            if self.max_failures is not None and self._failing >= self.max_failures:
                error = LMUnavailableError(
                    f"{self._failing} calls in a row failed, the last with {self._failure}. No further one is made. "
                    "Check the endpoint and run again; what was answered is kept."
                )
            elif self._stopped:
                error = LimitReachedError("the work was cancelled")
            elif name := self.reached:
                limit = f"{self.limits[name]:,} {name}"
                error = LimitReachedError(f"the limit of {limit} is reached")
            if error:
                self.refused += 1
                raise error
            self._in_flight += 1
        try:
            yield
        except Exception as exc:
            with self._lock:
                # What another meter refused, or Ctrl-C or a cancelled task ended, is no failure of the LM.
                self.failed += not isinstance(exc, FaithDspyError)
                if is_retryable_lm_error(exc) or isinstance(exc, _KEY_ERRORS):
                    self._failing += 1
                    self._failure = short_message(exc)
                elif isinstance(exc, dspy.LMError):  # the endpoint says what is wrong
                    self._failing = 0
            raise
        else:
            with self._lock:
                if call.from_cache:
                    self.replayed += call.usage
                else:
                    self._failing = 0
                    self.paid += call.usage
        finally:
            with self._lock:
                self._in_flight -= 1


@contextmanager
def metered(
    limits: Limits | None = None,
    *,
    meter: Meter | None = None,
    max_failures: int | None = None,
    **settings: Any,
) -> Iterator[Meter]:
    """Count all calls of `MeteredLM`s inside the block, in DSPy's threads and asyncio's tasks too. Blocks nest.

    With ``limits``, a call beyond them raises `LimitReachedError` instead of being made. ``max_failures`` is that of
    `Meter`. ``meter`` is an existing one to go on with, e.g. shared by several threads. ``settings`` are those of
    `dspy.context`, for the same block; like it, a plain `ThreadPoolExecutor` needs `contextvars.copy_context().run`.
    """
    meter = meter or Meter(limits, max_failures)
    with dspy.context(**settings, **{_METERS: (*open_meters(), meter)}):
        yield meter


def open_meters() -> tuple[Meter, ...]:
    """Return the meters around the current piece of work, outermost first."""
    meters: tuple[Meter, ...] = dspy.settings.get(_METERS, ())
    return meters


@contextmanager
def in_open_meters(call: Call) -> Iterator[None]:
    """Count the call made in the block in all open meters."""
    with ExitStack() as stack:
        for meter in open_meters():
            stack.enter_context(meter.counting(call))
        yield


async def run_async(work: Callable[[], _Out]) -> _Out:
    """Return the result of ``work``, without blocking the event loop. Once cancelled, it makes no further LM call."""
    with metered() as meter:
        try:
            result: _Out = await dspy.asyncify(work)()
            return result
        except asyncio.CancelledError:
            meter.stop()
            raise


_ENGINES_OWN = (FaithDspyError, dspy.LMError)
"""Errors that an engine of ours raises, and DSPy does not expect of one."""
_KEY_ERRORS = (LMAuthError, LMBillingError)
_FATAL = (
    *_KEY_ERRORS,
    LMConfigurationError,
    LMTransportError,
    LMUnsupportedModelError,
)
"""Errors after which, if the LM never answered, no other call will fare better."""
_MORE: Lesson = ("rooms", MORE_ROOM)
_REFUSALS = (LMInvalidRequestError, LMUnsupportedFeatureError)
_UNKNOWN_MODEL = re.compile(
    r"model_not_found|(?:unknown|invalid|no such) model\b|llm provider not provided"
    r"|\bmodel\b[^.]{0,80}(?:does not exist|not found|is not available)"
)
"""What servers say of a model that they do not have where they answer 400, not 404, and LiteLLM of a provider."""
_MAX_LESSONS = 9
"""That one call may take to find out what an LM takes: one for each parameter that it refuses."""


class MeteredLM(dspy.LM):
    """A `dspy.LM` that counts its calls in all open meters, and keeps endpoints apart in DSPy's cache.

    A call that the server refuses for a parameter, or that ends before the answer, is made once more as the LM can take
    it (`experience`). An LM that never answered and cannot be reached, refuses the key or does not have the model
    raises `LMUnavailableError`. Retries and timeouts are DSPy's.

    Args:
        endpoint: What is known of the place its calls go to.
    """

    num_retries: int

    def __init__(
        self,
        model: str,
        *args: Any,
        endpoint: Endpoint | None = None,
        **kwargs: Any,
    ) -> None:
        self.endpoint = endpoint or Endpoint()
        super().__init__(model, *args, **kwargs)
        remember_secrets(self.kwargs)
        capabilities = Capabilities()
        if "max_completion_tokens" in self.kwargs:  # DSPy knows a model that thinks
            capabilities = Capabilities(limit_name="max_completion_tokens", rooms=1)
        self.experience = Experience(capabilities)
        self._process = os.getpid()
        # DSPy imports what an LM needs at its first call; threads that begin together would find it half-imported.
        with suppress(dspy.LMError):  # the call itself will say what is wrong
            _ = self.supports_reasoning

    @property
    def capabilities(self) -> Capabilities:
        """What the LM can do, as far as its calls have shown it."""
        return self.experience.capabilities

    @property
    def context_window(self) -> int | None:
        """Tokens of prompt and reply together: as given, as Ollama is asked for, or as the server named it."""
        windows = self.kwargs.get("num_ctx"), self.capabilities.context_window
        return min(filter(None, windows), default=None)

    @property
    def is_sampled(self) -> bool:
        """Whether it draws its tokens by chance, as a server may that is sent no temperature."""
        is_refused = ("refused", "temperature") in self.experience.cases
        return is_refused or self.kwargs.get("temperature") != 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call as `dspy.LM` does: counted, and as the LM can take it.

        Raises:
            LMError: DSPy's; also where it thinks without end.
            LMUnavailableError: It never answered, and no other call will fare better.
        """
        if self._process != os.getpid():
            self._leave_parent()
        lessons: list[Lesson] = []
        capabilities = self.capabilities
        while True:
            fitted = capabilities.fit(self.kwargs, kwargs)
            call = Call(self, dspy.settings.copy())
            try:
                outputs = self._count(call, args, fitted)
            except dspy.LMError as exc:
                sent = {**self.kwargs, **fitted}
                if _MORE in lessons and isinstance(exc, _REFUSALS):
                    raise self._endless(capabilities.thinking_tokens) from None
                lesson = self._read_refusal(exc, sent, args, capabilities)
                if lesson is None or len(lessons) == _MAX_LESSONS:
                    raise
            else:
                if not (call.is_cut and _is_empty(outputs)):
                    break
                if capabilities.rooms == MORE_ROOM:
                    self.experience.add(lessons)
                    raise self._endless(capabilities.room)
                lesson = _MORE if capabilities.rooms else ("rooms", 1)
            lessons.append(lesson)
            capabilities = capabilities.with_lesson(lesson)
        self.experience.has_answered = True
        self.experience.add(lessons)
        return outputs

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        remember_secrets(self.kwargs)
        self._process = os.getpid()

    def _endless(self, room: int) -> Exception:
        """Return the error of a call whose thoughts did not end: after the third that of an LM that never answers."""
        experience = self.experience
        experience.endless += 1
        why = (
            f"it thought for {room:,} tokens and did not come to an answer; give it more room, such as "
            f"thinking_tokens={MORE_ROOM * room} (--thinking-tokens)"
        )
        if experience.endless > CASES and experience.unread >= 0:
            return LMUnavailableError(
                f"{self.model}: {experience.endless} times {why}."
            )
        error: Exception = dspy.LMError(why, model=self.model)
        return error

    def _leave_parent(self) -> None:
        """After a fork, begin without the parent's connections, on which its replies come in: as after unpickling."""
        if not isinstance(self.engine, str):
            raise ConfigError(
                f"{self.model} was made before this process was forked, and works in its parent alone: make the judge "
                "in each worker, or start workers by 'spawn'."
            )
        self.__setstate__(self.__getstate__())
        if litellm := sys.modules.get("litellm"):
            litellm.in_memory_llm_clients_cache.flush_cache()

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Call without blocking the event loop; all loops share the pool of connections and the cache's keys."""
        return await asyncio.to_thread(self, *args, **kwargs)

    def _read_refusal(
        self,
        exc: dspy.LMError,
        sent: Mapping[str, Any],
        args: Sequence[Any],
        capabilities: Capabilities,
    ) -> Lesson | None:
        """Return what the LM says that it does not take; None where another attempt makes no sense.

        Raises:
            LMUnavailableError: It never answered, and no other call will fare better.
            ContextWindowExceededError: The prompt is too long for it.
        """
        contents = [str(one.get("content")) for one in sent.get("messages") or ()]
        words = own_words(str(exc), "\n".join([*contents, *map(str, args)]))
        is_refusal = isinstance(exc, _REFUSALS)
        is_unknown = is_refusal and _UNKNOWN_MODEL.search(words)
        is_missing = is_unknown or exc.status == 404
        if not self.experience.has_answered and (is_missing or isinstance(exc, _FATAL)):
            raise unavailable(self, exc) from None  # the server's words may hold a key
        is_unexpected = isinstance(exc, LMUnexpectedError)
        is_unread = is_unexpected and isinstance(exc.__cause__, TypeError | ValueError)
        if is_unread or "invalid response object" in words:
            # DSPy, or LiteLLM, cannot read a reply with null or minus infinity among its log-probabilities: fewer, or
            # none, will do.
            words = "logprobs"
        elif is_missing or not is_refusal:
            return None
        if TOO_LONG.search(words):
            if window := named_window(words):
                window = min(window, self.context_window or window)
                self.experience.add([("context_window", window)])
            raise ContextWindowExceededError(
                model=self.model, message=str(exc)
            ) from exc
        return capabilities.read_refusal(words, sent)

    def update_history(self, entry: dict[str, Any]) -> None:
        """DSPy calls this once per answered call, in the thread or task that made it."""
        call = dspy.settings.usage_tracker
        call.add_entry(entry)
        if not call.settings.disable_history:
            super().update_history(entry)

    def _count(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what a call gives, counted in all open meters."""
        salt = self.endpoint.salt
        if salt:
            # `rollout_id` is the one setting that is part of DSPy's cache key and sent nowhere. It is set per call
            # because optimizers read and replace the one in `lm.kwargs`.
            rollout = kwargs.get("rollout_id", self.kwargs.get("rollout_id"))
            if rollout is not None:
                salt = hashlib.sha256(f"{salt}/{rollout}".encode()).hexdigest()[:12]
            kwargs["rollout_id"] = int(salt, 16)
        # What a call cost is in DSPy's history alone: it is written for each, whether it is kept or not.
        with (
            in_open_meters(call),
            dspy.context(usage_tracker=call, disable_history=False),
        ):
            retries = self.num_retries
            try:
                return super().__call__(*args, **kwargs)
            except LMRateLimitError:
                if not 0 < retries < PATIENT_RETRIES:
                    raise
                self.num_retries = PATIENT_RETRIES
                return super().__call__(*args, **kwargs)
            except LMUnexpectedError as exc:
                if isinstance(exc.__cause__, _ENGINES_OWN):
                    raise exc.__cause__ from None
                raise


def _text_of(output: Any) -> str:
    """Return the text of one of DSPy's outputs; empty if it has none."""
    text: str | None = output["text"] if isinstance(output, dict) else output
    return text or ""


def _is_empty(outputs: list[Any]) -> bool:
    """Return whether there is no reply, or nothing but thoughts."""
    replies = [without_thoughts(_text_of(output)).strip() for output in outputs]
    return not any(replies)


def _token_counts(entry: dict[str, Any]) -> tuple[int, int, int]:
    """Return a history entry's prompt tokens, those of them from the server's cache, and output tokens.

    Of a reply from DSPy's cache DSPy reports none, but it may carry its own.
    """
    usage = entry["usage"] or getattr(entry["response"], "usage", None) or {}
    if isinstance(usage, lm15.Usage):
        prompt, cached = usage.input_tokens, usage.cache_read_tokens
        output = usage.output_tokens
    else:
        prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return prompt or 0, cached or 0, output or 0


def _estimated_counts(entry: dict[str, Any]) -> tuple[int, int, int]:
    """Count the tokens of a reply from DSPy's cache, which keeps none, by the tokenizer that LiteLLM brings along."""
    import litellm

    count = partial(litellm.token_counter, model="gpt-3.5-turbo")
    reply = "".join(map(_text_of, entry["outputs"]))
    messages = entry["messages"] or [{"role": "user", "content": entry["prompt"]}]
    return count(messages=messages), 0, count(text=reply)


# One token is often all that is asked for, and whoever asks for more looks at what came.
logging.getLogger("dspy.clients.lm").addFilter(
    lambda record: "response was truncated" not in record.getMessage()
)
# DSPy warns that a rollout_id at temperature 0 changes no reply. It still changes the cache key, which is what we want.
warnings.filterwarnings("ignore", message="rollout_id has no effect when temperature=0")
