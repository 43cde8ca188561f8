"""Exports of older formats, brought to the present one: a step per version.

Version 2 renamed keys and predictors, calls the LM's feature ``lm``, and has one instruction and one logit a verdict.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import ArtifactError

if TYPE_CHECKING:
    from pathlib import Path

_RENAMED = {
    "head": "classifier",
    "band": "review_range",
    "uncertain": "review_range",
    "observation": "raw_judgment",
    "findings": "raw_verdicts",
    "signals": "features",
    "aim": "operating_point",
    "baseline_agreement": "untuned_agreement",
    "floor_agreement": "lexical_baseline_agreement",
    "baseline": "untuned",
    "floor-overlap": "lexical-baseline",
}
"""Names in version 1, wherever they stand, and what they are now."""
_REMOVED = ("supported_from", "system_prompt")
"""Options of version 1 that are gone: a judge that has one cannot be kept."""


def upgraded_manifest(manifest: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``judge.json`` of any version as one of the present version. `ArtifactError` if the judge cannot be kept."""
    if manifest["format_version"] > 1:
        return manifest
    upgraded: dict[str, Any] = _renamed(manifest)
    config = upgraded["config"]
    instruction, *others = config.pop("instructions", None) or ["supported"]
    answer = (upgraded.get("classifier") or {}).get("answer") or {}
    answer.pop("unjudged", None)  # a probability that is no longer used
    gone = [
        *["it asks several instructions"] * bool(others),
        *["it calibrates by isotonic regression"] * bool(answer.pop("isotonic", None)),
        *(f"it has the option {name}" for name in _REMOVED if config.get(name) not in (None, "")),
    ]
    if gone:
        raise ArtifactError(
            f"{folder}: {gone[0]}, which this faith_dspy no longer does. Tune the judge again on its labels, or "
            "install faith_dspy 0.1.0, which wrote it."
        )
    kept = {name: value for name, value in config.items() if name not in _REMOVED}
    if kept.get("ask_about") == "novel":
        kept["ask_about"] = "weakest" if kept.get("granularity") == "answer" else "all"
    return {**upgraded, "format_version": 2, "config": {**kept, "instruction": instruction}}


def _renamed(value: Any) -> Any:
    """The same with the names of this format: keys, the logit of a verdict, and the LM's feature."""
    if isinstance(value, dict):
        renamed = {_RENAMED.get(key, _feature(key)): _renamed(v) for key, v in value.items()}
        if isinstance(renamed.get("logits"), dict):
            renamed["logit"] = next(iter(renamed.pop("logits").values()), None)
        return renamed
    return [_renamed(v) for v in value] if isinstance(value, list) else _feature(value)


def _feature(name: Any) -> Any:
    """``lm``, which version 1 called ``lm:`` and the instruction's name."""
    return "lm" if isinstance(name, str) and re.fullmatch(r"lm:\w+", name) else name


def upgraded_program(state: dict[str, Any], version: int) -> dict[str, Any]:
    """``program.json``, its predictors named as now."""
    if version > 1:
        return state
    return {re.sub(r"\bask\[0\]$", "predict", name): predictor for name, predictor in state.items()}
