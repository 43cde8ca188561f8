import os
import subprocess
import sys

import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.errors import ConfigError, LMUnavailableError
from faith_dspy.export import need_address
from faith_dspy.lm.make import LMIdentity, identity, make_lm, preflight

KEY = "sk-verysecret-0123456789"


def test_two_servers_with_one_model_name(chat_server):
    """Two endpoints that call their model the same never share answers; each has its own in the cache."""
    one, two = chat_server(says="one"), chat_server(says="two")
    for _ in range(2):
        assert make_lm("openai/tiny", api_base=one.base)("hello") == ["one"]
        assert make_lm("openai/tiny", api_base=two.base)("hello") == ["two"]
    assert (len(one.requests), len(two.requests)) == (1, 1)


def test_endpoint_from_the_environment(chat_server, monkeypatch):
    """An address in the environment keeps its answers apart just as one that is given."""
    one, two = chat_server(says="one"), chat_server(says="two")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for server in (one, two):
        monkeypatch.setenv("OPENAI_API_BASE", server.base)
        assert make_lm("openai/tiny")("hello") == [server.says]
        assert server.authorization == [f"Bearer {KEY}"]


THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from faith_dspy.lm.make import make_lm
lm = make_lm("openai/tiny", api_base=sys.argv[1], headers={"left": "to LiteLLM"}, num_retries=0)
with ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda i: lm(i) == ["Yes"], sys.argv[2])))
"""


def python(code, *given, **environment):
    """What a fresh interpreter makes of the code."""
    command = [sys.executable, "-c", code, *given]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.all
def test_first_calls_at_the_same_time(chat_server, tmp_path):
    """Threads that begin together, some with a cached reply, import LiteLLM once, and none finds it half-imported."""
    base = chat_server().base
    for asked in ("0123", "40516273"):
        ran = python(THREADS, base, asked, DSPY_CACHEDIR=str(tmp_path))
        assert ran.stdout.split() == [str(len(asked))], ran.stderr


def test_endpoint_key_is_sent_nowhere(chat_server):
    """What tells endpoints apart in the cache is not part of the request, nor of what optimizers see."""
    server = chat_server()
    lm = make_lm("openai/tiny", api_base=server.base)
    lm("hello")
    assert set(server.requests[0]) <= {"model", "messages", "temperature"}
    assert server.requests[0]["model"] == "tiny"
    assert "rollout_id" not in lm.kwargs


def test_temperature_is_zero_unless_given(chat_server):
    """Same inputs, same verdicts: the temperature is 0, except where given, or for models that take none."""
    assert make_lm("openai/tiny", api_base="http://127.0.0.1:1/v1").kwargs["temperature"] == 0
    assert make_lm("openai/tiny", temperature=0.7).kwargs["temperature"] == 0.7
    assert make_lm("openai/gpt-5-mini").kwargs["temperature"] is None


def test_context_window_reaches_ollama_only():
    assert make_lm("ollama_chat/llama3", num_ctx=4096).kwargs["num_ctx"] == 4096
    lm = make_lm("openai/tiny", num_ctx=4096)
    assert "num_ctx" not in lm.kwargs
    assert lm.endpoint.num_ctx == 4096


@pytest.mark.parametrize("model", ["", "openai/"])
def test_model_string_without_a_model(model):
    with pytest.raises(ConfigError, match="expected 'local'"):
        make_lm(model)


def test_local_takes_no_address():
    """The embedded model has no address to give."""
    with pytest.raises(ConfigError, match="no api_base"):
        make_lm("local", api_base="http://127.0.0.1:1/v1")


@pytest.mark.parametrize("base", ["127.0.0.1:8080/v1", "http:/v1", "http://[::1/v1", "me:pass@localhost:80/v1?token=x"])
def test_what_is_no_address(base):
    """An address without http:// or a host is refused with what would do, before any call, and shows no password."""
    with pytest.raises(ConfigError, match="is no address; expected one like http://") as found:
        make_lm("openai/tiny", api_base=base)
    assert not {"pass", "token"} & set(str(found.value).replace("=", " ").replace(":", " ").split())


def test_identity_holds_no_secret(chat_server):
    found = identity(make_lm("openai/tiny", api_base="http://me:pass@example.test/v1/?token=x", api_key=KEY))
    assert found.name == "openai/tiny"
    assert found.sha256 is None
    assert found == identity(make_lm("openai/tiny", api_base="http://example.test/v1"))
    assert found != identity(make_lm("openai/tiny", api_base="http://other.test/v1"))
    assert not {"pass", "example", KEY, "token"} & set(found.model_dump_json())
    assert identity(make_lm("openai/x")) == LMIdentity(name="openai/x")


def test_a_judge_tuned_at_an_address_asks_nowhere_else(chat_server, tmp_path, monkeypatch):
    server = chat_server()
    tuned = Judge("openai/tiny", api_base=server.base, classifier=None)
    assert tuned(context=["A b."], answer="A b.").faithful
    tuned.save(tmp_path / "judge")
    with pytest.raises(ConfigError, match=r"tuned on openai/tiny at an address of your own.*--api-base"):
        load_judge(tmp_path / "judge").preflight()
    assert load_judge(tmp_path / "judge", api_base=server.base)(context=["A b."], answer="A b.").faithful
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    assert load_judge(tmp_path / "judge").lm.model == "openai/tiny"


def test_preflight_is_one_token_past_the_cache(chat_server):
    """An endpoint that answers is asked for one token each time."""
    server = chat_server()
    lm = make_lm("openai/tiny", api_base=server.base)
    preflight(lm)
    preflight(lm)
    assert [r["max_tokens"] for r in server.preflights] == [1, 1]


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("openai/gpt-4o-mini", {}, "Set OPENAI_API_KEY in the environment"),
        ("opnai/gpt-4o-mini", {}, "LLM Provider NOT provided"),
        ("openai/tiny", {"api_base": "http://me:hidden@127.0.0.1:9/v1"}, "LMTransportError"),
    ],
    ids=["key", "provider", "address"],
)
def test_preflight_says_why_in_dspys_words(model, settings, said):
    """A missing key, an unknown provider and a dead endpoint are told apart; a password in the address is not shown."""
    with pytest.raises(LMUnavailableError, match=said) as caught:
        preflight(make_lm(model, **settings))
    assert "hidden" not in str(caught.value)


def test_preflight_refused_key_is_never_shown(chat_server):
    """An endpoint that quotes the key in its refusal does not get it into our message."""
    server = chat_server()
    server.status, server.error = 401, f"Incorrect API key provided: {KEY}"
    with pytest.raises(LMUnavailableError, match=r"does not answer: LMAuthError.*Check the model's name") as caught:
        preflight(make_lm("openai/tiny", api_base=server.base, api_key=KEY))
    assert server.authorization[-1] == f"Bearer {KEY}"
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_timeout_that_is_none(seconds):
    """A call cannot be given no time, or all of it."""
    with pytest.raises(ConfigError, match=r"timeout is .*; expected a positive number of seconds"):
        make_lm("openai/tiny", timeout=seconds)


def test_addresses_are_those_of_the_models_own_provider(monkeypatch):
    """Another provider's address will not do for a judge tuned at one; Ollama's two protocols share theirs."""
    tuned = {"model": "ollama_chat/x", "api_base_hash": "0" * 12}
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:1/v1")
    with pytest.raises(ConfigError, match="at an address of your own"):
        need_address(tuned, "ollama_chat/x", None)
    salts = set()
    for port in (2, 3):
        monkeypatch.setenv("OLLAMA_API_BASE", f"http://127.0.0.1:{port}")
        need_address(tuned, "ollama_chat/x", None)
        salts.add(make_lm("ollama_chat/x").endpoint.salt)
    assert len(salts - {None}) == 2
