"""Makes a metered LM out of a model string."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import ConfigError

if TYPE_CHECKING:
    from faith_dspy.lm.metered_lm import MeteredLM

_LOCAL_REPLY = 1024
"""Output tokens of an embedded model at most: small models that lose the thread write until the window is full."""
_LOCAL_TIMEOUT = 900
"""Seconds. Calls queue for one slot, and a long document takes a minute to read on a laptop."""


def is_local(model: str) -> bool:
    """Whether the model string means a model served in this process: ``local`` or ``local:FILE``."""
    return model == "local" or model.startswith("local:")


def portable(model: str) -> str:
    """The model string without an absolute path: of ``local:FOLDER/FILE.gguf`` the file's name is kept."""
    return f"local:{Path(model[6:]).name}" if model.startswith("local:") else model


def make_lm(
    model: str,
    *,
    api_base: str | None = None,
    api_key: str | None = None,
    num_ctx: int | None = None,
    cache: bool = True,
    timeout: float | None = None,
    max_wait: float | None = None,
    **kwargs: Any,
) -> MeteredLM:
    """The LM a model string stands for.

    ``local`` is the embedded model (fetched when missing), ``local:/path/FILE.gguf`` any other llama.cpp model; both
    are served in this process on loopback. Any other string is DSPy's (``openai/gpt-4o-mini``,
    ``ollama_chat/llama3``…), with `api_base` for your own endpoints.

    `num_ctx` is the context window in tokens; it is sent to Ollama only. `cache`: whether to use DSPy's cache of
    replies, in which endpoints are kept apart. `timeout`: seconds a call may take, its retries included; 300 unless
    given, 900 for an embedded model. `max_wait`: seconds between two attempts at most, whatever ``Retry-After`` says;
    30 unless given. `kwargs` go to `dspy.LM`; the temperature is 0 unless given, if the model takes one.

    Raises ModelFileError, MissingExtraError, ConfigError. Does not contact the endpoint: see `preflight`.
    """
    # Without this the first call, even to the embedded model, asks the network for a list of prices.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    for name, seconds in (("timeout", timeout), ("max_wait", max_wait)):
        if seconds is not None:
            if not 0 < seconds < math.inf:
                raise ConfigError(f"{name} is {seconds}; expected a positive number of seconds, such as 60.")
            kwargs[name] = seconds
    if is_local(model):
        if api_base or api_key:
            raise ConfigError(f"{model!r} is served in this process: it takes no api_base and no api_key.")
        return _local(model, num_ctx=num_ctx, cache=cache, **kwargs)
    if model == "none":
        raise ConfigError(
            "'none' is no LM: a judge takes it, which then judges by lexical features; here one is needed."
        )
    if not model or model.endswith("/"):
        raise ConfigError(f"Got the model {model!r}; expected 'local', 'local:FILE.gguf' or 'provider/name'.")
    return _remote(model, api_base=api_base, api_key=api_key, num_ctx=num_ctx, cache=cache, **kwargs)


def _local(model: str, *, num_ctx: int | None, cache: bool, **kwargs: Any) -> MeteredLM:
    from faith_dspy.lm.files import resolve
    from faith_dspy.lm.server import serve

    server = serve(resolve(model), num_ctx)
    from faith_dspy.lm.metered_lm import Endpoint, MeteredLM

    settings: dict[str, Any] = {
        "temperature": 0.0,
        "max_tokens": _LOCAL_REPLY,
        "num_retries": 1,
        "timeout": _LOCAL_TIMEOUT,
        **kwargs,
    }
    # The model's name holds the file's hash, so the cache key does too; the port changes with every start.
    return MeteredLM(
        f"openai/{server.model_file.model_name}",
        api_base=server.api_base,
        api_key="none",
        cache=cache,
        endpoint=Endpoint(sha256=server.model_file.sha256, num_ctx=server.num_ctx, response_schema=True),
        **settings,
    )


def _remote(
    model: str, *, api_base: str | None, api_key: str | None, num_ctx: int | None, cache: bool, **kwargs: Any
) -> MeteredLM:
    from faith_dspy.lm.endpoint import base_from_environment, base_hash, from_environment
    from faith_dspy.lm.metered_lm import Endpoint, MeteredLM

    settings = dict(kwargs)
    api_base = api_base and api_base.strip()
    base = api_base or kwargs.get("base_url") or base_from_environment(model)  # DSPy reads the environment itself
    if api_base:
        settings["api_base"] = api_base
    if api_base or (base and model.startswith("openai/")):
        api_key = api_key or from_environment(model, "API_KEY") or "none"  # most self-hosted servers want none
    if api_key:
        settings["api_key"] = _sendable(api_key)
    if num_ctx and model.startswith("ollama"):
        settings["num_ctx"] = num_ctx
    endpoint = Endpoint(salt=base_hash(base) if base else None, num_ctx=num_ctx)
    lm = MeteredLM(model, cache=cache, endpoint=endpoint, **settings)
    # Reasoning models, the ones DSPy gives this limit, take no temperature.
    if "temperature" not in settings and "max_completion_tokens" not in lm.kwargs:
        lm.kwargs["temperature"] = 0.0
    return lm


def _sendable(api_key: str) -> str:
    """The key without surrounding white space, as files end in a line break; ConfigError if no header can carry it."""
    key = api_key.strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("the API key holds a line break or a character beyond ASCII, which no request can carry.")
    return key
