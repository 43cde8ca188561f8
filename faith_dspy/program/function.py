"""The program of a judge that asks a function: the same sentences, and no prompts."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

import dspy

from faith_dspy.errors import FaithDspyError, InputError, counted
from faith_dspy.lm.function import Claim
from faith_dspy.program.program import FaithfulnessProgram, Verified
from faith_dspy.program.reply import expected_support, read_verdict
from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.program.verifier import failed_verdict
from faith_dspy.schema import Chunk, RawVerdict, Statement

_BINARY = INSTRUCTIONS["binary"]


class FunctionProgram(FaithfulnessProgram):
    """Asks the function in `dspy.settings` about all statements of an answer at once."""

    @property
    def prompts(self) -> dict[str, dspy.Predict]:
        """None."""
        return {}

    def verify_statements(
        self,
        statements: Sequence[Statement],
        context: Sequence[Chunk],
        question: str | None,
    ) -> Verified:
        """Return the function's verdicts; an exception, or another number of values, fails them all."""
        texts = [chunk.text for chunk in context]
        claims = [Claim(one.text, texts, question) for one in statements]
        error: Exception
        try:
            replies = dspy.settings.lm(claims) if claims else []
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - whatever the user's function raises
            error = exc
        else:
            if len(replies) == len(claims):
                return Verified(list(map(_verdict, statements, replies)), 0)
            values, wanted = (
                counted(len(replies), "value"),
                counted(len(claims), "claim"),
            )
            error = InputError(f"the function returned {values} for {wanted}")
        return Verified([failed_verdict(one, error) for one in statements], 0)


def _verdict(statement: Statement, reply: Any) -> RawVerdict:
    """Return a function's reply as the verdict of an LM that tells probabilities, or none for True and False."""
    if reply is None:
        return failed_verdict(statement, InputError("the function could not judge it"))
    try:
        probability = float(reply)
    except (TypeError, ValueError):
        probability = nan
    if not 0 <= probability <= 1:
        why = f"the function returned {reply!r:.80}, expected a probability from 0 to 1"
        return failed_verdict(statement, InputError(why))
    supported, unsupported = _BINARY.labels
    label = supported if probability >= 0.5 else unsupported
    verdict = read_verdict({"verdict": label}, statement, _BINARY, ())
    if isinstance(reply, bool):
        return verdict
    shares = {supported: probability, unsupported: 1 - probability}
    return verdict.model_copy(update=expected_support(shares, _BINARY))
