import math

import dspy
import pytest

from faith_dspy import Judge, Unscored, Verdict
from faith_dspy.program.signatures import ExplainVerdict

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


def explaining(asked):
    """“No” about what is red, and why, where that is asked."""
    *_, last = asked["messages"]
    if last["content"] == ExplainVerdict.instructions:
        return "The context says that it is blue. Red is another colour."
    return "No" if "Statement: The kettle is red." in last["content"] else "Yes"


def test_a_statement_that_fails_gets_a_reason_behind_its_own_request(judge_at):
    """Three calls in place of two, at 100 prompt tokens, 60 of them cached, and 5 output tokens each."""
    judge, server = judge_at(says=explaining, reasons="unsupported")
    answer = f"{ANSWER} The kettle is red."
    judgment = judge(context=CONTEXT, answer=answer)
    assert [s.reason for s in judgment.statements] == [
        None,
        "The context says that it is blue.",
    ]
    usage = judgment.usage
    tokens = usage.prompt_tokens, usage.cached_tokens, usage.output_tokens
    assert (usage.calls, *tokens) == (3, 300, 180, 15)
    _, verdict, why = (asked["messages"] for asked in server.requests)
    assert why[: len(verdict)] == verdict
    assert [m["content"] for m in why[len(verdict) :]] == [
        "No",
        ExplainVerdict.instructions,
    ]
    plain = judge_at(server)[0]
    assert plain(context=CONTEXT, answer=answer).statements[1].reason is None
    assert plain.fingerprint == judge.fingerprint == plain.with_reasons().fingerprint


def test_a_verdict_stands_without_a_reason(judge_at):
    def failing(asked):
        said = explaining(asked)
        return said if said in ("Yes", "No") else {"status": 400, "text": ""}

    judge, _ = judge_at(says=failing, reasons="unsupported")
    (statement,) = judge(context=CONTEXT, answer="The kettle is red.").statements
    assert (statement.is_supported, statement.reason) == (False, None)
