"""What LMs are told that write instructions for a judge, and what is taken of what they write."""

from __future__ import annotations

import re
from typing import Any

import dspy
from dspy.adapters import ChatAdapter
from dspy.teleprompt.gepa import InstructionProposer
from pydantic import ValidationError

from faith_dspy.errors import ConfigError

MAX_CHARACTERS = 2000
"""Of an instruction. It is read for every statement."""
MAX_RULES = 10
MAX_DISAGREEMENTS = 40
MAX_FAULTS = 3
"""Proposals in a row that may fail before GEPA is stopped."""
MAX_CONTEXT = 600
"""Characters of each chunk that are shown with a disagreement."""
FORM = (
    "State the rules by which people decide in general words, so that they hold for other statements about other "
    "contexts: no names, numbers or topics of the examples. Write two parts with one blank line between them. The "
    "second, the last paragraph, is put after the input: it says in one or two sentences what is asked, and names the "
    "labels, or the form of the reply, exactly as they are now."
)


class Proposer(InstructionProposer):
    """GEPA's own proposer. It remembers its last error, for GEPA goes on without proposals and reports nothing."""

    def __init__(self) -> None:
        super().__init__(
            additional_instructions=FORM,
            max_chars=MAX_CHARACTERS,
            adapter=ChatAdapter(),
        )
        self.proposed = self.faults = 0
        self.error: Exception | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Propose as GEPA's does."""
        try:
            texts = super().__call__(*args, **kwargs)
        except Exception as exc:
            self.error = exc
            if isinstance(exc, ValidationError):
                self.error = ConfigError(
                    f"the reflection LM wrote no instruction of at most {MAX_CHARACTERS} characters."
                )
            self.faults += 1
            raise
        self.proposed += 1
        self.faults = 0
        return texts

    def gives_up(self, state: Any) -> bool:
        """Tell whether GEPA is to stop."""
        return self.faults >= MAX_FAULTS


class WriteRules(dspy.Signature):
    """A judge decides whether a context supports statements. Below are statements on which people decided otherwise
    than the judge, with their reason where they wrote one.

    Write the rules by which these people decide, ten at most, the most frequent first, each one short sentence that
    tells the judge what counts as supported or what does not. Put what several disagreements have in common into one
    rule. The rules must hold for other statements about other contexts: no names, no numbers, no topics of the
    examples."""

    disagreements: list[dict[str, Any]] = dspy.InputField()
    rules: str = dspy.OutputField(desc="one a line")


def write_rules(disagreements: list[dict[str, Any]]) -> list[str]:
    """Return one to ten rules, written in one call; `ConfigError` where the LM wrote none, or whole pages."""
    explained_first = sorted(disagreements, key=lambda one: "reason" not in one)
    shown = [
        {**one, "context": [text[:MAX_CONTEXT] for text in one["context"]]}
        for one in explained_first[:MAX_DISAGREEMENTS]
    ]
    written = dspy.Predict(WriteRules)(disagreements=shown).rules or ""
    lines = re.sub(r"(?m)^[\s\-*•\d.)]+", "", written).splitlines()
    stripped = [line.strip() for line in lines]
    rules = list(dict.fromkeys(filter(None, stripped)))[:MAX_RULES]
    size = sum(map(len, rules))
    if not 0 < size <= MAX_CHARACTERS:
        raise ConfigError(
            f"the reflection LM wrote {len(rules)} rules of {size} characters together; expected one to "
            f"{MAX_RULES} of at most {MAX_CHARACTERS}. Give another one with --reflection-lm."
        )
    return rules


def with_rules(instructions: str, rules: list[str]) -> str:
    """Return the instruction with rules before its last paragraph, which is asked after the statement."""
    top, _, ask = instructions.strip().rpartition("\n\n")
    listed = "\n".join(f"- {rule}" for rule in rules)
    heading = "The people who labelled such statements decide by these rules:"
    return "\n\n".join(part for part in (top, f"{heading}\n{listed}", ask) if part)
