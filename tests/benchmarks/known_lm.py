"""A scripted endpoint of known strength: it has read the labels, and separates them no better than it is set to."""

import math
import random
import re
from statistics import NormalDist
from typing import NamedTuple

from faith_dspy.schema import Statement
from faith_dspy.scoring.matching import statement_labels
from faith_dspy.text.sentences import carries_statement, sentence_texts
from tests.support.scripted_lm import ScriptedLM

SPREAD = 1.5
"""Standard deviation of an answer's log-odds among those of one label."""
BADLY_PLACED = 2.5
"""An offset of all log-odds by which most answers pass at a probability of .5."""
SOURCE_SHARE = 0.15
"""Share of that variance which answers of one source have in common."""
PROMPT_SHARE = 0.2
"""Share of that variance which another prompt draws anew."""
PREFIX = 60
"""Characters of an answer's first chunk by which a prompt about it is recognized."""


class _Known(NamedTuple):
    """A statement, or a whole answer, that the endpoint can be asked about."""

    answer_id: str
    whole: bool
    """Whether it is the whole answer."""
    logit: float


class KnownLM(ScriptedLM):
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
        super().__init__()
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

    def log_odds(self, text, messages, asks):
        """Those of the answer whose context the request shows."""
        shown = _plain(messages[-1]["content"])
        by_context = self.known.get(_plain(text), {})
        answers = [known for start, known in by_context.items() if start in shown]
        if not answers:
            raise LookupError(f"no labelled answer has the statement {text!r}")
        answer = answers[0]
        noise = random.Random(
            f"{self.seed} {asks} {answer.whole} {answer.answer_id}"
        ).gauss()
        return answer.logit + SPREAD * math.sqrt(PROMPT_SHARE) * noise


def _plain(text):
    return " ".join(re.findall(r"\w+", text))
