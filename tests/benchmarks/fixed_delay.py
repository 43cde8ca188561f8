"""An OpenAI-compatible endpoint that answers “Yes” after a fixed time, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import math
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOP = [{"token": t, "logprob": math.log(p), "bytes": list(t.encode())} for t, p in (("Yes", 0.9), ("No", 0.1))]
_REPLY = {
    "id": "chatcmpl-0",
    "object": "chat.completion",
    "created": 1,
    "model": "tiny",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Yes"},
            "finish_reason": "length",
            "logprobs": {"content": [{**_TOP[0], "top_logprobs": _TOP}]},
        }
    ],
    "usage": {
        "prompt_tokens": 200,
        "completion_tokens": 1,
        "total_tokens": 201,
        "prompt_tokens_details": {"cached_tokens": 150},
    },
}


def _http(body: object) -> bytes:
    text = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text


async def _serve(delay: float) -> None:
    reply, models = _http(_REPLY), _http({"object": "list", "data": [{"id": "tiny", "object": "model"}]})

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                await reader.readexactly(int(length[1]) if length else 0)
                asked = head.startswith(b"POST")
                await asyncio.sleep(delay if asked else 0)
                writer.write(reply if asked else models)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serving(delay: float) -> Iterator[int]:
    """An endpoint with ``delay`` in seconds, for the length of the block; its port."""
    process = subprocess.Popen([sys.executable, "-m", __name__, str(delay)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
