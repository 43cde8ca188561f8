"""The program of a judge that asks a function: the same sentences, and no prompts."""

from __future__ import annotations

from collections.abc import Sequence

import dspy

from faith_dspy.errors import FaithDspyError, InputError
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
        """Return the function's verdicts; where it raises an exception, each has failed."""
        texts = [chunk.text for chunk in context]
        claims = [Claim(one.text, texts, question) for one in statements]
        try:
            replies = dspy.settings.lm(claims) if claims else []
        except FaithDspyError:
            raise
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever the user's function raises
            return Verified([failed_verdict(one, exc) for one in statements], 0)
        return Verified(list(map(_verdict, statements, replies)), 0)


def _verdict(statement: Statement, reply: float | None) -> RawVerdict:
    """Return a function's reply as the verdict of an LM that tells probabilities, or none for True and False."""
    if reply is None or not 0 <= reply <= 1:
        why = f"the function returned {reply}, expected a probability from 0 to 1"
        if reply is None:
            why = "the function could not judge it"
        return failed_verdict(statement, InputError(why))
    label = "Yes" if reply >= 0.5 else "No"
    verdict = read_verdict({"verdict": label}, statement, _BINARY, ())
    if isinstance(reply, bool):
        return verdict
    support = expected_support({"Yes": reply, "No": 1 - reply}, _BINARY)
    return verdict.model_copy(update=support)
