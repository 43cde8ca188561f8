import contextlib
import contextvars
import copy
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY
from dspy.utils.callback import BaseCallback

from faith_dspy.errors import ConfigError, LimitReachedError, LMUnavailableError
from faith_dspy.lm.make import make_lm, to_metered_lm
from faith_dspy.lm.metered import Limits, MeteredLM, metered
from faith_dspy.schema import Usage

ONE = {"calls": 1, "prompt_tokens": 100, "cached_tokens": 60, "output_tokens": 5}


def counts(usage):
    """All of a usage but its seconds and price."""
    return usage.model_dump(exclude={"seconds", "dollars"})


def times(n):
    return {name: value * n for name, value in ONE.items()}


@pytest.fixture
def server(chat_server):
    return chat_server()


@pytest.fixture
def lm(server):
    return make_lm("openai/tiny", api_base=server.base, num_retries=0)


def test_meters_of_parallel_tasks_are_apart(lm, server):
    """A call counts on every meter that is open around it, and on no other task's."""
    server.delay = 0.05

    def task(n):
        with metered() as meter:
            for i in range(n):
                lm(f"{n}-{i}")
        return meter.usage

    with metered() as outer:
        found = dspy.Parallel(num_threads=2, disable_progress_bar=True)(
            [(task, (1,)), (task, (3,))]
        )
    assert [counts(usage) for usage in (*found, outer.usage)] == [
        times(1),
        times(3),
        times(4),
    ]


@pytest.mark.parametrize("disk", [False, True])
def test_a_replay_costs_no_time(lm, server, disk, tmp_path):
    if disk:
        dspy.configure_cache(disk_cache_dir=str(tmp_path))
    with metered() as first:
        lm("same")
    if disk:
        dspy.cache.reset_memory_cache()
    with metered() as second:
        lm("same")
    assert counts(second.usage) == counts(first.usage) == ONE
    assert (second.usage.seconds, second.paid, first.replayed) == (0, Usage(), Usage())
    assert len(server.requests) == 1


def test_a_stopped_meter_lets_no_call_begin(lm, server):
    with metered() as outer:
        lm("a")
        outer.stop()
        with metered() as inner, pytest.raises(LimitReachedError, match="cancelled"):
            lm("b")
    assert len(server.requests) == 1
    assert (outer.refused, inner.failed, inner.usage) == (1, 0, Usage())


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
    assert (type(other), counts(meter.usage), other.endpoint) == (
        MeteredLM,
        ONE,
        lm.endpoint,
    )


def test_adopting_a_plain_lm(server):
    """A user's own dspy.LM can be made to count, with all its settings; the original is left alone."""
    plain = dspy.LM(
        "openai/tiny",
        api_base=server.base,
        api_key="none",
        max_tokens=7,
        num_retries=1,
        cache=False,
    )
    lm = to_metered_lm(plain)
    assert lm.dump_state() | {"_dspy_lm_class": ""} == plain.dump_state() | {
        "_dspy_lm_class": ""
    }
    with metered() as meter:
        lm("hello")
        plain("other")
    assert counts(meter.usage) == ONE
    assert type(plain) is dspy.LM


def test_calls_share_a_thread(lm):
    """Calls made one after the other run in one thread, not the caller's: DSPy's cache opens its database once."""
    seen = []

    class Recorder(BaseCallback):
        def on_lm_start(self, call_id, instance, inputs):
            seen.append(threading.get_ident())

    lm.callbacks = [Recorder()]
    for i in range(4):
        lm(f"q{i}")
    assert (len(seen) >= 4, len(set(seen) - {threading.get_ident()})) == (True, 1)


def test_history_is_bounded(lm):
    """However many calls, an LM keeps the prompts of the last 64, and DSPy's global history none."""
    before = len(GLOBAL_HISTORY)
    for i in range(100):
        lm(f"q{i}")
    assert (len(lm.history), lm.history[-1]["prompt"], len(GLOBAL_HISTORY)) == (
        64,
        "q99",
        before,
    )


def test_no_call_is_made_beyond_the_limit_of_calls(lm, server):
    """Three calls are allowed: the fourth raises and never reaches the endpoint; a failed call counts as made."""
    with metered(Limits(calls=3)) as meter:
        lm("a")
        server.status = 500
        with pytest.raises(dspy.LMError, match="no"):
            lm("b")
        server.status = 200
        lm("c")
        with pytest.raises(LimitReachedError, match="limit of 3 calls"):
            lm("d")
    assert (len(server.requests), meter.reached, meter.refused) == (3, "calls", 1)


def test_calls_in_flight_count_against_the_limit(lm, server):
    """Eight threads share a limit of four calls: four are made, four refused."""
    server.delay = 0.1
    with metered(Limits(calls=4)), ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(contextvars.copy_context().run, lm, f"question {i}")
            for i in range(8)
        ]
    assert (
        [type(f.exception()) for f in asked].count(LimitReachedError)
        == len(server.requests)
        == 4
    )


def test_a_reply_that_was_paid_for_before_spends_nothing(lm):
    """100 prompt tokens, 60 of them cached, and 5 output tokens are 45; a replay adds none."""
    with metered(Limits(tokens=90)) as meter:
        lm("a")
        lm("a")
        assert meter.paid.computed_tokens + meter.paid.output_tokens == 45
        lm("b")
        with pytest.raises(LimitReachedError, match="90 tokens"):
            lm("c")


def test_a_limit_in_dollars_needs_a_price(lm):
    """An LM without a price is refused after the first call, with what to do instead; a sum with it has no price."""
    with metered(Limits(dollars=1.0)) as meter:
        lm("a")
        assert meter.paid.dollars is None
        with pytest.raises(ConfigError, match="limit in tokens"):
            lm("b")
    known = Usage(calls=1, dollars=2.0)
    assert [
        (known + meter.paid).dollars,
        (Usage() + known + Usage(calls=1, dollars=0.5)).dollars,
    ] == [None, 2.5]


def test_a_dead_endpoint_is_not_asked_for_ever(lm, server):
    """After three calls in a row without an answer the fourth is not made; one that is answered, or refused, counts as
    a sign of life; a reply from the cache does not."""
    lm("kept")
    with metered(max_failures=3) as meter:
        for status in (500, 500, 400, 503, 429, 200, 500, 500):
            server.status = status
            with (
                contextlib.nullcontext()
                if status == 200
                else pytest.raises(dspy.LMError)
            ):
                lm(f"question {meter.spent['calls']}")
        assert lm("kept") == ["Yes"]
        with pytest.raises(dspy.LMError):
            lm("the third in a row")
        with pytest.raises(
            LMUnavailableError,
            match=r"3 calls in a row failed, the last with LMServerError",
        ):
            lm("not asked")
    assert (len(server.requests), meter.refused) == (10, 1)


LATER = {"status": 429, "text": "later", "headers": {"Retry-After": "86400"}}


def trickle():
    """A byte every tenth of a second."""
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n"
    for _ in range(200):
        yield b" "
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("says", "engine"), [("LATER", "auto"), ("trickle", "auto"), ("trickle", "litellm")]
)
def test_a_call_ends_in_time(chat_server, says, engine):
    """Neither a wait of a day, which the endpoint asks for, nor a sign of life lengthens it."""
    base = chat_server(
        says=lambda asked: LATER if says == "LATER" else {"body": trickle()}
    ).base
    lm = make_lm(
        "openai/tiny", api_base=base, timeout=1.5, num_retries=3, engine=engine
    )
    _ = lm.supports_reasoning  # imports LiteLLM where it is needed
    started = time.monotonic()
    with pytest.raises(dspy.LMError, match=r"no whole reply within 1.5 seconds"):
        lm("hello")
    assert time.monotonic() - started < 6
