"""The embedded model's weights behind OpenAI's protocol, for libraries that want an address: llama.cpp on loopback."""

import os
from pathlib import Path
from typing import NamedTuple

import xllamacpp

from faith_dspy.lm.model_file import EMBEDDED, download, models_dir, sha256_of

NUM_CTX = 8192


class Server(NamedTuple):
    """A running server; it ends when ``handle`` is dropped."""

    url: str
    model: str
    sha256: str
    handle: object


def serve(lm: str, num_ctx: int = NUM_CTX) -> Server:
    """Serve ``local`` (the file is fetched) or ``local:FILE.gguf``: one slot, so that one prefix is cached."""
    path = (
        models_dir() / EMBEDDED.filename
        if lm == "local"
        else Path(lm.removeprefix("local:"))
    )
    if lm == "local" and not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        download(EMBEDDED, path)
    params = xllamacpp.CommonParams()
    params.verbosity = -1
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = num_ctx
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = len(
        os.sched_getaffinity(0)
    )
    handle = xllamacpp.Server(params)
    return Server(handle.listening_address, path.stem, sha256_of(path), handle)
