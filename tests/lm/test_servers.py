"""Addresses, keys and windows, each by a scripted server over HTTP: what is sent where, and what is said at the first
call."""

import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.errors import LMUnavailableError
from faith_dspy.lm.make import make_lm

CONTEXT = ["The kettle is blue."]
BLUE = {"context": CONTEXT, "answer": "The kettle is blue."}


def refusal(status, message, code=None):
    return {"status": status, "text": message, "code": code}


@pytest.fixture
def ollama(chat_server):
    """Both of Ollama's protocols, as a model speaks them that thinks for 300 tokens."""

    def says(asked):
        path = server.paths[-1]
        if path.endswith("/api/show"):
            return {"body": {"template": "", "model_info": {}, "capabilities": ["completion"]}}  # fmt: skip
        room = asked.get("max_tokens") or asked.get("options", {}).get("num_predict")
        is_cut = (room or 10_000) < 300
        text = "" if is_cut else "Yes"
        if path == "/v1/chat/completions":
            return {"text": text, "is_cut": is_cut}
        if path == "/api/chat":
            message = {"role": "assistant", "content": text}
            reason = "length" if is_cut else "stop"
            return {"body": {"model": "q", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": True,
                             "done_reason": reason, "prompt_eval_count": 9, "eval_count": 2}}  # fmt: skip
        return refusal(404, "404 page not found")

    server = chat_server(says=says, models=[])
    server.url = server.base.removesuffix("/v1")
    return server


def asked_at(server):
    """Where requests with a prompt went."""
    return {path for path in server.paths if not path.endswith("/api/show")}


@pytest.mark.parametrize("model", ["ollama_chat/q", "ollama/q", "openai/q"])
@pytest.mark.parametrize(
    "pasted", ["", "/", "/v1", "/v1/chat/completions", "/api/chat"]
)
def test_an_address_in_any_form(ollama, model, pasted):
    """With ``/v1`` or without, and as it is pasted from a request."""
    if (model, pasted) == ("openai/q", "/api/chat"):
        return
    judge = Judge(model, api_base=ollama.url + pasted)
    for colour in ("blue", "a kettle"):
        assert judge(context=CONTEXT, answer=f"The kettle is {colour}.").faithful
    assert asked_at(ollama) == {"/v1/chat/completions"}


@pytest.mark.parametrize("model", ["ollama_chat/q", "ollama/q"])
def test_ollama_is_asked_for_the_window(ollama, monkeypatch, model):
    """By its own protocol, the only one that takes ``num_ctx``: it would cut a longer prompt without a word."""
    monkeypatch.setenv("OLLAMA_API_BASE", ollama.base)
    assert Judge(model, context_window=8192)(**BLUE).faithful
    assert asked_at(ollama) == {"/api/chat"}
    (asked, *_) = [asked for asked in ollama.requests if "options" in asked]
    assert asked["options"]["num_ctx"] == 8192


def test_a_replay_of_litellms_has_an_estimate_of_its_tokens(ollama):
    """DSPy's cache clears what LiteLLM counted; a second study would take its candidates for free."""
    paid, second = (
        Judge("ollama_chat/q", api_base=ollama.url, context_window=8192)(**BLUE)
        for _ in range(2)
    )
    assert [u.calls for u in (paid.usage, second.usage, second.replayed)] == [2, 0, 2]
    assert 100 < second.replayed.prompt_tokens < 400
    assert second.replayed.output_tokens > 0


FATAL = {
    "path": (refusal(404, "404 page not found"), "and the address"),
    "key": (refusal(401, "Incorrect API key provided"), "OPENAI_API_KEY"),
    "model": (refusal(404, "The model `q` does not exist", "model_not_found"), "Check the model's name"),
    "model, by 400": (refusal(400, "Invalid model name passed in model=q"), "Check the model's name"),
    "credit": (refusal(402, "You have no credit"), "Check its key"),
}  # fmt: skip


@pytest.mark.parametrize("name", FATAL)
def test_what_no_call_will_mend_is_said_at_the_first(chat_server, name):
    """One sentence after the first calls in flight, not an unscored answer for each of 30 records in eight threads."""
    reply, advice = FATAL[name]
    server = chat_server(says=lambda _: reply)
    judge = Judge("openai/q", api_base=server.base)
    records = [{"context": CONTEXT, "answer": f"Kettle {i} is blue."} for i in range(30)]  # fmt: skip
    with pytest.raises(LMUnavailableError, match=advice) as raised:
        judge.batch(records, num_threads=8)
    assert server.base in str(raised.value)
    assert raised.value.__suppress_context__  # the server's words may hold a key
    assert 1 <= len(server.requests) < len(records)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "all_proxy"])
def test_a_dead_proxy_is_named_by_its_variable(monkeypatch, variable):
    monkeypatch.setenv(variable, "http://me:hush@127.0.0.1:9")
    judge = Judge("openai/q", api_base="https://judge.example/v1")
    words = f"the proxy in {variable} that does not answer"
    with pytest.raises(LMUnavailableError, match=words) as raised:
        judge.preflight()
    assert "hush" not in str(raised.value)


def test_a_misspelt_provider_is_said_at_the_first():
    with pytest.raises(LMUnavailableError, match="Check the model's name"):
        Judge("opneai/q").batch([BLUE])


def test_a_key_goes_only_where_it_was_given_for(chat_server, monkeypatch):
    """The environment's goes to the address in the provider's own variable, and to no other."""
    server = chat_server(models=[])
    monkeypatch.setenv("OPENAI_API_KEY", "sk-home-0123456789")
    assert Judge("openai/q", api_base=server.base)(**BLUE).faithful
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    assert Judge("openai/q")(context=CONTEXT, answer="The cup is blue.").faithful
    assert server.keys == ["Bearer none", "Bearer sk-home-0123456789"]


@pytest.mark.parametrize("engine", ["auto", "litellm"])
def test_no_key_follows_a_redirect(chat_server, engine):
    """DSPy follows none: the answer is unscored. LiteLLM asks the other host, without the key."""
    other = chat_server(models=[])
    location = {"Location": f"{other.base}/chat/completions"}
    server = chat_server(says=lambda _: refusal(307, "") | {"headers": location})
    address = {"api_base": server.base, "api_key": "sk-planted-0123456789"}
    judgment = Judge(make_lm("openai/q", **address, engine=engine, num_retries=0))(**BLUE)  # fmt: skip
    assert (judgment.unscored is not None) is (engine == "auto")
    assert {*other.keys} <= {None}


def test_a_second_lm_shares_address_and_key():
    address = {"api_base": "http://127.0.0.1:9/v1", "api_key": "k-0123456789"}
    second = Judge("openai/small", **address, escalate_to="openai/large").escalate_to.lm
    assert second.model == "openai/large"
    assert address.items() <= second.kwargs.items()


# --- windows ------------------------------------------------------------------------------------------------------

CHUNKS = [*(f"Chunk {i}: " + "filler words about lamps and tables. " * 40 for i in range(20)), *CONTEXT]  # fmt: skip
LIMIT = 3000
"""Tokens that a server takes, four characters each."""
NAMES = ("The kettle", "That kettle", "Every kettle")


def tokens_of(asked):
    return sum(len(message["content"]) for message in asked["messages"]) // 4


def limited(asked):
    if tokens_of(asked) > LIMIT:
        words = f"This model's maximum context length is {LIMIT} tokens."
        return refusal(400, words, "context_length_exceeded")
    return "Yes" if f"{CONTEXT[0]}\n" in asked["messages"][-1]["content"] else "No"


def test_a_context_that_is_too_long_is_read_in_windows(chat_server):
    """It is cut in half until it fits; two refusals that name the window are enough for all answers."""
    server = chat_server(says=limited, models=[])
    judge = Judge("openai/q", api_base=server.base)
    for name in NAMES:
        assert judge(context=CHUNKS, answer=f"{name} is blue.").faithful
    sizes = [tokens_of(asked) for asked in server.requests]
    assert [size > LIMIT for size in sizes].count(True) == 2
    assert judge.lm.capabilities.context_window == LIMIT


def test_a_window_is_an_option_and_is_exported(chat_server, tmp_path):
    """No call is too long; a loaded judge has the window, unless it is given another, and the room for thoughts."""
    server = chat_server(says=limited, models=[])
    limits = {"context_window": LIMIT, "thinking_tokens": 700}
    judge = Judge("openai/q", api_base=server.base, **limits)
    assert judge(context=CHUNKS, answer="The kettle is blue.").faithful
    assert max(map(tokens_of, server.requests)) <= LIMIT
    judge.save(tmp_path / "judge")
    for more, window in (({}, LIMIT), ({"context_window": 900}, 900)):
        lm = load_judge(tmp_path / "judge", api_base=server.base, **more).lm
        assert (lm.context_window, lm.capabilities.thinking_tokens) == (window, 700)


def test_the_newer_name_of_the_limit(chat_server):
    """A server that takes only ``max_completion_tokens`` says so twice."""
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    server = chat_server(
        says=lambda a: "Yes" if "newer_name" in a else refusal(400, words), models=[]
    )
    lm = make_lm("openai/q", api_base=server.base, engine="litellm", num_retries=0)
    for name in NAMES:
        assert Judge(lm)(context=CONTEXT, answer=f"{name} is blue.").faithful
    assert len(server.requests) == len(NAMES) + 2
