"""The short way to an OpenAI-compatible endpoint of one's own: one request on a connection that is kept.

On DSPy's own way a one-token call costs several milliseconds of processor time: a price is looked for, the request and
the reply are converted twice, the reply is stored twice. That is nothing beside a hosted model, and a great part
of a server that answers in fifty. Here only the plain case is handled, with DSPy's errors and retries; what is not
known – another provider, a price, a tool, a proxy, an odd reply – is left to DSPy. Cache keys are DSPy's, and so each
way replays what was paid for on the other.
"""

from __future__ import annotations

import http.client
import io
import os
import re
import selectors
import time
from collections import defaultdict, deque
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import dspy
import orjson
from dspy import lm15
from dspy.clients._http import retry_after_seconds
from dspy.clients.call_result import CallResult
from dspy.clients.errors import error_boundary
from dspy.clients.execution import IGNORED_CACHE_KEYS, PreparedCall, _delay, finalize, prepare
from dspy.clients.model_metadata import model_info
from dspy.utils.exceptions import is_retryable_lm_error

from faith_dspy.concurrency import PatientSocket, connected, elsewhere, pause, ready
from faith_dspy.errors import in_short

if TYPE_CHECKING:
    from collections.abc import Callable

    from faith_dspy.lm.metered_lm import MeteredLM

_SENT = {"temperature", "max_tokens", "logprobs", "top_logprobs", "response_format", "seed", "stop", "top_p"}
"""Settings that go into the request as they are."""
_OURS = {"api_base", "api_key", "timeout", "rollout_id", "cache"}
_LIMIT = {"openai": "max_completion_tokens", "hosted_vllm": "max_tokens"}
"""What a provider calls the limit of output tokens, as DSPy sends it."""
_TIMEOUT = 600.0
"""Seconds an endpoint has where the LM sets no timeout."""
SECONDS = "faith_dspy_seconds"
"""How long a stored reply took when it was paid for."""


_Said = TypeVar("_Said")


class _Address(NamedTuple):
    tls: bool
    netloc: str
    path: str


_idle: defaultdict[tuple[Any, ...], deque[http.client.HTTPConnection]] = defaultdict(deque)
"""Connections nobody uses, by process and address. A thread takes one out for a call and puts it back after."""


def ask(lm: MeteredLM, prompt: Any, messages: Any, kwargs: dict[str, Any]) -> list[Any] | None:
    """What calling the `dspy.LM` returns; None where it is to be called instead."""
    address = _address(lm, kwargs)
    if address is None or isinstance(prompt, dspy.lm15.Request):
        return None
    call = prepare(lm, prompt, messages, kwargs)
    key = call.key(lm, False)
    reply = dspy.cache.get(key, IGNORED_CACHE_KEYS) if call.cache else None
    replayed = reply is not None
    if reply is None:
        reply = _answered(lm, call, address)
    if not isinstance(reply, dict) or SECONDS not in reply:
        return None
    result = CallResult.legacy(lm, reply, kwargs=call.legacy)
    if replayed:
        result.usage, result.cache_hit = {}, True
    elif call.cache:
        # What is on disk need not be in memory too: DSPy would keep a million replies there.
        dspy.cache.put(key, reply, IGNORED_CACHE_KEYS, enable_memory_cache=not dspy.cache.enable_disk_cache)
    outputs: list[Any] = finalize(lm, call, result)
    return outputs


def _address(lm: MeteredLM, kwargs: dict[str, Any]) -> _Address | None:
    """Where to ask; None where nothing but DSPy knows how to."""
    settings = dspy.settings
    merged = {**lm.kwargs, **kwargs}
    base, key, timeout = merged.get("api_base"), merged.get("api_key"), merged.get("timeout")
    plain = (
        isinstance(base, str)
        and isinstance(key, str | None)
        and isinstance(timeout, int | float | None)
        and lm.model_type == "chat"
        and lm.engine == "auto"
        and not (lm.callbacks or settings.callbacks or settings.send_stream or settings.usage_tracker or lm._providers)
        and all(name in _SENT or name in _OURS or value is None for name, value in merged.items())
        and not isinstance(merged.get("response_format"), type)
        and not _has_price(lm.model)
    )
    return _parsed(base) if plain else None


@lru_cache
def _has_price(model: str) -> bool:
    """Whether calls are to be priced, or the provider is none of those that can be asked here."""
    provider, _, name = model.partition("/")
    return provider not in _LIMIT or not name or "input_cost_per_token" in model_info(provider, name)


@lru_cache
def _parsed(base: str) -> _Address | None:
    """The address of chat completions, if it is reached without a proxy."""
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        return None
    proxies = getproxies()
    if (proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(parts.hostname):
        return None
    return _Address(parts.scheme == "https", parts.netloc, f"{parts.path.rstrip('/')}/chat/completions")


def _answered(lm: MeteredLM, call: PreparedCall, address: _Address) -> dict[str, Any] | None:
    """The endpoint's reply with the seconds it took; None of one that is no plain answer. Raises DSPy's errors."""
    settings = call.legacy
    provider, _, name = lm.model.partition("/")
    sent = {k: v for k, v in settings.items() if k in _SENT and v is not None}
    if "max_tokens" in sent:
        sent[_LIMIT[provider]] = sent.pop("max_tokens")
    body = orjson.dumps({"model": name, "messages": settings["messages"], **sent})
    headers = {"Content-Type": "application/json"}
    if settings.get("api_key"):
        headers["Authorization"] = f"Bearer {settings['api_key']}"
    started = time.perf_counter()

    post = partial(_post, address, body, headers, settings.get("timeout") or _TIMEOUT)
    said, ended = _retried(lm, partial(elsewhere, post) if address.tls else post)
    try:
        reply = orjson.loads(said or b"")
        whole = isinstance(reply["choices"][0]["message"]["content"], str) and isinstance(reply["usage"], dict)
    except (ValueError, LookupError, TypeError):
        return None
    if not whole:
        return None
    if reply["choices"][0].get("finish_reason") == "length" and settings.get("max_tokens") != 1:  # one was all
        lm._check_truncation(reply)
    return {**reply, "model": reply.get("model") or name, SECONDS: ended - started}


def _retried(lm: MeteredLM, attempt: Callable[[], _Said]) -> _Said:
    """As often and as long as DSPy does."""
    for number in range(lm.num_retries + 1):
        try:
            with error_boundary(lm.model):
                return attempt()
        except dspy.LMError as exc:
            if number == lm.num_retries or not is_retryable_lm_error(exc):
                raise
            pause(_delay(exc, number))
    raise AssertionError("no attempt was made")


class _Connection(http.client.HTTPConnection):
    """One that lets others go on while it waits."""

    def connect(self) -> None:
        self.sock: PatientSocket = connected(self.host, self.port, self.timeout)

    def posted(self, head: bytes, body: bytes) -> bytes | http.client.HTTPResponse:
        """The body of a reply with status 200 that came whole; any other reply, with nothing of its body read.

        `http.client` takes as long over the headers of a short reply as everything else here together.
        """
        if self.sock is None:
            self.connect()
        self.sock.sendall(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        said = self.sock.recv(_PIECE)
        top, found, rest = said.partition(b"\r\n\r\n")
        top = top.lower()
        length = _LENGTH.search(top)
        if found and length and top.startswith(b"http/1.1 200 ") and not _ODD.search(top):
            size, parts = int(length[1]), [rest]
            missing = size - len(rest)
            while missing > 0 and (more := self.sock.recv(min(missing, _PIECE))):
                parts.append(more)
                missing -= len(more)
            if missing > 0:
                raise http.client.IncompleteRead(b"".join(parts), missing)
            return b"".join(parts)[:size]  # what comes after it is found before the connection is used again
        reply = http.client.HTTPResponse(_Begun(said, self.sock), method="POST")  # type: ignore[arg-type]
        reply.begin()
        return reply


_PIECE = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,15}) *(?:\r|$)")
_ODD = re.compile(rb"\r\n(?:transfer-encoding|content-encoding):|\r\nconnection: *close")


class _Begun(io.RawIOBase):
    """What is left to read of a reply of which ``said`` was read already."""

    def __init__(self, said: bytes, sock: PatientSocket) -> None:
        self._said, self._sock = said, sock

    def makefile(self, _mode: str) -> io.BufferedReader:
        """As a socket's."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """As of any file."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As of any file."""
        if not self._said:
            return self._sock.recv_into(buffer)
        n = min(len(buffer), len(self._said))
        buffer[:n], self._said = self._said[:n], self._said[n:]
        return n


@lru_cache
def _head(address: _Address, authorization: str | None) -> bytes | None:
    """A request up to its length; None of one that `http.client` is to refuse."""
    lines = [
        f"POST {address.path} HTTP/1.1",
        f"Host: {address.netloc}",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
        *([f"Authorization: {authorization}"] if authorization else []),
        "Content-Length: ",
    ]
    if address.tls or " " in address.path or not all(line.isascii() and line.isprintable() for line in lines):
        return None
    return "\r\n".join(lines).encode()


def _kept(idle: deque[http.client.HTTPConnection]) -> http.client.HTTPConnection | None:
    """A connection that waits for a request: not one on which the endpoint hung up, or said more than it was asked."""
    while idle:
        with suppress(IndexError):  # another thread took it
            connection = idle.pop()
            if connection.sock is not None and not ready(connection.sock, selectors.EVENT_READ):
                return connection
            connection.close()
    return None


def _post(address: _Address, body: bytes, headers: dict[str, str], timeout: float) -> tuple[bytes | None, float]:
    """The body of a reply with status 200, None of one that is neither that nor an error; and when it had come.

    Raises lm15's errors.
    """
    idle = _idle[os.getpid(), address.tls, address.netloc, timeout]
    head = _head(address, headers.get("Authorization"))
    again = False
    while True:
        connection = None if again else _kept(idle)
        fresh = connection is None
        kept = False
        try:
            if connection is None:
                kind = http.client.HTTPSConnection if address.tls else _Connection
                connection = kind(address.netloc, timeout=timeout)
            if head is not None and isinstance(connection, _Connection):
                reply = connection.posted(head, body)
            else:
                connection.request("POST", address.path, body, headers)
                reply = connection.getresponse()
            said = reply if isinstance(reply, bytes) else reply.read()
            # What is waited for after it had come is no time of the endpoint's.
            at = connection.sock.heard if isinstance(connection.sock, PatientSocket) else time.perf_counter()
            kept = isinstance(reply, bytes) or not reply.will_close
        except TimeoutError as exc:
            raise lm15.TransportError(f"no answer within {timeout:g} s") from exc
        except (OSError, http.client.HTTPException, ValueError, OverflowError, MemoryError) as exc:
            if fresh or not isinstance(exc, ConnectionError):
                raise lm15.TransportError(f"no answer from {address.netloc}: {in_short(exc)}") from exc
            again = True  # the endpoint may have hung up in the meantime: once more, on a connection of its own
            continue
        finally:
            if connection is not None:
                idle.append(connection) if kept else connection.close()
        if isinstance(reply, bytes) or reply.status == 200:
            return said, at
        if reply.status < 400:
            return None, at
        error = _dialect.normalize_error(reply.status, said.decode(errors="replace"))
        error.retry_after = retry_after_seconds(reply.headers.get("Retry-After"))
        raise error


_dialect = lm15.OpenAIChatLM(api_key="none")
"""Knows what OpenAI's errors mean; sends nothing."""
