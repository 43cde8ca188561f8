from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dspy
import pytest


class ChatServer:
    """An OpenAI-shaped endpoint on loopback that says what it was told to say, and remembers what it was asked."""

    def __init__(self, says: str = "Yes", models: list[dict[str, Any]] | None = None) -> None:
        self.says = says
        self.models = [{"id": "tiny"}] if models is None else models
        self.unlisted: set[str] = set()
        self.status = 200
        self.error = "no"
        self.lists = True
        self.delay = 0.0
        self.requests: list[dict[str, Any]] = []
        self.authorization: list[str | None] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if owner.lists:
                    self.reply(200, {"object": "list", "data": owner.models})
                else:
                    self.reply(404, {"error": {"message": "no such path"}})

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "max_completion_tokens" in asked:  # OpenAI's newer name
                    asked["max_tokens"] = asked.pop("max_completion_tokens")
                owner.requests.append(asked)
                owner.authorization.append(self.headers["Authorization"])
                time.sleep(owner.delay)
                if owner.status != 200:
                    self.reply(owner.status, {"error": {"message": owner.error, "type": "e", "code": None}})
                elif owner.models and asked["model"] not in {m["id"] for m in owner.models} | owner.unlisted:
                    self.reply(404, {"error": {"message": "model not found", "code": "model_not_found"}})
                else:
                    self.reply(200, owner.completion(asked))

            def reply(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def completion(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What it answers: 100 prompt tokens, 60 of them cached, 5 output tokens."""
        one = {"token": self.says, "logprob": -0.1, "bytes": None, "top_logprobs": []}
        one["top_logprobs"] = [{"token": self.says, "logprob": -0.1, "bytes": None}]
        return {
            "id": f"chatcmpl-{len(self.requests)}-{self.http.server_port}",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": self.says},
                    "finish_reason": "length" if asked.get("max_tokens") == 1 else "stop",
                    "logprobs": {"content": [one]} if asked.get("logprobs") else None,
                }
            ],
            "usage": {
                "prompt_tokens": 100,
                "completion_tokens": 5,
                "total_tokens": 105,
                "prompt_tokens_details": {"cached_tokens": 60},
            },
        }

    def close(self) -> None:
        """Stop."""
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def chat_server():
    """Makes endpoints; closes them."""
    made: list[ChatServer] = []

    def make(**kwargs: Any) -> ChatServer:
        made.append(ChatServer(**kwargs))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch):
    """Each test has an empty cache of replies, and nothing from the user's environment."""
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL", "FAITH_DSPY_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False)
    yield
    dspy.cache = before
