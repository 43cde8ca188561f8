from __future__ import annotations

import os
import socket
import subprocess
import sys
import traceback

import pytest

from faith_dspy import Judge, load_judge
from faith_dspy.errors import ConfigError, LMUnavailableError
from faith_dspy.lm.endpoint import LMIdentity, identity, preflight
from faith_dspy.lm.make import make_lm

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


WARNS = """
import sys
from faith_dspy.lm.make import make_lm
try:
    make_lm("openai/tiny", api_base=sys.argv[1], num_retries=0)("hello")
except Exception:
    pass
"""


def python(code, *given, **environment):
    """What a fresh interpreter makes of the code."""
    command = [sys.executable, "-c", code, *given]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


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


def test_rollouts_still_bypass_the_cache(chat_server):
    """rollout_id, given to a copy or a call, asks again; the same one does not."""
    server = chat_server()
    lm = make_lm("openai/tiny", api_base=server.base, temperature=1.0)
    lm("hello")
    for _ in range(2):
        lm.copy(rollout_id=1)("hello")
        lm("hello", rollout_id=2)
    assert len(server.requests) == 3


def test_no_warning_about_rollouts():
    """Keeping endpoints apart does not warn about a rollout at temperature 0."""
    assert python(WARNS, "http://127.0.0.1:9/v1").stderr == ""


def test_temperature_is_zero_unless_given(chat_server):
    """Same inputs, same verdicts: the temperature is 0, except where given, or for models that take none."""
    assert make_lm("openai/tiny", api_base="http://127.0.0.1:1/v1").kwargs["temperature"] == 0
    assert make_lm("openai/tiny", temperature=0.7).kwargs["temperature"] == 0.7
    assert make_lm("openai/gpt-5-mini").kwargs["temperature"] is None


def test_context_window_reaches_ollama_only():
    """Ollama has to be asked for its window; others are not sent it."""
    assert make_lm("ollama_chat/llama3", num_ctx=4096).kwargs["num_ctx"] == 4096
    lm = make_lm("openai/tiny", num_ctx=4096)
    assert "num_ctx" not in lm.kwargs
    assert lm.endpoint.num_ctx == 4096


@pytest.mark.parametrize("model", ["", "openai/"])
def test_model_string_without_a_model(model):
    """A model string that names no model is refused with what would do."""
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


def test_a_key_as_a_file_holds_it(chat_server):
    """White space around a key is no part of it; a key that no header can carry is refused and not shown."""
    assert make_lm("openai/tiny", api_base="http://a.test/v1", api_key=f"{KEY}\n").kwargs["api_key"] == KEY
    with pytest.raises(ConfigError, match="no request can carry") as found:
        make_lm("openai/tiny", api_base="http://a.test/v1", api_key="sk-abc\nsecret")
    assert "secret" not in str(found.value)


def test_identity_holds_no_secret(chat_server):
    """An LM's identity has its name and a hash of its address: no key, no host, no password in the address."""
    found = identity(make_lm("openai/tiny", api_base="http://me:pass@example.test/v1/?token=x", api_key=KEY))
    assert found.name == "openai/tiny"
    assert found.sha256 is None
    assert found == identity(make_lm("openai/tiny", api_base="http://example.test/v1"))
    assert found != identity(make_lm("openai/tiny", api_base="http://other.test/v1"))
    assert not {"pass", "example", KEY, "token"} & set(found.model_dump_json())
    assert identity(make_lm("openai/x")) == LMIdentity(name="openai/x")


def test_preflight_passes(chat_server):
    """An endpoint that lists the model costs no token."""
    server = chat_server()
    preflight(make_lm("openai/tiny", api_base=server.base))
    assert server.requests == []


def test_preflight_without_a_list(chat_server):
    """An endpoint that lists nothing is asked one token, past the cache."""
    server = chat_server()
    server.lists = False
    lm = make_lm("openai/tiny", api_base=server.base)
    preflight(lm)
    preflight(lm)
    assert [r["max_tokens"] for r in server.requests] == [1, 1]


def test_preflight_of_an_unknown_model(chat_server):
    """An endpoint without the model is reported with the models it has."""
    server = chat_server(models=[{"id": "tiny"}, {"id": "small"}])
    with pytest.raises(LMUnavailableError, match=r"openai/large does not answer: .* The endpoint has small, tiny\."):
        preflight(make_lm("openai/large", api_base=server.base))


def test_preflight_of_a_model_behind_a_gateway(chat_server):
    """A model that is not listed but answers is fine: gateways do not list everything."""
    server = chat_server()
    server.unlisted = {"hidden"}
    preflight(make_lm("openai/hidden", api_base=server.base))


def test_preflight_connection_refused():
    """A dead endpoint is named, with the question to ask."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(LMUnavailableError, match=rf"connection refused at http://127.0.0.1:{port}/v1: is the server"):
        preflight(make_lm("openai/tiny", api_base=f"http://127.0.0.1:{port}/v1"))


@pytest.mark.parametrize("lists", [True, False])
def test_preflight_refused_key_is_never_shown(chat_server, lists):
    """An endpoint that quotes the key in its refusal does not get it into our message or traceback."""
    server = chat_server(models=[] if lists else None)
    server.lists = lists
    server.status, server.error = 401, f"Incorrect API key provided: {KEY}"
    with pytest.raises(LMUnavailableError, match=r"does not answer: .* Check the model's name, its key") as caught:
        preflight(make_lm("openai/tiny", api_base=server.base, api_key=KEY))
    assert server.authorization[-1] == f"Bearer {KEY}"
    assert KEY not in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_preflight_missing_key(monkeypatch):
    """A hosted model without a key is refused before any request."""
    with pytest.raises(LMUnavailableError, match="openai/gpt-4o-mini needs a key, and OPENAI_API_KEY is not set in"):
        preflight(make_lm("openai/gpt-4o-mini"))


def test_preflight_of_a_misspelt_provider():
    """A provider that LiteLLM does not know is named in one sentence, with the one that was perhaps meant."""
    with pytest.raises(LMUnavailableError, match=r"has no known provider: .* Did you mean 'openai'\?") as caught:
        preflight(make_lm("opnai/gpt-4o-mini"))
    assert "litellm" not in str(caught.value)


def test_preflight_is_tried_twice(chat_server):
    """One failure is no dead endpoint: what answers the second time is there."""
    failures = [{"status": 500, "text": "starting"}]
    server = chat_server(says=lambda _: failures.pop() if failures else "Yes")
    server.lists = False
    preflight(make_lm("openai/tiny", api_base=server.base))
    assert len(server.requests) == 2


def test_preflight_of_llama_cpp_under_another_name(chat_server):
    """A llama.cpp server answers under any name: one that it does not list is refused, with those it does."""
    server = chat_server(models=[{"id": "small.gguf", "owned_by": "llamacpp"}])
    server.unlisted = {"large"}
    with pytest.raises(LMUnavailableError, match=r"openai/large is not what answers: .* has small\.gguf\."):
        preflight(make_lm("openai/large", api_base=server.base))
    preflight(make_lm("openai/small.gguf", api_base=server.base))


@pytest.mark.parametrize("name", ["timeout", "max_wait"])
@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_time_that_is_none(name, seconds):
    """A call, or a wait, cannot be given no time, or all of it."""
    with pytest.raises(ConfigError, match=f"{name} is .*; expected a positive number of seconds"):
        make_lm("openai/tiny", **{name: seconds})


def test_preflight_server_error(chat_server):
    """An endpoint that fails says so in its own words."""
    server = chat_server(models=[])
    server.status, server.error = 500, "out of memory"
    with pytest.raises(LMUnavailableError, match="out of memory"):
        preflight(make_lm("openai/tiny", api_base=server.base))


def test_preflight_password_in_the_address():
    """User and password in an address are not shown."""
    with pytest.raises(LMUnavailableError) as caught:
        preflight(make_lm("openai/tiny", api_base="http://me:hidden@127.0.0.1:1/v1"))
    assert "hidden" not in str(caught.value)


def test_a_judge_tuned_at_an_address_asks_nowhere_else(chat_server, tmp_path, monkeypatch):
    """An export holds no address; loaded without one it asks nobody, and says what to give."""
    server = chat_server()
    tuned = Judge("openai/tiny", api_base=server.base, classifier=None)
    assert tuned(context=["A b."], answer="A b.").faithful
    tuned.save(tmp_path / "judge")
    with pytest.raises(ConfigError, match=r"tuned on openai/tiny at an address of your own.*--api-base"):
        load_judge(tmp_path / "judge").preflight()
    assert load_judge(tmp_path / "judge", api_base=server.base)(context=["A b."], answer="A b.").faithful
    monkeypatch.setenv("OPENAI_API_BASE", server.base)
    assert load_judge(tmp_path / "judge").lm.model == "openai/tiny"


def test_none_is_no_lm():
    """What a judge takes for lexical features alone is refused where an LM is needed."""
    with pytest.raises(ConfigError, match="'none' is no LM"):
        make_lm("none")
