"""An OpenAI-compatible endpoint that says “Yes” after a fixed time, in a process of its own.

It costs next to nothing itself, so that what is measured against it is the client.
"""

import argparse
import asyncio
import json
import math
import re
import selectors
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TOKENS = ("Yes", "No", " Yes", "yes", "YES", "**", "Based", "The", "To", "Y", "Not", "N", "A", "I", "It", "According",
          "Partially", " No", "no", "True")  # fmt: skip
"""Twenty alternatives of the first token, as many as a judge asks for."""


def _answer() -> bytes:
    top = [
        {"token": t, "logprob": math.log(0.9 * 0.3**i), "bytes": list(t.encode())}
        for i, t in enumerate(TOKENS)
    ]
    body = {
        "id": "chatcmpl-0000000000",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Yes"},
                "finish_reason": "length",
                "logprobs": {"content": [{**top[0], "top_logprobs": top}]},
            }
        ],
        "usage": {
            "prompt_tokens": 200,
            "completion_tokens": 1,
            "total_tokens": 201,
            "prompt_tokens_details": {"cached_tokens": 150},
        },
    }
    return _http(json.dumps(body).encode())


def _http(body: bytes) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
        + body
    )


_MODELS = _http(b'{"object": "list", "data": [{"id": "tiny", "object": "model"}]}')
_ANSWER = _answer()
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class _Connection(asyncio.Protocol):
    delay = 0.05
    served = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.waiting = b""

    def data_received(self, data: bytes) -> None:
        self.waiting += data
        while (end := self.waiting.find(b"\r\n\r\n")) >= 0:
            head = self.waiting[:end]
            length = _LENGTH.search(head)
            stop = end + 4 + int(length[1] if length else 0)
            if len(self.waiting) < stop:
                return
            self.waiting = self.waiting[stop:]
            if head.startswith(b"GET"):
                self.transport.write(_MODELS)
            elif self.delay:
                asyncio.get_running_loop().call_later(self.delay, self.answer)
            else:
                self.answer()

    def answer(self) -> None:
        _Connection.served += 1
        if not self.transport.is_closing():
            self.transport.write(
                _ANSWER.replace(b"0000000000", b"%010d" % _Connection.served)
            )


async def _serve(delay: float) -> None:
    _Connection.delay = delay
    server = await asyncio.get_running_loop().create_server(
        _Connection, "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serving(delay: float) -> Iterator[int]:
    """An endpoint with ``delay`` in seconds, for the length of the block; its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(delay)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("delay", type=float)
    # Of the selectors only select() waits by the microsecond; epoll's millisecond would be 2 % of 50.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(_serve(parser.parse_args().delay))
