import math

import pytest

from faith_dspy.program.signatures import ExplainVerdict

CONTEXT = ["The kettle is blue."]
ANSWER = "The kettle is blue."
BAD = {
    "hedged": {"text": "Yes, but the date is wrong.", "top": {"Yes": 0.94, "No": 0.06}},
    "prose": "I would rather not say.",
    "empty": "",
    "contradiction": {"text": "Yes", "top": {"No": 0.9, "Yes": 0.1}},
    "no choices": {"body": {"object": "chat.completion", "model": "tiny", "choices": []}},
}  # fmt: skip


def turning_good(bad):
    """What says something bad once, and then Yes."""
    left = [bad]
    return lambda _: left.pop() if left else "Yes"


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_reply_that_cannot_be_read_is_asked_for_once_more(judge_at, bad):
    """With room; DSPy's cache keeps both, and the next has one token as before."""
    judge, server = judge_at(says=turning_good(bad))
    for answer in (ANSWER, "It is blue.", ANSWER):
        assert judge(context=CONTEXT, answer=answer).faithful
    assert [asked["max_tokens"] for asked in server.requests] == [1, 2012, 1]


@pytest.mark.parametrize("value", [None, "NaN", -math.inf])
def test_impossible_log_probabilities(judge_at, value):
    """DSPy cannot read them: asked for without, the label counts, and has no confidence."""
    top = [{"token": "Yes", "logprob": value}]
    token = {"token": "Yes", "logprob": -0.1, "top_logprobs": top}
    judge, _ = judge_at(says={"text": "Yes", "logprobs": [token]})
    (statement,) = judge(context=CONTEXT, answer=ANSWER).statements
    assert (statement.is_supported, statement.confidence) == (True, None)


@pytest.mark.parametrize(
    "options",
    [{}, {"cite": True}, {"reasoning": "before"}, {"verification": "joint"}],
    ids=str,
)
@pytest.mark.parametrize(
    "thoughts", ["<think>\nNo? No.\nVerdict: No\n</think>\n\n", "No … 水 </think>"]
)
def test_a_reply_is_read_after_its_thoughts(judge_at, options, thoughts):
    """What a reasoning model thinks before `</think>` is no verdict; the label and its probability stand after it."""
    tokens = [(thoughts, {thoughts: 1.0}), ("Yes", {"Yes": 0.9, "No": 0.1})]
    judge, _ = judge_at(says={"tokens": [*tokens, ("\n", {"\n": 1.0})]}, **options)
    (statement,) = judge(context=CONTEXT, answer=ANSWER).statements
    assert statement.is_supported
    assert statement.confidence == pytest.approx(0.9, abs=0.01)


def confidences(judge, numbers):
    answers = (f"Kettle {i} is blue." for i in numbers)
    judgments = [judge(context=CONTEXT, answer=answer) for answer in answers]
    return [j.statements[0].confidence for j in judgments]


def test_an_lm_that_gives_none_takes_one_call_a_statement(judge_at, caplog):
    """After a reply without probabilities there is room for the label beside them, which is said once; from when they
    come they are there."""
    judge, server = judge_at()
    server.tells = False
    assert confidences(judge, range(3)) == [None] * 3
    server.tells = True
    assert None not in confidences(judge, range(3, 6))
    assert [r["max_tokens"] for r in server.requests] == [1, 12, 12, 12, 1, 1]
    assert caplog.text.count("gives no token probabilities") == 1


def explaining(asked):
    """“No” about what is red, and why, where that is asked."""
    *_, last = asked["messages"]
    if last["content"] == ExplainVerdict.instructions:
        return "The context says that it is blue. Red is another colour."
    return "No" if "Statement: The kettle is red." in last["content"] else "Yes"


def test_a_statement_that_fails_gets_a_reason_behind_its_own_request(judge_at):
    """Three calls in place of two."""
    judge, server = judge_at(says=explaining, reasons="unsupported")
    answer = f"{ANSWER} The kettle is red."
    judgment = judge(context=CONTEXT, answer=answer)
    reasons = [s.reason for s in judgment.statements]
    assert reasons == [None, "The context says that it is blue."]
    assert judgment.usage.calls == 3
    _, verdict, why = (asked["messages"] for asked in server.requests)
    assert why[: len(verdict)] == verdict
    assert [m["content"] for m in why[len(verdict) :]] == ["No", ExplainVerdict.instructions]  # fmt: skip
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
