"""A recorded endpoint with a prefix cache: says “Yes” at once, and counts tokens as a server with one slot does."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PIECE = re.compile(r"\w{1,6}|[^\w\s]|\s{2,}")


class PrefixServer:
    """``base`` is its OpenAI address. Its tokens are pieces of at most six letters: a little over four bytes each.

    Of each prompt, what it has in common with the beginning of the one before comes from the cache. A prompt longer
    than ``window`` is refused, as llama.cpp refuses it.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._before: list[str] = []
        self._answered = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, body = owner.answer(asked)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.base = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body."""
        prompt = tokens("\n\n".join(f"{m['role']}: {m['content']}" for m in asked["messages"]))
        if len(prompt) >= self.window:
            error = f"the request ({len(prompt)} tokens) exceeds the available context size ({self.window} tokens)"
            return 400, {"error": {"message": error, "type": "exceed_context_size_error", "code": 400}}
        cached = 0
        for old, new in zip(self._before, prompt[:-1], strict=False):  # the last token is always computed
            if old != new:
                break
            cached += 1
        self._before = prompt
        self._answered += 1
        top = [{"token": t, "logprob": p, "bytes": None} for t, p in (("Yes", -0.1), ("No", -2.35))]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "Yes"},
            "finish_reason": "length",
            "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
        }
        return 200, {
            "id": f"chatcmpl-{self._answered}",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [choice],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": 1,
                "total_tokens": len(prompt) + 1,
                "prompt_tokens_details": {"cached_tokens": cached},
            },
        }

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()


def tokens(text: str) -> list[str]:
    """A text as this endpoint counts it."""
    return _PIECE.findall(text)
