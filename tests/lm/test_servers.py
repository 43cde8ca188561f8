"""Addresses, keys and windows, each by a scripted server over HTTP: what is sent where, and what is said at the first
call."""

import json
import threading
from http.server import ThreadingHTTPServer

import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.errors import LMUnavailableError
from faith_dspy.lm.make import make_lm
from tests.support.chat_server import JsonHandler

CONTEXT = ["The kettle is blue."]


class PathServer:
    """An endpoint on loopback that says what a function of path and request tells it: status, JSON and headers."""

    def __init__(self, says):
        self.requests, owner = [], self

        class Handler(JsonHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.requests.append((self.path, self.headers["Authorization"], asked))
                self.reply(*says(self.path, asked))

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        serve = self.http.serve_forever
        threading.Thread(target=serve, args=(0.02,), daemon=True).start()

    @property
    def paths(self):
        """Where requests with a prompt went."""
        return {
            path for path, _, asked in self.requests if not path.endswith("/api/show")
        }


@pytest.fixture
def serve():
    """Make a server; all are closed in the end."""
    servers = []

    def start(says):
        servers.append(PathServer(says))
        return servers[-1]

    yield start
    for server in servers:
        server.http.shutdown()
        server.http.server_close()


def completion(text, reason="stop"):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return 200, {"id": "1", "object": "chat.completion", "created": 1, "model": "q", "choices": [choice]}  # fmt: skip


def refusal(status, message, code=None):
    return status, {"error": {"message": message, "type": "e", "code": code}}


def ollama(path, asked):
    """Both of Ollama's protocols, as a model speaks them that thinks for 300 tokens."""
    if path == "/v1/chat/completions":
        is_cut = asked.get("max_tokens", 10_000) < 300
        return completion("" if is_cut else "Yes", "length" if is_cut else "stop")
    if path == "/api/chat":
        is_cut = asked["options"].get("num_predict", 10_000) < 300
        message = {"role": "assistant", "content": "" if is_cut else "Yes", "thinking": "Hm."}  # fmt: skip
        reason = "length" if is_cut else "stop"
        return 200, {"model": "q", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": True,
                     "done_reason": reason, "prompt_eval_count": 9, "eval_count": 2}  # fmt: skip
    if path == "/api/show":
        return 200, {"template": "", "model_info": {}, "capabilities": ["completion"]}
    return refusal(404, "404 page not found")


@pytest.mark.parametrize(
    "pasted", ["", "/", "/v1", "/v1/chat/completions", "/api/chat"]
)
@pytest.mark.parametrize("model", ["ollama_chat/q", "ollama/q"])
def test_ollamas_address_in_any_form(serve, model, pasted):
    """With ``/v1`` or without, and as it is pasted from a request."""
    server = serve(ollama)
    judge = Judge(model, api_base=server.url + pasted, classifier=None)
    for colour in ("blue", "a kettle"):
        assert judge(context=CONTEXT, answer=f"The kettle is {colour}.").faithful
    assert server.paths == {"/v1/chat/completions"}


@pytest.mark.parametrize("model", ["ollama_chat/q", "ollama/q"])
def test_ollama_is_asked_for_the_window(serve, monkeypatch, model):
    """By its own protocol, the only one that takes ``num_ctx``: it would cut a longer prompt without a word."""
    server = serve(ollama)
    monkeypatch.setenv("OLLAMA_API_BASE", f"{server.url}/v1")
    judge = Judge(model, context_window=8192, classifier=None)
    assert judge(context=CONTEXT, answer="The kettle is blue.").faithful
    assert server.paths == {"/api/chat"}
    assert server.requests[-1][2]["options"]["num_ctx"] == 8192


def test_a_replay_of_litellms_has_an_estimate_of_its_tokens(serve):
    """DSPy's cache clears what LiteLLM counted; a second study would take its candidates for free."""
    server = serve(ollama)
    judges = [
        Judge(
            "ollama_chat/q", api_base=server.url, context_window=8192, classifier=None
        )
        for _ in range(2)
    ]
    paid, replayed = (j(context=CONTEXT, answer="It is blue.") for j in judges)
    assert (paid.usage.calls, replayed.usage.calls, replayed.replayed.calls) == (
        2,
        0,
        2,
    )
    assert 100 < replayed.replayed.prompt_tokens < 400
    assert replayed.replayed.output_tokens > 0


@pytest.mark.parametrize("pasted", ["", "/v1", "/v1/chat/completions"])
def test_an_openai_address_with_and_without_v1(serve, pasted):
    """As Ollama and most servers have it."""
    server = serve(ollama)
    judge = Judge("openai/q", api_base=server.url + pasted, classifier=None)
    assert judge(context=CONTEXT, answer="The kettle is blue.").faithful


def test_a_wrong_path_names_the_address(serve):
    server = serve(lambda path, asked: refusal(404, "404 page not found"))
    judge = Judge("openai/q", api_base=f"{server.url}/api", classifier=None)
    with pytest.raises(
        LMUnavailableError, match=r"/api does not answer.* and the address"
    ):
        judge(context=CONTEXT, answer="The kettle is blue.")


FATAL = {
    "key": (refusal(401, "Incorrect API key provided"), "OPENAI_API_KEY"),
    "model": (refusal(404, "The model `q` does not exist", "model_not_found"), "Check the model's name"),
    "model, by 400": (refusal(400, "Invalid model name passed in model=q"), "Check the model's name"),
    "model, by 400 of another": (refusal(400, "model 'q' not found"), "Check the model's name"),
    "credit": (refusal(402, "You have no credit"), "Check its key"),
}  # fmt: skip


@pytest.mark.parametrize("name", FATAL)
def test_what_no_call_will_mend_is_said_at_the_first(serve, name):
    """One sentence after the first calls in flight, not an unscored answer for each of 30 records in eight threads."""
    reply, advice = FATAL[name]
    server = serve(lambda path, asked: reply)
    judge = Judge("openai/q", api_base=f"{server.url}/v1", classifier=None)
    records = [{"context": CONTEXT, "answer": f"Kettle {i} is blue."} for i in range(30)]  # fmt: skip
    with pytest.raises(LMUnavailableError, match=advice) as raised:
        judge.batch(records, num_threads=8)
    assert server.url in str(raised.value)
    assert raised.value.__suppress_context__  # the server's words may hold a key
    assert 1 <= len(server.requests) < len(records)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "all_proxy"])
def test_a_dead_proxy_is_named_by_its_variable(monkeypatch, variable):
    monkeypatch.setenv(variable, "http://me:hush@127.0.0.1:9")
    judge = Judge("openai/q", api_base="https://judge.example/v1")
    said = f"the proxy in {variable} that does not answer"
    with pytest.raises(LMUnavailableError, match=said) as raised:
        judge.preflight()
    assert "hush" not in str(raised.value)


def test_a_misspelt_provider_is_said_at_the_first():
    judge = Judge("opneai/q")
    with pytest.raises(LMUnavailableError, match="Check the model's name"):
        judge.batch([{"context": CONTEXT, "answer": "The kettle is blue."}])


def test_a_key_goes_only_where_it_was_given_for(serve, monkeypatch):
    """The environment's goes to the address in the provider's own variable, and to no other."""
    server = serve(lambda path, asked: completion("Yes"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-home-0123456789")
    judge = Judge("openai/q", api_base=f"{server.url}/v1", classifier=None)
    assert judge(context=CONTEXT, answer="The kettle is blue.").faithful
    monkeypatch.setenv("OPENAI_API_BASE", f"{server.url}/v1")
    judge = Judge("openai/q", classifier=None)
    assert judge(context=CONTEXT, answer="The cup is blue.").faithful
    keys = [key for _, key, _ in server.requests]
    assert keys == ["Bearer none", "Bearer sk-home-0123456789"]


@pytest.mark.parametrize("engine", ["auto", "litellm"])
def test_no_key_follows_a_redirect(serve, engine):
    """DSPy follows none: the answer is unscored. LiteLLM asks the other host, without the key."""
    other = serve(lambda path, asked: completion("Yes"))
    location = {"Location": f"{other.url}/v1/chat/completions"}
    server = serve(lambda path, asked: (307, {}, location))
    address = {"api_base": f"{server.url}/v1", "api_key": "sk-planted-0123456789"}
    lm = make_lm("openai/q", **address, engine=engine, num_retries=0)
    judge = Judge(lm, classifier=None)
    judgment = judge(context=CONTEXT, answer="The kettle is blue.")
    assert (judgment.unscored is not None) is (engine == "auto")
    assert {key for _, key, _ in other.requests} <= {None}


def test_a_second_lm_shares_address_and_key():
    address = {"api_base": "http://127.0.0.1:9/v1", "api_key": "k-0123456789"}
    judge = Judge("openai/small", **address, escalate_to="openai/large")
    first, second = judge.lm.kwargs, judge.escalate_to.lm.kwargs
    assert judge.escalate_to.lm.model == "openai/large"
    assert (first["api_base"], first["api_key"]) == (second["api_base"], second["api_key"])  # fmt: skip


# --- windows ------------------------------------------------------------------------------------------------------

CHUNKS = [*(f"Chunk {i}: " + "filler words about lamps and tables. " * 40 for i in range(20)), *CONTEXT]  # fmt: skip
LIMIT = 3000
"""Tokens that a server takes, four characters each."""


def limited(path, asked):
    text = "".join(message["content"] for message in asked["messages"])
    if len(text) // 4 > LIMIT:
        message = f"This model's maximum context length is {LIMIT} tokens."
        return refusal(400, message, "context_length_exceeded")
    return completion("Yes" if f"{CONTEXT[0]}\n" in text else "No")


def test_a_context_that_is_too_long_is_read_in_windows(serve):
    """It is cut in half until it fits; two refusals that name the window are enough for all answers."""
    server = serve(limited)
    judge = Judge("openai/q", api_base=f"{server.url}/v1", classifier=None)
    for name in ("The kettle", "That kettle", "Every kettle"):
        assert judge(context=CHUNKS, answer=f"{name} is blue.").faithful
    sizes = [sum(len(m["content"]) for m in asked["messages"]) // 4 for _, _, asked in server.requests]  # fmt: skip
    assert [size > LIMIT for size in sizes].count(True) == 2
    assert judge.lm.capabilities.context_window == LIMIT


def test_a_window_is_an_option_and_is_exported(serve, tmp_path):
    """No call is too long; a loaded judge has the window, unless it is given another, and the room for thoughts."""
    server = serve(limited)
    address = {"api_base": f"{server.url}/v1"}
    limits = {"context_window": LIMIT, "thinking_tokens": 700}
    judge = Judge("openai/q", **address, classifier=None, **limits)
    assert judge(context=CHUNKS, answer="The kettle is blue.").faithful
    assert {len(str(asked["messages"])) // 4 <= LIMIT for _, _, asked in server.requests} == {True}  # fmt: skip
    judge.save(tmp_path / "judge")
    loaded = [
        load_judge(tmp_path / "judge", **address, **window)
        for window in ({}, {"context_window": 900})
    ]
    assert [judge.lm.context_window for judge in loaded] == [LIMIT, 900]
    assert [j.lm.capabilities.thinking_tokens for j in loaded] == [700, 700]


def test_the_newer_name_of_the_limit(serve):
    """A server that takes only ``max_completion_tokens`` says so twice."""

    def says(path, asked):
        if "max_tokens" in asked:
            return refusal(400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                                "'max_completion_tokens' instead.")  # fmt: skip
        return completion("Yes")

    server = serve(says)
    lm = make_lm("openai/q", api_base=f"{server.url}/v1", engine="litellm", num_retries=0)  # fmt: skip
    judge = Judge(lm, classifier=None)
    for name in ("The kettle", "That kettle", "Every kettle"):
        assert judge(context=CONTEXT, answer=f"{name} is blue.").faithful
    assert ["max_tokens" in asked for _, _, asked in server.requests].count(True) == 2
