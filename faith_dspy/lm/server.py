"""The embedded model's server: llama.cpp inside this process, OpenAI's protocol, loopback only."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import ConfigError, ModelFileError, needs
from faith_dspy.lm.files import resolve
from faith_dspy.threads import wait_for_calls

with needs("xllamacpp", "local", "The embedded model"):  # before the model is fetched
    import xllamacpp

if TYPE_CHECKING:
    from faith_dspy.lm.files import ModelFile

DEFAULT_CONTEXT = 8192
"""Context window in tokens, for prompt and reply together."""

# One slot: with more, each call may land in another slot and find another document in its prefix cache.
_SLOTS = 1
# Connections kept alive each hold a thread; with too few, a ninth client waits for the others to hang up.
_HTTP_THREADS = 64
# Prefixes of other documents that are kept, so that alternating between a few does not read them anew.
_PREFIX_CACHE_MIB = 1024
# llama.cpp may crash if it is dropped while it answers; a call for one token takes a second or two.
_LAST_CALLS = 5.0

_running: dict[tuple[str, int], EmbeddedServer] = {}
_lock = threading.Lock()


@dataclass
class EmbeddedServer:
    """A running server. `stop` ends it; the process's end does so too."""

    url: str
    """``http://127.0.0.1:PORT``, without a path."""
    model_file: ModelFile
    num_ctx: int
    handle: Any
    """llama.cpp's server; it stops when this is dropped."""

    @property
    def api_base(self) -> str:
        """Base address of the OpenAI protocol."""
        return f"{self.url}/v1"

    def stop(self) -> None:
        """Stop listening and free the model's memory. Harmless when already stopped."""
        self.handle = None


def serve(file: ModelFile, num_ctx: int | None = None) -> EmbeddedServer:
    """The server of this file in this process, started when there is none.

    `num_ctx` is the context window in tokens; None takes whatever runs already, else 8192. Raises ModelFileError
    when the file is no usable model.
    """
    if num_ctx is not None and num_ctx < 1:
        raise ConfigError(f"num_ctx is {num_ctx}; expected a positive number of tokens, such as {DEFAULT_CONTEXT}.")
    with _lock:
        for (sha256, window), server in _running.items():
            if sha256 == file.sha256 and num_ctx in (None, window):
                return server
        sys.stderr.write(f"Starting the embedded model {file.model_name}: a few seconds, once in this process.\n")
        server = start(file, num_ctx=num_ctx or DEFAULT_CONTEXT)
        _running[file.sha256, server.num_ctx] = server
        return server


def start(file: ModelFile, *, num_ctx: int = DEFAULT_CONTEXT, port: int = 0) -> EmbeddedServer:
    """Start a server of its own on a loopback port (0: the system picks one). Errors as in `serve`."""
    params = xllamacpp.CommonParams()
    params.verbosity = -1  # llama.cpp writes to standard error from its own threads
    params.model.path = str(file.path)
    params.model_alias = {file.model_name}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = num_ctx
    params.n_parallel = _SLOTS
    params.n_threads_http = _HTTP_THREADS
    params.cache_ram_mib = _PREFIX_CACHE_MIB
    params.ui = False
    # Containers and taskset leave fewer processors than the machine has.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = cores
    try:
        handle = xllamacpp.Server(params)
    except RuntimeError as exc:
        raise ModelFileError(
            f"llama.cpp cannot serve {file.path} with a window of {num_ctx} tokens on port {port}. The port is taken, "
            "the file is damaged, its architecture is not known to this xllamacpp, or there is too little memory: "
            "fetch the file again (faith-dspy model fetch), update xllamacpp, or choose another port or window."
        ) from exc
    return EmbeddedServer(handle.listening_address, file, num_ctx, handle)


def stop_all() -> None:
    """Stop every server this process started through `serve`, after the calls in flight, or 5 seconds."""
    with _lock:  # one that is just starting is waited for, and stopped too
        with suppress(KeyboardInterrupt):  # a second Ctrl-C ends the waiting, not the stopping
            if _running:
                wait_for_calls(_LAST_CALLS)
        while _running:
            _running.popitem()[1].stop()


@atexit.register
def _stop_for_good() -> None:
    """Stop all, and let no daemon thread start another, which the end of the process would find running."""
    stop_all()
    _lock.acquire()


def serve_forever(model: str = "local", port: int = 8080) -> None:
    """Serve a model until Ctrl-C, its address written to standard output. Errors as in `serve`."""
    server = start(resolve(model), port=port)
    sys.stdout.write(f"{server.model_file.model_name} at {server.api_base} (Ctrl-C stops)\n")
    sys.stdout.flush()
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        server.stop()
