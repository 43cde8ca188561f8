"""What the adapters share: the judge behind each of them, and its judgment in words and as a number."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError
from faith_dspy.judge import NO_LM, Judge
from faith_dspy.lm.addresses import is_provider
from faith_dspy.load import names_lm, open_judge
from faith_dspy.report.judgment import decided_by, supported
from faith_dspy.schema import Judgment, StatementVerdict


def judge_of(
    defaults: dict[str, Any],
    model: Any = None,
    *,
    system_prompt: str | None = None,
    extraction_prompt: str | None = None,
    demos: Mapping[str, list[Any]] | None = None,
    checks_statements: bool = True,
    **options: Any,
) -> Judge:
    """Return the judge behind an adapter.

    Args:
        defaults: Options of the adapter's library, and its ``demos``, for a judge that has none of its own.
        model: What `open_judge` takes: a judge, its folder or MLflow address, a model's name or a `dspy.LM`; a model's
            name as other libraries write it (``gpt-4o-mini``, ``openai:gpt-4o-mini``, ``openai:/gpt-4o-mini``); or a
            model or client of another library, which is asked itself (`client_lm`). None: the embedded model.
        system_prompt: In place of ours where a statement is verified; of that the form of the reply stays.
        extraction_prompt: In place of ours where an answer is taken apart.
        demos: By the names of the program's predictors.
        checks_statements: Whether the LM's statements may say only what the answer says; of a new judge.
        options: Those of `JudgeConfig`, which come before the defaults; None stands for none. A judge that has its own
            takes ``verdict_scores`` alone, as its verdicts and probabilities were fitted without the others.

    Raises:
        ConfigError: An option that the judge was not made with, or a model that cannot be asked.
    """
    options = {name: value for name, value in options.items() if value is not None}
    source: Any = "local" if model is None else model
    if isinstance(model, str):
        source = model_string(model)
    is_judge = isinstance(source, Judge | Path) or source == NO_LM
    is_place = isinstance(source, str) and not names_lm(source)
    if is_judge or is_place:
        prompts = {
            "system_prompt": system_prompt,
            "extraction_prompt": extraction_prompt,
            "demos": demos,
        }
        options = {name: value for name, value in prompts.items() if value} | options
        return _weighted(open_judge(source), options)
    if not isinstance(source, str):
        from faith_dspy.integrations.clients import client_lm

        source = client_lm(source)
    usual = {**defaults}
    usual_demos = usual.pop("demos", None)
    judge = open_judge(source, **usual | options)
    judge.program.checks_statements = checks_statements
    for name, predict in judge.program.prompts.items():
        predict.signature = _signature(
            judge.config, name, system_prompt, extraction_prompt
        )
        predict.demos = (demos or usual_demos or {}).get(name, [])
    return judge


def model_string(name: str) -> str:
    """Return DSPy's name of a model that another library's users write otherwise; any other name as it is.

    >>> model_string("gpt-4o-mini"), model_string("openai:/gpt-4o-mini"), model_string("judges/champion")
    ('openai/gpt-4o-mini', 'openai/gpt-4o-mini', 'judges/champion')
    """
    provider, colon, model = name.partition(":")
    if colon and is_provider(provider):
        return f"{provider}/{model.lstrip('/')}"
    is_own = name in (NO_LM, "local", "default")
    if is_own or "/" in name or Path(name).is_dir():
        return name
    family, dash, _ = name.partition("-")
    if dash and is_provider(family):
        return f"{family}/{name}"
    litellm = import_module("litellm")
    with suppress(litellm.BadRequestError):
        model, provider, *_ = litellm.get_llm_provider(name)
        return f"{provider}/{model}"
    return name


def _weighted(judge: Judge, options: dict[str, Any]) -> Judge:
    """Return the judge, and the one it escalates to, with other weights of verdicts."""
    for name, value in options.items():
        if name != "verdict_scores" and getattr(judge.config, name, None) != value:
            shown = repr(value)[:60]
            raise ConfigError(
                f"{judge!r} was made without {name}={shown}, so its verdicts and probabilities do not hold for it. "
                f"Leave it out, make the judge with it (Judge(…, {name}=…)), or give the LM in place of the judge."
            )
    if not options:
        return judge
    config = JudgeConfig.make(**judge.config.model_dump(exclude_unset=True) | options)
    return judge.copy(
        config=config,
        escalate_to=judge.escalate_to and _weighted(judge.escalate_to, options),
    )


def prompt_of(defaults: dict[str, Any], predictor: str = "verify.predict") -> str:
    """Return what a judge with these options asks by a predictor of its program."""
    return str(_signature(JudgeConfig.make(**defaults), predictor).instructions)


def _signature(
    config: JudgeConfig,
    predictor: str,
    system_prompt: str | None = None,
    extraction_prompt: str | None = None,
) -> Any:
    """Return what a predictor asks, with the user's prompt in place of ours where there is one."""
    from faith_dspy.program import signatures

    if predictor == "extract":
        return signatures.build_extraction_signature(config, extraction_prompt)
    return signatures.build_verification_signature(
        config, joint=predictor == "joint", prompt=system_prompt
    )


def explain(judgment: Judgment) -> str:
    """Return each statement's verdict, chunk ids and reason; or why there is no score, beginning with ``unscored``."""
    if judgment.unscored is not None:
        return f"unscored ({judgment.unscored.value}): {judgment.detail or 'no more is known'}"
    by = supported(judgment) if judgment.probability is None else decided_by(judgment)
    return "\n".join(
        filter(None, [by, *map(line_of, judgment.statements), judgment.detail])
    )


def line_of(s: StatementVerdict) -> str:
    """Return a statement with its verdict, chunk ids and reason."""
    ids = f" {list(s.supporting_chunk_ids)}" if s.supporting_chunk_ids else ""
    reason = s.reason or s.error
    return f"{s.verdict.value if s.verdict else 'unjudged'}{ids}: {s.text}{f' – {reason}' if reason else ''}"


def value(judgment: Judgment) -> float | None:
    """Return the calibrated probability of a tuned judge, else the score; None when unscored."""
    return judgment.score if judgment.probability is None else judgment.probability


def passes(judgment: Judgment, score: float | None, threshold: float | None) -> bool:
    """Return whether an answer passes: where the score that is shown reaches the user's threshold, without one as the
    judge decided; False when unscored."""
    if threshold is None or score is None:
        return bool(judgment.faithful)
    return score >= threshold
