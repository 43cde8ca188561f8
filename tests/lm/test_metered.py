import contextvars
import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import dspy
import pytest
from dspy.clients.base_lm import GLOBAL_HISTORY

from faith_dspy import Judge
from faith_dspy.errors import ConfigError, LimitReachedError, LMUnavailableError
from faith_dspy.lm.make import make_lm, to_metered_lm
from faith_dspy.lm.metered import Limits, metered
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

    parallel = dspy.Parallel(num_threads=2, disable_progress_bar=True)
    with metered() as outer:
        usages = [*parallel([(task, (1,)), (task, (3,))]), outer.usage]
    assert [counts(usage) for usage in usages] == [times(1), times(3), times(4)]


def test_a_replay_costs_no_time(lm, server, tmp_path):
    dspy.configure_cache(disk_cache_dir=str(tmp_path))
    with metered() as first:
        lm("same")
    dspy.cache.reset_memory_cache()
    with metered() as second:
        lm("same")
    assert counts(second.usage) == counts(first.usage) == ONE
    assert (second.usage.seconds, second.paid, first.replayed) == (0, Usage(), Usage())
    assert len(server.requests) == 1


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
    assert (counts(meter.usage), other.endpoint) == (ONE, lm.endpoint)


def test_adopting_a_plain_lm(server):
    """A user's own dspy.LM is made to count with all its settings."""
    address = {"api_base": server.base, "api_key": "none"}
    plain = dspy.LM("openai/tiny", **address, max_tokens=7, num_retries=1, cache=False)
    own, other = (one.dump_state() for one in (to_metered_lm(plain), plain))
    assert own | {"_dspy_lm_class": other["_dspy_lm_class"]} == other


def test_a_batch_keeps_no_prompt(lm):
    """DSPy's histories have what a call asks, and nothing of a batch, which may be of any size."""
    judge, before = Judge(lm), len(GLOBAL_HISTORY)
    judge.batch([{"context": ["a"], "answer": "It is a."}] * 3)
    assert (lm.history, len(GLOBAL_HISTORY)) == ([], before)
    judge(context=["a"], answer="It is a.")
    assert lm.history == GLOBAL_HISTORY[before:] != []


def test_without_dspys_history_all_is_counted(chat_server):
    """Tokens, the price and the limit hold; no prompt is kept."""
    lm = make_lm("openai/gpt-4o-mini", api_base=chat_server(models=[]).base)
    limit = pytest.raises(LimitReachedError, match="limit of 3 calls")
    with dspy.context(disable_history=True), metered(Limits(calls=3)) as meter, limit:
        for i in range(4):
            lm(f"q{i}")
    assert counts(meter.usage) == times(3)
    # 40 prompt tokens at .15 dollars a million, 60 cached ones at .075, and 5 output tokens at .60: 13.5 a call
    assert meter.paid.dollars == pytest.approx(3 * 13.5e-6)
    assert lm.history == []


def test_calls_in_flight_and_failed_ones_count_against_the_limit(lm, server):
    """Eight threads share a limit of four calls: four are made, four refused, and so is one after them, though all
    failed."""
    server.delay, server.status = 0.1, 500
    with metered(Limits(calls=4)) as meter:
        with ThreadPoolExecutor(8) as pool:
            for i in range(8):
                pool.submit(contextvars.copy_context().run, lm, f"question {i}")
        with pytest.raises(LimitReachedError, match="limit of 4 calls"):
            lm("later")
    assert (len(server.requests), meter.failed, meter.refused) == (4, 4, 5)


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
    priced = Usage(calls=1, dollars=2.0)
    assert (priced + meter.paid).dollars is None
    assert (Usage() + priced + Usage(calls=1, dollars=0.5)).dollars == 2.5


def test_a_dead_endpoint_is_not_asked_for_ever(lm, server):
    """After three calls in a row without an answer the fourth is not made; one that is answered, or refused, counts as
    a sign of life; a reply from the cache does not."""
    lm("kept")
    with metered(max_failures=3) as meter:
        for server.status in (500, 500, 400, 503, 429, 200, 500, 500):
            with suppress(dspy.LMError):
                lm(f"question {len(server.requests)}")
        assert lm("kept") == ["Yes"]
        with pytest.raises(dspy.LMError):
            lm("the third in a row")
        why = "3 calls in a row failed, the last with LMServerError"
        with pytest.raises(LMUnavailableError, match=why):
            lm("not asked")
    assert (len(server.requests), meter.refused) == (10, 1)


def test_an_endpoint_that_limits_the_rate_is_waited_for(server, monkeypatch):
    """For 45 s it says 429, without a Retry-After that DSPy could go by; each answer gets its reply all the same."""
    waits, sleep = [], time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: waits.append(s) if s >= 1 else sleep(s))  # fmt: skip
    refusal = {"status": 429, "text": "Rate limit reached. Please try again in 20s."}
    server.says = lambda _: refusal if sum(waits) < 45 else "Yes"
    lm = make_lm("openai/tiny", api_base=server.base)
    assert [lm("first"), lm("second")] == [["Yes"], ["Yes"]]
    assert waits == [1, 2, 4, 1, 2, 4, 8, 16, 32]
