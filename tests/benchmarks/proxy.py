"""Counts what every system costs, in front of the one model server they all ask: nobody's own counting is trusted."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from faith_dspy.schema import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HOST = "127.0.0.1"


class MeteringProxy:
    """``http://127.0.0.1:PORT/<system>/v1/…`` is the server's ``/v1/…``, counted for that system.

    ``marks``: text put before a system's first message. Systems that ask with the same words would find each other's
    prefixes in the server's cache, and be told cheaper than they are; a mark as short as a line break keeps them apart.
    """

    def __init__(self, upstream: str, marks: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname or HOST, parts.port or 80)
        self.marks = dict(marks or {})
        self._lock = threading.Lock()
        self._usage: dict[str, Usage] = {}
        self._busy: dict[str, float] = {}  # when the first of a system's present calls began
        self._calls: dict[str, set[HTTPConnection]] = {}
        self._http = ThreadingHTTPServer((HOST, 0), _handler(self))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def base(self, system: str) -> str:
        """Address of the OpenAI protocol for a system."""
        return f"http://{HOST}:{self._http.server_port}/{system}/v1"

    def take(self, system: str) -> Usage:
        """What the system has cost since it was last asked. ``seconds``: those with at least one call under way.

        A call that failed or was stopped counts as a call, without tokens.
        """
        with self._lock:
            return self._usage.pop(system, Usage())

    def stop(self, system: str, patience: float = 30.0) -> None:
        """Hang up on the server for all of a system's calls: it then stops working on them."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            with self._lock:
                calls = list(self._calls.get(system, ()))
            if not calls:
                return
            for call in calls:
                if call.sock is not None:
                    with suppress(OSError):  # it ended by itself
                        call.sock.shutdown(socket.SHUT_RDWR)
            time.sleep(0.05)

    def close(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()

    def forward(self, system: str, method: str, path: str, body: bytes | None) -> tuple[int, str, bytes]:
        """The server's answer: status, content type, body."""
        connection = HTTPConnection(*self.upstream)
        counted = method == "POST"
        with self._under_way(system, connection, counted):
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            reply = connection.getresponse()
            data = reply.read()
        if counted:
            self._add(system, _usage(data))
        return reply.status, reply.getheader("Content-Type") or "application/json", data

    def marked(self, system: str, body: bytes) -> bytes:
        """The request with the system's mark on its first message."""
        mark = self.marks.get(system)
        if not mark:
            return body
        asked = json.loads(body)
        for message in asked.get("messages", [])[:1]:
            if isinstance(message.get("content"), str):
                message["content"] = mark + message["content"]
        return json.dumps(asked).encode()

    @contextmanager
    def _under_way(self, system: str, connection: HTTPConnection, counted: bool) -> Iterator[None]:
        with self._lock:
            calls = self._calls.setdefault(system, set())
            if counted and not calls:
                self._busy[system] = time.perf_counter()
            calls.add(connection)
        try:
            yield
        finally:
            connection.close()
            with self._lock:
                calls.discard(connection)
                seconds = 0.0
                if not calls and system in self._busy:
                    seconds = time.perf_counter() - self._busy.pop(system)
            self._add(system, Usage(calls=int(counted), seconds=seconds))

    def _add(self, system: str, usage: Usage) -> None:
        with self._lock:
            self._usage[system] = self._usage.get(system, Usage()) + usage


def _usage(data: bytes) -> Usage:
    """Tokens as the server tells them; none of a reply that is no completion."""
    try:
        told: dict[str, Any] = json.loads(data).get("usage") or {}
    except (ValueError, AttributeError):
        return Usage()
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
            self._pass("GET", None)

        def do_POST(self) -> None:
            self._pass("POST", self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        def _pass(self, method: str, body: bytes | None) -> None:
            _, system, path = self.path.split("/", 2)
            try:
                status, kind, data = proxy.forward(
                    system, method, f"/{path}", body if body is None else proxy.marked(system, body)
                )
            except (OSError, HTTPException) as exc:
                status, kind = 502, "application/json"
                data = json.dumps({"error": {"message": f"the model server hung up ({exc})", "code": 502}}).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True  # the client is gone

        def log_message(self, *args: Any) -> None:
            pass

    return Handler
