"""The one model that all systems ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Served:
    """A model server: its address without a path, its model's name and hash, its window in tokens."""

    url: str
    model: str
    num_ctx: int
    sha256: str
    stop: Callable[[], None]

    def tokens(self, text: str) -> int:
        """Length of a text by the model's own tokenizer (llama.cpp's ``/tokenize``)."""
        import httpx

        reply = httpx.post(f"{self.url}/tokenize", json={"content": text}, timeout=60)
        return len(reply.raise_for_status().json()["tokens"])


def serve(model: str) -> Served:
    """The embedded model on a server of its own, with the product's one slot and prefix cache."""
    from faith_dspy.lm.download import resolve
    from faith_dspy.lm.server import start

    server = start(resolve(model))
    return Served(server.url, server.model_file.model_name, server.num_ctx, server.model_file.sha256, server.stop)
