from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dspy
import pytest

from faith_dspy.lm import make_lm, metered
from faith_dspy.lm import metered_lm as taken
from faith_dspy.lm.direct import _parsed, ask

ASKED = {"logprobs": True, "top_logprobs": 20, "max_tokens": 1}


@pytest.fixture
def server(chat_server):
    """An endpoint that says Yes."""
    return chat_server()


@pytest.fixture
def by_dspy(monkeypatch):
    """Sends what follows on DSPy's way."""
    return lambda: monkeypatch.setattr(taken, "ask", lambda *_: None)


@pytest.fixture
def not_by_dspy(monkeypatch):
    """Whatever is left to DSPy fails."""

    def refuse(*_, **__):
        raise AssertionError("this was left to DSPy")

    monkeypatch.setattr(dspy.LM, "__call__", refuse)


def at(server, model="openai/tiny", **settings):
    """An LM there."""
    return make_lm(model, **{"api_base": server.base, "num_retries": 0, **settings})


@pytest.mark.parametrize("model", ["openai/tiny", "hosted_vllm/tiny"])
@pytest.mark.parametrize("settings", [{}, ASKED, {"max_tokens": 40, "response_format": {"type": "json_object"}}])
def test_both_ways_send_and_bring_the_same(server, by_dspy, model, settings):
    """Request, key, reply, tokens and history of the direct way are those of DSPy's own."""
    found = []
    for _ in range(2):
        lm = at(server, model, cache=False, timeout=60)
        with metered() as meter:
            outputs = lm("Blue?", **settings)
        entry = {k: lm.history[-1][k] for k in ("prompt", "messages", "kwargs", "outputs", "model", "cost")}
        usage = meter.usage.model_dump(exclude={"seconds"})
        found.append((server.requests[-1], server.authorization[-1], outputs, usage, entry))
        assert meter.usage.seconds > 0
        by_dspy()
    assert found[0] == found[1]


@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("first", ["direct", "DSPy"])
def test_each_way_replays_what_the_other_paid_for(server, monkeypatch, tmp_path, first, disk):
    """One request for both ways, whichever comes first; the replay counts what the call that paid for it cost."""
    if disk:
        dspy.configure_cache(disk_cache_dir=str(tmp_path))
    ways = [ask, lambda *_: None]
    meters, said = [], []
    for way in ways if first == "direct" else reversed(ways):
        monkeypatch.setattr(taken, "ask", way)
        dspy.cache.reset_memory_cache() if disk else None
        with metered() as meter:
            said.append(at(server)("Blue?", **ASKED))
        meters.append(meter)
    assert len(server.requests) == 1
    assert said[0] == said[1]
    assert meters[0].usage == meters[1].usage
    assert [m.replayed for m in meters] == [0, 1]


def test_the_direct_way_replays_its_own(server, not_by_dspy):
    """The same question twice is one request, and so it is after a while on disk only."""
    with metered() as meter:
        at(server)("Blue?")
        at(server)("Blue?")
    assert len(server.requests) == 1
    assert (meter.usage.calls, meter.usage.prompt_tokens, meter.usage.cached_tokens) == (2, 200, 120)
    assert meter.replayed == 1


def test_a_cache_on_disk_leaves_the_memory_alone(server, not_by_dspy, tmp_path):
    """Replies that are kept on disk are not kept in memory as well, however many there are."""
    dspy.configure_cache(disk_cache_dir=str(tmp_path))
    for i in range(5):
        at(server)(f"Question {i}")
    assert len(dspy.cache.memory_cache) == 0
    at(server)("Question 3")
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "'logprobs' is not supported with this model"),
        (400, "the request exceeds the available context size"),
        (401, "bad key"),
        (404, "no such model"),
        (429, "slow down"),
        (503, "busy"),
    ],
)
def test_errors_are_dspys(server, by_dspy, status, error):
    """What the endpoint refuses is refused in the same words, with the same type, after one request."""
    server.status, server.error = status, error
    raised = []
    for _ in range(2):
        with pytest.raises(dspy.LMError) as caught:
            at(server, cache=False)("Blue?", **ASKED)
        raised.append((type(caught.value), str(caught.value), caught.value.status))
        by_dspy()
    assert raised[0] == raised[1]
    assert len(server.requests) == 2


@pytest.mark.parametrize("settings", [{"api_base": "http://127.0.0.1:9/v1"}, {"timeout": 0.05}])
def test_an_endpoint_that_does_not_answer(server, not_by_dspy, settings):
    """Nobody there, or nobody who answers in time, is a failure of transport and not of a verdict."""
    server.delay = 0.5
    with pytest.raises(dspy.utils.exceptions.LMTransportError, match="no answer"):
        at(server, **settings)("Blue?")


def test_retries(server, not_by_dspy, monkeypatch):
    """A busy endpoint is asked again, as often as the LM allows; what will not change is not."""
    waits = []
    monkeypatch.setattr("faith_dspy.lm.direct.time.sleep", waits.append)
    server.status = 503
    with pytest.raises(dspy.LMError):
        at(server, num_retries=2)("Blue?")
    assert (len(server.requests), [w for w in waits if w]) == (3, [1, 2])  # the endpoint itself waits 0
    server.status = 400
    with pytest.raises(dspy.LMError):
        at(server, num_retries=2)("Blue?")
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("model", "settings", "asked"),
    [
        ("openai/gpt-4o-mini", {}, {}),  # has a price
        ("openai/tiny", {"headers": {"x": "y"}}, {}),
        ("openai/tiny", {"callbacks": [dspy.utils.callback.BaseCallback()]}, {}),
        ("openai/tiny", {"engine": "lm15"}, {}),
        ("openai/tiny", {}, {"n": 2, "temperature": 1.0}),
        ("openai/tiny", {}, {"tools": []}),
    ],
)
def test_what_is_left_to_dspy(server, not_by_dspy, model, settings, asked):
    """A price, headers, callbacks, another engine, several samples or tools are DSPy's business."""
    with pytest.raises(AssertionError, match="left to DSPy"):
        at(server, model, **settings)("Blue?", **asked)


def test_a_proxy_is_left_to_dspy(server, not_by_dspy, monkeypatch):
    """An address that is reached through a proxy is not asked directly."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    _parsed.cache_clear()  # another server may have had this port, and this one's is not to be known to another
    with pytest.raises(AssertionError, match="left to DSPy"):
        at(server)("Blue?")
    _parsed.cache_clear()


def test_an_odd_reply_is_left_to_dspy(server, monkeypatch):
    """A reply without usage is read by DSPy, and still counts as a call."""
    whole = server.completion
    monkeypatch.setattr(server, "completion", lambda asked: {k: v for k, v in whole(asked).items() if k != "usage"})
    with metered() as meter:
        assert at(server)("Blue?") == ["Yes"]
    assert (meter.usage.calls, meter.usage.prompt_tokens) == (1, 0)


@pytest.fixture
def connections(server):
    """An endpoint that keeps connections, except that it hangs up after every third reply: (address, connections)."""
    made: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self):
            super().setup()
            made.append(0)
            self.number = len(made) - 1

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(server.completion({**asked, "said": {"text": "Yes"}})).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            made[self.number] += 1  # before the reply is out: who has it may look
            self.close_connection = made[self.number] == 3
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}/v1", made
    http.shutdown()
    http.server_close()


def test_connections_are_kept_and_renewed(connections, not_by_dspy):
    """Seven calls one after the other need three connections where each is good for three; none fails."""
    base, made = connections
    lm = make_lm("openai/tiny", api_base=base, num_retries=0)
    for i in range(7):
        assert lm(f"Question {i}") == ["Yes"]
    assert made == [3, 3, 1]


@pytest.fixture
def scripted(on_sockets):
    """An endpoint on sockets that does what a test says for its n-th request: (address, requests so far, script)."""
    body = json.dumps(
        {
            "model": "tiny",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1},
        }
    ).encode()
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    asked: list[bytes] = []
    script: dict[int, object] = {}

    def serve(connection):
        while said := connection.recv(1 << 20):
            while b"\r\n\r\n" not in said or not said.endswith(b"}"):
                said += connection.recv(1 << 20)
            asked.append(said)
            reply = script.get(len(asked), whole)
            if callable(reply):
                reply = reply(whole)
            if reply is None:
                return
            connection.sendall(reply)

    return f"http://127.0.0.1:{on_sockets(serve)}/v1", asked, script


def test_a_prompt_is_sent_twice_at_most(scripted, not_by_dspy):
    """A prompt on which the endpoint hangs up is sent once more, on a connection of its own, whatever is kept."""
    base, asked, script = scripted
    lm = make_lm("openai/tiny", api_base=base, num_retries=0, cache=False)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lm, [f"Question {i}" for i in range(16)]))
    script.update(dict.fromkeys(range(17, 40)))
    with pytest.raises(dspy.LMError):
        lm("Crash.")
    assert len(asked) in (17, 18)


@pytest.mark.parametrize("more", [b"\r\n", b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
def test_what_nobody_asked_for_is_no_answer(scripted, not_by_dspy, more):
    """A connection on which more came than a reply is not used again."""
    base, _, script = scripted
    script[1] = lambda whole: whole + more
    lm = make_lm("openai/tiny", api_base=base, num_retries=0, cache=False)
    for i in range(3):
        assert lm(f"Question {i}") == ["Yes"]


@pytest.mark.parametrize("length", [b"9" * 18, b"9" * 40])
def test_a_length_that_cannot_be(scripted, not_by_dspy, length):
    """A reply that claims to be endless, and ends, is an endpoint's fault."""
    base, _, script = scripted
    script.update(
        dict.fromkeys((1, 2), b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + length + b"\r\n\r\n{")
    )
    lm = make_lm("openai/tiny", api_base=base, num_retries=0, cache=False, timeout=0.5)
    with pytest.raises(dspy.LMError):
        lm("Question")
