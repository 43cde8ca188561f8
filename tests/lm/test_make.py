import math
import os
import subprocess
import sys

import pytest

from faith_dspy.errors import ConfigError
from faith_dspy.lm.addresses import require_endpoint
from faith_dspy.lm.make import LMIdentity, identity, make_lm, preflight

KEY = "sk-verysecret-0123456789"


def test_two_servers_with_one_model_name(chat_server, monkeypatch):
    """Endpoints that call their model the same never share answers, whether their address is given or stands in the
    environment; what tells them apart in the cache is no part of the request, nor of what optimizers see."""
    one, two = chat_server(says="one"), chat_server(says="two")
    for server in (one, two, one, two):
        lm = make_lm("openai/tiny", api_base=server.base)
        assert lm("hello") == [server.says]
        assert "rollout_id" not in lm.kwargs
    for server in (one, two):
        monkeypatch.setenv("OPENAI_API_BASE", server.base)
        assert make_lm("openai/tiny")("hello again") == [server.says]
        assert [set(asked) - {"temperature"} for asked in server.requests] == [
            {"model", "messages"}
        ] * 2


THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from faith_dspy.lm.make import make_lm
lm = make_lm("openai/tiny", api_base=sys.argv[1], headers={"left": "to LiteLLM"}, num_retries=0)
with ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda i: lm(i) == ["Yes"], sys.argv[2])))
"""


@pytest.mark.all
def test_first_calls_at_the_same_time(chat_server, tmp_path):
    """Threads that begin together, some with a cached reply, import LiteLLM once, and none finds it half-imported."""
    base, env = chat_server().base, os.environ | {"DSPY_CACHEDIR": str(tmp_path)}
    for asked in ("0123", "40516273"):
        command = [sys.executable, "-c", THREADS, base, asked]
        out = subprocess.run(command, env=env, stdout=-1, check=True).stdout
        assert int(out) == len(asked)


def test_what_a_request_is_made_with():
    """The temperature is 0, except where given, or for models that take none; a context window reaches Ollama only."""
    plain = make_lm("openai/tiny", context_window=4096).kwargs
    assert (plain["temperature"], "num_ctx" in plain) == (0, False)
    assert make_lm("openai/tiny", temperature=0.7).kwargs["temperature"] == 0.7
    assert make_lm("openai/gpt-5-mini").kwargs["temperature"] is None


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        ("openai/", {}, "expected 'local'"),
        ("local", {"api_base": "http://127.0.0.1:1/v1"}, "no api_base"),
        *(("openai/tiny", {"api_base": base}, "is not an address; expected one like http://")
          for base in ("127.0.0.1:8080/v1", "http:/v1", "http://[::1/v1", "me:hush@localhost:80/v1?token=x")),
        *(("openai/tiny", {"timeout": timeout}, "expected a positive number of sec")
          for timeout in (0, math.inf, math.nan)),
    ],
)  # fmt: skip
def test_what_is_no_lm(model, settings, words):
    """Refused before any call, with what would do, and no password is shown."""
    with pytest.raises(ConfigError, match=words) as caught:
        make_lm(model, **settings)
    assert "hush" not in str(caught.value)
    assert "token" not in str(caught.value)


def test_identity_holds_no_secret():
    address = "http://me:pass@example.test/v1/?token=x"
    identified = identity(make_lm("openai/tiny", api_base=address, api_key=KEY))
    written = identified.model_dump_json()
    assert not [s for s in ("pass", "example", KEY, "token=") if s in written]
    same, other = (
        identity(make_lm("openai/tiny", api_base=f"http://{host}.test/v1"))
        for host in ("example", "other")
    )
    assert identified == same != other


def test_what_exports_used_to_say_of_an_lm_is_passed_over():
    """It was found out by one judge, and may have been written by anyone."""
    stored = {
        "model": "openai/x",
        "name": "openai/x",
        "capabilities": {"context_window": 9},
    }
    assert LMIdentity.model_validate(stored) == LMIdentity(model="openai/x")


def test_preflight(chat_server):
    """It asks for one token, past the cache."""
    server = chat_server()
    lm = make_lm("openai/tiny", api_base=server.base)
    for _ in "ab":
        preflight(lm)
    assert [r["max_tokens"] for r in server.preflights] == [1, 1]


def test_addresses_are_those_of_the_models_own_provider(monkeypatch):
    """Another provider's address will not do for a judge tuned at one; Ollama's two protocols share theirs."""
    tuned = {"model": "ollama_chat/x", "api_base_hash": "0" * 12}
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:1/v1")
    with pytest.raises(ConfigError, match="at an address of your own"):
        require_endpoint(tuned, "ollama_chat/x", None)
    salts = set()
    for port in (2, 3):
        monkeypatch.setenv("OLLAMA_API_BASE", f"http://127.0.0.1:{port}")
        require_endpoint(tuned, "ollama_chat/x", None)
        salts.add(make_lm("ollama_chat/x").endpoint.salt)
    assert len(salts - {None}) == 2
