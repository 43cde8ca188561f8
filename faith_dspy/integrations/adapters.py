"""What adapters share: the judge behind each of them, what it is called with, and what other libraries take back.

Those of the five systems have the system's own names, calls, defaults and result fields; `PARITY.md` has the table.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.io.records import fields_of, value_of
from faith_dspy.report.judgment import supported

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment

DEFAULTS: dict[str, dict[str, Any]] = {
    "rag_evals": {"granularity": "statement", "reasoning": "after", "cite": True, "no_statements": 0, "abstention": 0},
    "strands": {"granularity": "answer", "verdicts": "five_level", "reasoning": "after", "threshold": 0.5},
    "continuous_eval": {"granularity": "answer", "reasoning": "after"},
    "axion": {"granularity": "statement", "verdicts": "graded", "reasoning": "after", "threshold": 0.5},
    "ragas": {"granularity": "statement", "reasoning": "after"},
}
"""Options that make a judge behave as each system does unless told otherwise."""
_PROVIDERS = {
    r"bedrock|^(?:[a-z]+\.)?(?:anthropic|amazon|meta|mistral|cohere|openai|deepseek)\.": "bedrock",
    "azure": "azure",
    "ollama": "ollama_chat",
    "litellm": "",
    "anthropic|^claude": "anthropic",
    "gemini|genai": "gemini",
    "mistral": "mistral",
    r"openai|^(?:gpt|o\d|chatgpt)": "openai",
}
"""What the class or module of a client has in its name, or begins a model's bare name, and LiteLLM's provider for it.
The first that fits counts."""

log = logging.getLogger(__name__)


def judge_of(system: str, model: Any = None, **options: Any) -> Judge:
    """The judge behind an adapter: ``model`` where it is one, else one with the system's `DEFAULTS`.

    ``model``: nothing (the embedded model), a model's name, ``none`` (no LM, and our defaults), the folder or MLflow
    address of a tuned judge, a `dspy.LM`, or an LM or client of the system's own, whose model, address and key are
    taken. ``options`` of `JudgeConfig` come first unless they are None, but a judge keeps its granularity.
    """
    from faith_dspy.config import JudgeConfig
    from faith_dspy.export import load_judge
    from faith_dspy.judge import NO_LM, Judge

    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(model, str) and (model.startswith("models:/") or (Path(model) / "judge.json").is_file()):
        model = load_judge(model)
    elif isinstance(model, str) and model == NO_LM:
        model = Judge(NO_LM)
    if isinstance(model, Judge):
        own = {k: v for k, v in options.items() if k != "granularity"}  # it was tuned on its own
        dropped = {"verdict_scores"} if "strict_mode" in own else set()
        known = model.config.model_dump(exclude_unset=True, exclude=dropped)
        return model.copy(config=JudgeConfig.make(**known | own)) if own else model
    lm, endpoint = _lm_of(model)
    return Judge(lm, **endpoint, **DEFAULTS[system] | options)


def _lm_of(model: Any) -> tuple[Any, dict[str, Any]]:
    """The LM as `Judge` takes it, and its endpoint's address and key."""
    if model is None or isinstance(model, str):
        return _named(model or "local", model or ""), {}
    if any(c.__module__.startswith("dspy.") for c in type(model).__mro__):
        return model, {}
    inner = next((v for n in ("langchain_llm", "llm", "client") if (v := getattr(model, n, None)) is not None), None)
    client = getattr(inner, "client", None)
    kinds = " ".join(f"{type(m).__module__}.{type(m).__name__}" for m in (model, inner, client)).lower()
    places = [model, getattr(model, "kwargs", None), inner, client]  # the second is instructor's

    def first(*names: str) -> str | None:
        found = (value_of(p, n) for p in places if p is not None for n in names)
        return next((str(v) for v in found if isinstance(v, str) or type(v).__name__ == "URL"), None)

    name = first("model", "model_name", "model_id")
    if name is None:
        log.warning(
            "%s names no model, so the embedded one judges; give a name, such as 'openai/gpt-4o-mini', or a Judge",
            type(model).__name__,
        )
        return "local", {}
    endpoint = {"api_base": first("base_url", "openai_api_base", "host"), "api_key": first("api_key")}
    return _named(name, f" {kinds}"), endpoint


def _named(model: str, told_by: str) -> str:
    provider = next((p for words, p in _PROVIDERS.items() if re.search(words, told_by)), "")
    return f"{provider}/{model}" if provider and "/" not in model and not model.startswith("local") else model


def asked(datum: Any) -> dict[str, Any]:
    """What a judge is called with, of one datum of any of these libraries."""
    return {field: value for field, value in fields_of(datum).items() if field != "id"}


def explain(judgment: Judgment) -> str:
    """Each statement's verdict, chunk ids and reason; or why there is no score, beginning with ``unscored``."""
    if judgment.unscored is not None:
        return f"unscored ({judgment.unscored.value}): {judgment.detail or 'no more is known'}"
    lines = [supported(judgment)] if judgment.statements else []
    for s in judgment.statements:
        ids = f" {list(s.supporting_chunk_ids)}" if s.supporting_chunk_ids else ""
        reason = s.reason or s.error
        lines.append(f"{s.verdict.value if s.verdict else 'unjudged'}{ids}: {s.text}{f' – {reason}' if reason else ''}")
    return "\n".join([*lines, *([judgment.detail] if judgment.detail else [])])


def value(judgment: Judgment) -> float | None:
    """The calibrated probability of a tuned judge, else the score; None when unscored."""
    return judgment.score if judgment.probability is None else judgment.probability
