from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

import dspy
import pytest

from faith_dspy.lm.make import make_lm

ROOT = Path(__file__).parents[2]


def answering(*replies):
    """What treats connections as an endpoint that gives these replies (bytes) one after the other."""
    left = list(replies)

    def serve(connection):
        connection.recv(65536)
        connection.sendall(left.pop(0))

    return serve


def http(status, body, **headers):
    """A reply as bytes."""
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "Connection: close", "", body]).encode()


YES = http(
    200,
    json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes"}}
    ]}),
)  # fmt: skip


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("after", ["86400", formatdate(time.time() + 86400, usegmt=True)], ids=["seconds", "date"])
def test_no_retry_waits_for_a_day(on_sockets, caplog, status, after):
    """Whatever `Retry-After` says, the next attempt comes after `max_wait` seconds, plus as many by chance; the user is
    told once."""
    later = http(status, '{"error": {"message": "later"}}', Retry_After=after)
    port = on_sockets(answering(later, later, YES))
    lm = make_lm("openai/tiny", api_base=f"http://127.0.0.1:{port}/v1", max_wait=0.2)
    started = time.monotonic()
    assert lm("hello") == ["Yes"]
    assert 0.4 <= time.monotonic() - started < 5
    (said,) = (r.message for r in caplog.records if "left alone" in r.message)
    assert said.endswith("s; the next attempt comes after 0.2 s (max_wait)")


def test_no_retry_that_would_come_too_late(on_sockets):
    """A wait that ends after the call has to is not begun."""
    port = on_sockets(answering(http(503, '{"error": {"message": "later"}}', Retry_After=20)))
    started = time.monotonic()
    with pytest.raises(dspy.LMError, match="later"):
        make_lm("openai/tiny", api_base=f"http://127.0.0.1:{port}/v1", timeout=10)("hello")
    assert time.monotonic() - started < 5


def test_retries_are_bounded_and_move_no_random_number(chat_server):
    """`num_retries` more attempts, not one beyond; the caller's random numbers are those it would have had."""
    server = chat_server(says={"status": 500, "text": "no"})
    random.seed(1)
    expected = random.random()
    random.seed(1)
    with pytest.raises(dspy.LMError):
        make_lm("openai/tiny", api_base=server.base, num_retries=2, max_wait=0.01)("hello")
    assert (len(server.requests), random.random()) == (3, expected)


@pytest.mark.parametrize("engine", ["auto", "litellm"])
def test_a_trickle_is_no_sign_of_life(on_sockets, engine):
    """A byte every tenth of a second ends when the call has to."""

    def trickle(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        for _ in range(200):
            connection.sendall(b" ")
            time.sleep(0.1)

    base = f"http://127.0.0.1:{on_sockets(trickle)}/v1"
    lm = make_lm("openai/tiny", api_base=base, timeout=1.5, num_retries=3, engine=engine)
    _ = lm.supports_reasoning  # imports LiteLLM where it is needed
    started = time.monotonic()
    with pytest.raises(dspy.LMError, match=r"no whole reply within 1.5 seconds"):
        lm("hello")
    assert time.monotonic() - started < 6


def test_a_copy_has_its_own_retries_and_time(chat_server):
    """What DSPy's `copy` changes holds for the copy; what is saved of an LM says its retries."""
    lm = make_lm("openai/tiny", num_retries=2, api_base="http://127.0.0.1:1/v1")
    assert (lm.copy(num_retries=5).retries, lm.retries, lm.dump_state()["num_retries"]) == (5, 2, 2)
    assert lm.copy(timeout=4).kwargs["timeout"] == 4


def test_awaited_calls_share_the_cache_with_others(chat_server):
    """A reply that was awaited is kept for every call."""
    server = chat_server()
    lm = make_lm("openai/tiny", api_base=server.base)
    assert asyncio.run(lm.acall("hello")) == lm("hello") == ["Yes"]
    assert len(server.requests) == 1


SOCKETS = """
import asyncio, os, sys
from faith_dspy import Judge
from faith_dspy.lm.make import make_lm
from tests.golden.endpoint import Endpoint

def sockets():
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.exists(link))

with Endpoint() as endpoint:
    lm = make_lm("openai/golden", api_base=endpoint.base, cache=False)
    judge = Judge(lm)
    async def ask(call):
        await asyncio.gather(*map(call, range(200)))
    before = sockets()
    asyncio.run(ask(lambda i: lm.acall(f"q{i}")))
    asyncio.run(ask(lambda i: judge.acall(context=["The kettle is blue."], answer=f"Kettle {i} is blue.")))
    print(sockets() - before, len(endpoint.requests))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts the sockets in /proc")
def test_connections_are_few_and_closed():
    """Of 200 awaited calls at once 64 hold a connection (whose two ends are here), and none is left unclosed."""
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", SOCKETS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    held, asked = map(int, done.stdout.split())
    assert asked == 400, done.stderr
    assert held <= 2 * 64 + 4
    assert "ResourceWarning" not in done.stderr
