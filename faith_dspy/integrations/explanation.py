"""A judgment as the number and the text that other libraries' results hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faith_dspy.schema import Judgment


def explain(judgment: Judgment) -> str:
    """Each statement's verdict, chunk ids and reason; or why there is no score, beginning with ``unscored``."""
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
