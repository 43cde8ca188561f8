from __future__ import annotations

import math

import pytest

from faith_dspy import Unscored, Verdict

CONTEXT = ["The kettle is blue."]
ANSWER = "The kettle is blue."
BAD = {
    "prose": "I would rather not say.",
    "refusal": "I'm sorry, but I can't assist with that.",
    "empty": "",
    "null": {"text": None, "top": {}},
    "contradiction": {"text": "Yes", "top": {"No": 0.9, "Yes": 0.1}},
    "no choices": {"body": {"object": "chat.completion", "model": "tiny", "choices": []}},
    "prose, no token counts": {"body": {"object": "chat.completion", "model": "tiny", "choices": [{
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "I would rather not say."},
        "logprobs": {"content": [{"token": "I", "logprob": -0.1, "top_logprobs": [{"token": "I", "logprob": -0.1}]}]},
    }]}},
}  # fmt: skip


def turning_good(bad, times=1):
    """What says something bad so many times, and then Yes."""
    left = [bad] * times
    return lambda _: left.pop() if left else "Yes"


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("times", [1, 2])
def test_only_what_was_read_is_kept(judge_at, bad, times):
    """A bad reply is asked for again by each later run until it is good; that one is kept, and asked for no more."""
    judge, server = judge_at(says=turning_good(bad, times))
    found = [judge(context=CONTEXT, answer=ANSWER) for _ in range(times + 3)]
    assert [j.unscored is None for j in found] == [False] * times + [True] * 3
    assert len(server.requests) == times + 1


def test_impossible_log_probabilities_are_not_kept(judge_at, monkeypatch):
    """A reply with a probability of 2 has a label and no confidence; a later run asks again and gets one."""
    judge, server = judge_at()
    whole = server.completion

    def impossible(asked):
        reply = whole(asked)
        reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"][0]["logprob"] = math.log(2)
        return reply

    monkeypatch.setattr(server, "completion", impossible)
    first = judge(context=CONTEXT, answer=ANSWER).statements[0]
    monkeypatch.setattr(server, "completion", whole)
    second = judge(context=CONTEXT, answer=ANSWER).statements[0]
    assert (first.verdict, first.confidence) == (Verdict.FULLY_SUPPORTED, None)
    assert second.confidence is not None
    assert len(server.requests) == 2


@pytest.mark.parametrize("value", ["much", None, {}, "NaN"])
def test_log_probabilities_that_are_none_end_no_run(judge_at, monkeypatch, value):
    """Whatever stands in their place, the answer is judged without, or unscored because the LM failed."""
    judge, server = judge_at()
    whole = server.completion

    def impossible(asked):
        reply = whole(asked)
        reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"][0]["logprob"] = value
        return reply

    monkeypatch.setattr(server, "completion", impossible)
    found = judge(context=CONTEXT, answer=ANSWER)
    assert found.unscored in (None, Unscored.LM_FAILED)
    assert all(s.confidence is None for s in found.statements)


@pytest.mark.parametrize("options", [{}, {"cite": True}, {"reasoning": "before"}, {"verification": "joint"}], ids=str)
@pytest.mark.parametrize("thoughts", ["<think>\nNo? No.\nVerdict: No\n</think>\n\n", "No … 水 </think>"])
def test_a_reply_is_read_after_its_thoughts(judge_at, options, thoughts):
    """What a reasoning model thinks before `</think>` is no verdict; the label and its probability stand after it."""
    says = {"tokens": [(thoughts, {thoughts: 1.0}), ("Yes", {"Yes": 0.9, "No": 0.1}), ("\n", {"\n": 1.0})]}
    judge, _ = judge_at(says=says, granularity="sentence", **options)
    found = judge(context=CONTEXT, answer=ANSWER).statements[0]
    assert (found.verdict, found.confidence) == (Verdict.FULLY_SUPPORTED, pytest.approx(0.9, abs=0.01))


def test_thoughts_without_an_end_are_no_verdict(judge_at):
    """Thoughts that were cut off say nothing, whatever label they begin with."""
    judge, _ = judge_at(says="<think>Yes")
    assert judge(context=CONTEXT, answer=ANSWER).unscored is Unscored.PARSE_FAILED


def answers(judge, numbers):
    """Confidences of one statement each."""
    return [judge(context=CONTEXT, answer=f"Kettle {i} is blue.").statements[0].confidence for i in numbers]


def test_one_reply_without_probabilities_decides_nothing(judge_at):
    """A reply without them costs its own statement the confidence, and no other."""
    judge, server = judge_at()
    server.tells = False
    assert answers(judge, range(2)) == [None, None]
    server.tells = True
    assert None not in answers(judge, range(2, 10))


def test_an_lm_that_has_none_is_asked_three_times_and_now_and_then(judge_at, caplog):
    """After three replies in a row the labels alone are asked for, which is said once; every fiftieth asks for
    probabilities again, and from when they come they are there."""
    judge, server = judge_at()
    server.tells = False
    assert answers(judge, range(49)) == [None] * 49
    assert [bool(r.get("logprobs")) for r in server.requests] == [True, False] * 3 + [False] * 46
    server.tells = True
    assert None not in answers(judge, range(49, 60))
    assert caplog.text.count("gives no token probabilities") == 1
