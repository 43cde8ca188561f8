"""What LMs are told that write instructions for a judge, and what is taken of what they write."""

from __future__ import annotations

import re
from typing import Any

import dspy
from dspy.adapters import ChatAdapter
from dspy.teleprompt.gepa import InstructionProposer

from faith_dspy.errors import ConfigError

REFLECT_ON = 6
"""Examples GEPA reflects on at a time; half of them the seed prompt gets wrong."""
MAX_CHARACTERS = 2000
"""Of an instruction. It is read for every statement."""
MAX_RULES = 10
MAX_FAULTS = 3
"""Proposals in a row that may fail before GEPA is stopped."""
MAX_CONTEXT = 600
"""Characters of each chunk that are shown with a disagreement."""
RULES = (
    "You improve an instruction of a judge. The judge takes an answer apart into statements, and decides for each "
    "whether the context supports it; it has to do both as human annotators do. You are given its instruction, and "
    "examples: what it was asked, what it replied, and feedback that says what the annotators decided and why.\n\n"
    "Find the rules by which these annotators decide: what they still count as supported, and what they do not. Look "
    "for what several mistakes have in common. Write a new instruction that states these rules in general words, so "
    "that they hold for other statements about other contexts.\n\n"
    "Write no facts of the examples into it: no names, no numbers, no topics, no quotations. Keep what the instruction "
    "already has right. Do not ask for more output than it asks for now."
)
FORM = (
    "Write the instruction in two parts with one blank line between them. The first says what to mind. The second, the "
    "last paragraph, is put after the input: it says in one or two sentences what is asked, and names the labels, or "
    "the form of the reply, exactly as they are now."
)


class Proposer(InstructionProposer):
    """GEPA's own proposer, told to write rules. It remembers its last error, for GEPA goes on without proposals and
    reports nothing, and does not take its own brief for a proposal."""

    def __init__(self) -> None:
        super().__init__(
            base_instructions=RULES,
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
            if any(FORM in text for text in texts.values()):  # as small models do
                raise ConfigError(
                    "the reflection LM repeated what it was told about the form of an instruction."
                )
        except Exception as exc:
            self.error = exc
            self.faults += 1
            raise
        self.proposed += 1
        self.faults = 0
        return texts

    def gives_up(self, state: Any) -> bool:
        """Tell whether GEPA is to stop."""
        return self.faults >= MAX_FAULTS


class Halves:
    """GEPA's minibatches: half of them from the first ``wrong`` examples, half from the others, in turn."""

    def __init__(self, wrong: int) -> None:
        self.wrong = wrong

    def next_minibatch_ids(self, loader: Any, state: Any) -> list[Any]:
        """Return the ids of the iteration's minibatch."""
        ids = list(loader.all_ids())
        batch = []
        for part in (ids[: self.wrong], ids[self.wrong :]):
            half = min(REFLECT_ON // 2, len(part))
            start = state.i * half
            batch += [part[(start + k) % len(part)] for k in range(half)]
        return batch


class MoreRight:
    """Accepts a proposal that is right about more of its minibatch; a thousandth of probability is no reason."""

    def should_accept(self, proposal: Any, state: Any) -> bool:
        """Return whether a proposal is compared on the whole validation set."""
        return _count_right(proposal.eval_after) > _count_right(proposal.eval_before)


def _count_right(evaluation: Any) -> float:
    scores = evaluation.objective_scores or []
    return float(sum(score.get("right", 0.0) for score in scores))


class WriteRules(dspy.Signature):
    """A judge decides whether a context supports statements. Below are statements on which human annotators decided
    otherwise than the judge, with the reason that they wrote.

    Write the rules by which these annotators decide, ten at most, the most frequent first, each one short sentence that
    tells the judge what counts as supported or what does not. Put what several reasons have in common into one rule.
    The rules must hold for other statements about other contexts: no names, no numbers, no topics of the examples."""

    disagreements: list[dict[str, Any]] = dspy.InputField()
    rules: str = dspy.OutputField(desc="one a line")


class Guidelines(dspy.Module):
    """Writes rules from disagreements in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.write = dspy.Predict(WriteRules)

    def forward(self, disagreements: list[dict[str, Any]]) -> list[str]:
        """Return one to ten rules; `ConfigError` where the LM wrote none, or whole pages."""
        shown = [
            {**one, "context": [text[:MAX_CONTEXT] for text in one["context"]]}
            for one in disagreements
        ]
        written = self.write(disagreements=shown).rules or ""
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
