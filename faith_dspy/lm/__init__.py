"""Language models: any DSPy/LiteLLM model string, or the embedded one; counted, identified, checked before use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faith_dspy.lm.endpoint import LMIdentity, identity, need_address, preflight
    from faith_dspy.lm.make import make_lm
    from faith_dspy.lm.meter import Limits, Meter, metered
    from faith_dspy.lm.metered_lm import MeteredLM

__all__ = ["LMIdentity", "Limits", "Meter", "MeteredLM", "identity", "make_lm", "metered", "need_address", "preflight"]

# Resolved on first use: importing dspy takes half a second.
_HOME = {
    "LMIdentity": "endpoint",
    "Limits": "meter",
    "Meter": "meter",
    "MeteredLM": "metered_lm",
    "identity": "endpoint",
    "make_lm": "make",
    "metered": "meter",
    "need_address": "endpoint",
    "preflight": "endpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"faith_dspy.lm.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
