from __future__ import annotations

import contextlib

import pytest

from faith_dspy.errors import LimitReachedError
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import Limits, metered
from faith_dspy.optimize.select.spending import NOTHING, PLENTY, Cost, affords, left, reserving
from faith_dspy.schema import Usage


def test_the_cost_of_one_answer_is_a_share_of_the_usage():
    """Ten calls reading 400 of 1,000 tokens and writing 50, over five answers: 2 calls and 90 tokens each."""
    usage = Usage(calls=10, prompt_tokens=1000, cached_tokens=600, output_tokens=50, seconds=5.0)
    assert Cost.per_answer(usage, 5) == Cost(calls=2, tokens=90, dollars=0, seconds=1)


def test_the_scarcest_limit_says_how_many_answers_are_affordable(chat_server):
    """One call made (45 tokens): of 20 calls and 405 tokens 19 and 360 are left, at 2 and 90 each: 9 and 4."""
    lm = make_lm("openai/tiny", api_base=chat_server(says="Yes").base, num_retries=0)
    with metered(Limits(calls=20, tokens=405)) as meter:
        lm("a")
        assert left(meter) == Limits(calls=19, tokens=360)
        assert affords(meter, Cost(calls=2, tokens=90)) == 4
        assert affords(meter, Cost(calls=2, tokens=90), reserve=Cost(calls=16)) == 1
    with metered() as unlimited:
        assert affords(unlimited, Cost(calls=2)) == PLENTY


def test_work_stops_where_what_is_kept_back_begins(chat_server):
    """Of five calls three are kept: the third call of the work is not made, and three are left."""
    server = chat_server(says="Yes")
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    with metered(Limits(calls=5)) as meter:
        with pytest.raises(LimitReachedError, match="5 calls"), reserving(meter, Cost(calls=3)):
            [lm(text) for text in "abcd"]
        assert len(server.requests) == 2
        assert left(meter).calls == 3
        lm("e")
    assert len(server.requests) == 3


def test_a_refused_call_that_was_swallowed_is_found(chat_server):
    """Optimizers take any error for a bad candidate; what they make of a limit is no result.

    Before there is a champion to test, nothing is kept back: the limit is reached.
    """
    lm = make_lm("openai/tiny", api_base=chat_server(says="Yes").base, num_retries=0)

    def swallow() -> None:
        for text in "ab":
            with contextlib.suppress(LimitReachedError):
                lm(text)

    with metered(Limits(calls=1)) as meter:
        for reserve, said in ((NOTHING, "limit of 1 calls is reached"), (Cost(calls=1), "kept to test the champion")):
            with pytest.raises(LimitReachedError, match=said), reserving(meter, reserve):
                swallow()
