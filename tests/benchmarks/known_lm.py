"""A scripted endpoint of known strength: it has read the labels, and separates them no better than it is set to."""

import json
import math
import random
import re
from statistics import NormalDist
from typing import NamedTuple

from faith_dspy.program.signatures import INSTRUCTIONS
from faith_dspy.schema import Statement
from faith_dspy.scoring.matching import statement_labels
from faith_dspy.text.sentences import carries_statement, sentence_texts
from tests.support.chat_server import ChatServer

SPREAD = 1.5
"""Standard deviation of an answer's log-odds among those of one label."""
BADLY_PLACED = 2.5
"""An offset of all log-odds by which most answers pass at a probability of .5."""
SOURCE_SHARE = 0.15
"""Share of that variance which answers of one source have in common."""
PROMPT_SHARE = 0.2
"""Share of that variance which another prompt draws anew."""
CHARACTERS_PER_TOKEN = 4
PREFIX = 60
"""Characters of an answer's first chunk by which a prompt about it is recognized."""


class _Known(NamedTuple):
    """A statement, or a whole answer, that the endpoint can be asked about."""

    answer_id: str
    whole: bool
    """Whether it is the whole answer."""
    logit: float


class Asks(NamedTuple):
    """What a prompt asks for: each of these draws a part of the noise anew."""

    labels: tuple[str, ...]
    reasons: bool
    jointly: bool
    examples: int
    """How many it shows."""


class KnownLM(ChatServer):
    """An endpoint whose weakest statement separates the labels of answers with a set AUROC, in the mean over prompts.

    An answer's log-odds are normal, `SPREAD` wide, and their means lie apart so that a faithful answer has the higher
    one with the probability ``auroc``. A statement that people call unsupported has the answer's log-odds, in a
    faithful answer one of the statements, and all others have higher ones, so that the weakest statement is worth as
    much as the verdict on the whole answer.

    Args:
        labelled: the answers that it recognizes, by their context and their sentences.
        auroc: of the weakest statement's log-odds, between .5 and 1.
        offset: is added to all log-odds; `BADLY_PLACED` makes .5 a bad threshold.
        probabilities: whether it gives the probabilities of tokens.
        seed: of the noise.
    """

    def __init__(self, labelled, auroc, *, offset=0.0, probabilities=True, seed=0):
        super().__init__(
            self._reply, models=[], characters_per_token=CHARACTERS_PER_TOKEN
        )
        self.tells = probabilities
        self.seed = seed
        self.offset = offset
        # Of two normals d standard deviations apart, the AUROC is Φ(d / √2).
        self.distance = math.sqrt(2) * NormalDist().inv_cdf(auroc)
        self.known = {}
        for example in labelled:
            self._learn(example)

    def _learn(self, example):
        """Keep the log-odds of an answer and its statements; two answers that state the same get the higher ones."""
        start = _plain(example.context[0].text)[:PREFIX] if example.context else ""
        for text, logit in self._logits(example, start).items():
            by_context = self.known.setdefault(_plain(text), {})
            if start not in by_context or by_context[start].logit < logit:
                by_context[start] = _Known(example.id, text == example.answer, logit)

    def _logits(self, example, start):
        """Log-odds by statement, without the part that a prompt draws; the lowest is the answer's own."""
        own = self._latent(example.group_key, example.id, example.label)
        texts = [
            text
            for _, text in sentence_texts(example.answer)
            if carries_statement(text)
        ]
        statements = [
            Statement(text=text, sentence_index=i) for i, text in enumerate(texts)
        ]
        labels = statement_labels(statements, example)
        own_texts = [
            i
            for i, text in enumerate(texts)
            if start not in self.known.get(_plain(text), ())
        ]
        weak = (
            [i for i in own_texts if labels[i] is False]
            or own_texts
            or list(range(len(texts)))
        )
        noise = random.Random(f"{self.seed} weakest {example.id}")
        weakest = noise.choice(weak) if weak else None
        logits = {}
        for i, text in enumerate(texts):
            other = self._latent(
                example.group_key, f"{example.id} {i}", labels[i] is not False
            )
            logits[text] = (
                own if i == weakest else max(own + noise.expovariate(1) / 2, other)
            )
        return logits | {example.answer: own}

    def _latent(self, source, name, label):
        shared = random.Random(f"{self.seed} source {source}").gauss()
        single = random.Random(f"{self.seed} answer {name}").gauss()
        noise = (
            math.sqrt(SOURCE_SHARE) * shared
            + math.sqrt(1 - SOURCE_SHARE - PROMPT_SHARE) * single
        )
        mean = self.distance / 2 if label else -self.distance / 2
        return SPREAD * (mean + noise) + self.offset

    def log_odds(self, text, prompt, asks):
        """Log-odds that the statement is supported, of the answer whose context the prompt shows; ``asks``: `Asks`.

        Raises:
            LookupError: no labelled answer over this context has such a statement.
        """
        shown = _plain(prompt)
        by_context = self.known.get(_plain(text), {})
        answers = [known for start, known in by_context.items() if start in shown]
        if not answers:
            raise LookupError(f"no labelled answer has the statement {text!r}")
        answer = answers[0]
        noise = random.Random(
            f"{self.seed} {asks} {answer.whole} {answer.answer_id}"
        ).gauss()
        return answer.logit + SPREAD * math.sqrt(PROMPT_SHARE) * noise

    def _reply(self, asked):
        messages = asked["messages"]
        request = messages[-1]["content"]
        if "\nSentences:\n" in request:
            return _extracted(request)
        prompt = "\n".join(message["content"] for message in messages)
        try:
            if "[[ ## statements ## ]]" in request:
                return self._joint_reply(prompt, request)
            turns = [message for message in messages if message["role"] != "system"]
            return self._single_reply(request, len(turns) // 2)
        except LookupError as exc:
            return {"status": 500, "text": str(exc)}

    def _single_reply(self, request, shown):
        labels = _labels(request.rpartition("\n\n")[2])
        asks = Asks(tuple(labels), "\nWhy: …" in request, False, shown)
        logit = self.log_odds(
            self.statement({"messages": [{"content": request}]}), request, asks
        )
        top = distribution(labels, logit)
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

    def _joint_reply(self, prompt, request):
        statements = json.loads(
            re.search(r"## statements ## \]\]\n(\{.*\})\n", request)[1]
        )
        labels = _labels(
            prompt.partition("In adhering to this structure")[2].partition("[[ ##")[0]
        )
        asks = Asks(
            tuple(labels), '"reason' in prompt or '\\"reason' in prompt, True, 0
        )
        tokens = [('{"verdicts": [', {"{": 1.0})]
        for number, text in statements.items():
            top = distribution(labels, self.log_odds(text, request, asks))
            label = max(top, key=top.get)
            reason = '"reason": "by the context", ' if asks.reasons else ""
            entry = f'{{"statement": {number}, {reason}"verdict": "'
            tokens += [(entry, {"{": 1.0}), (label, top), ('"}, ', {'"': 1.0})]
        tokens[-1] = ('"}]}', {'"': 1.0})
        return {"text": "", "tokens": tokens}


def _plain(text):
    return " ".join(re.findall(r"\w+", text))


def _labels(question):
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


def _extracted(request):
    """The sentences themselves, as the statements of an answer."""
    numbered = re.findall(
        r"^\[(\d+)\] (.*)$", request.partition("\nSentences:\n")[2], re.MULTILINE
    )
    return "\n".join(f"{number} {text}" for number, text in numbered)
