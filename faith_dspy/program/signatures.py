"""Seed prompts: what the LM is asked, as DSPy signatures.

An instruction has two parts, divided by its last blank line. What comes before stands once at the top of the prompt.
The last paragraph is asked at the very end, after the statement, where a small LM heeds it best, and where it does not
keep the server's prefix cache from holding everything above it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

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
    statements: list[str] = dspy.OutputField(
        desc="one a line: number of the sentence, then the statement"
    )


class VerifyStatement(dspy.Signature):
    """You check statements against a context. Use only the context.

    Is the statement fully supported by the context? Answer Yes or No."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    statement: str = dspy.InputField()
    verdict: Literal["Yes", "No"] = dspy.OutputField()


class ExplainVerdict(dspy.Signature):
    """What does the context not say, or say otherwise? Answer in one short sentence."""

    context: list[str] = dspy.InputField()
    question: str = dspy.InputField()
    statement: str = dspy.InputField()
    verdict: str = dspy.InputField()
    reason: str = dspy.OutputField()


class VerifyStatements(dspy.Signature):
    """All statements of an answer at once, for DSPy's own JSON adapter."""

    context: dict[int, str] = dspy.InputField(desc="chunks by their ids")
    question: str = dspy.InputField()
    statements: dict[int, str] = dspy.InputField(desc="by their numbers")


_TOP = "You check statements against a context. Use only the context."
_CITE = " Then give the ids of the passages that show it, for example: [0, 2]"
_QUOTE = " Quote the shortest words of the context that show it, exactly as they stand there."
_AFTER = "Then say why in one short sentence."
_BEFORE = "First think in one or two short sentences, then answer."
JOINT = "Give one verdict for each statement."


class Instruction(NamedTuple):
    """One way to ask for a verdict, and what its labels mean."""

    question: str
    reply: str
    """How to answer, with each label and what it means."""
    verdicts: dict[str, Verdict]
    """Label → verdict."""
    labels: dict[str, float]
    """Label → how much support it stands for, in [0, 1]. The expected value under the LM is the probability."""
    plain_reply: str | None = None
    """The same without what the labels mean, where a user's own words say it."""
    citing_reply: str | None = None
    """The same with an example of chunk ids, where the labels are few."""


INSTRUCTIONS: dict[str, Instruction] = {
    "binary": Instruction(
        "Is the statement fully supported by the context?",
        "Answer Yes or No.",
        {"Yes": Verdict.FULLY_SUPPORTED, "No": Verdict.NOT_SUPPORTED},
        {"Yes": 1.0, "No": 0.0},
        citing_reply="Answer Yes or No, then the ids of the passages that show it, for example: Yes [0, 2]",
    ),
    "graded": Instruction(
        "What does the context say about the statement?",
        "Answer with one word: fully (it supports all of it), partly (it supports some of it), nothing (it has no "
        "evidence), or contradicts.",
        {
            "fully": Verdict.FULLY_SUPPORTED,
            "partly": Verdict.PARTIALLY_SUPPORTED,
            "nothing": Verdict.NO_EVIDENCE,
            "contradicts": Verdict.CONTRADICTORY,
        },
        {"fully": 1.0, "partly": 0.5, "nothing": 0.0, "contradicts": 0.0},
        plain_reply="Answer with one word: fully, partly, nothing, or contradicts.",
    ),
    "five_level": Instruction(
        "How far does the context support the statement? What the context does not say is not supported, even "
        "if nothing speaks against it.",
        "Answer with one word: completely (all of it is supported), generally (most of it is, with minor issues), "
        "mixed (some of it is supported and some is not), hardly (most of it is not supported), or not (it is made up, "
        "or the context contradicts it).",
        {
            "not": Verdict.NOT_SUPPORTED,
            "hardly": Verdict.NO_EVIDENCE,
            "mixed": Verdict.PARTIALLY_SUPPORTED,
            "generally": Verdict.PARTIALLY_SUPPORTED,
            "completely": Verdict.FULLY_SUPPORTED,
        },
        {
            "not": 0.0,
            "hardly": 0.25,
            "mixed": 0.5,
            "generally": 0.75,
            "completely": 1.0,
        },
        plain_reply="Answer with one word: completely, generally, mixed, hardly, or not.",
    ),
}
"""The seed instructions, by `JudgeConfig.verdicts`."""


def build_extraction_signature(
    config: JudgeConfig, prompt: str | None = None
) -> type[dspy.Signature]:
    """Return the signature that takes an answer apart; ``prompt`` in place of its top."""
    top, _, ask = ExtractStatements.instructions.rpartition("\n\n")
    signature: type[dspy.Signature] = ExtractStatements.with_instructions(
        f"{_top(config, prompt or top)}\n\n{ask}"
    )
    return signature


def _top(config: JudgeConfig, words: str) -> str:
    return f"{words}\n{config.criteria}" if config.criteria else words


def _ask(config: JudgeConfig, *, joint: bool, has_own_question: bool) -> str:
    """Return the prompt's last paragraph: the question, unless the user has one, and the form of the reply."""
    instruction = INSTRUCTIONS[config.verdicts]
    question, reply = instruction.question, instruction.reply
    if has_own_question:
        question, reply = "", instruction.plain_reply or reply
    ask = reply
    if config.cite and instruction.citing_reply and not joint:
        ask = instruction.citing_reply
    elif config.cite:
        ask += _CITE
    if config.cite and (config.quote or joint or config.reasoning == "after"):
        ask += "."
    parts = [
        _BEFORE if config.reasoning == "before" else "",
        question,
        ask + (_QUOTE if config.quote else ""),
        _AFTER if config.reasoning == "after" else "",
        JOINT if joint else "",
    ]
    return " ".join(part for part in parts if part)


def build_verification_signature(
    config: JudgeConfig, *, joint: bool = False, prompt: str | None = None
) -> type[dspy.Signature]:
    """Return the signature that a judge of this config asks; ``prompt`` in place of its top and its question.

    The order of its output fields is the order of the reply. The output of a joint one, ``verdicts``, is a list of
    models with these fields and the ``statement``'s number.
    """
    fields: dict[str, Any] = {}
    if config.reasoning == "before":
        fields["reason"] = str
    fields["verdict"] = Literal[tuple(INSTRUCTIONS[config.verdicts].labels)]
    if config.cite:
        fields["supporting_chunk_ids"] = list[int]
    if config.quote:
        fields["quotes"] = list[str]
    if config.reasoning == "after":
        fields["reason"] = str
    signature: type[dspy.Signature] = VerifyStatement.delete("verdict")
    if joint:
        entry_fields: Any = {
            name: (kind, ...) for name, kind in {"statement": int, **fields}.items()
        }
        entry: Any = create_model(
            "StatementVerdict", __config__=ConfigDict(extra="forbid"), **entry_fields
        )
        signature, fields = VerifyStatements, {"verdicts": list[entry]}
    top = _top(config, prompt or _TOP)
    ask = _ask(config, joint=joint, has_own_question=bool(prompt))
    signature = signature.with_instructions(f"{top}\n\n{ask}")
    for name, kind in fields.items():
        signature = signature.append(name, dspy.OutputField(), kind)
    return signature


def labels_of(signature: type[dspy.Signature]) -> tuple[str, ...]:
    """Return the labels that a verdict may have; none for a signature that asks for no verdict."""
    fields = signature.output_fields
    if "verdicts" in fields:
        (entry,) = get_args(fields["verdicts"].annotation)
        fields = entry.model_fields
    return get_args(fields["verdict"].annotation) if "verdict" in fields else ()
