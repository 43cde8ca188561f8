"""Makes a metered LM out of a model string, tells who it is, and finds out whether it answers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel, field_validator

from faith_dspy.errors import ConfigError, LMUnavailableError
from faith_dspy.lm.addresses import (
    Endpoint,
    base_from_environment,
    base_hash,
    key_for,
    route_base,
    unavailable,
)
from faith_dspy.lm.function import FunctionLM

if TYPE_CHECKING:
    from faith_dspy.lm.metered import MeteredLM

_LOCAL_REPLY = 1024
"""Output tokens of an embedded model at most: small models that lose the thread write until the window is full."""

_adopted: WeakKeyDictionary[Any, MeteredLM] = WeakKeyDictionary()
"""By the user's own LM."""


class LMIdentity(BaseModel, frozen=True):
    """Which LM answers, and what it was given. Holds no key, no address and no path."""

    model: str
    """The model string."""
    sha256: str | None = None
    """Of the model file, if the model runs in this process; of a function's source."""
    version: str | None = None
    """Of a function's package."""
    api_base_hash: str | None = None
    """Twelve hex digits for the endpoint's address, if one was given: equal means same endpoint."""
    context_window: int | None = None
    """Tokens, where a judge was given them."""
    thinking_tokens: int | None = None
    """The same."""

    @field_validator("model")
    @classmethod
    def _no_place(cls, model: str) -> str:
        if model != without_path(model) or "://" in model:
            raise ValueError(f"the LM name {model!r} contains a path or URL")
        return model


def identity(lm: MeteredLM | FunctionLM) -> LMIdentity:
    """Return which LM answers."""
    return LMIdentity(
        model=lm.model,
        sha256=lm.endpoint.sha256,
        version=lm.version if isinstance(lm, FunctionLM) else None,
        api_base_hash=lm.endpoint.salt,
    )


def without_path(model: str) -> str:
    """Return the model string as exports hold it: a model file's folder stays out."""
    return f"local:{Path(model[6:]).name}" if model.startswith("local:") else model


def is_local(model: str) -> bool:
    """Return whether the model string means a model in this process: ``local`` or ``local:FILE``."""
    return model == "local" or model.startswith("local:")


def to_metered_lm(
    lm: Any,
    *,
    timeout: float | None = None,
    context_window: int | None = None,
    thinking_tokens: int | None = None,
) -> MeteredLM:
    """Return a metered LM with the settings of the user's own.

    Args:
        lm: A plain `dspy.LM`, or a metered LM, which is returned as it is.
        timeout: Seconds to wait for a reply, in place of its own limit.
        context_window: Tokens of prompt and reply together.
        thinking_tokens: Room for a model's thoughts.

    Raises:
        ConfigError: It is neither, or its engine takes no timeout.
    """
    from faith_dspy.lm.capabilities import Experience
    from faith_dspy.lm.metered import MeteredLM

    metered = lm if isinstance(lm, MeteredLM) else _adopt(lm)
    changes: dict[str, Any] = {}
    if timeout is not None:
        if not isinstance(metered.engine, str):
            raise ConfigError(
                f"{metered.model} has an engine of its own, which takes no timeout: set it there."
            )
        changes["timeout"] = timeout
    limits: dict[str, Any] = {
        "context_window": context_window,
        "thinking_tokens": thinking_tokens,
    }
    own = {name: tokens for name, tokens in limits.items() if tokens is not None}
    if own:
        changes["experience"] = Experience(replace(metered.capabilities, **own))
    return metered.copy(**changes) if changes else metered


def _adopt(lm: Any) -> MeteredLM:
    import dspy

    from faith_dspy.lm.metered import MeteredLM

    if lm in _adopted:
        return _adopted[lm]
    if type(lm) is not dspy.LM:
        raise ConfigError(
            f"the LM is a {type(lm).__name__}; expected a model string or a dspy.LM."
        )
    metered = MeteredLM(lm.model, lm.model_type)
    # All that a pickle of it would hold; optimizers change parameters in place.
    metered.__setstate__(lm.__getstate__() | {"kwargs": dict(lm.kwargs)})
    _adopted[lm] = metered
    return metered


def make_lm(
    model: str,
    *,
    api_base: str | None = None,
    api_key: str | None = None,
    context_window: int | None = None,
    thinking_tokens: int | None = None,
    cache: bool = True,
    timeout: float | None = None,
    **kwargs: Any,
) -> MeteredLM:
    """Make the LM a model string stands for, without contacting it: see `preflight`.

    Args:
        model: ``local`` is the embedded model (fetched when missing), ``local:raw`` the same as published, before it
            was taught to judge, ``local:/path/FILE.gguf`` any Llama-, Qwen2- or Qwen3-like one; all of them run in this
            process. Any other string is DSPy's (``openai/gpt-4o-mini``, ``ollama_chat/llama3`` …).
        api_base: The address of an endpoint of your own.
        api_key: Its key. Without one the environment's key of the provider goes to the provider, and to the address in
            the provider's own variable, alone.
        context_window: Tokens of prompt and reply together; longer contexts are read window by window. Ollama is asked
            for it.
        thinking_tokens: Room for a model's thoughts, once it has shown that it thinks before it answers (2,000).
        cache: Whether to use DSPy's cache of replies, in which endpoints are kept apart.
        timeout: Seconds to wait for a reply to begin or go on, at each of DSPy's retries; 600 unless given, without
            meaning for a model in this process.
        kwargs: Parameters of `dspy.LM`; the temperature is 0 unless given, if the model takes one.

    Raises:
        ConfigError: A parameter has a value that it cannot have.
        ModelFileError: The embedded model's file is missing or altered.
        MissingExtraError: An optional dependency is not installed.
    """
    if timeout is not None and not 0 < timeout < math.inf:
        raise ConfigError(
            f"timeout is {timeout}; expected a positive number of seconds, such as 60."
        )
    limits = {"context_window": context_window, "thinking_tokens": thinking_tokens}
    for name, tokens in limits.items():
        if tokens is not None and (type(tokens) is not int or tokens < 1):
            raise ConfigError(
                f"{name} is {tokens!r}; expected a whole number of tokens, such as 8192."
            )
    if is_local(model):
        if api_base or api_key:
            raise ConfigError(
                f"{model!r} runs in this process: it takes no api_base and no api_key."
            )
        return _local(model, context_window, cache=cache, **kwargs)
    if model == "none":
        raise ConfigError(
            "'none' is not an LM, and here one is needed: name one, such as 'local'."
        )
    if not model or model.endswith("/"):
        raise ConfigError(
            f"Got the model {model!r}; expected 'local', 'local:FILE.gguf' or 'provider/name'."
        )
    if context_window and model.startswith("ollama"):
        kwargs["num_ctx"] = context_window
        # Of a model that thinks, LiteLLM reads the reply of Ollama's chat alone.
        model = model.replace("ollama/", "ollama_chat/", 1)
    lm = _hosted(model, api_base, api_key, cache=cache, **kwargs)
    return to_metered_lm(lm, timeout=timeout, **limits)


def _local(model: str, context_window: int | None, **kwargs: Any) -> MeteredLM:
    from faith_dspy.lm import engine, model_file
    from faith_dspy.lm.metered import MeteredLM

    if source := model_file.MODELS.get(model):
        folder, sha256 = model_file.fetch(source), source.identity
    else:
        folder, sha256 = model_file.own_model(Path(model[6:]).expanduser().resolve())
    settings = {"temperature": 0.0, "max_tokens": _LOCAL_REPLY, **kwargs}
    # The folder's name holds the file's hash, so the key of DSPy's cache does too.
    lm = MeteredLM(
        f"local/{folder.name}",
        engine=engine.engine_of(folder),
        endpoint=Endpoint(sha256=sha256),
        **settings,
    )
    window = min(context_window or engine.WINDOW, engine.WINDOW)
    return to_metered_lm(lm, context_window=window)


def _hosted(
    model: str, api_base: str | None, api_key: str | None, **settings: Any
) -> MeteredLM:
    from faith_dspy.lm.metered import MeteredLM

    address = api_base or settings.pop("base_url", None) or base_from_environment(model)
    base = (address or "").strip()
    endpoint = Endpoint(salt=base_hash(base) if base else None)
    if base:
        own_api = "num_ctx" in settings
        settings["api_base"] = route_base(model, base, own_api=own_api)
        # Most self-hosted servers want none.
        api_key = api_key or key_for(model, base) or "none"
    if api_key:
        settings["api_key"] = api_key.strip()  # files end in a line break
    lm = MeteredLM(model, endpoint=endpoint, **settings)
    # Reasoning models, the ones DSPy gives this limit, take no temperature.
    if "temperature" not in settings and "max_completion_tokens" not in lm.kwargs:
        lm.kwargs["temperature"] = 0.0
    return lm


def preflight(lm: MeteredLM | FunctionLM) -> None:
    """Find out before any work whether the LM answers, at the cost of one token. A function is there.

    Raises:
        LMUnavailableError: It does not, with DSPy's own reason: no connection, a refused key, an unknown model.
    """
    if isinstance(lm, FunctionLM):
        return
    try:
        lm.copy(num_retries=1)("Say yes.", cache=False, max_tokens=1)
    except LMUnavailableError:
        raise
    except Exception as exc:  # noqa: BLE001 - whatever fails here, no work should start
        raise unavailable(lm, exc) from None  # the server's words may hold a key
