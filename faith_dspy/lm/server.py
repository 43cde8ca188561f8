"""The embedded model's server: llama.cpp inside this process, OpenAI's protocol, loopback only."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from faith_dspy.errors import ConfigError, LMUnavailableError, MissingExtraError, ModelFileError
from faith_dspy.lm.files import ModelFile, check_magic, resolve

HOST = "127.0.0.1"
DEFAULT_CONTEXT = 8192
"""Context window in tokens, for prompt and reply together."""

# One slot: with more, each call may land in another slot and find another document in its prefix cache.
_SLOTS = 1
# Connections kept alive each hold a thread; with too few, a ninth client waits for the others to hang up.
_HTTP_THREADS = 64
# Prefixes of other documents that are kept, so that alternating between a few does not read them anew.
_PREFIX_CACHE_MIB = 1024

_running: dict[tuple[str, int], EmbeddedServer] = {}
_lock = threading.Lock()


@dataclass
class EmbeddedServer:
    """A running server. `stop` ends it; the process's end does so too."""

    url: str
    """``http://127.0.0.1:PORT``, without a path."""
    model_file: ModelFile
    model_name: str
    """What the server calls its model: file stem, ``@``, first 12 hex digits of the SHA-256."""
    num_ctx: int
    handle: Any
    """llama.cpp's server; it stops when this is dropped."""
    pid: int

    @property
    def api_base(self) -> str:
        """Base address of the OpenAI protocol."""
        return f"{self.url}/v1"

    @property
    def running(self) -> bool:
        """Whether it has not been stopped."""
        return self.handle is not None

    def stop(self) -> None:
        """Stop listening and free the model's memory. Harmless when already stopped, or in a forked child."""
        if self.pid == os.getpid():
            self.handle = None
            with _lock:
                for key in [key for key, server in _running.items() if server is self]:
                    del _running[key]


def model_name(file: ModelFile) -> str:
    """The name endpoints and caches see: it changes with the file's content."""
    return f"{file.name}@{file.sha256[:12]}"


def serve(file: ModelFile, num_ctx: int | None = None) -> EmbeddedServer:
    """The server of this file in this process, started when there is none.

    `num_ctx` is the context window in tokens; None takes whatever runs already, else 8192. Raises ModelFileError
    when the file is no usable model, MissingExtraError without xllamacpp.
    """
    if num_ctx is not None and num_ctx < 1:
        raise ConfigError(f"num_ctx is {num_ctx}; expected a positive number of tokens, such as {DEFAULT_CONTEXT}.")
    with _lock:
        if num_ctx is None:
            for server in _running.values():
                if server.model_file.sha256 == file.sha256:
                    return server
        key = (file.sha256, num_ctx or DEFAULT_CONTEXT)
        if key not in _running:
            _running[key] = start(file, num_ctx=num_ctx or DEFAULT_CONTEXT)
        return _running[key]


def start(file: ModelFile, *, num_ctx: int = DEFAULT_CONTEXT, port: int = 0) -> EmbeddedServer:
    """Start a server of its own on a loopback port (0: the system picks one). Errors as in `serve`."""
    try:
        import xllamacpp
    except ImportError as exc:
        raise MissingExtraError("xllamacpp", "local", "The embedded model") from exc
    check_magic(file.path)
    if port:
        _check_free(port)
    params = xllamacpp.CommonParams()
    params.verbosity = -1  # llama.cpp writes to standard error from its own threads
    params.model.path = str(file.path)
    params.model_alias = {model_name(file)}
    params.hostnames = [HOST]
    params.port = port
    params.n_ctx = num_ctx
    params.n_parallel = _SLOTS
    params.n_threads_http = _HTTP_THREADS
    params.cache_ram_mib = _PREFIX_CACHE_MIB
    params.ui = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _cores()
    try:
        handle = xllamacpp.Server(params)
    except RuntimeError as exc:
        raise ModelFileError(
            f"llama.cpp cannot load {file.path} with a window of {num_ctx} tokens. The file is damaged, its "
            "architecture is not known to this xllamacpp, or there is too little memory: fetch the file again "
            "(faith-dspy model fetch), update xllamacpp, or choose a smaller num_ctx."
        ) from exc
    return EmbeddedServer(handle.listening_address, file, model_name(file), num_ctx, handle, os.getpid())


def stop_all() -> None:
    """Stop every server this process started through `serve`."""
    for server in list(_running.values()):
        server.stop()


atexit.register(stop_all)


def serve_forever(model: str = "local", port: int = 8080, *, num_ctx: int | None = None) -> None:
    """Serve a model until Ctrl-C, its address written to standard output. Errors as in `serve`."""
    server = start(resolve(model), num_ctx=num_ctx or DEFAULT_CONTEXT, port=port)
    sys.stdout.write(f"{server.model_name} at {server.api_base} (Ctrl-C stops)\n")
    sys.stdout.flush()
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as exc:
            raise LMUnavailableError(
                f"Cannot listen on {HOST}:{port} ({exc}). Give another port, or 0 to let the system pick one."
            ) from exc


def _cores() -> int:
    """Processors this process may use; containers and taskset leave fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)
