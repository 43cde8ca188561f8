"""A scripted LM: an endpoint that answers every request a judge makes, by log-odds that whoever scripts it decides."""

import json
import math
import re
from abc import abstractmethod
from typing import NamedTuple

from faith_dspy.program.signatures import INSTRUCTIONS
from tests.support.chat_server import ChatServer

CHARACTERS_PER_TOKEN = 4


class Asks(NamedTuple):
    """What a prompt asks for."""

    labels: tuple[str, ...]
    reasons: bool
    jointly: bool
    examples: int
    """How many it shows."""


class ScriptedLM(ChatServer):
    """Answers one statement, all of them in one call, with the reason before or after, and takes answers apart.

    Of whatever else it is asked it knows nothing and fails.
    """

    def __init__(self):
        super().__init__(
            self.answer, models=[], characters_per_token=CHARACTERS_PER_TOKEN
        )

    @abstractmethod
    def log_odds(self, text, messages, asks):
        """Log-odds that the statement is supported, given the messages of the request; ``asks``: `Asks`.

        Raises:
            LookupError: it knows nothing of the statement.
        """

    def answer(self, asked):
        """The reply to a request."""
        messages = asked["messages"]
        request = messages[-1]["content"]
        if "\nSentences:\n" in request:
            return extracted(request)
        try:
            if "[[ ## statements ## ]]" in request:
                return self._joint_reply(messages)
            return self._single_reply(messages)
        except LookupError as exc:
            return {"status": 500, "text": str(exc)}

    def _single_reply(self, messages):
        request = messages[-1]["content"]
        turns = [message for message in messages if message["role"] != "system"]
        labels = labels_in(request.rpartition("\n\n")[2])
        asks = Asks(tuple(labels), "\nWhy: …" in request, False, len(turns) // 2)
        statement = self.statement({"messages": messages})
        top = distribution(labels, self.log_odds(statement, messages, asks))
        label = max(top, key=top.get)
        if "\nWhy: …\nVerdict:" in request:  # the reason first
            return {
                "text": "",
                "tokens": [
                    ("Why: by the context.\nVerdict:", {" ": 1.0}),
                    (f" {label}", top),
                ],
            }
        tokens = [(label, top)]
        if "\nWhy: …" in request:
            tokens.append(("\nWhy: by the context.", {"\n": 1.0}))
        return {"text": "", "tokens": tokens}

    def _joint_reply(self, messages):
        prompt = "\n".join(message["content"] for message in messages)
        request = messages[-1]["content"]
        statements = json.loads(
            re.search(r"## statements ## \]\]\n(\{.*\})\n", request)[1]
        )
        labels = labels_in(
            prompt.partition("In adhering to this structure")[2].partition("[[ ##")[0]
        )
        asks = Asks(
            tuple(labels), '"reason' in prompt or '\\"reason' in prompt, True, 0
        )
        tokens = [('{"verdicts": [', {"{": 1.0})]
        for number, text in statements.items():
            top = distribution(labels, self.log_odds(text, messages, asks))
            label = max(top, key=top.get)
            reason = '"reason": "by the context", ' if asks.reasons else ""
            entry = f'{{"statement": {number}, {reason}"verdict": "'
            tokens += [(entry, {"{": 1.0}), (label, top), ('"}, ', {'"': 1.0})]
        tokens[-1] = ('"}]}', {'"': 1.0})
        return {"text": "", "tokens": tokens}


def labels_in(question):
    """The labels that a question asks for, with the support that each stands for."""
    asks = question.rpartition("Answer")[2]
    banks = [
        i.labels
        for i in INSTRUCTIONS.values()
        if all(re.search(rf"\b{label}\b", asks) for label in i.labels)
    ]
    return max(banks, key=len)


def distribution(labels, logit):
    """Probabilities of labels of full and of least support, so that the expected support has these log-odds."""
    p = 1 / (1 + math.exp(-logit))
    full = max(labels, key=labels.get)
    least = [
        label for label, support in labels.items() if support == min(labels.values())
    ]
    return {full: p} | {label: (1 - p) / len(least) for label in least}


def extracted(request):
    """The sentences themselves, as the statements of an answer."""
    numbered = re.findall(
        r"^\[(\d+)\] (.*)$", request.partition("\nSentences:\n")[2], re.MULTILINE
    )
    return "\n".join(f"{number} {text}" for number, text in numbered)
