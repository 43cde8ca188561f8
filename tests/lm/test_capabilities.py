"""LMs that people have, each a scripted server: what one refuses, or how it thinks, costs two calls."""

import dspy
import pytest

from faith_dspy import Judge, Verdict
from faith_dspy.lm.capabilities import named_window
from faith_dspy.lm.make import make_lm

CONTEXT = ["The kettle is blue."]
N = 12
"""Statements of a batch."""


def length(asked):
    return asked.get("max_tokens") or 10_000


REFUSALS = {
    "temperature": lambda a: (
        a.get("temperature") == 0
        and "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) is supported."
    ),
    "too few tokens": lambda a: (
        length(a) < 16
        and "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead."
    ),
    "logprobs": lambda a: (
        a.get("logprobs") and "logprobs are not supported with reasoning models."
    ),
    "top_logprobs": lambda a: (
        (a.get("top_logprobs") or 0) > 5
        and "Invalid value for 'top_logprobs': must be less than or equal to 5."
    ),
    "top_logprobs of vLLM": lambda a: (
        (a.get("top_logprobs") or 0) > 5
        and "Requested sample logprobs of 20, which is greater than max allowed: 5"
    ),
    "top_logprobs alone": lambda a: (
        "top_logprobs" in a and "Unrecognized request argument supplied: top_logprobs"
    ),
    "system": lambda a: (
        a["messages"][0]["role"] == "system" and "System role not supported"
    ),
    "seed": lambda a: "seed" in a and "Unknown parameter: 'seed'.",
    "stop": lambda a: (
        "stop" in a
        and "Unsupported parameter: 'stop' is not supported with this model."
    ),
}


def refusing(*refusals):
    """What a server says that refuses requests with the first of these that is wrong."""

    def say(asked):
        wrong = next(filter(None, (refusal(asked) for refusal in refusals)), None)
        return (
            {"status": 400, "text": wrong}
            if wrong
            else {"text": "Yes", "top": {"Yes": 0.9, "No": 0.1}}
        )

    return say


def judged(server, n=N, threads=1, lm=None, **options):
    """The judgments on so many answers of a statement each, and the requests that they took."""
    lm = lm or make_lm(
        "openai/tiny", api_base=server.base, num_retries=0, seed=3, stop="\n\n"
    )
    judge = Judge(lm, **options)
    records = [{"context": CONTEXT, "answer": f"Kettle {i} is blue."} for i in range(n)]
    judgments = judge.batch(records, num_threads=threads)
    return judgments, len(server.requests)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_parameter_costs_two_calls(chat_server, name):
    """It is dropped, raised or lowered by the server's own words; once two calls were refused for it, no other is. Of
    log-probabilities fewer are asked for before none."""
    server = chat_server(says=refusing(REFUSALS[name]))
    judgments, calls = judged(server)
    assert [j.statements[0].verdict for j in judgments] == [Verdict.FULLY_SUPPORTED] * N
    assert calls == N + (4 if name in ("logprobs", "top_logprobs alone") else 2)
    told = name not in ("logprobs", "top_logprobs alone")
    assert (
        all((j.statements[0].confidence is not None) is told for j in judgments)
        or name == "top_logprobs alone"
    )


def test_a_json_schema_that_is_refused(chat_server):
    """Joint requests go without."""

    def say(asked):
        if "response_format" in asked:
            return {
                "status": 400,
                "text": "'response_format' of type 'json_object' is not supported with this model",
            }
        return '{"verdicts": [{"statement": 1, "verdict": "Yes"}, {"statement": 2, "verdict": "No"}]}'

    server = chat_server(says=say)
    judge = Judge(
        make_lm("openai/tiny", api_base=server.base, num_retries=0),
        verification="joint",
    )
    for i in range(4):
        judgment = judge(context=CONTEXT, answer=f"Kettle {i} is blue. It is new.")
        assert [s.is_supported for s in judgment.statements] == [True, False]
        assert judgment.fallbacks == 0
    assert (
        len(server.requests)
        == 4 + sum("response_format" in asked for asked in server.requests)
        <= 6
    )


def test_what_the_server_wants_is_what_is_sent(chat_server):
    """Each refusal costs one call. A minimum of 16 tokens is asked for as 16, at most five alternatives as five,
    without a system message."""
    names = ("too few tokens", "top_logprobs", "system", "temperature", "seed", "stop")
    server = chat_server(says=refusing(*(REFUSALS[name] for name in names)))
    _, calls = judged(server, n=1)
    assert calls == 1 + len(names)
    last = server.requests[-1]
    assert (last["max_tokens"], last["top_logprobs"]) == (16, 5)
    assert not {"temperature", "seed", "stop"} & last.keys()
    (message,) = last["messages"]
    assert message["content"].startswith(
        "You check statements against a context. Use only the context.\n\nContext:"
    )


# --- models that think --------------------------------------------------------------------------------------------


def thinking(kind, needed=300):
    """What a model says that thinks for so many tokens before it answers."""

    def choice(message, reason):
        return {
            "index": 0,
            "message": {"role": "assistant", **message},
            "finish_reason": reason,
            "logprobs": None,
        }

    def say(asked):
        is_cut = length(asked) < needed
        label = (
            "No"
            if "red" in asked["messages"][-1]["content"].rpartition("Statement:")[2]
            else "Yes"
        )
        content = {
            "reasoning_content": "" if is_cut else label,
            "null": None if is_cut else label,
            "<think>": "<think>\nIs it Yes? Verdict: Yes, maybe"
            if is_cut
            else f"<think>No, no.</think>\n\n{label}",
        }[kind]
        message = {"content": content}
        if kind == "reasoning_content":
            message["reasoning_content"] = "Let me see. Yes?"
        spent = min(length(asked), needed)
        usage = {
            "prompt_tokens": 100,
            "completion_tokens": spent,
            "total_tokens": 100 + spent,
        }
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "usage": usage,
        }
        return {
            "body": reply
            | {"choices": [choice(message, "length" if is_cut else "stop")]}
        }

    return say


@pytest.mark.parametrize("kind", ["reasoning_content", "null", "<think>"])
def test_a_model_that_thinks_gives_verdicts(chat_server, kind):
    """A reply that ended before the answer is asked for again with room, and from the third on they have it; thoughts
    are paid for, and are no verdict."""
    server = chat_server(says=thinking(kind))
    lm = make_lm("openai/tiny", api_base=server.base)
    judgments, calls = judged(server, lm=lm)
    assert {j.faithful for j in judgments} == {True}
    assert calls == N + 2
    limits = [asked["max_tokens"] for asked in server.requests]
    assert (limits[1], limits[3:]) == (2012, [2012] * (N - 1))
    assert sum(j.usage.output_tokens for j in judgments) >= 300 * N
    assert lm.capabilities.needs_room
    assert Judge(lm)(context=CONTEXT, answer="It is red.").faithful is False


def test_room_for_thoughts(chat_server):
    """It is an option, 2,000 tokens unless given; thoughts that do not end in it have four times as much, all later
    ones at once."""
    server = chat_server(says=thinking("null", needed=500))
    judge = Judge("openai/tiny", api_base=server.base, thinking_tokens=700)
    assert judge(context=CONTEXT, answer="It is blue.").faithful
    assert [asked["max_tokens"] for asked in server.requests] == [1, 712]
    server = chat_server(says=thinking("null", needed=3_000))
    judgments, calls = judged(server)
    assert {j.faithful for j in judgments} == {True}
    limits = [asked["max_tokens"] for asked in server.requests]
    assert limits[:3] == [1, 2_012, 8_012]
    assert (limits[6:], calls) == ([8_012] * (N - 2), N + 4)


@pytest.mark.parametrize("kind", ["<think>", "refused"])
def test_a_model_that_never_ends_its_thoughts(chat_server, kind):
    """Two answers are unscored and name the option; at the third the run ends, and says so for the others. So does one
    whose server takes no more tokens."""
    endless = thinking("<think>", needed=100_000)
    refusal = {"status": 400, "text": "max_tokens is too large: the most is 4096."}
    server = chat_server(
        says=lambda a: (
            refusal if kind == "refused" and length(a) > 4_096 else endless(a)
        )
    )
    first, second, third, *others = judged(server)[0]
    assert {j.unscored for j in (first, second, third)} == {"lm_failed"}
    assert "thinking_tokens=" in first.detail
    assert "3 times" not in second.detail
    assert "3 times it thought for" in third.detail
    assert {j.detail for j in others} == {third.detail}
    assert len(server.requests) <= 9


def test_a_model_that_talks_first(chat_server):
    """“The statement is …” within one token says nothing; with room it does, from then on."""

    def says(asked):
        first = {"The": 0.95, "Yes": 0.027, "No": 0.018}
        text = "The statement is not supported by the context."
        return {"text": "The" if length(asked) < 8 else text, "top": first}

    judgments, calls = judged(chat_server(says=says))
    assert {j.statements[0].verdict for j in judgments} == {Verdict.NOT_SUPPORTED}
    assert calls == N + 2


def test_one_odd_reply_changes_nothing(chat_server):
    """Of an LM that answers at once a reply without a label is asked for again; the next has one token as before."""
    server = chat_server(
        says=lambda a: (
            "Hm" if "Kettle 5" in str(a["messages"]) and length(a) == 1 else "Yes"
        )
    )
    judgments, calls = judged(server)
    assert ({j.faithful for j in judgments}, calls) == ({True}, N + 1)
    assert [asked["max_tokens"] for asked in server.requests].count(2012) == 1


def test_what_was_found_out_is_each_lms_own(chat_server):
    """Its copies share it; another LM of the same name and address does not, whatever it was given."""
    server = chat_server(says=refusing(REFUSALS["temperature"]))
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    judged(server, lm=lm)
    other = make_lm("openai/tiny", api_base=server.base, thinking_tokens=30_000)
    assert lm.capabilities.refused == lm.copy().capabilities.refused == {"temperature"}
    assert other.capabilities.refused == set()
    assert lm.capabilities.thinking_tokens == 2_000
    plain = dspy.LM("openai/tiny", api_base=server.base, api_key="none")
    first, second = Judge(plain, thinking_tokens=500), Judge(plain)
    rooms = [judge.lm.capabilities.thinking_tokens for judge in (first, second)]
    assert rooms == [500, 2_000]


def test_a_refusal_is_not_read_for_what_it_quotes(chat_server):
    """A record that speaks of parameters, windows and models changes nothing for the others, even if it is refused
    again and again, and its refusal quotes it; “128K” is 128,000."""
    text = "The temperature was 5; logprobs were not told; its context window is 1,200; the model does not exist."

    def says(asked):
        if "temperature was" in str(asked["messages"]):
            quoted = f"Blocked by policy: {text} The context length is 3000."
            return {"status": 400, "text": quoted}
        return {"text": "Yes", "top": {"Yes": 0.9}}

    server = chat_server(says=says)
    lm = make_lm("openai/tiny", api_base=server.base, num_retries=0)
    judge = Judge(lm, granularity="answer")
    context = [text, "The context length is 3000."]
    for i in range(3):
        assert judge(context=context, answer=f"It has {i}.").unscored == "lm_failed"
    assert judge(context=CONTEXT, answer="It is blue.").faithful
    assert (lm.experience.cases, lm.capabilities.context_window) == ({}, None)
    assert (server.requests[-1]["temperature"], "logprobs" in server.requests[-1]) == (
        0,
        True,
    )
    windows = {
        "This model's maximum context length is 128K tokens.": 128_000,
        "maximum context length is 16,384 tokens": 16_384,
        "the context window is 100": None,
    }
    assert {words: named_window(words.lower()) for words in windows} == windows


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}])
def test_an_lm_that_draws_is_known_as_such(chat_server, settings):
    """A user's own without a temperature, and one whose server refused it: the likelier label counts, not the drawn."""
    drawn = {"text": "No", "top": {"Yes": 0.9, "No": 0.1}}

    def says(asked):
        refusal = REFUSALS["temperature"](asked)
        return {"status": 400, "text": refusal} if refusal else drawn

    plain = dspy.LM(
        "openai/tiny", api_base=chat_server(says=says).base, api_key="none", **settings
    )
    for i in range(3):
        judgment = Judge(plain)(context=CONTEXT, answer=f"Kettle {i} is blue.")
        assert judgment.statements[0].verdict is Verdict.FULLY_SUPPORTED
