"""Asking for verdicts: one statement a call, or all of an answer's in one, and what is read from the replies."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from faith_dspy.errors import ConfigError, FaithDspyError, in_short
from faith_dspy.lm.endpoint import redact
from faith_dspy.program.adapter import CompactAdapter, predicted, response_format
from faith_dspy.program.replies import after_thoughts, label_probabilities, token_alternatives, token_text
from faith_dspy.program.signatures import INSTRUCTIONS, asked_by
from faith_dspy.scoring.classifier import to_logit, to_probability

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.config import JudgeConfig
    from faith_dspy.program.signatures import Instruction

TOP_TOKENS = 20
"""Alternatives asked for per token; the most that OpenAI's API gives."""
LABEL_TOKENS = 12
"""Room for a label, and the chunk ids after it, where one token is not enough."""
QUOTE_TOKENS = 80
REASON_TOKENS = {"none": 0, "after": 100, "before": 200}
ENTRY_TOKENS = 40
"""Room for the names and brackets around one verdict in JSON."""
TEMPERATURE = 0.7
"""Of repeated samples."""
UNTOLD_LOGIT = 2.0
"""Logit that stands for a label whose probability the LM does not tell (p = .88)."""

log = logging.getLogger(__name__)


class Reply(NamedTuple):
    """What one reply, or several samples taken together, said about a statement."""

    label: str | None
    shares: dict[str, float] | None = None
    """Probability of each label; None where it is not told."""
    chunk_ids: tuple[int, ...] = ()
    quotes: tuple[str, ...] = ()
    reason: str | None = None


class Reading(NamedTuple):
    """What the LM says about one statement: a verifier's output fields."""

    verdict: str | None
    """The label."""
    supporting_chunk_ids: list[int]
    quotes: list[str]
    reason: str | None
    level: float | None
    """Expected support by the first instruction."""
    logits: dict[str, float]
    """Of the probability of support, by instruction."""
    probability: float | None
    """Of support; None where the LM tells none."""


Replies = list[list[Reply | None]]
"""Of one statement: by instruction, then by sample; None where there was no reply that could be read."""


class Ear:
    """Sends a prediction's call and hears as much as the LM tells; remembers what it refuses."""

    def __init__(self, config: JudgeConfig) -> None:
        self.confidence = config.confidence
        self.rolls: list[int | None] = [*range(1, config.samples + 1)] if config.confidence == "samples" else [None]
        """A number per sample; None for the one reply that is not sampled."""
        self.extra = REASON_TOKENS[config.reasoning] + (QUOTE_TOKENS if config.quote else 0)
        """Tokens that the first instruction's reply may need beside label and ids."""
        self.told: bool | None = None  # whether the LM tells token probabilities; found out by the first call
        self.structured: bool | None = None  # whether it holds replies to a JSON schema

    def call(
        self, predict: dspy.Predict, tokens: int, roll: int | None, inputs: dict[str, Any], **settings: Any
    ) -> dspy.Prediction:
        """Ask with token probabilities; where the LM refuses them, or has never told any, for the label alone."""
        if roll is not None:
            config = {"max_tokens": max(tokens, LABEL_TOKENS), **_sampled(roll), **settings}
            return predicted(predict, inputs, config)
        if self.confidence != "none" and self.told is not False:
            config = {"max_tokens": tokens, "logprobs": True, "top_logprobs": TOP_TOKENS, **settings}
            prediction = None
            try:
                prediction = predicted(predict, inputs, config)
            except Exception as exc:
                if "logprob" not in str(exc).lower():
                    raise
                log.info("the LM tells no token probabilities; going on with labels alone")
                self.told = False
            else:
                # An LM that told them before has missed once; one that never did will not be asked again.
                self.told = bool(_content(prediction)) or self.told or False
            if self.confidence == "probability" and not self.told:
                raise ConfigError(
                    "confidence='probability', but the LM tells no token probabilities. Set confidence='samples' for "
                    "repeated samples, or 'auto' to go on without a confidence."
                )
            # One token that tells nothing may be a mere asterisk; a longer reply is as good as asked again.
            if prediction is not None and (_content(prediction) or tokens > 1):
                return prediction
        return predicted(predict, inputs, {"max_tokens": max(tokens, LABEL_TOKENS), **settings})


def _sampled(roll: int) -> dict[str, Any]:
    """Settings of a sample. Reasoning models, the ones DSPy gives another limit, take no temperature."""
    fixed = "max_completion_tokens" in getattr(dspy.settings.lm, "kwargs", {})
    return {"rollout_id": roll} | ({} if fixed else {"temperature": TEMPERATURE})


class Verifier(dspy.Module):
    """One call per statement, instruction and sample; the label's probability is read off its token."""

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        unknown = [name for name in config.instructions if name not in INSTRUCTIONS]
        if unknown:
            raise ConfigError(f"there is no instruction {unknown[0]!r}; there are {', '.join(INSTRUCTIONS)}.")
        self.names = list(config.instructions)
        self.cite = config.cite
        self.supported_from = config.supported_from
        self.thinks = config.reasoning == "before"
        self.ear = Ear(config)
        self.ask = [dspy.Predict(signature) for signature in asked_by(config)]

    def forward(
        self, context: list[str], question: str, statement: str, given: Replies | None = None
    ) -> dspy.Prediction:
        """A `Reading` as DSPy's programs give it."""
        return dspy.Prediction(**self.reading(context, question, statement, given)._asdict())

    def reading(self, context: list[str], question: str, statement: str, given: Replies | None = None) -> Reading:
        """What the LM says about one statement: chunk ids, quotes and reason as it named them.

        ``given``: replies that are there already.
        """
        inputs = {"context": context, "question": question, "statement": statement}
        logits: dict[str, float] = {}
        replies: list[Reply] = []
        for i, name in enumerate(self.names):
            there = given[i] if given else [None] * len(self.ear.rolls)
            instruction = INSTRUCTIONS[name]
            reply = pooled(
                [r or self._reply(i, roll, inputs) for r, roll in zip(there, self.ear.rolls, strict=True)], instruction
            )
            if reply.shares:
                logits[name] = to_logit(support(reply, instruction))
            elif reply.label is not None:
                logits[name] = UNTOLD_LOGIT if instruction.labels[reply.label] == 1.0 else -UNTOLD_LOGIT
            replies.append(reply)
        if not replies:
            raise ValueError("a verifier needs at least one instruction")
        first = replies[0]
        mean = sum(logits.values()) / len(logits) if logits else None
        told = any(r.shares for r in replies)
        probability = to_probability(mean) if told and mean is not None else None
        return Reading(
            verdict=self._verdict(first, probability),
            supporting_chunk_ids=list(first.chunk_ids),
            quotes=list(first.quotes),
            reason=first.reason,
            level=None if first.label is None else support(first, INSTRUCTIONS[self.names[0]]),
            logits=logits,
            probability=probability,
        )

    def _verdict(self, reply: Reply, probability: float | None) -> str | None:
        """The label; the likeliest on the side of ``supported_from`` where that was fitted."""
        if self.supported_from is None or probability is None or not reply.shares:
            return reply.label
        known, shares = INSTRUCTIONS[self.names[0]].verdicts, reply.shares
        side = [k for k in shares if known[k].is_supported is (probability >= self.supported_from)]
        return max(side, key=lambda k: shares[k]) if side else reply.label

    def _reply(self, i: int, roll: int | None, inputs: dict[str, Any]) -> Reply:
        extra = self.ear.extra if i == 0 else 0
        tokens = LABEL_TOKENS + extra if extra or (self.cite and i == 0) else 1
        prediction = self.ear.call(self.ask[i], tokens, roll, inputs)
        said = dict(prediction.items())
        if self.thinks and i == 0:
            said["label_at"] = after_thoughts(token_text(_content(prediction)))[1]
        reply = heard(prediction, said, INSTRUCTIONS[self.names[i]])
        prediction["verdict"] = reply.label  # what DSPy's optimizers make demos of
        return reply


class JointVerifier(dspy.Module):
    """One call for all statements per instruction and sample; in JSON where the endpoint holds replies to a schema."""

    def __init__(self, config: JudgeConfig, ear: Ear) -> None:
        super().__init__()
        self.names = list(config.instructions)
        self.ear = ear
        self.ask = [dspy.Predict(signature) for signature in asked_by(config, joint=True)]

    def forward(self, context: list[str], question: str, statements: list[str]) -> list[Replies]:
        """Replies of each statement; None wherever there is none that can be read. LM faults are logged, not raised."""
        found: list[Replies] = [[[None] * len(self.ear.rolls) for _ in self.names] for _ in statements]
        inputs = {"context": context, "question": question, "statements": statements}
        for i, name in enumerate(self.names):
            tokens = (LABEL_TOKENS + ENTRY_TOKENS + (self.ear.extra if i == 0 else 0)) * len(statements)
            for r, roll in enumerate(self.ear.rolls):
                try:
                    prediction = self._call(self.ask[i], tokens, roll, inputs)
                except FaithDspyError:
                    raise
                except Exception as exc:  # noqa: BLE001 - any LM fault: the statements are asked one by one
                    said = redact(in_short(exc), dspy.settings.lm)
                    log.warning("joint verification failed (%s); asking statement by statement", said)
                    continue
                for entry in prediction.verdicts:
                    reply = heard(prediction, entry, INSTRUCTIONS[name])
                    if 1 <= entry["statement"] <= len(statements) and reply.label is not None:
                        found[entry["statement"] - 1][i][r] = reply
        return found

    def _call(self, predict: dspy.Predict, tokens: int, roll: int | None, inputs: dict[str, Any]) -> dspy.Prediction:
        ear = self.ear
        if ear.structured is None:
            ear.structured = bool(getattr(dspy.settings.lm, "supports_response_schema", False))
        if ear.structured:
            schema = response_format(predict.signature)
            try:
                with dspy.context(adapter=CompactAdapter(structured=True)):
                    return ear.call(predict, tokens, roll, inputs, response_format=schema)
            except Exception as exc:
                if not any(word in str(exc).lower() for word in ("response_format", "schema")):
                    raise
                log.info("the LM takes no JSON schema; going on with lines")
                ear.structured = False
        return ear.call(predict, tokens, roll, inputs)


def _content(prediction: dspy.Prediction) -> list[Any]:
    """The tokens of the reply with their probabilities; empty when the LM tells none."""
    logprobs = getattr(prediction, "logprobs", None)
    content = logprobs.get("content") if isinstance(logprobs, dict) else getattr(logprobs, "content", None)
    return list(content or [])


def heard(prediction: dspy.Prediction, said: Mapping[str, Any], instruction: Instruction) -> Reply:
    """One verdict of a reply. Where the label's probability is told, the likeliest label is the verdict."""
    at = said.get("label_at")
    label = said.get("verdict")
    shares = label_probabilities(token_alternatives(_content(prediction), at), instruction.labels)
    if at is not None and (label is None or not (shares or {}).get(label)):
        shares = None  # the token there is no beginning of the label that was read
    if shares:
        label = max(shares, key=lambda k: shares[k])
    return Reply(
        label=label,
        shares=shares,
        chunk_ids=tuple(said.get("supporting_chunk_ids") or ()),
        quotes=tuple(said.get("quotes") or ()),
        reason=said.get("reason"),
    )


def pooled(replies: Sequence[Reply], instruction: Instruction) -> Reply:
    """Several samples as one reply: each label's share of those that have one, the most frequent as the verdict."""
    if len(replies) == 1:
        return replies[0]
    counts = Counter(r.label for r in replies if r.label is not None)
    if not counts:
        return replies[0]
    label = counts.most_common(1)[0][0]
    shares = {name: counts[name] / counts.total() for name in instruction.labels}
    return next(r for r in replies if r.label == label)._replace(shares=shares)


def support(reply: Reply, instruction: Instruction) -> float:
    """Expected support: Σ share · what the label stands for; of a label without shares what it stands for."""
    if reply.shares:
        return sum(p * instruction.labels[label] for label, p in reply.shares.items())
    return instruction.labels[str(reply.label)]
