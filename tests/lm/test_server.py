from __future__ import annotations

import socket
import threading
import time
from functools import partial
from pathlib import Path

import dspy
import httpx
import pytest
from dspy.utils.exceptions import ContextWindowExceededError

from faith_dspy.errors import ConfigError, ModelFileError
from faith_dspy.lm import server
from faith_dspy.lm.endpoint import identity, preflight
from faith_dspy.lm.files import EMBEDDED, ModelFile, models_dir
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.meter import metered
from faith_dspy.threads import within

DOCUMENT = "The bridge was opened in 1932 and is 503 metres long. It has eight lanes. " * 6


def question(text: str) -> str:
    """The document first and the statement last, so that the document is read once."""
    return f"{DOCUMENT}\n\nIs this so? {text} Answer Yes or No."


@pytest.mark.parametrize("content", [b"not a model", b"GGUF\x03\x00\x00\x00" + bytes(range(200)) * 9])
def test_damaged_model_does_not_end_the_process(tmp_path, content):
    """A file that is no model, or starts like one and is garbage, is an error with what to do."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="fetch the file again"):
        server.serve(ModelFile(path, "0" * 64))


def test_port_in_use(tmp_path):
    """A port that is taken is refused with its number."""
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ModelFileError, match=f"on port {port}. The port is taken"):
            server.start(ModelFile(path, "0" * 64), port=port)


def test_window_must_be_positive(tmp_path):
    """A context window of no tokens is refused."""
    with pytest.raises(ConfigError, match="positive number of tokens"):
        server.serve(ModelFile(tmp_path / "x.gguf", "0" * 64), num_ctx=0)


def test_calls_end_before_their_server(monkeypatch):
    """At the end llama.cpp is dropped when the calls in flight are done, and none is left that asks it."""
    happened = []

    class Handle:
        def __del__(self):
            happened.append("dropped")

    def call():
        time.sleep(0.3)
        happened.append("answered")

    running = server.EmbeddedServer("http://127.0.0.1:1", ModelFile(Path("x.gguf"), "0" * 64), 1, Handle())
    monkeypatch.setitem(server._running, ("0" * 64, 1), running)
    caller = threading.Thread(target=within, args=(9, call))
    caller.start()
    time.sleep(0.1)
    server.stop_all()
    caller.join()
    assert happened == ["answered", "dropped"]
    assert server._running == {}


def test_a_call_that_hangs_does_not_keep_its_server(monkeypatch):
    """Calls in flight are waited for so long and no longer."""
    monkeypatch.setattr(server, "_LAST_CALLS", 0.2)
    running = server.EmbeddedServer("http://127.0.0.1:1", ModelFile(Path("x.gguf"), "0" * 64), 1, object())
    monkeypatch.setitem(server._running, ("0" * 64, 1), running)
    release = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.01, partial(release.wait, 20))
    started = time.monotonic()
    server.stop_all()
    release.set()
    assert (running.handle, time.monotonic() - started < 5) == (None, True)


@pytest.fixture(scope="module")
def lm():
    """The real embedded model, when it was fetched before."""
    if not (models_dir() / EMBEDDED.filename).is_file():
        pytest.skip("the embedded model is not here: faith-dspy model fetch")
    yield make_lm("local", cache=False)
    server.stop_all()


@pytest.mark.lm
def test_probabilities_and_prefix_cache(lm, capfd):
    """Token probabilities come back; a second question about one document takes the document from the cache; quiet."""
    with metered() as first:
        said = lm(question("It has eight lanes."), logprobs=True, top_logprobs=10, max_tokens=1)
    with metered() as second:
        lm(question("It has two lanes."), logprobs=True, top_logprobs=10, max_tokens=1)
    tokens = {t["token"]: t["logprob"] for t in said[0]["logprobs"]["content"][0]["top_logprobs"]}
    assert tokens["Yes"] > tokens["No"]
    assert first.usage.output_tokens == second.usage.output_tokens == 1
    assert second.usage.cached_tokens > 0.8 * second.usage.prompt_tokens
    assert capfd.readouterr().err == ""


@pytest.mark.lm
def test_json_schema(lm):
    """JSONAdapter sends a schema, and the model keeps to it."""
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        found = dspy.Predict("document, statement -> supported: bool")(document=DOCUMENT, statement="It has 8 lanes.")
    assert isinstance(found.supported, bool)
    assert lm.history[-1]["kwargs"]["response_format"].__name__ == "DSPyProgramOutputs"


@pytest.mark.lm
def test_identity_and_one_server_per_file(lm):
    """The name holds the file's hash, not the port; a second LM shares the server; preflight is free."""
    again = make_lm("local")
    assert again.kwargs["api_base"] == lm.kwargs["api_base"]
    assert identity(again).sha256 == EMBEDDED.sha256
    assert identity(again).api_base_hash is None
    assert lm.model == f"openai/{Path(EMBEDDED.filename).stem}@{EMBEDDED.sha256[:12]}"
    with metered() as meter:
        preflight(lm)
    assert meter.usage.calls == 0


@pytest.mark.lm
def test_many_threads(lm):
    """More callers than slots wait for their turn; none is lost."""
    asked = [(lm, {"prompt": question(f"It has {i} lanes."), "max_tokens": 1}) for i in range(12)]
    with metered() as meter:
        dspy.Parallel(num_threads=12, disable_progress_bar=True, timeout=0)(asked)
    assert (meter.usage.calls, meter.failed) == (12, 0)


@pytest.mark.lm
def test_too_long_is_said_to_be(lm):
    """A prompt longer than the window raises DSPy's own error for that; nothing is cut."""
    with pytest.raises(ContextWindowExceededError):
        lm("word " * 9000, max_tokens=1)


@pytest.mark.lm
def test_loopback_only_and_stops(lm):
    """The server listens on 127.0.0.1 alone, and is gone after stop."""
    url = httpx.URL(lm.kwargs["api_base"])
    assert url.host == "127.0.0.1"
    with socket.socket() as other:
        other.bind(("127.0.0.2", url.port))  # fails when the server took every address
    server.stop_all()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")
