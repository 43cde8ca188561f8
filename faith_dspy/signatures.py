"""Seed prompts: what the LM is asked, as DSPy signatures.

An instruction has two parts, divided by its last blank line. What comes before stands once at the top of the prompt.
The last paragraph is asked at the very end, after the statement, where a small LM heeds it best – and where several
instructions can be asked about one statement while the server's prefix cache holds everything above them.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import dspy

from faith_dspy.schema import Verdict


class ExtractStatements(dspy.Signature):
    """You take an answer apart into statements that can be checked one by one.

    Rewrite each numbered sentence as one or more short statements, each a single complete fact. Keep the sentence's
    number in front of each statement. Replace pronouns by what they stand for. Keep numbers, names and hedges as they
    are. Add nothing. For a sentence that states no fact write: none."""

    question: str = dspy.InputField()
    sentences: list[str] = dspy.InputField()
    statements: list[str] = dspy.OutputField(desc="one a line: number of the sentence, then the statement")


class VerifyStatement(dspy.Signature):
    """You check statements against a context. Use only the context.

    Is the statement fully supported by the context? Answer Yes or No."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    statement: str = dspy.InputField()
    verdict: Literal["Yes", "No"] = dspy.OutputField()


class CiteStatement(VerifyStatement):
    """You check statements against a context. Use only the context.

    Is the statement fully supported by the context? Answer Yes or No, then the ids of the passages that show it, \
for example: Yes [0, 2]"""

    supporting_chunk_ids: list[int] = dspy.OutputField()


_TOP = "You check statements against a context. Use only the context.\n\n"


class Instruction(NamedTuple):
    """One way to ask for a verdict: the prompt and what its labels mean."""

    text: str
    labels: dict[str, float]
    """Label → how much support it stands for, in [0, 1]. The expected value under the LM is the probability."""
    verdicts: dict[str, Verdict]
    """Label → verdict."""

    def signature(self, *, cite: bool = False, criteria: str = "") -> type[dspy.Signature]:
        """The signature that asks this instruction."""
        base = CiteStatement if cite else VerifyStatement
        text = base.instructions if cite and self is INSTRUCTIONS["supported"] else self.text
        if criteria:
            top, _, ask = text.rpartition("\n\n")
            text = f"{top}\n{criteria}\n\n{ask}"
        labels: Any = Literal[tuple(self.labels)]
        signature: type[dspy.Signature] = base.with_instructions(text).with_updated_fields("verdict", type_=labels)
        return signature


def _binary(text: str, yes: str, no: str) -> Instruction:
    return Instruction(
        _TOP + text,
        {yes: 1.0, no: 0.0},
        {yes: Verdict.FULLY_SUPPORTED, no: Verdict.NOT_SUPPORTED},
    )


INSTRUCTIONS: dict[str, Instruction] = {
    "supported": _binary("Is the statement fully supported by the context? Answer Yes or No.", "Yes", "No"),
    "every_detail": _binary(
        "Does the context say everything that the statement says, every detail included? Answer Yes or No.",
        "Yes",
        "No",
    ),
    "graded": Instruction(
        _TOP + "What does the context say about the statement? Answer with one word: fully (it supports all of it), "
        "partly (it supports some of it), nothing (it has no evidence), or contradicts.",
        {"fully": 1.0, "partly": 0.5, "nothing": 0.0, "contradicts": 0.0},
        {
            "fully": Verdict.FULLY_SUPPORTED,
            "partly": Verdict.PARTIALLY_SUPPORTED,
            "nothing": Verdict.NO_EVIDENCE,
            "contradicts": Verdict.CONTRADICTORY,
        },
    ),
    "strict": _binary(
        "You are a careful fact-checker who accepts nothing beyond the text. Does the context itself state everything "
        "in the statement? Answer Yes or No.",
        "Yes",
        "No",
    ),
    "lenient": _binary("Is the statement in line with what the context says? Answer Yes or No.", "Yes", "No"),
    "inferable": _binary(
        "Would somebody who has read nothing but the context conclude that the statement is true? Answer Yes or No.",
        "Yes",
        "No",
    ),
    "grounded": _binary(
        "Is the statement grounded in the context, or is some of it invented? Answer Grounded or Invented.",
        "Grounded",
        "Invented",
    ),
    "true_false_unknown": Instruction(
        _TOP + "Going by the context alone, is the statement True, False or Unknown? Answer True, False or Unknown.",
        {"True": 1.0, "False": 0.0, "Unknown": 0.0},
        {"True": Verdict.FULLY_SUPPORTED, "False": Verdict.CONTRADICTORY, "Unknown": Verdict.NO_EVIDENCE},
    ),
}
"""The bank of seed instructions, by the names `JudgeConfig.instructions` takes."""
