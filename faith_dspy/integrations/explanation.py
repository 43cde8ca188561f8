"""A judgment in the words and the one number that other libraries' results have room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.schema import Judgment


def explain(judgment: Judgment) -> str:
    """Why: each statement's verdict, chunk ids and reason; or why there is no score, beginning with ``unscored``."""
    if judgment.unscored is not None:
        return f"unscored ({judgment.unscored.value}): {judgment.detail or 'no more is known'}"
    supported = sum(bool(s.is_supported) for s in judgment.statements)
    lines = [f"{supported} of {len(judgment.statements)} statements supported"] if judgment.statements else []
    for s in judgment.statements:
        ids = f" {list(s.supporting_chunk_ids)}" if s.supporting_chunk_ids else ""
        reason = s.reason or s.error
        lines.append(f"{s.verdict.value if s.verdict else 'unjudged'}{ids}: {s.text}{f' – {reason}' if reason else ''}")
    return "\n".join([*lines, *([judgment.detail] if judgment.detail else [])])


def value(judgment: Judgment) -> float | None:
    """The calibrated probability of a tuned judge, else the score; None when unscored."""
    return judgment.score if judgment.probability is None else judgment.probability


def pass_mark(judge: Judge) -> float:
    """The `value` from which the judge passes an answer: fitted by tuning, else `JudgeConfig.threshold`.

    Without either 1.0, every statement; of a five-level verdict 0.5.
    """
    if judge.classifier is not None:
        return judge.classifier.threshold
    if judge.config.threshold is not None:
        return judge.config.threshold
    return 0.5 if str(judge.config.verdicts) == "five_level" else 1.0
