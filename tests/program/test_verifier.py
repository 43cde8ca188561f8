import math

import dspy
import pytest

from faith_dspy import Judge, Unscored, Verdict

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


def turning_good(bad):
    """What says something bad once, and then Yes."""
    left = [bad]
    return lambda _: left.pop() if left else "Yes"


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_reply_that_cannot_be_read_is_asked_for_once_more(judge_at, bad):
    """With room; DSPy's cache keeps both."""
    judge, server = judge_at(says=turning_good(bad))
    found = [judge(context=CONTEXT, answer=ANSWER) for _ in range(2)]
    assert [j.faithful for j in found] == [True, True]
    assert [asked["max_tokens"] for asked in server.requests] == [1, 2012]


@pytest.mark.parametrize(
    "value", [math.log(2), "much", None, {}, "NaN", -math.inf, math.nan]
)
def test_impossible_log_probabilities(judge_at, monkeypatch, value):
    """A reply with a probability of 2, or with none, has a label and no confidence."""
    judge, server = judge_at()
    whole = server.completion

    def impossible(asked):
        reply = whole(asked)
        for token in (reply["choices"][0]["logprobs"] or {}).get("content", ()):
            token["top_logprobs"][0]["logprob"] = value
        return reply

    monkeypatch.setattr(server, "completion", impossible)
    first = judge(context=CONTEXT, answer=ANSWER)
    assert first.faithful
    assert [s.confidence for s in first.statements] == [None]


@pytest.mark.parametrize(
    "options",
    [{}, {"cite": True}, {"reasoning": "before"}, {"verification": "joint"}],
    ids=str,
)
@pytest.mark.parametrize(
    "thoughts", ["<think>\nNo? No.\nVerdict: No\n</think>\n\n", "No … 水 </think>"]
)
def test_a_reply_is_read_after_its_thoughts(judge_at, options, thoughts):
    """What a reasoning model thinks before `</think>` is no verdict; the label and its probability stand after it.
    Thoughts that were cut off say nothing, whatever label they begin with."""
    says = {
        "tokens": [
            (thoughts, {thoughts: 1.0}),
            ("Yes", {"Yes": 0.9, "No": 0.1}),
            ("\n", {"\n": 1.0}),
        ]
    }
    judge, server = judge_at(says=says, granularity="sentence", **options)
    found = judge(context=CONTEXT, answer=ANSWER).statements[0]
    assert (found.verdict, found.confidence) == (
        Verdict.FULLY_SUPPORTED,
        pytest.approx(0.9, abs=0.01),
    )
    server.says = "<think>Yes"
    assert (
        judge(context=CONTEXT, answer=f"So {ANSWER}").unscored is Unscored.PARSE_FAILED
    )


@pytest.mark.parametrize("tells", [True, False])
def test_no_label_no_verdict(judge_at, tells):
    """“Yes, but …” is unjudged whether the LM gives token probabilities or not."""
    says = {"text": "Yes, but the date is wrong.", "top": {"Yes": 0.94, "No": 0.06}}
    judge, server = judge_at(says=says, reasoning="after")
    server.tells = tells
    judgment = judge(context=CONTEXT, answer=ANSWER)
    assert judgment.unscored is Unscored.PARSE_FAILED


def test_an_lm_without_a_temperature_draws(chat_server):
    """A server that is sent no temperature, or refuses it, may draw a “No” beside a likelier “Yes”: that is no fault,
    and the likelier counts. One that is sent 0 contradicts itself."""
    server = chat_server(says={"text": "No", "top": {"Yes": 0.8, "No": 0.2}})
    for temperature, confidence in ((None, 0.8), (0.0, None)):
        lm = dspy.LM(
            "openai/tiny",
            api_base=server.base,
            api_key="none",
            temperature=temperature,
        )
        judgment = Judge(lm)(context=CONTEXT, answer=ANSWER)
        (statement,) = judgment.statements
        assert statement.confidence == (confidence and pytest.approx(confidence))


def answers(judge, numbers):
    return [
        judge(context=CONTEXT, answer=f"Kettle {i} is blue.").statements[0].confidence
        for i in numbers
    ]


def test_an_lm_that_gives_none_takes_one_call_a_statement(judge_at, caplog):
    """After a reply without probabilities there is room for the label beside them, which is said once; from when they
    come they are there."""
    judge, server = judge_at()
    server.tells = False
    assert answers(judge, range(9)) == [None] * 9
    assert [r["max_tokens"] for r in server.requests] == [1] + [12] * 8
    server.tells = True
    assert None not in answers(judge, range(9, 20))
    assert [r["max_tokens"] for r in server.requests[9:]] == [12] + [1] * 10
    assert caplog.text.count("gives no token probabilities") == 1
