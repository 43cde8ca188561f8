"""A judge as a Python assertion of promptfoo. In a file ``faithful.py`` beside promptfoo's own:

from faith_dspy.integrations.promptfoo import get_assert

and in ``promptfooconfig.yaml``, with options of `JudgeConfig` beside the judge if you like:

assert:
  - type: python
    value: file://faithful.py
    config: {judge: judges/champion}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from faith_dspy.errors import ConfigError, FaithDspyError
from faith_dspy.integrations.adapters import explain, judge_of, line_of, passes, value
from faith_dspy.integrations.traces import record_of_call
from faith_dspy.judge import Judge
from faith_dspy.schema import StatementVerdict


def get_assert(output: Any, context: Mapping[str, Any]) -> dict[str, Any]:
    """Judge an output against the context that the test's variables, or the provider's metadata, name as such.

    Args:
        output: The answer: a text, or an object that holds one.
        context: What promptfoo hands over: the test's ``vars``, the provider's ``metadata``, and the assertion's
            ``config``: ``judge``, as `judge_of` takes it, and options of `JudgeConfig`.

    Returns:
        promptfoo's ``GradingResult``, with a component for each statement. It passes from the assertion's
        ``threshold`` on; without one the judge decides.

    Raises:
        ConfigError: The configuration is no object, or the judge cannot be made with it.
        FaithDspyError: The answer cannot be scored; the message says why. A result would pass under ``not-python``.
    """
    options = context.get("config") or {}
    if not isinstance(options, Mapping):
        raise ConfigError(
            f"config is {options!r}, expected an object: config: {{judge: judges/champion}}"
        )
    config = json.dumps(options, sort_keys=True)
    record = record_of_call(context.get("vars"), output, context.get("metadata"))
    (judgment,) = _judge(config).batch([record], 1)
    score = value(judgment)
    if score is None:
        raise FaithDspyError(explain(judgment))
    return {
        "pass": passes(judgment, score, _threshold(context)),
        "score": score,
        "reason": explain(judgment),
        "namedScores": {"faithfulness": score},
        "componentResults": [_component(one) for one in judgment.statements],
    }


def _threshold(context: Mapping[str, Any]) -> float | None:
    """Return the threshold of the assertion. promptfoo hands over those of the test: the one with the same
    configuration is meant."""
    for assertion in (context.get("test") or {}).get("assert") or ():
        is_python = assertion.get("type") in ("python", "not-python")
        if is_python and assertion.get("config") == context.get("config"):
            threshold: float | None = assertion.get("threshold")
            return threshold
    return None


def _component(statement: StatementVerdict) -> dict[str, Any]:
    is_supported = bool(statement.is_supported)
    return {
        "pass": is_supported,
        "score": float(is_supported),
        "reason": line_of(statement),
    }


@cache
def _judge(config: str) -> Judge:
    """Return the judge of an assertion's configuration, made once in a process."""
    options = json.loads(config)
    return judge_of({}, options.pop("judge", None), **options)
