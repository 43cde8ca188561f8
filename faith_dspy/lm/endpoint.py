"""The endpoint behind an LM: its identity, and whether it answers. No key is ever shown or kept."""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel

from faith_dspy.errors import ConfigError, LMUnavailableError, did_you_mean, redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faith_dspy.lm.metered_lm import MeteredLM

_TIMEOUT = 10.0
"""Seconds an endpoint has to list its models."""
_SHOWN = 8
"""Names listed in a message."""
_PAUSE = 0.5
"""Seconds before an endpoint that did not answer is asked once more."""


class LMIdentity(BaseModel, extra="forbid", frozen=True):
    """Which LM gave the verdicts; stored in exported judges. Holds no key and no address."""

    name: str
    """The model string DSPy uses."""
    sha256: str | None = None
    """Of the model file, if we serve it."""
    api_base_hash: str | None = None
    """Twelve hex digits for the endpoint's address, if one was given: equal means same endpoint."""


def identity(lm: MeteredLM) -> LMIdentity:
    """The identity of an LM."""
    return LMIdentity(name=lm.model, sha256=lm.endpoint.sha256, api_base_hash=lm.endpoint.salt)


def need_address(tuned: Mapping[str, Any] | None, model: str, api_base: str | None) -> None:
    """Refuse to ask elsewhere what was tuned at an address of the user's own; ``tuned``: the LM of an export."""
    given = api_base or os.environ.get("OPENAI_API_BASE") or os.environ.get("OPENAI_BASE_URL")
    if tuned and tuned.get("api_base_hash") and tuned.get("model") == model and not given:
        raise ConfigError(
            f"the judge was tuned on {model} at an address of your own, which exports do not hold; contexts are sent "
            "nowhere else: give it with api_base=, on the command line --api-base."
        )


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


def base_from_environment(model: str) -> str | None:
    """The address set for the model's provider in ``<PROVIDER>_API_BASE`` or ``<PROVIDER>_BASE_URL``, if any."""
    return from_environment(model, "API_BASE") or from_environment(model, "BASE_URL")


def from_environment(model: str, name: str) -> str | None:
    """The environment variable ``<PROVIDER>_<name>`` of the model's provider, stripped; None if empty or not set."""
    provider = model.split("/", 1)[0].upper() if "/" in model else "OPENAI"
    return os.environ.get(f"{provider}_{name}", "").strip() or None


def preflight(lm: MeteredLM) -> None:
    """Find out before any work whether the LM answers, at the cost of one token at most; in two attempts.

    Raises LMUnavailableError if its endpoint cannot be reached, refuses the key, or does not have the model.
    """
    with suppress(LMUnavailableError):
        return _ask(lm)
    time.sleep(_PAUSE)
    return _ask(lm)


def _ask(lm: MeteredLM) -> None:
    base = lm.kwargs.get("api_base") or lm.kwargs.get("base_url") or base_from_environment(lm.model)
    listed, llama_cpp = _list_models(lm, base) if base and isinstance(lm.engine, str) else (set(), False)
    if "/" in lm.model and lm.model.split("/", 1)[-1] in listed:
        return
    # Reasoning models refuse small limits; the Responses API wants 16 at least.
    few = 16 if lm.model_type == "responses" else 1
    limit: dict[str, Any] = {} if "max_completion_tokens" in lm.kwargs else {"max_tokens": few}
    try:
        lm.copy(num_retries=0)("Say yes.", cache=False, **limit)
        if not llama_cpp:
            return
        # The judge would be filed under a model that it never asked.
        why, near = "is not what answers: llama.cpp takes any name for the model it has", ""
    except Exception as exc:  # noqa: BLE001  # whatever fails here, no work should start
        why, near = _why(exc, lm, listed)
    has = f" The endpoint has {', '.join(sorted(listed)[:_SHOWN])}." if listed else ""
    raise LMUnavailableError(f"{lm.model} {why}.{near}{has} Check the model's name, its key and the address.")


def _why(exc: Exception, lm: MeteredLM, listed: set[str]) -> tuple[str, str]:
    """What a failed call says of the LM, as the rest of a sentence; and the name that was perhaps meant."""
    import dspy
    import litellm

    said = str(getattr(exc, "message", None) or exc)
    provider, _, name = lm.model.partition("/")
    if isinstance(exc, dspy.LMNotConfiguredError):
        keys = dict.fromkeys(re.findall(r"[A-Z0-9_]+_API_KEY", said)) or [f"{provider.upper()}_API_KEY"]
        return f"needs a key, and {' or '.join(keys)} is not set in the environment", ""
    if "LLM Provider NOT provided" in said:
        why = "has no known provider: expected provider/model, such as openai/gpt-4o-mini"
        return why, did_you_mean(provider, ["local", *(str(getattr(p, "value", p)) for p in litellm.provider_list)])
    if isinstance(exc, dspy.LMAuthError):
        return f"does not answer: its key is wrong, expired or not set ({redact(said, lm)})", ""
    if isinstance(exc, dspy.LMUnsupportedModelError):
        known = listed or {m.rpartition("/")[2] for m in litellm.models_by_provider.get(provider, ())}
        return f"does not answer: there is no model {name!r}", did_you_mean(name, known)
    return f"does not answer: {redact(said, lm)}", ""


def _list_models(lm: MeteredLM, base: str) -> tuple[set[str], bool]:
    """The endpoint's models, empty if it is there but does not list them; and whether it is llama.cpp."""
    import httpx

    key = lm.kwargs.get("api_key")
    headers = {"Authorization": f"Bearer {key}"} if isinstance(key, str) else {}
    try:
        reply = httpx.get(f"{base.rstrip('/')}/models", headers=headers, timeout=_TIMEOUT, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        why = "connection refused" if isinstance(exc, httpx.ConnectError) else f"no answer ({type(exc).__name__})"
        raise LMUnavailableError(
            f"{why} at {shown_base(base)}: is the server running, and is this its address?"
        ) from None
    try:
        models = reply.raise_for_status().json()["data"]
        names = {n for m in models for n in (m["id"], *(m.get("aliases") or ()), m["id"].removesuffix(":latest"))}
        return names, any(m.get("owned_by") == "llamacpp" for m in models)
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError, AttributeError):
        return set(), False
