from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY

from faith_dspy.errors import ConfigError, LimitReachedError, LMUnavailableError
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import Limits, MeteredLM, metered
from faith_dspy.schema import Usage

ROOT = Path(__file__).parents[2]
ONE = {"calls": 1, "prompt_tokens": 100, "cached_tokens": 60, "output_tokens": 5}


def counts(usage: Usage) -> dict[str, int]:
    """All of a usage but its seconds and price."""
    return usage.model_dump(exclude={"seconds", "dollars"})


def times(n: int) -> dict[str, int]:
    """The counts of `n` calls."""
    return {name: value * n for name, value in ONE.items()}


class Inner(dspy.Module):
    """One question, one call."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        """Ask."""
        return self.ask(question=question)

    async def aforward(self, question: str) -> dspy.Prediction:
        """Ask."""
        return await self.ask.acall(question=question)


class Outer(dspy.Module):
    """Three questions for each one, in threads of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, question: str) -> dspy.Prediction:
        """Ask."""
        asked = [dspy.Example(question=f"{question}-{i}").with_inputs("question") for i in range(3)]
        return dspy.Prediction(answers=self.inner.batch(asked, num_threads=3, disable_progress_bar=True))


@pytest.fixture
def server(chat_server):
    """An endpoint that answers as ChatAdapter expects."""
    return chat_server(says="[[ ## answer ## ]]\nYes\n\n[[ ## completed ## ]]")


@pytest.fixture
def lm(server):
    """An LM at that endpoint."""
    return make_lm("openai/tiny", api_base=server.base, num_retries=0)


def test_one_call(lm):
    """A call is counted with the tokens its endpoint reported, the prefix-cached ones included."""
    with metered() as meter:
        lm("hello")
    assert counts(meter.usage) == ONE
    assert meter.usage.computed_tokens == 40
    assert meter.usage.seconds > 0
    assert (meter.replayed, meter.failed) == (0, 0)


def test_nothing_outside(lm):
    """Only calls inside the block count."""
    lm("before")
    with metered() as meter:
        pass
    lm("after")
    assert meter.usage == Usage()


def test_nested_meters(lm):
    """A call counts on every meter that is open around it."""
    with metered() as outer:
        lm("a")
        with metered() as inner:
            lm("b")
    assert counts(outer.usage) == times(2)
    assert counts(inner.usage) == times(1)


def test_parallel_with_nested_batches(lm):
    """Threads of dspy.Parallel, and batches inside them, lose no call: 4 × 3 questions."""
    with dspy.context(lm=lm), metered() as meter:
        dspy.Parallel(num_threads=4, disable_progress_bar=True)([(Outer(), {"question": str(i)}) for i in range(4)])
    assert counts(meter.usage) == times(12)


def test_meters_of_parallel_tasks_are_apart(lm, server):
    """Two threads with meters of their own see only their own calls."""
    server.delay = 0.05

    def task(n: int) -> Usage:
        with metered() as meter:
            for i in range(n):
                lm(f"{n}-{i}")
        return meter.usage

    with metered() as outer:
        found = dspy.Parallel(num_threads=2, disable_progress_bar=True)([(task, (1,)), (task, (3,))])
    assert [u.calls for u in found] == [1, 3]
    assert outer.usage.calls == 4


def test_asyncify_and_acall(lm):
    """asyncify, native async calls and gathered tasks count."""

    async def work() -> None:
        program = Inner()
        await asyncio.gather(
            dspy.asyncify(program)(question="a"), program.acall(question="b"), asyncio.to_thread(lm, "c"), lm.acall("d")
        )

    with dspy.context(lm=lm), metered() as meter:
        asyncio.run(work())
    assert counts(meter.usage) == times(4)


@pytest.mark.parametrize("disk", [False, True])
def test_a_replay_costs_no_time(lm, server, disk, tmp_path):
    """A reply from DSPy's cache counts as a replay, with its tokens and zero seconds; it was not paid for again."""
    if disk:
        dspy.configure_cache(disk_cache_dir=str(tmp_path))
    with metered() as first:
        lm("same")
    if disk:
        dspy.cache.reset_memory_cache()
    with metered() as second:
        lm("same")
    assert len(server.requests) == 1
    assert counts(second.usage) == counts(first.usage) == ONE
    assert (second.usage.seconds, second.paid) == (0.0, Usage())
    assert (first.replayed, second.replayed) == (0, 1)


def test_replay_keeps_counts_async(lm, server):
    """The same holds for async calls."""

    async def work() -> None:
        await lm.acall("same")

    with metered() as meter:
        asyncio.run(work())
        asyncio.run(work())
    assert len(server.requests) == 1
    assert counts(meter.usage) == times(2)
    assert meter.replayed == 1


def test_replay_through_litellm(server):
    """A replay of a reply that came through LiteLLM counts as one, without tokens: DSPy wipes its usage."""
    lm = make_lm("openai/tiny", api_base=server.base, engine="litellm", num_retries=0)
    with metered() as meter:
        lm("same")
        lm("same")
    assert len(server.requests) == 1
    assert counts(meter.usage) == ONE | {"calls": 2}
    assert meter.replayed == 1


def test_uncached_calls_are_no_replays(server):
    """With the cache off, the same question twice is two calls."""
    lm = make_lm("openai/tiny", api_base=server.base, cache=False)
    with metered() as meter:
        lm("same")
        lm("same")
    assert len(server.requests) == 2
    assert meter.usage.calls == 2
    assert meter.replayed == 0


def test_several_samples(lm, server):
    """n=3 is three requests in one call, and replays as such."""
    with metered() as meter:
        lm("same", n=3, temperature=1.0)
        lm("same", n=3, temperature=1.0)
    assert len(server.requests) == 3
    assert meter.usage.prompt_tokens == 600
    assert (meter.usage.calls, meter.replayed) == (2, 1)


def test_without_history_calls_still_count(lm):
    """DSPy reports tokens through the history; with the history switched off, calls are counted without them."""
    with dspy.context(disable_history=True), metered() as meter:
        lm("hello")
    assert (meter.usage.calls, meter.usage.prompt_tokens) == (1, 0)


def test_an_endpoint_that_counts_no_tokens(lm, server, monkeypatch):
    """A reply without usage counts as a paid call of no tokens."""
    whole = server.completion
    monkeypatch.setattr(server, "completion", lambda asked: {k: v for k, v in whole(asked).items() if k != "usage"})
    with metered() as meter:
        lm("hello")
    assert (meter.paid.calls, meter.usage.prompt_tokens) == (1, 0)


def test_a_stopped_meter_lets_no_call_begin(lm, server):
    """After `stop` calls raise before they are made, under an inner meter too; the inner meter counts no failure."""
    with metered() as outer:
        lm("a")
        outer.stop()
        with metered() as inner, pytest.raises(LimitReachedError, match="cancelled"):
            lm("b")
    assert len(server.requests) == 1
    assert (outer.refused, inner.failed, inner.usage) == (1, 0, Usage())


def test_failures_are_counted_apart(lm, server):
    """A call that raises is a failure and nothing else."""
    server.status = 400
    with metered() as meter, pytest.raises(dspy.LMError):
        lm("hello")
    assert meter.failed == 1
    assert meter.usage == Usage()


@pytest.mark.parametrize(
    "duplicate",
    [
        lambda lm: lm.copy(temperature=1.0, rollout_id=3),
        copy.deepcopy,
        lambda lm: pickle.loads(pickle.dumps(lm)),
    ],
    ids=["copy", "deepcopy", "pickle"],
)
def test_duplicates_count(lm, duplicate):
    """The copies optimizers make still count, and still know their endpoint."""
    other = duplicate(lm)
    with metered() as meter:
        other("hello")
    assert type(other) is MeteredLM
    assert counts(meter.usage) == ONE
    assert other.endpoint == lm.endpoint


def test_adopting_a_plain_lm(server):
    """A user's own dspy.LM can be made to count, with all its settings; the original is left alone."""
    plain = dspy.LM("openai/tiny", api_base=server.base, api_key="none", max_tokens=7, num_retries=1, cache=False)
    lm = MeteredLM.adopt(plain)
    assert lm.dump_state() | {"_dspy_lm_class": ""} == plain.dump_state() | {"_dspy_lm_class": ""}
    with metered() as meter:
        lm("hello")
        plain("other")
    assert counts(meter.usage) == ONE
    assert type(plain) is dspy.LM


def test_history_is_bounded(lm):
    """However many calls, an LM keeps the prompts of the last 64, and DSPy's global history none."""
    before = len(GLOBAL_HISTORY)
    for i in range(100):
        lm(f"q{i}")
    assert len(lm.history) == 64
    assert lm.history[-1]["prompt"] == "q99"
    assert len(GLOBAL_HISTORY) == before


def test_logprobs_pass_through(lm, server):
    """logprobs, top_logprobs and max_tokens=1 reach the endpoint, and its probabilities come back."""
    found = lm("hello", logprobs=True, top_logprobs=4, max_tokens=1)
    sent = server.requests[0]
    assert (sent["logprobs"], sent["top_logprobs"], sent["max_tokens"]) == (True, 4, 1)
    assert found[0]["logprobs"]["content"][0]["logprob"] == -0.1


def test_no_call_is_made_beyond_the_limit_of_calls(chat_server):
    """Three calls are allowed: the fourth raises and never reaches the endpoint; a failed call counts as made."""
    server = chat_server(says="Yes")
    lm = make_lm("openai/tiny", api_base=server.base, cache=False, num_retries=0)
    with metered(Limits(calls=3)) as meter:
        lm("a")
        server.status = 500
        with pytest.raises(Exception, match="no"):
            lm("b")
        server.status = 200
        lm("c")
        with pytest.raises(LimitReachedError, match="limit of 3 calls"):
            lm("d")
    assert len(server.requests) == 3
    assert (meter.reached, meter.refused) == ("calls", 1)


def test_calls_in_flight_count_against_the_limit(chat_server):
    """Eight threads share a limit of four calls: four are made, four refused."""
    server = chat_server(says="Yes")
    server.delay = 0.1
    lm = make_lm("openai/tiny", api_base=server.base, cache=False, num_retries=0)

    def ask(i: int) -> bool:
        try:
            lm(f"question {i}")
        except LimitReachedError:
            return False
        return True

    with metered(Limits(calls=4)), ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(contextvars.copy_context().run, ask, i) for i in range(8)]
        assert sorted(f.result() for f in asked) == [False] * 4 + [True] * 4
    assert len(server.requests) == 4


def test_a_reply_that_was_paid_for_before_spends_nothing(chat_server):
    """100 prompt tokens, 60 of them cached, and 5 output tokens are 45; a replay adds none."""
    server = chat_server(says="Yes")
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    with metered(Limits(tokens=90)) as meter:
        lm("a")
        lm("a")
        assert meter.paid.computed_tokens + meter.paid.output_tokens == 45
        lm("b")
        with pytest.raises(LimitReachedError, match="90 tokens"):
            lm("c")


def test_a_limit_in_dollars_needs_a_price(chat_server):
    """An LM without a price is refused after the first call, with what to do instead."""
    server = chat_server(says="Yes")
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    with metered(Limits(dollars=1.0)) as meter:
        lm("a")
        assert meter.paid.dollars is None
        with pytest.raises(ConfigError, match="limit in tokens"):
            lm("b")


def test_an_unknown_price_makes_the_sum_unknown():
    """Two dollars and a call without a price are not two dollars; nothing at all is neutral."""
    known, unknown = Usage(calls=1, dollars=2.0), Usage(calls=1, dollars=None)
    assert (known + unknown).dollars is None
    assert (Usage() + known + Usage(calls=1, dollars=0.5)).dollars == 2.5


def test_a_dead_endpoint_is_not_asked_for_ever(chat_server):
    """After three calls in a row without an answer the fourth is not made; one that is answered, or refused, counts as
    a sign of life; a reply from the cache does not."""
    server = chat_server(says="Yes")
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    lm("kept")
    with metered(max_failures=3) as meter:
        for status in (500, 500, 400, 503, 429, 200, 500, 500):
            server.status = status
            with contextlib.nullcontext() if status == 200 else pytest.raises(dspy.LMError):
                lm(f"question {meter.spent['calls']}")
        assert lm("kept") == ["Yes"]
        with pytest.raises(dspy.LMError):
            lm("the third in a row")
        with pytest.raises(LMUnavailableError, match=r"3 calls in a row failed, the last with LMServerError"):
            lm("not asked")
    assert (len(server.requests), meter.refused) == (10, 1)


def test_why_no_further_call_is_made(chat_server):
    """The message has the last failure's own words, without the key and without passwords."""
    server = chat_server()
    server.status, server.error = 401, "the quota of key k-planted-1234 at http://me:pass@host/v1 is spent"
    lm = make_lm("openai/tiny", api_base=server.base, api_key="k-planted-1234", num_retries=0)
    with metered(max_failures=1):
        with pytest.raises(dspy.LMError):
            lm("hello")
        with pytest.raises(LMUnavailableError) as caught:
            lm("hello")
    assert "the quota of key *** at http://***@host/v1 is spent" in str(caught.value)
    assert "No further one is made." in str(caught.value)


def test_a_replay_of_a_reply_without_token_counts(chat_server):
    """An endpoint that reports no usage: a reply from the cache is a replay nevertheless, and spends nothing."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes"}}
    server = chat_server(says={"body": {"object": "chat.completion", "model": "tiny", "choices": [choice]}})
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    with metered() as meter, dspy.track_usage() as tracker:
        assert lm("hello") == lm("hello") == ["Yes"]
    assert (meter.usage.calls, meter.replayed, meter.paid.calls, len(server.requests)) == (2, 1, 1, 1)
    assert not tracker.get_total_tokens()


def test_a_call_ends_in_time_whatever_retry_after_says(on_sockets):
    """An endpoint that asks to be left alone for a day is left alone, by an error, when the call has to end."""

    def later(connection):
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 429 x\r\nRetry-After: 86400\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

    lm = make_lm("openai/tiny", api_base=f"http://127.0.0.1:{on_sockets(later)}/v1", timeout=1.5)
    started = time.monotonic()
    with pytest.raises(dspy.LMError, match=r"no whole reply within 1.5 seconds"):
        lm("hello")
    assert time.monotonic() - started < 6


def test_a_time_out_of_the_call_itself_is_told_as_it_is(lm):
    """A `TimeoutError` that the call raises by itself is no reply that came too late."""

    def give_up():
        raise TimeoutError("the proxy gave up")

    with pytest.raises(TimeoutError, match="the proxy gave up") as caught:
        lm._within(60, give_up)
    assert not isinstance(caught.value, dspy.LMError)


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
