"""Tuning: labels in, champion out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faith_dspy.errors import import_optional

if TYPE_CHECKING:
    from faith_dspy.optimize.study import tune

__all__ = ["tune"]


def __getattr__(name: str) -> Any:
    if name != "tune":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import_optional("numpy", "Tuning a judge")
    from faith_dspy.optimize.study import tune

    return tune
