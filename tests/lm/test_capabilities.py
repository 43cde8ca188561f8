"""LMs that people have, each a scripted server: what one refuses, or how it thinks, costs two calls."""

import dspy
import pytest

from faith_dspy import Judge
from faith_dspy.lm.capabilities import named_window
from faith_dspy.lm.make import make_lm

CONTEXT = ["The kettle is blue."]
N = 12
"""Answers of a batch."""


def limit(asked):
    return asked.get("max_tokens") or 10_000


def alternatives(asked):
    return asked.get("top_logprobs") or 0


REFUSALS = {
    "temperature": (lambda a: a.get("temperature") == 0,
                    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) is "
                    "supported."),
    "too few tokens": (lambda a: limit(a) < 16,
                       "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 "
                       "instead."),
    "logprobs": (lambda a: a.get("logprobs"), "logprobs are not supported with reasoning models."),
    "top_logprobs": (lambda a: alternatives(a) > 5,
                     "Invalid value for 'top_logprobs': must be less than or equal to 5."),
    "top_logprobs of vLLM": (lambda a: alternatives(a) > 5,
                             "Requested sample logprobs of 20, which is greater than max allowed: 5"),
    "top_logprobs alone": (lambda a: "top_logprobs" in a, "Unrecognized request argument supplied: top_logprobs"),
    "system": (lambda a: a["messages"][0]["role"] == "system", "System role not supported"),
    "seed": (lambda a: "seed" in a, "Unknown parameter: 'seed'."),
    "stop": (lambda a: "stop" in a, "Unsupported parameter: 'stop' is not supported with this model."),
}  # fmt: skip
YES = {"text": "Yes", "top": {"Yes": 0.9, "No": 0.1}}


def refusing(*names, says=YES):
    """What a server says that refuses requests with the first of these that is wrong."""

    def say(asked):
        for is_wrong, words in map(REFUSALS.get, names):
            if is_wrong(asked):
                return {"status": 400, "text": words}
        return says

    return say


def lm_at(server, **settings):
    return make_lm("openai/tiny", api_base=server.base, num_retries=0, **settings)


def judged(server, n=N, lm=None):
    """The judgments on so many answers of a statement each, and the requests that they took."""
    judge = Judge(lm or lm_at(server, seed=3, stop="\n\n"))
    records = [{"context": CONTEXT, "answer": f"Kettle {i} is blue."} for i in range(n)]
    return judge.batch(records, num_threads=1), len(server.requests)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_parameter_costs_two_calls(chat_server, name):
    """It is dropped, raised or lowered by the server's own words; once two calls were refused for it, no other is. Of
    log-probabilities fewer are asked for before none."""
    judgments, calls = judged(chat_server(says=refusing(name)))
    assert all(j.faithful for j in judgments)
    assert calls == N + (4 if name in ("logprobs", "top_logprobs alone") else 2)
    if name != "top_logprobs alone":
        told = {j.statements[0].confidence is not None for j in judgments}
        assert told == {name != "logprobs"}


def test_a_json_schema_that_is_refused(chat_server):
    """Joint requests go without."""

    words = "'response_format' of type 'json_object' is not supported with this model"
    refusal = {"status": 400, "text": words}
    reply = '{"verdicts": [{"statement": 1, "verdict": "Yes"}, {"statement": 2, "verdict": "No"}]}'
    server = chat_server(
        says=lambda a: refusal if "response_format" in a else reply, models=[]
    )
    lm = make_lm("openai/gpt-4o-mini", api_base=server.base, num_retries=0)
    judge = Judge(lm, verification="joint")
    for i in range(4):
        judgment = judge(context=CONTEXT, answer=f"Kettle {i} is blue. It is new.")
        assert [s.is_supported for s in judgment.statements] == [True, False]
    assert 4 < len(server.requests) <= 6


@pytest.mark.parametrize("by_litellm", [False, True])
def test_null_beside_a_label(chat_server, monkeypatch, by_litellm):
    """DSPy, and LiteLLM, by which it asks where the environment names the address, refuse such a reply: it is asked
    for without log-probabilities, and its label counts."""
    null = {"token": "Yes", "logprob": None, "bytes": None, "top_logprobs": None}
    server = chat_server(says=lambda _: {"text": "Yes", "logprobs": [null]}, models=[])
    if by_litellm:
        monkeypatch.setenv("OPENAI_API_BASE", server.base)
    (judgment,), _ = judged(server, n=1)
    assert judgment.faithful
    assert "logprobs" not in server.requests[-1]


def test_what_the_server_wants_is_what_is_sent(chat_server):
    """Each refusal costs one call. A minimum of 16 tokens is asked for as 16, at most five alternatives as five,
    without a system message."""
    names = ("too few tokens", "top_logprobs", "system", "temperature", "seed", "stop")
    server = chat_server(says=refusing(*names))
    assert judged(server, n=1)[1] == 1 + len(names)
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

    def say(asked):
        is_cut = limit(asked) < needed
        statement = asked["messages"][-1]["content"].rpartition("Statement:")[2]
        label = "No" if "red" in statement else "Yes"
        cut, whole = {
            "reasoning_content": ("", label),
            "null": (None, label),
            "<think>": ("<think>\nIs it Yes? Verdict: Yes, maybe", f"<think>No, no.</think>\n\n{label}"),
        }[kind]  # fmt: skip
        more = {"reasoning_content": {kind: "Let me see. Yes?"}}.get(kind, {})
        text = cut if is_cut else whole
        return {"text": text, "is_cut": is_cut, "more": more, "top": {}}

    return say


def limits(server):
    return [asked["max_tokens"] for asked in server.requests]


@pytest.mark.parametrize("kind", ["reasoning_content", "null", "<think>"])
def test_a_model_that_thinks_gives_verdicts(chat_server, kind):
    """A reply that ended before the answer is asked for again with room, and from the third on they have it; thoughts
    are paid for, and are no verdict."""
    server = chat_server(says=thinking(kind))
    lm = lm_at(server)
    judgments, calls = judged(server, lm=lm)
    assert {j.faithful for j in judgments} == {True}
    assert calls == N + 2
    assert (limits(server)[1], limits(server)[3:]) == (2012, [2012] * (N - 1))
    usage = [j.usage.output_tokens for j in judgments]
    assert usage == [
        10,
        10,
        *[5] * (N - 2),
    ]  # what was thought in vain is paid for, too
    assert Judge(lm)(context=CONTEXT, answer="It is red.").faithful is False


def test_room_for_thoughts(chat_server):
    """Thoughts that do not end in 2,000 tokens have four times as much, all later ones at once."""
    server = chat_server(says=thinking("null", needed=3_000))
    judgments, calls = judged(server)
    assert {j.faithful for j in judgments} == {True}
    assert limits(server)[:3] == [1, 2_012, 8_012]
    assert (limits(server)[6:], calls) == ([8_012] * (N - 2), N + 4)


@pytest.mark.parametrize(("most", "room"), [(100_000, "8,000"), (4_096, "2,000")])
def test_a_model_that_never_ends_its_thoughts(chat_server, most, room):
    """Two answers are unscored and name the option; at the third the run ends, and says so for the others. So does one
    whose server takes no more tokens."""
    endless = thinking("<think>", needed=100_000)
    refusal = {"status": 400, "text": "max_tokens is too large: the most is 4096."}
    server = chat_server(says=lambda a: refusal if limit(a) > most else endless(a))
    first, second, third, *others = judged(server)[0]
    assert {j.unscored for j in (first, second, third)} == {"lm_failed"}
    assert "thinking_tokens=" in first.detail
    assert "3 times" not in second.detail
    assert f"3 times it thought for {room} tokens" in third.detail
    assert {j.detail for j in others} == {third.detail}
    assert len(server.requests) <= 10  # the next answer may have begun


def test_a_model_that_talks_first(chat_server):
    """“The statement is …” within one token says nothing; with room it does, from then on."""

    def says(asked):
        text = "The statement is not supported by the context."
        first = {"The": 0.95, "Yes": 0.027, "No": 0.018}
        return {"text": "The" if limit(asked) < 8 else text, "top": first}

    judgments, calls = judged(chat_server(says=says))
    assert {j.statements[0].verdict for j in judgments} == {"not_supported"}
    assert calls == N + 2


def test_what_was_found_out_is_each_lms_own(chat_server):
    """Its copies share it; another LM of the same name and address does not, whatever it was given."""
    server = chat_server(says=refusing("temperature"))
    lm, other = lm_at(server), lm_at(server, thinking_tokens=30_000)
    judged(server, lm=lm)
    assert lm.capabilities.refused == lm.copy().capabilities.refused == {"temperature"}
    assert other.capabilities.refused == set()
    plain = dspy.LM("openai/tiny", api_base=server.base, api_key="none")
    judges = Judge(plain, thinking_tokens=500), Judge(plain)
    rooms = [judge.lm.capabilities.thinking_tokens for judge in judges]
    assert [lm.capabilities.thinking_tokens, *rooms] == [2_000, 500, 2_000]


def test_a_refusal_is_not_read_for_what_it_quotes(chat_server):
    """A record that speaks of parameters, windows and models changes nothing for the others, even if it is refused
    again and again, and its refusal quotes it."""
    text = "The temperature was 5; logprobs were not told; its context window is 1,200; the model does not exist."

    def says(asked):
        if "temperature was" in str(asked["messages"]):
            quoted = f"Blocked by policy: {text} The context length is 3000."
            return {"status": 400, "text": quoted}
        return YES

    server = chat_server(says=says)
    judge = Judge(lm_at(server), granularity="answer")
    context = [text, "The context length is 3000."]
    for i in range(3):
        assert judge(context=context, answer=f"It has {i}.").unscored == "lm_failed"
    assert judge(context=CONTEXT, answer="It is blue.").faithful
    assert judge.lm.capabilities.context_window is None
    last = server.requests[-1]
    assert (last["temperature"], "logprobs" in last) == (0, True)


@pytest.mark.parametrize(
    ("words", "window"),
    [
        ("This model's maximum context length is 128K tokens.", 128_000),
        ("maximum context length is 16,384 tokens", 16_384),
        ("the context window is 100", None),
    ],
)
def test_windows_that_refusals_name(words, window):
    assert named_window(words.lower()) == window


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}])
def test_an_lm_that_draws_is_known_as_such(chat_server, settings):
    """A user's own without a temperature, and one whose server refused it: the likelier label counts, not the drawn."""
    server = chat_server(says=refusing("temperature", says=YES | {"text": "No"}))
    plain = dspy.LM("openai/tiny", api_base=server.base, api_key="none", **settings)
    for i in range(3):
        assert Judge(plain)(context=CONTEXT, answer=f"Kettle {i} is blue.").faithful
