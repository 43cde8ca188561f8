"""A recorded LM: an OpenAI-compatible endpoint whose reply is a function of the request's messages alone."""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS = ("golden", "gpt-4o-mini")  # of the second DSPy knows that it holds replies to a JSON schema
LABELS = {  # what is asked for in the prompt → labels, from no support to full support
    "completely (": ("not", "hardly", "mixed", "generally", "completely"),
    "fully (": ("contradicts", "nothing", "partly", "fully"),
    "": ("No", "Yes"),
}
KEPT = ("logprobs", "top_logprobs", "temperature", "response_format")


class Endpoint:
    """Answers by the words that statement and context share, and remembers what it was asked.

    ``mode``: ``tells`` token probabilities · ``faulty``: 400 for every third statement · ``unsure``: a repeated request
    gets other labels.
    """

    def __init__(self, mode: str = "tells") -> None:
        self.mode = mode
        self.requests: list[dict[str, Any]] = []
        self.seen: Counter[str] = Counter()
        self.lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self.send(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send(*owner.answer(asked))

            def send(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

        self.http = Server(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *args: object) -> None:
        self.http.shutdown()
        self.http.server_close()

    def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body of the reply to a request, which is remembered."""
        kept = {k: asked[k] for k in KEPT if asked.get(k) is not None}
        limit = asked.get("max_tokens", asked.get("max_completion_tokens"))
        key = json.dumps(asked["messages"])
        with self.lock:
            self.requests.append({"messages": asked["messages"], "limit": limit, **kept})
            self.seen[key] += 1
            turn = self.seen[key]
        prompt = asked["messages"][-1]["content"]
        if self.mode == "faulty" and "\n\nStatement: " in prompt and _third(_statement(prompt)):
            return 400, {"error": {"message": "no such request", "type": "invalid_request_error", "code": None}}
        pieces = self.says(prompt, turn)
        tokens = [_token(text, top or {text: 1.0}) for text, top in pieces]
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(text for text, _ in pieces)},
            "finish_reason": "stop",
            "logprobs": {"content": tokens} if asked.get("logprobs") else None,
        }
        usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        body = {"id": f"r{len(self.requests)}", "object": "chat.completion", "created": 1, "model": asked["model"]}
        return 200, {**body, "choices": [choice], "usage": usage}

    def says(self, prompt: str, turn: int) -> list[tuple[str, dict[str, float] | None]]:
        """The reply in pieces: text, and of a label the probability of each."""
        if "Sentences:\n" in prompt:
            return [(_extracted(prompt), None)]
        several = re.search(r"^\[\[ ## statements ## \]\]\n(.*)", prompt, re.MULTILINE)
        if several is None:
            return self.verdict(prompt, _statement(prompt), turn)
        pieces: list[tuple[str, dict[str, float] | None]] = [('{"verdicts": [', None)]
        for number, text in json.loads(several[1]).items():
            if int(number) % 7 == 6:  # some it leaves out
                continue
            begin = f'{", " if len(pieces) > 1 else ""}{{"statement": {number}, "verdict": "'
            pieces += [(begin, None), *self.verdict(prompt, text, turn), ('"}', None)]
        return [*pieces, ("]}", None)]

    def verdict(self, prompt: str, statement: str, turn: int) -> list[tuple[str, dict[str, float] | None]]:
        """What is said about one statement, in the form the prompt asks for."""
        chunks = re.findall(r"^\[\d+\] (.*)$", prompt.rpartition("Context:\n")[2].partition("\n\n")[0], re.MULTILINE)
        if in_json := re.search(r"^\[\[ ## context ## \]\]\n(.*)", prompt, re.MULTILINE):
            chunks = list(json.loads(in_json[1]).values())
        words = _words(statement)
        shared = [len(words & _words(chunk)) for chunk in chunks] or [0]
        best = shared.index(max(shared))
        noise = int(hashlib.sha256(statement.encode()).hexdigest()[:8], 16) / 2**32
        lacking = {w for w in words if w.isdigit()} - _words(" ".join(chunks))
        p = 0.9 * shared[best] / max(1, len(words)) + 0.2 * (noise - 0.5) - (0.3 if lacking else 0.0)
        if re.search(r"[.!?] \w", statement):  # of several sentences it can tell little
            p = 0.25 * p + 0.6 * noise
        p = min(0.98, max(0.02, p))
        if self.mode == "unsure":
            p = p if turn % 2 else 1 - p
        label, top = _labelled(prompt, p)
        ids = [*([best] if shared[best] else []), *([7] if noise < 0.2 else [])]
        quotes = [" ".join(chunks[best].split()[:6]) if noise < 0.8 else "made of gold"] if chunks else []
        why = f"{shared[best]} of {len(words)} words are there."
        before = "First think" in prompt
        after = f" {ids}" if "ids of the passages" in prompt else ""
        after += "".join(f'\nQuote: "{quote}"' for quote in quotes) if "Quote the shortest" in prompt else ""
        after += f"\nWhy: {why}" if "Then say why" in prompt else ""
        return [(f"Why: {why}\nVerdict: " if before else "", None), (label, top), (after, None)]


def _labelled(prompt: str, p: float) -> tuple[str, dict[str, float]]:
    """The label that is the likeliest at ``p`` of support, and the probability of each."""
    ask = prompt.rpartition("\n\n")[2]
    labels = next(found for mark, found in LABELS.items() if mark in ask)
    last = len(labels) - 1
    weights = [math.exp(-last * abs(i / last - p)) if last > 1 else (1 - p, p)[i] for i in range(len(labels))]
    shares = {label: w / sum(weights) * 0.95 for label, w in zip(labels, weights, strict=True)}
    return max(shares, key=lambda name: shares[name]), {**shares, "The": 0.05}


def _extracted(prompt: str) -> str:
    """Statements of the numbered sentences, split at “and”; to some it adds what nobody said, some it leaves out."""
    lines = []
    for number, text in re.findall(r"^\[(\d+)\] (.*)$", prompt.rpartition("Sentences:\n")[2], re.MULTILINE):
        lines += [f"{number}. {part.strip()}" for part in text.split(" and ")]
        if _third(text):
            lines.append(f"{number}. Professor Quill invented a zeppelin.")
        elif text.startswith(("A ", "It ")):
            lines[-1] = f"{number}. none"
    return "\n".join(lines)


def _statement(prompt: str) -> str:
    return prompt.rpartition("\n\nStatement: ")[2].partition("\n\n")[0]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]{2,}|\d|[\u3040-\u9fff]", text.casefold()))


def _third(text: str) -> bool:
    return hashlib.sha256(text.encode()).digest()[0] % 3 == 0


def _token(text: str, top: dict[str, float]) -> dict[str, Any]:
    def one(token: str, p: float) -> dict[str, Any]:
        return {"token": token, "logprob": math.log(p), "bytes": list(token.encode())}

    return {**one(text, max(top.values())), "top_logprobs": [one(t, p) for t, p in top.items()]}
