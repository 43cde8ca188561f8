"""An endpoint for tests; as a command, one whose replies take so many seconds, for `notebooks/production.py`."""

import contextlib
import json
import math
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType


def yes_or_no(p):
    """A reply of one token, “Yes” with this probability."""
    return {"text": "Yes" if p >= 0.5 else "No", "top": {"Yes": p, "No": 1 - p}}


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 5,
    "total_tokens": 105,
    "prompt_tokens_details": {"cached_tokens": 60},
}


class JsonHandler(BaseHTTPRequestHandler):
    """Replies in JSON, and logs nothing."""

    def reply(self, status, body, headers=MappingProxyType({})):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # whoever asked may have given up
            self.wfile.write(data)

    def log_message(self, *args):
        pass


class ChatServer:
    """An OpenAI-shaped endpoint on loopback that says what it was told to say, and remembers what it was asked.

    ``says``: the reply, or a function of the request that gives it: text, or a mapping with ``text``, and ``top``
    (probabilities of the first token, or in ``tokens`` the whole reply as pairs of token and probabilities),
    ``status``, ``code``, ``headers`` and ``delay`` where they matter, ``is_cut`` for one that ended for length,
    ``more`` fields of the message, ``logprobs`` as they are sent; or with ``body``, the JSON of the whole reply, or an
    iterable of bytes that are sent in the place of one. ``yes``: probability of “Yes” by statement; of a statement
    that is not in it, the endpoint knows nothing and fails. A call takes 100 prompt tokens, 60 of them cached, and 5
    output tokens.
    """

    def __init__(self, says="Yes", models=None, yes=None):
        self.says = self._yes(yes) if yes is not None else says
        self.tells = True  # token probabilities, when it is asked for them
        self.refuses = False  # whether it refuses a request that asks for them
        self.models = [{"id": "tiny"}] if models is None else models
        self.unlisted = set()
        self.status = 200
        self.error = "no"
        self.delay = 0.0
        self.requests = []
        self.preflights = []
        self.paths = []
        self.keys = []
        owner = self

        class Handler(JsonHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "max_completion_tokens" in asked:  # OpenAI's newer name
                    asked["max_tokens"] = asked.pop("max_completion_tokens")
                    asked["newer_name"] = True
                owner.paths.append(self.path)
                owner.keys.append(self.headers["Authorization"])
                if "Say yes." in str(asked.get("messages", "")[-1:]):  # a preflight
                    owner.preflights.append(asked)
                    said = "Yes"
                else:
                    owner.requests.append(asked)
                    said = owner.says(asked) if callable(owner.says) else owner.says
                said = {"text": said} if isinstance(said, str) else said
                time.sleep(said.get("delay", owner.delay))
                if owner.refuses and asked.get("logprobs"):
                    self.reply(
                        400, _error("'logprobs' is not supported with this model")
                    )
                elif isinstance(said.get("body"), dict):
                    self.reply(200, said["body"])
                elif "body" in said:  # and the connection is closed
                    self.close_connection = True
                    with contextlib.suppress(ConnectionError):
                        for some in said["body"]:
                            self.wfile.write(some)
                elif "status" in said:
                    error = _error(said["text"], said.get("code"))
                    self.reply(said["status"], error, said.get("headers", {}))
                elif owner.status != 200:
                    self.reply(owner.status, _error(owner.error))
                elif (
                    owner.models
                    and asked["model"]
                    not in {m["id"] for m in owner.models} | owner.unlisted
                ):
                    self.reply(404, _error("model not found", "model_not_found"))
                else:
                    self.reply(200, owner.completion({**asked, "said": said}))

        ThreadingHTTPServer.request_queue_size = (
            1024  # five connections wait by default; many threads call at once
        )
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(
            target=self.http.serve_forever, args=(0.02,), daemon=True
        ).start()

    @staticmethod
    def statement(asked):
        """The statement a request asks about."""
        found = re.findall(
            r"^Statement: (.*?)\n\n",
            asked["messages"][-1]["content"],
            re.DOTALL | re.MULTILINE,
        )
        return found[-1] if found else ""

    @property
    def statements(self):
        """The statements asked about so far."""
        return [self.statement(asked) for asked in self.requests]

    def _yes(self, by_statement):
        def say(asked):
            if asked["messages"][-1]["content"].startswith("What does the context not"):
                return "The context does not say it."
            p = by_statement.get(self.statement(asked))
            if p is None:
                return {
                    "status": 500,
                    "text": f"nothing recorded for {self.statement(asked)!r}",
                }
            return yes_or_no(p)

        return say

    def completion(self, asked):
        said = asked["said"]
        told = said.get("tokens") or [
            (said["text"], said.get("top", {said["text"]: math.exp(-0.1)}))
        ]
        text = "".join(token for token, _ in told) if "tokens" in said else said["text"]
        content = [
            {"token": token, "logprob": -0.1, "bytes": None, "top_logprobs": _top(top)}
            for token, top in told
        ]
        is_told = asked.get("logprobs") and self.tells
        is_cut = said.get("is_cut", asked.get("max_tokens") == 1)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, **said.get("more", {})},
            "finish_reason": "length" if is_cut else "stop",
            "logprobs": {"content": said.get("logprobs", content)} if is_told else None,
        }
        return {
            "id": f"chatcmpl-{len(self.requests)}-{self.http.server_port}",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [choice],
            "usage": USAGE,
        }

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def _top(probabilities):
    return [
        {"token": t, "logprob": math.log(p), "bytes": None}
        for t, p in probabilities.items()
        if p
    ]


def _error(message, code=None):
    return {"error": {"message": message, "type": "e", "code": code}}


if __name__ == "__main__":
    server = ChatServer({"text": "Yes", "delay": float(sys.argv[1])})
    print(server.http.server_port, flush=True)
    threading.Event().wait()
