"""Addresses and keys: where an LM's calls go, which key may go there, and what to do when nothing answers."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from faith_dspy.errors import ConfigError, LMUnavailableError, short_message

_HOMES = {
    "openai": "api.openai.com",
    "anthropic": "api.anthropic.com",
}
"""Hosts of providers' own services, to which the environment's key may go whoever names them."""
_ROUTES = re.compile(
    r"/(?:chat/completions|completions|responses|api/chat|api/generate)/?$"
)
"""What follows the address in a request; people paste it with the address."""


@dataclass(frozen=True)
class Endpoint:
    """What is known of the place an LM's calls go to, beyond what DSPy holds."""

    salt: str | None = None
    """Hex digits that tell the endpoint's replies from another's in DSPy's cache, whose keys ignore the address."""
    sha256: str | None = None
    """Of the model file, if the model runs in this process."""


def provider_of(model: str) -> str:
    """Return the provider in a model string, ``openai`` where it names none; Ollama's two routes are one provider."""
    provider, separator, _ = model.partition("/")
    return (provider if separator else "openai").lower().removesuffix("_chat")


def is_provider(name: str) -> bool:
    """Return whether the part of a model string before its slash names a provider that DSPy or LiteLLM knows."""
    return name in list(import_module("litellm").LlmProviders)


def from_environment(model: str, name: str) -> str | None:
    """Return the value of ``<PROVIDER>_<NAME>`` for the model's provider, if it is set."""
    return os.environ.get(f"{provider_of(model).upper()}_{name}", "").strip() or None


def base_from_environment(model: str) -> str | None:
    """Return the address in ``<PROVIDER>_API_BASE`` or ``<PROVIDER>_BASE_URL``, if one is set."""
    return from_environment(model, "API_BASE") or from_environment(model, "BASE_URL")


def key_for(model: str, api_base: str) -> str | None:
    """Return the environment's key of the model's provider if it may go to an address, else None.

    It was given for the provider's own service, and for the address in the provider's own variable.
    """
    base = shown_base(api_base)
    own = base_from_environment(model)
    is_own = own is not None and shown_base(own) == base
    is_home = urlsplit(base).hostname == _HOMES.get(provider_of(model))
    return from_environment(model, "API_KEY") if is_own or is_home else None


def require_endpoint(
    tuned: Mapping[str, Any], model: str, api_base: str | None
) -> None:
    """Refuse to ask elsewhere what was tuned at an address of the user's own.

    Args:
        tuned: The LM of an export; empty for a judge that was not loaded.
        model: The LM that is asked.
        api_base: The caller's address.
    """
    is_own = tuned.get("api_base_hash") and tuned.get("model") == model
    if is_own and not (api_base or base_from_environment(model)):
        raise ConfigError(
            f"the judge was tuned on {model} at an address of your own, which exports do not hold; contexts are sent "
            "nowhere else: give it with api_base=, on the command line --api-base."
        )


def route_base(model: str, api_base: str, *, own_api: bool) -> str:
    """Return the address that the model's provider is asked at.

    DSPy asks Ollama by OpenAI's protocol, under ``/v1``; LiteLLM, which it leaves parameters of Ollama's own to
    (``own_api``), by Ollama's.
    """
    base = _ROUTES.sub("", api_base.strip().rstrip("/"))
    if provider_of(model) == "ollama":
        base = base.removesuffix("/v1")
        return base if own_api else f"{base}/v1"
    if model.startswith("openai/") and not urlsplit(base).path:
        return f"{base}/v1"
    return base


def shown_base(api_base: str) -> str:
    """Return an address without user, password and query, which may hold keys.

    Raises:
        ConfigError: It is not an address.
    """
    try:
        parts = urlsplit(api_base.strip())
        is_http = parts.scheme in ("http", "https")
        is_complete = is_http and parts.hostname and parts.port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        shown = api_base.strip().rpartition("@")[2].partition("?")[0]
        raise ConfigError(
            f"{shown!r} is not an address; expected one like http://127.0.0.1:8080/v1."
        )
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


def base_hash(api_base: str) -> str:
    """Return twelve hex digits of the SHA-256 of the address as shown."""
    return hashlib.sha256(shown_base(api_base).lower().encode()).hexdigest()[:12]


def unavailable(lm: Any, exc: Exception) -> LMUnavailableError:
    """Return the error that says why an LM does not answer, at which address, and what to check."""
    base = lm.kwargs.get("api_base") or lm.kwargs.get("base_url")
    where = f" at {shown_base(base)}" if base else ""
    return LMUnavailableError(
        f"{lm.model}{where} does not answer: {short_message(exc)}. {_advice(lm, exc, base)}"
    )


def _advice(lm: Any, exc: Exception, base: str | None) -> str:
    kind = type(exc).__name__
    status = getattr(exc, "status", None)
    variable = f"{provider_of(lm.model).upper()}_API_KEY"
    if kind == "LMAuthError" and base and lm.kwargs.get("api_key") == "none":
        return (
            f"No key was sent: {variable} goes to the provider, or to the address in "
            f"{variable.removesuffix('KEY')}BASE, alone. Give api_key=, or set both variables."
        )
    if kind in ("LMAuthError", "LMBillingError"):
        return f"Check its key ({variable} or api_key=)."
    if status == 404 or kind == "LMUnsupportedModelError":
        place = " and the address" if base else ""
        return f"Check the model's name{place}."
    for name, value in os.environ.items():
        proxy = re.sub(r".*(?://|@)", "", value).rstrip("/")
        is_proxy = name.lower().endswith("_proxy") and proxy
        if is_proxy and kind == "LMTransportError" and f" {proxy}:" in str(exc):
            return f"It is the proxy in {name} that does not answer: start it, or list the LM's host in NO_PROXY."
    if re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", lm.model):
        return f"If it is a function, its name is python:{lm.model}."
    return "Check the model's name, its key and the address."
