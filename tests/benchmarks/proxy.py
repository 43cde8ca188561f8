"""Counts what every system costs, in front of the one model server they all ask: nobody's own counting is trusted."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from faith_dspy.schema import Usage

HOST = "127.0.0.1"


class MeteringProxy:
    """``http://127.0.0.1:PORT/<system>/v1/…`` is the server's ``/v1/…``, counted for that system.

    ``marks``: text put before a system's first message. Systems that ask with the same words would find each other's
    prefixes in the server's cache, and be told cheaper than they are; a mark as short as a line break keeps them apart.
    ``timeout``: seconds a call may take; then the server is hung up on, and the system is told that it failed.
    """

    def __init__(self, upstream: str, marks: Mapping[str, str], timeout: float) -> None:
        self.upstream, self.marks, self.timeout = urlsplit(upstream), marks, timeout
        self._lock = threading.Lock()
        self._usage: defaultdict[str, Usage] = defaultdict(Usage)
        self._http = ThreadingHTTPServer((HOST, 0), _handler(self))
        self._http.daemon_threads = True
        threading.Thread(
            target=self._http.serve_forever, args=(0.05,), daemon=True
        ).start()

    def base(self, system: str) -> str:
        """Address of the OpenAI protocol for a system."""
        return f"http://{HOST}:{self._http.server_port}/{system}/v1"

    def take(self, system: str) -> Usage:
        """Calls and tokens of the system since it was last asked; a call that failed or was stopped has no tokens."""
        with self._lock:
            return self._usage.pop(system, Usage())

    def close(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()

    def forward(
        self, system: str, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        """The server's answer: status and body, which is JSON."""
        connection = HTTPConnection(
            self.upstream.hostname or HOST, self.upstream.port, timeout=self.timeout
        )
        usage = Usage(calls=int(method == "POST"))
        try:
            connection.request(
                method,
                path,
                self._marked(system, body),
                {"Content-Type": "application/json"},
            )
            reply = connection.getresponse()
            data = reply.read()
            usage += _tokens(data)
        finally:
            connection.close()
            with self._lock:
                self._usage[system] += usage
        return reply.status, data

    def _marked(self, system: str, body: bytes | None) -> bytes | None:
        """The request with the system's mark on its first message."""
        if not body or not self.marks[system]:
            return body
        asked = json.loads(body)
        asked["messages"][0]["content"] = (
            self.marks[system] + asked["messages"][0]["content"]
        )
        return json.dumps(asked).encode()


def _tokens(data: bytes) -> Usage:
    """Tokens as the server tells them; none of a reply that is no completion."""
    told: dict[str, Any] = json.loads(data).get("usage") or {}
    return Usage(
        prompt_tokens=told.get("prompt_tokens", 0),
        cached_tokens=(told.get("prompt_tokens_details") or {}).get("cached_tokens", 0),
        output_tokens=told.get("completion_tokens", 0),
    )


def _handler(proxy: MeteringProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            _, system, path = self.path.split("/", 2)
            try:
                status, data = proxy.forward(
                    system, self.command, f"/{path}", self.rfile.read(length) or None
                )
            except (OSError, HTTPException, ValueError) as exc:
                error = {"message": f"the model server hung up ({exc})", "code": 502}
                status, data = 502, json.dumps({"error": error}).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True  # the client is gone

        do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            pass

    return Handler
