"""Which statements the LM is asked about: the option ``ask_about="weakest"``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.schema import RawVerdict, Usage, Verdict
from faith_dspy.text.features import is_covered, novelty

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import Statement
    from faith_dspy.text.context import IndexedContext


def verdicts_without_lm(statements: Sequence[Statement], indexed: IndexedContext) -> list[RawVerdict | None]:
    """Verdicts on the statements that need no LM; None for the one it is asked about, if any.

    A statement that is covered by the context's words is supported with probability 1. Of the others the LM is asked
    about the one with the most novelty; the rest are presumed supported, without a probability.
    """
    verdicts = [_supported(s, certain=True) if is_covered(s.text, indexed) else None for s in statements]
    uncovered = [i for i, v in enumerate(verdicts) if v is None]
    if uncovered:
        weakest = max(uncovered, key=lambda i: novelty(statements[i].text, indexed))
        for i in uncovered:
            verdicts[i] = None if i == weakest else _supported(statements[i], certain=False)
    return verdicts


def combine_verdicts(without_lm: Sequence[RawVerdict | None], asked: Sequence[RawVerdict]) -> list[RawVerdict]:
    """All verdicts in the answer's order: those of `verdicts_without_lm`, its gaps filled from ``asked``.

    If the LM could not judge the weakest statement, nothing can be presumed of the others: they become unjudged, too.
    """
    replies = iter(asked)
    failed = next((v for v in asked if v.verdict is None), None)
    out = []
    for verdict in without_lm:
        if verdict is None:
            out.append(next(replies))
        elif failed is None or verdict.probability is not None:
            out.append(verdict)
        else:
            same = {"text": verdict.text, "sentence_index": verdict.sentence_index, "usage": Usage()}
            out.append(failed.model_copy(update=same))
    return out


def _supported(statement: Statement, *, certain: bool) -> RawVerdict:
    return RawVerdict(
        text=statement.text,
        sentence_index=statement.sentence_index,
        verdict=Verdict.FULLY_SUPPORTED,
        probability=1.0 if certain else None,
        level=1.0 if certain else None,
    )
