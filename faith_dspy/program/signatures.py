"""Seed prompts: what the LM is asked, as DSPy signatures.

An instruction has two parts, divided by its last blank line. What comes before stands once at the top of the prompt.
The last paragraph is asked at the very end, after the statement, where a small LM heeds it best, and where it does not
keep the server's prefix cache from holding everything above it.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import dspy
from pydantic import ConfigDict, create_model

from faith_dspy.config import JudgeConfig
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


class VerifyStatements(dspy.Signature):
    """All statements of an answer at once, for DSPy's own JSON adapter."""

    context: dict[int, str] = dspy.InputField(desc="chunks by their ids")
    question: str = dspy.InputField()
    statements: dict[int, str] = dspy.InputField(desc="by their numbers")


_TOP = "You check statements against a context. Use only the context."
_LENIENT = "What plainly follows from the context counts as supported, too."
_CITE = " Then give the ids of the passages that show it, for example: [0, 2]"
_CITE_IN_ANSWER = ", then the ids of the passages that show it, for example: Yes [0, 2]"  # of the seed prompt
_QUOTE = " Quote the shortest words of the context that show it, exactly as they stand there."
_AFTER = " Then say why in one short sentence."
_BEFORE = "First think in one or two short sentences, then answer. "
_JOINT = " Give one verdict for each statement."


class Instruction(NamedTuple):
    """One way to ask for a verdict: the prompt's last paragraph, and what its labels mean."""

    ask: str
    verdicts: dict[str, Verdict]
    levels: tuple[float, ...] = ()
    """How much support each label stands for, where its verdict does not say."""

    @property
    def labels(self) -> dict[str, float]:
        """Label → how much support it stands for, in [0, 1]. The expected value under the LM is the probability."""
        known = self.levels or [_SUPPORT.get(verdict, 0.0) for verdict in self.verdicts.values()]
        return dict(zip(self.verdicts, known, strict=True))

    @property
    def text(self) -> str:
        """The whole prompt."""
        return f"{_TOP}\n\n{self.ask}"


_SUPPORT = {Verdict.FULLY_SUPPORTED: 1.0, Verdict.PARTIALLY_SUPPORTED: 0.5}
_YES_NO = {"Yes": Verdict.FULLY_SUPPORTED, "No": Verdict.NOT_SUPPORTED}

INSTRUCTIONS: dict[str, Instruction] = {
    "supported": Instruction("Is the statement fully supported by the context? Answer Yes or No.", _YES_NO),
    "every_detail": Instruction(
        "Does the context say everything that the statement says, every detail included? Answer Yes or No.", _YES_NO
    ),
    "graded": Instruction(
        "What does the context say about the statement? Answer with one word: fully (it supports all of it), "
        "partly (it supports some of it), nothing (it has no evidence), or contradicts.",
        {
            "fully": Verdict.FULLY_SUPPORTED,
            "partly": Verdict.PARTIALLY_SUPPORTED,
            "nothing": Verdict.NO_EVIDENCE,
            "contradicts": Verdict.CONTRADICTORY,
        },
    ),
    "grounded": Instruction(
        "Is the statement grounded in the context, or is some of it invented? Answer Grounded or Invented.",
        {"Grounded": Verdict.FULLY_SUPPORTED, "Invented": Verdict.NOT_SUPPORTED},
    ),
    "true_false_unknown": Instruction(
        "Going by the context alone, is the statement True, False or Unknown? Answer True, False or Unknown.",
        {"True": Verdict.FULLY_SUPPORTED, "False": Verdict.CONTRADICTORY, "Unknown": Verdict.NO_EVIDENCE},
    ),
    "five_level": Instruction(
        "How far does the context support the statement? What the context does not say is not supported, even "
        "if nothing speaks against it. Answer with one word: completely (all of it is supported), generally (most of "
        "it is, with minor issues), mixed (some of it is supported and some is not), hardly (most of it is not "
        "supported), or not (it is made up, or the context contradicts it).",
        {
            "not": Verdict.NOT_SUPPORTED,
            "hardly": Verdict.NO_EVIDENCE,
            "mixed": Verdict.PARTIALLY_SUPPORTED,
            "generally": Verdict.PARTIALLY_SUPPORTED,
            "completely": Verdict.FULLY_SUPPORTED,
        },
        levels=(0.0, 0.25, 0.5, 0.75, 1.0),
    ),
}
"""The bank of seed instructions, by the names `JudgeConfig.instruction` takes."""


def extraction_of(config: JudgeConfig) -> type[dspy.Signature]:
    """The signature that takes an answer apart, with the user's own words as `signature_of` has them."""
    top, _, ask = ExtractStatements.instructions.rpartition("\n\n")
    made: type[dspy.Signature] = ExtractStatements.with_instructions(f"{_top(config, top)}\n\n{ask}")
    return made


def _top(config: JudgeConfig, ours: str, *more: str) -> str:
    return "\n".join(filter(None, (config.system_prompt or ours, *more, config.criteria)))


def signature_of(config: JudgeConfig, *, joint: bool = False) -> type[dspy.Signature]:
    """The signature that a judge of this config asks; ``joint``: about all statements at once.

    The order of its output fields is the order of the reply. The output of a joint one, ``verdicts``, is a list of
    models with these fields and the ``statement``'s number.
    """
    instruction, cite, quote, reasoning = INSTRUCTIONS[config.instruction], config.cite, config.quote, config.reasoning
    ask = instruction.ask
    in_answer = cite and config.instruction == "supported" and not joint
    if in_answer:
        ask = ask.removesuffix(".") + _CITE_IN_ANSWER
    if config.system_prompt:  # of our question the labels are left, without what they mean
        ask = re.sub(r" \([^)]*\)", "", ask[ask.index("Answer") :])
    if cite:
        ask += ("" if in_answer else _CITE) + ("." if quote or joint or reasoning == "after" else "")
    ask = (_BEFORE if reasoning == "before" else "") + ask
    ask += (_QUOTE if quote else "") + (_AFTER if reasoning == "after" else "") + (_JOINT if joint else "")
    top = _top(config, _TOP, _LENIENT if config.strictness == "lenient" else "")
    fields: dict[str, Any] = {
        **({"reason": str} if reasoning == "before" else {}),
        "verdict": Literal[tuple(instruction.labels)],
        **({"supporting_chunk_ids": list[int]} if cite else {}),
        **({"quotes": list[str]} if quote else {}),
        **({"reason": str} if reasoning == "after" else {}),
    }
    made: type[dspy.Signature] = VerifyStatement.delete("verdict")
    if joint:
        typed: Any = {"statement": (int, ...), **{name: (kind, ...) for name, kind in fields.items()}}
        entry: Any = create_model("StatementVerdict", __config__=ConfigDict(extra="forbid"), **typed)
        made, fields = VerifyStatements, {"verdicts": list[entry]}
    made = made.with_instructions(f"{top}\n\n{ask}")
    for name, kind in fields.items():
        made = made.append(name, dspy.OutputField(), kind)
    return made
