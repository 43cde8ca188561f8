"""Makes a metered LM out of a model string, tells who it is, and finds out whether it answers."""

import hashlib
import inspect
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel

from faith_dspy.errors import ConfigError, LMUnavailableError, in_short

if TYPE_CHECKING:
    from faith_dspy.lm.metered import MeteredLM

_LOCAL_REPLY = 1024
"""Output tokens of an embedded model at most: small models that lose the thread write until the window is full."""

_TYPESAFE = "https://api.typesafe.ai"
"""Where decision models are, unless an address is given."""


class LMIdentity(BaseModel, extra="forbid", frozen=True):
    """Which LM answers. Holds no key and no address."""

    name: str
    """The model string DSPy uses."""
    sha256: str | None = None
    """Of the model file, if the model runs in this process."""
    api_base_hash: str | None = None
    """Twelve hex digits for the endpoint's address, if one was given: equal means same endpoint."""


def identity(lm: "MeteredLM") -> LMIdentity:
    return LMIdentity(name=decision_model(lm) or lm.model, sha256=lm.endpoint.sha256, api_base_hash=lm.endpoint.salt)


def is_local(model: str) -> bool:
    """Whether the model string means a model in this process: ``local`` or ``local:FILE``."""
    return model == "local" or model.startswith("local:")


def decision_model(lm: Any) -> str | None:
    """The model string of a decision model, which answers questions and writes no text; None for any other LM."""
    if isinstance(lm, str):
        return lm.replace(":", "/", 1) if lm.startswith(("typesafe/", "typesafe:")) else None
    known = getattr(lm, "supports_decision_requests", False) is True
    return f"typesafe/{str(lm.model).removeprefix('typesafe:')}" if known else None


def adopt(lm: Any) -> "MeteredLM":
    """A metered LM with the settings of the user's own, a plain `dspy.LM` (but its ``async_engine``) or a
    `dspy.experimental.TypeSafe`; a metered one as it is."""
    import dspy
    from dspy.experimental import TypeSafe

    from faith_dspy.lm.metered import MeteredLM

    if isinstance(lm, MeteredLM):
        return lm
    if type(lm) is TypeSafe:
        settings = {name: getattr(lm, name) for name in ("api_key", "cache", "timeout", "callbacks")}
        return make_lm(f"typesafe/{lm.model}", api_base=lm.base_url, **settings)
    if type(lm) is not dspy.LM:
        raise ConfigError(f"the LM is a {type(lm).__name__}; expected a model string or a dspy.LM.")
    names = set(inspect.signature(dspy.LM).parameters) - {"kwargs", "async_engine"}
    settings = {name: getattr(lm, name) for name in names if hasattr(lm, name)} | lm.kwargs
    if "max_completion_tokens" in settings:  # DSPy renames it for reasoning models
        settings["max_tokens"] = settings.pop("max_completion_tokens")
    return MeteredLM(**settings)


def make_lm(
    model: str,
    *,
    api_base: str | None = None,
    api_key: str | None = None,
    num_ctx: int | None = None,
    cache: bool = True,
    timeout: float | None = None,
    **kwargs: Any,
) -> "MeteredLM":
    """The LM a model string stands for.

    ``local`` is the embedded model (fetched when missing), ``local:/path/FILE.gguf`` any Llama-, Qwen2- or Qwen3-like
    one; both run in this process. Any other string is DSPy's (``openai/gpt-4o-mini``, ``ollama_chat/llama3``…), with
    `api_base` for your own endpoints. ``typesafe/NAME`` is a decision model.

    `num_ctx` is the context window in tokens; it is sent to Ollama only. `cache`: whether to use DSPy's cache of
    replies, in which endpoints are kept apart. `timeout`: seconds a call may take, its retries included; 300 unless
    given, without meaning for a model in this process. `kwargs` go to `dspy.LM`; the temperature is 0 unless given, if
    the model takes one.

    Raises ModelFileError, MissingExtraError, ConfigError. Does not contact the endpoint: see `preflight`.
    """
    # Without this the first call asks the network for a list of prices.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    if timeout is not None and not 0 < timeout < math.inf:
        raise ConfigError(f"timeout is {timeout}; expected a positive number of seconds, such as 60.")
    if is_local(model):
        if api_base or api_key:
            raise ConfigError(f"{model!r} runs in this process: it takes no api_base and no api_key.")
        return _local(model, cache=cache, **kwargs)
    if model == "none":
        raise ConfigError("'none' is no LM, and here one is needed: name one, such as 'local'.")
    if not model or model.endswith("/"):
        raise ConfigError(f"Got the model {model!r}; expected 'local', 'local:FILE.gguf' or 'provider/name'.")
    if timeout is not None:
        kwargs["timeout"] = timeout
    return _hosted(model, api_base=api_base, api_key=api_key, num_ctx=num_ctx, cache=cache, **kwargs)


def _local(model: str, **kwargs: Any) -> "MeteredLM":
    from faith_dspy.lm import embedded
    from faith_dspy.lm.metered import Endpoint, MeteredLM

    if model == "local":
        folder, sha256 = embedded.fetch(), embedded.EMBEDDED.sha256
    else:
        folder, sha256 = embedded.own_model(Path(model[6:]).expanduser().resolve())
    settings = {"temperature": 0.0, "max_tokens": _LOCAL_REPLY, **kwargs}
    # The folder's name holds the file's hash, so the key of DSPy's cache does too.
    return MeteredLM(
        f"local/{folder.name}",
        engine=embedded.engine_of(folder),
        endpoint=Endpoint(sha256=sha256, num_ctx=embedded.WINDOW),
        **settings,
    )


def _hosted(
    model: str, *, api_base: str | None, api_key: str | None, num_ctx: int | None, cache: bool, **kwargs: Any
) -> "MeteredLM":
    from faith_dspy.lm.metered import Endpoint, MeteredLM

    kind, settings = MeteredLM, dict(kwargs)
    api_base = api_base and api_base.strip()
    base = api_base or kwargs.get("base_url") or base_from_environment(model)  # DSPy reads the environment itself
    if decision_model(model):
        from faith_dspy.lm.decision import DecisionLM

        kind, model = DecisionLM, model.replace("/", ":", 1)  # as DSPy names providers that LiteLLM does not know
        base = api_base = None if base is None or shown_base(base) == _TYPESAFE else base
    if api_base:
        settings["api_base"] = api_base
    if api_base or (base and model.startswith("openai/")):
        api_key = api_key or _from_environment(model, "API_KEY") or "none"  # most self-hosted servers want none
    if api_key:
        settings["api_key"] = api_key.strip()  # files end in a line break
    if num_ctx and model.startswith("ollama"):
        settings["num_ctx"] = num_ctx
    endpoint = Endpoint(salt=base_hash(base) if base else None, num_ctx=num_ctx)
    lm = kind(model, cache=cache, endpoint=endpoint, **settings)
    # Reasoning models, the ones DSPy gives this limit, take no temperature.
    if "temperature" not in settings and "max_completion_tokens" not in lm.kwargs:
        lm.kwargs["temperature"] = 0.0
    return lm


def base_from_environment(model: str) -> str | None:
    """The address set for the model's provider in ``<PROVIDER>_API_BASE`` or ``<PROVIDER>_BASE_URL``, if any."""
    return _from_environment(model, "API_BASE") or _from_environment(model, "BASE_URL")


def _from_environment(model: str, name: str) -> str | None:
    model = decision_model(model) or model
    provider = model.split("/", 1)[0].upper() if "/" in model else "OPENAI"
    provider = provider.removesuffix("_CHAT")  # of Ollama's two protocols, which share their variables
    return os.environ.get(f"{provider}_{name}", "").strip() or None


def shown_base(api_base: str) -> str:
    """An endpoint's address without user, password and query, which may hold keys. Raises ConfigError if it is none."""
    try:
        parts = urlsplit(api_base.strip())
        complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        complete = False
    if not complete:
        shown = api_base.strip().rpartition("@")[2].partition("?")[0]
        raise ConfigError(f"{shown!r} is no address; expected one like http://127.0.0.1:8080/v1.")
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def base_hash(api_base: str) -> str:
    """Twelve hex digits of the SHA-256 of the address as shown."""
    return hashlib.sha256(shown_base(api_base).lower().encode()).hexdigest()[:12]


def preflight(lm: "MeteredLM") -> None:
    """Find out before any work whether the LM answers, at the cost of one token.

    Raises LMUnavailableError with DSPy's own reason: no connection, a refused key, an unknown model.
    """
    # Reasoning models refuse small limits; the Responses API wants 16 at least.
    limit = {} if "max_completion_tokens" in lm.kwargs else {"max_tokens": 16 if lm.model_type == "responses" else 1}
    asked: tuple[Any, ...] = ("Say yes.",)
    if decision_model(lm):
        question = {"instructions": "Does it say yes?", "criteria": {"Yes": None, "No": None}}
        asked, limit = ("yes", {"verdict": question}), {}
    try:
        lm.copy(num_retries=1)(*asked, cache=False, **limit)
    except Exception as exc:  # whatever fails here, no work should start
        base = lm.kwargs.get("api_base") or lm.kwargs.get("base_url") or base_from_environment(lm.model)
        where = f" at {shown_base(base)}" if base else ""
        raise LMUnavailableError(
            f"{lm.model}{where} does not answer: {in_short(exc, lm)}. Check the model's name, its key and the address."
        ) from exc
