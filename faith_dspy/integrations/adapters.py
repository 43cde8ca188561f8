"""What the adapters share: the judge behind each of them, and its judgment in words and as a number."""

from __future__ import annotations

import re
from typing import Any

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError
from faith_dspy.io.inputs import value_of
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.load import names_lm, open_judge
from faith_dspy.report.judgment import decided_by, supported
from faith_dspy.schema import Judgment, StatementVerdict

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
"""What a client's class or module has in its name, or a model's bare name begins with, and LiteLLM's provider for it.
The first that fits counts."""


def judge_of(defaults: dict[str, Any], model: Any = None, **options: Any) -> Judge:
    """The judge behind an adapter: ``model`` where it is one, else one with the system's ``defaults``.

    ``model``: nothing (the embedded model), a model's name, ``none`` (no LM, and our defaults), the folder or MLflow
    address of a tuned judge, a `dspy.LM`, or an LM or client of the system's own, whose model, address and key are
    taken. ``options`` of `JudgeConfig` come first unless they are None. A judge has its own: any other but
    ``verdict_scores`` is a `ConfigError`, as its verdicts and probabilities were fitted without it.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if isinstance(model, str) and (
        model == NO_LM or not names_lm(_named(model, model))
    ):
        model = open_judge(model)
    if isinstance(model, Judge):
        return _weighted(model, options)
    lm, endpoint = _lm_of(model)
    return open_judge(lm, **endpoint, **defaults | options)


def _weighted(judge: Judge, options: dict[str, Any]) -> Judge:
    """The judge, and the one it escalates to, with other weights of verdicts."""
    for name, value in options.items():
        if name != "verdict_scores" and getattr(judge.config, name, None) != value:
            raise ConfigError(
                f"{judge!r} was made without {name}={value!r}, so its verdicts and probabilities do not hold for it. "
                f"Leave it out, make the judge with it (Judge(…, {name}=…)), or give the LM in place of the judge."
            )
    if not options:
        return judge
    config = JudgeConfig.make(**judge.config.model_dump(exclude_unset=True) | options)
    return judge.copy(
        config=config,
        escalate_to=judge.escalate_to and _weighted(judge.escalate_to, options),
    )


def _lm_of(model: Any) -> tuple[Any, dict[str, Any]]:
    """The LM as `Judge` takes it, and its endpoint's address and key."""
    if model is None or isinstance(model, str):
        return _named(model or "local", model or ""), {}
    if any(c.__module__.startswith("dspy.") for c in type(model).__mro__):
        return model, {}
    inner = next(
        (
            v
            for n in ("langchain_llm", "llm", "client")
            if (v := getattr(model, n, None)) is not None
        ),
        None,
    )
    places = [
        model,
        getattr(model, "kwargs", None),
        inner,
        getattr(inner, "client", None),
    ]  # kwargs: instructor's

    def first(*names: str) -> str | None:
        values = (
            value_of(place, name)
            for place in places
            if place is not None
            for name in names
        )
        shown = (
            value.get_secret_value() if hasattr(value, "get_secret_value") else value
            for value in values
        )
        return next(
            (
                str(value)
                for value in shown
                if isinstance(value, str) or type(value).__name__ == "URL"
            ),
            None,
        )

    name = first("deployment_name", "model", "model_name", "model_id")
    if name is None:
        raise ConfigError(
            f"{type(model).__name__} does not tell which model it asks; name it instead, such as 'openai/gpt-4o-mini' "
            "(address and key by OPENAI_API_BASE and OPENAI_API_KEY), or give a dspy.LM or a Judge."
        )
    kinds = " ".join(
        f" {type(p).__module__}.{type(p).__name__}" for p in places
    ).lower()
    return _named(name, kinds), {
        "api_base": first("base_url", "openai_api_base", "azure_endpoint", "host"),
        "api_key": first("api_key", "openai_api_key"),
    }


def _named(model: str, told_by: str) -> str:
    provider = next(
        (p for words, p in _PROVIDERS.items() if re.search(words, told_by)), ""
    )
    return (
        f"{provider}/{model}"
        if provider and "/" not in model and not model.startswith("local")
        else model
    )


def prompt_of(defaults: dict[str, Any]) -> str:
    """What a judge with these options asks about a statement."""
    from faith_dspy.program.signatures import build_verification_signature

    return str(build_verification_signature(JudgeConfig.make(**defaults)).instructions)


def explain(judgment: Judgment) -> str:
    """Each statement's verdict, chunk ids and reason; or why there is no score, beginning with ``unscored``."""
    if judgment.unscored is not None:
        return f"unscored ({judgment.unscored.value}): {judgment.detail or 'no more is known'}"
    by = supported(judgment) if judgment.probability is None else decided_by(judgment)
    return "\n".join(
        filter(None, [by, *map(line_of, judgment.statements), judgment.detail])
    )


def line_of(s: StatementVerdict) -> str:
    """A statement with its verdict, chunk ids and reason."""
    ids = f" {list(s.supporting_chunk_ids)}" if s.supporting_chunk_ids else ""
    reason = s.reason or s.error
    return f"{s.verdict.value if s.verdict else 'unjudged'}{ids}: {s.text}{f' – {reason}' if reason else ''}"


def value(judgment: Judgment) -> float | None:
    """The calibrated probability of a tuned judge, else the score; None when unscored."""
    return judgment.score if judgment.probability is None else judgment.probability
