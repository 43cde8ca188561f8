"""Ask the LM for verdicts, one statement a call or all of an answer's in one, and read its replies."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import dspy

from faith_dspy.errors import ConfigError, FaithDspyError, in_short, redact
from faith_dspy.program.adapter import CompactAdapter, is_sampled, response_format
from faith_dspy.program.replies import Reply, label_offset, read_reply, tokens_of
from faith_dspy.program.signatures import INSTRUCTIONS, signature_of
from faith_dspy.scoring.classifier import to_logit, to_probability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.config import JudgeConfig
    from faith_dspy.program.signatures import Instruction

TOP_LOGPROBS = 20  # alternatives requested per token: the most that OpenAI's API gives
LABEL_TOKENS = 12  # room for a label and the chunk ids after it, where one token is not enough
QUOTE_TOKENS = 80
REASON_TOKENS = {"none": 0, "after": 100, "before": 200}
ENTRY_TOKENS = 40  # room for the names and brackets around one verdict in JSON
TEMPERATURE = 0.7  # of repeated samples
MAX_WITHOUT = 3  # replies in a row without token probabilities before they are no longer asked for
ASKED_AGAIN = 50  # of the replies after that, every so many-th is asked for them once more
LABEL_LOGIT = 2.0  # log-odds that stand for a label without a probability (p = .88)

log = logging.getLogger(__name__)


Replies = list[Reply | None]
"""The replies about one statement, one per sample; None where a reply is missing or could not be read."""


class LabelCaller:
    """Asks a predictor for token probabilities as long as the LM gives any."""

    def __init__(self, config: JudgeConfig) -> None:
        self.confidence = config.confidence
        self.samples: list[int | None] = [*range(1, config.samples + 1)] if config.confidence == "samples" else [None]
        """A number per sample; None for a single reply that is not sampled."""
        self.extra_tokens = REASON_TOKENS[config.reasoning] + (QUOTE_TOKENS if config.quote else 0)
        self.without = 0
        """Replies in a row without token probabilities."""

    def call(
        self, predict: dspy.Predict, tokens: int, sample: int | None, inputs: dict[str, Any], **config: Any
    ) -> dspy.Prediction:
        """Ask for token probabilities, or for the label alone while the LM refuses them or gives none.

        Raises `ConfigError` with ``confidence="probability"`` if there are none in three replies.
        """
        plain = {"max_tokens": max(tokens, LABEL_TOKENS), **config}
        if sample is not None:
            return predict(**inputs, config=plain | _sampling(sample))
        if self.confidence == "none":
            return predict(**inputs, config=plain)
        demanded = self.confidence == "probability"
        if self.without >= MAX_WITHOUT and (self.without + 1) % ASKED_AGAIN and not demanded:
            self.without += 1
            return predict(**inputs, config=plain)
        prediction, before = None, self.without
        try:
            wanted = {"max_tokens": tokens, "logprobs": True, "top_logprobs": TOP_LOGPROBS, **config}
            prediction = predict(**inputs, config=wanted)
        except Exception as exc:
            if not isinstance(exc, dspy.LMError) or "logprob" not in str(exc).lower():
                raise
            self.without = max(MAX_WITHOUT, before + 1)
        else:
            self.without = 0 if tokens_of(prediction.get("logprobs")) else before + 1
        if demanded and self.without >= MAX_WITHOUT:
            raise ConfigError(
                "confidence='probability', but the LM gives no token probabilities. Set confidence='samples' for "
                "repeated samples, or 'auto' to go on without a confidence."
            )
        if demanded and self.without:
            return self.call(predict, tokens, sample, inputs, **config | {"rollout_id": self.without})
        if before < MAX_WITHOUT <= self.without:
            log.warning("the LM gives no token probabilities; going on with labels alone")
        # A single token without probabilities may be a mere asterisk; a longer reply is as good as a second one.
        if prediction is not None and (not self.without or tokens > 1):
            return prediction
        return predict(**inputs, config=plain)


def _sampling(sample: int) -> dict[str, Any]:
    """Settings of a sample. Reasoning models, which DSPy gives another token limit, take no temperature."""
    fixed = "max_completion_tokens" in getattr(dspy.settings.lm, "kwargs", {})
    return {"rollout_id": sample} | ({} if fixed else {"temperature": TEMPERATURE})


class Verifier(dspy.Module):
    """One call per statement and sample; the label's probability is read from its token."""

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        if config.instruction not in INSTRUCTIONS:
            raise ConfigError(f"there is no instruction {config.instruction!r}; there are {', '.join(INSTRUCTIONS)}.")
        self.instruction = config.instruction
        self.reasons_first = config.reasoning == "before"
        self.caller = LabelCaller(config)
        extra = self.caller.extra_tokens
        self.tokens = LABEL_TOKENS + extra if extra or config.cite else 1
        self.predict = dspy.Predict(signature_of(config))

    def forward(self, context: list[str], question: str, statement: str) -> dspy.Prediction:
        """What `ask` returns, as DSPy's optimizers take it."""
        return dspy.Prediction(**self.ask(context, question, statement))

    def ask(self, context: list[str], question: str, statement: str, replies: Replies | None = None) -> dict[str, Any]:
        """What the LM says about one statement.

        ``replies``: those that a joint call gave already; the missing ones are asked for here.

        Returns ``verdict`` (the label), ``supporting_chunk_ids``, ``quotes`` and ``reason`` as the LM named them,
        ``level`` (the support in [0, 1] that the label stands for), ``logit`` (log-odds of the expected support,
        clipped) and ``probability`` (expected support; None if the LM gives none). All are None or empty if no reply
        has a label.
        """
        inputs = {"context": context, "question": question, "statement": statement}
        given = replies or [None] * len(self.caller.samples)
        instruction = INSTRUCTIONS[self.instruction]
        reply = pool_samples(
            [r or self._ask(sample, inputs) for r, sample in zip(given, self.caller.samples, strict=True)], instruction
        )
        level = None if reply.label is None else instruction.labels[reply.label]
        logit = probability = None
        if reply.label is not None and reply.probabilities:
            logit = to_logit(sum(p * instruction.labels[label] for label, p in reply.probabilities.items()))
            probability = to_probability(logit)
        elif reply.label is not None:
            logit = LABEL_LOGIT if level == 1.0 else -LABEL_LOGIT
        return {
            "verdict": reply.label,
            "supporting_chunk_ids": list(reply.chunk_ids),
            "quotes": list(reply.quotes),
            "reason": reply.reason,
            "level": level,
            "logit": logit,
            "probability": probability,
        }

    def _ask(self, sample: int | None, inputs: dict[str, Any]) -> Reply:
        prediction = self.caller.call(self.predict, self.tokens, sample, inputs)
        tokens = tokens_of(prediction.get("logprobs"))
        labels = INSTRUCTIONS[self.instruction].labels
        fields = dict(prediction.items()) | {"label_at": label_offset(tokens.text, self.reasons_first)}
        reply = read_reply(tokens, fields, labels, sampled=is_sampled(dspy.settings.lm))
        prediction["verdict"] = reply.label  # DSPy's optimizers make demos of it
        # GEPA shows all of a prediction to the LM that proposes: twenty alternatives a token would fill its window.
        if "logprobs" in prediction:
            del prediction["logprobs"]
        return reply


class JointVerifier(dspy.Module):
    """One call per sample for all statements of an answer; in JSON if the endpoint holds replies to a schema."""

    def __init__(self, config: JudgeConfig, caller: LabelCaller) -> None:
        super().__init__()
        self.instruction = config.instruction
        self.caller = caller
        self.predict = dspy.Predict(signature_of(config, joint=True))

    def ask(self, context: list[str], question: str, statements: list[str]) -> list[Replies]:
        """`Replies` for each statement. LM faults are logged, not raised."""
        replies: list[Replies] = [[None] * len(self.caller.samples) for _ in statements]
        inputs = {"context": context, "question": question, "statements": statements}
        tokens = (LABEL_TOKENS + ENTRY_TOKENS + self.caller.extra_tokens) * len(statements)
        for i, sample in enumerate(self.caller.samples):
            try:
                prediction = self._call(tokens, sample, inputs)
            except FaithDspyError:
                raise
            except Exception as exc:  # noqa: BLE001 - any LM fault: the statements are asked one by one
                why = redact(in_short(exc), dspy.settings.lm)
                log.warning("joint verification failed (%s); asking statement by statement", why)
                continue
            told, sampled = tokens_of(prediction.get("logprobs")), is_sampled(dspy.settings.lm)
            for entry in prediction.verdicts:
                if 1 <= entry["statement"] <= len(statements):
                    reply = read_reply(told, entry, INSTRUCTIONS[self.instruction].labels, sampled=sampled)
                    replies[entry["statement"] - 1][i] = reply if reply.label is not None else None
        return replies

    def _call(self, tokens: int, sample: int | None, inputs: dict[str, Any]) -> dspy.Prediction:
        if not getattr(dspy.settings.lm, "supports_response_schema", False):
            return self.caller.call(self.predict, tokens, sample, inputs)
        with dspy.context(adapter=CompactAdapter(structured=True)):
            schema = response_format(self.predict.signature)
            return self.caller.call(self.predict, tokens, sample, inputs, response_format=schema)


def pool_samples(replies: Sequence[Reply], instruction: Instruction) -> Reply:
    """Several samples as one reply: the most frequent label, and each label's share as its probability."""
    counts = Counter(r.label for r in replies if r.label is not None)
    if len(replies) == 1 or not counts:
        return replies[0]
    label = counts.most_common(1)[0][0]
    shares = {name: counts[name] / counts.total() for name in instruction.labels}
    return next(r for r in replies if r.label == label)._replace(probabilities=shares)
