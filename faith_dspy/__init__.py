"""Tune an LLM judge of faithfulness on your own labels, and know how often it agrees with you."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faith_dspy.config import JudgeConfig
    from faith_dspy.judge import Judge
    from faith_dspy.load import load_judge, open_judge
    from faith_dspy.optimize import tune
    from faith_dspy.schema import (
        Chunk,
        Judgment,
        LabelledExample,
        StatementVerdict,
        Unscored,
        Verdict,
    )

__version__ = "1.0.0"
__all__ = [
    "Chunk",
    "Judge",
    "JudgeConfig",
    "Judgment",
    "LabelledExample",
    "StatementVerdict",
    "Unscored",
    "Verdict",
    "load_judge",
    "open_judge",
    "tune",
]

# Resolved on first use, so that `import faith_dspy` and `--help` stay instant.
_HOME = {
    "Judge": "judge",
    "JudgeConfig": "config",
    "Judgment": "report.judgment",
    "load_judge": "load",
    "open_judge": "load",
    "tune": "optimize",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    from importlib import import_module

    return getattr(import_module(f"faith_dspy.{_HOME.get(name, 'schema')}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
