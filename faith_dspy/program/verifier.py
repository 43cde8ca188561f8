"""Ask an LM about statements: one call a statement and sample, or all statements of an answer in one."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError, ContextWindowExceededError

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, FaithDspyError, short_message
from faith_dspy.lm.capabilities import LABEL_TOKENS, Capabilities, experience_of
from faith_dspy.program.prompt import (
    BoundPredict,
    CompactAdapter,
    JointAdapter,
    data_of,
)
from faith_dspy.program.reply import (
    VERDICT_FIELDS,
    Token,
    expected_support,
    label_token,
    read_verdict,
    text_of,
    token_at,
    tokens_of,
)
from faith_dspy.program.signatures import (
    INSTRUCTIONS,
    Instruction,
    build_verification_signature,
)
from faith_dspy.program.windows import Window
from faith_dspy.schema import RawVerdict, Statement

TOP_LOGPROBS = 20
"""Alternatives requested per token: the most that OpenAI's API gives."""
QUOTE_TOKENS = 80
REASON_TOKENS = {"none": 0, "after": 100, "before": 200}
ENTRY_TOKENS = 40
"""Room for the names and brackets around one verdict in JSON."""
TEMPERATURE = 0.7
"""Of repeated samples."""

log = logging.getLogger(__name__)

Samples = Sequence[RawVerdict | None]
"""Verdicts on one statement, one per sample; None where none could be read."""


class Verifier(dspy.Module):
    """Asks about a statement, one call a sample, for token probabilities as long as the LM gives any."""

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        self.instruction = INSTRUCTIONS[config.verdicts]
        self.confidence = config.confidence
        self.wants_probabilities = config.confidence not in ("none", "samples")
        self.samples: list[int | None] = [None]
        """A number per sample; None for a single reply that is not sampled."""
        if config.confidence == "samples":
            self.samples = [*range(1, config.samples + 1)]
        self.has_warned = False
        """Whether it was said that a joint reply failed: once is enough."""
        self.extra_tokens = REASON_TOKENS[config.reasoning]
        if config.quote:
            self.extra_tokens += QUOTE_TOKENS
        self.tokens = 1
        if self.extra_tokens or config.cite:
            self.tokens = LABEL_TOKENS + self.extra_tokens
        signature = build_verification_signature(config)
        self.predict = BoundPredict(signature, CompactAdapter())
        self.joint: dspy.Predict | None = None
        """Asks about all statements of an answer at once."""
        if config.verification == "joint":
            signature = build_verification_signature(config, joint=True)
            self.joint = BoundPredict(signature, JointAdapter())

    def forward(
        self, context: list[str], question: str, statement: str
    ) -> dspy.Prediction:
        """Return what `ask` does, as DSPy's optimizers take it: ``verdict`` is the label; ``error`` alone, if the LM
        failed."""
        window = Window(list(range(len(context))), context)
        about = Statement(text=statement)
        try:
            raw = self.ask(about, question, window)
        except ContextWindowExceededError as exc:
            raw = failed_verdict(about, exc)
        return as_prediction(raw)

    def ask(
        self,
        statement: Statement,
        question: str | None,
        window: Window,
        answered: Samples = (),
    ) -> RawVerdict:
        """Return what the LM says about one statement; an LM fault is the error of a verdict.

        Args:
            statement: The statement.
            question: The question that the answer answers.
            window: The context, or the part of it that one call holds.
            answered: Verdicts by sample that a joint call gave already.
        """
        lm = self.predict.lm or dspy.settings.lm
        experience = experience_of(lm)
        inputs = {
            "context": window.texts,
            "question": question or "",
            "statement": statement.text,
        }
        verdicts = [verdict for verdict in answered if verdict]
        for sample, answer in zip_longest(self.samples, answered):
            if answer is not None:
                continue
            capabilities = experience.capabilities
            config = self._config(capabilities, sample, self.tokens)
            limits = [config["max_tokens"]]
            if not capabilities.rooms:
                limits.append(capabilities.with_room(self.tokens))
            replies = []
            for limit in limits:  # a reply that cannot be read is asked for once more
                config["max_tokens"] = limit
                try:
                    prediction = self.predict(**inputs, lm=lm, config=config)
                    verdict = self._read(prediction, statement, window, lm)
                    replies.append(verdict)
                except (FaithDspyError, ContextWindowExceededError):
                    raise
                except Exception as exc:  # noqa: BLE001 - any LM fault: counted as unjudged, never dropped
                    verdict = failed_verdict(statement, exc)
                if verdict.label is not None or verdict.lm_failed:
                    break
            if replies:
                experience.add_label(read=replies[0].label is not None)
            verdicts.append(verdict)
        if len(verdicts) == 1:
            return verdicts[0]
        return pool_samples(verdicts, self.instruction)

    def ask_jointly(
        self, statements: Sequence[Statement], question: str | None, window: Window
    ) -> list[Samples]:
        """Return the verdicts on several statements by one call a sample; None where its reply has none.

        Nothing is asked about a single statement, nor where each is asked about by itself.

        Args:
            statements: The statements, which the prompt numbers from 1.
            question: The question that the answer answers.
            window: The context, or the part of it that one call holds.
        """
        predict = self.joint
        if predict is None or len(statements) < 2:
            return [()] * len(statements)
        lm = predict.lm or dspy.settings.lm
        capabilities = experience_of(lm).capabilities
        inputs = {
            "context": dict(enumerate(window.texts)),
            "question": question or "",
            "statements": {i: one.text for i, one in enumerate(statements, 1)},
        }
        tokens = (LABEL_TOKENS + ENTRY_TOKENS + self.extra_tokens) * len(statements)
        samples = []
        for sample in self.samples:
            verdicts: Samples = [None] * len(statements)
            try:
                config = self._config(capabilities, sample, tokens)
                prediction = predict(**data_of(inputs), lm=lm, config=config)
                verdicts = self._read_jointly(prediction, statements, window, lm)
            except (FaithDspyError, ContextWindowExceededError):
                raise
            except Exception as exc:  # noqa: BLE001 - any LM fault: the statements are asked one by one
                level = logging.DEBUG if self.has_warned else logging.WARNING
                self.has_warned = True
                log.log(
                    level,
                    "joint verification failed (%s); asking statement by statement",
                    short_message(exc),
                )
            samples.append(verdicts)
        return [list(verdicts) for verdicts in zip(*samples, strict=True)]

    def _config(
        self, capabilities: Capabilities, sample: int | None, tokens: int
    ) -> dict[str, Any]:
        """Return the parameters of a call for a reply of so many tokens."""
        config: dict[str, Any] = {"max_tokens": tokens}
        if self.wants_probabilities:
            config |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if not (self.wants_probabilities and capabilities.token_probabilities):
            # A single token may be a mere asterisk.
            config["max_tokens"] = max(tokens, LABEL_TOKENS)
        if sample is not None:
            config |= {"temperature": TEMPERATURE, "rollout_id": sample}
        return config

    def _read(
        self, prediction: Any, statement: Statement, window: Window, lm: Any
    ) -> RawVerdict:
        """Return the verdict of a reply.

        Raises:
            ConfigError: Probabilities are demanded, and the LM tells none.
        """
        tokens = tokens_of(prediction)
        if self.confidence == "probability" and not tokens:
            raise ConfigError(
                "confidence='probability', but the LM gives no token probabilities. Set confidence='samples' for "
                "repeated samples, or 'auto' to go on without a confidence."
            )
        if self.wants_probabilities:
            experience_of(lm).add_probabilities(returned=bool(tokens))
        token = label_token(tokens, prediction.get("verdict"))
        verdict = self._verdict(prediction, statement, window, token, lm)
        prediction["verdict"] = verdict.label  # DSPy's optimizers make demos of it
        # GEPA shows all of a prediction to the LM that proposes: twenty alternatives a token would fill its window.
        if "logprobs" in prediction:
            del prediction["logprobs"]
        return verdict

    def _read_jointly(
        self, prediction: Any, statements: Sequence[Statement], window: Window, lm: Any
    ) -> list[RawVerdict | None]:
        """Return the verdict of each statement that a joint reply has one for."""
        entries = prediction.verdicts
        tokens = tokens_of(prediction)
        starts = list(_JSON_VERDICT.finditer(text_of(tokens)))
        label_tokens: list[Token | None] = [None] * len(entries)
        if len(starts) == len(entries):  # else nothing says which token is whose
            label_tokens = [token_at(tokens, start.end()) for start in starts]
        places = _places([entry["statement"] for entry in entries], len(statements))
        verdicts: list[RawVerdict | None] = [None] * len(statements)
        for entry, token in zip(entries, label_tokens, strict=True):
            place = places.get(entry["statement"])
            if place is not None:
                about = (statements[place], window, token, lm)
                verdict = self._verdict(entry, *about)
                verdicts[place] = verdict if verdict.label else None
        return verdicts

    def _verdict(
        self,
        fields: Any,
        statement: Statement,
        window: Window,
        token: Token | None,
        lm: Any,
    ) -> RawVerdict:
        """Return the verdict in the fields of a reply, whose label begins with the token."""
        is_sampled = getattr(lm, "is_sampled", True)
        about = (statement, self.instruction, window.ids, token)
        return read_verdict(fields, *about, sampled=is_sampled)


def as_prediction(raw: RawVerdict) -> dspy.Prediction:
    """Return a verdict as `Verifier.forward` does."""
    if raw.lm_failed:
        return dspy.Prediction(error=raw.error)
    return dspy.Prediction(
        verdict=raw.label,
        supporting_chunk_ids=list(raw.chunk_ids),
        probability=raw.probability,
        logit=raw.logit,
    )


def failed_verdict(statement: Statement, exc: BaseException) -> RawVerdict:
    """Return the verdict on a statement that the LM failed on, or gave a reply about that DSPy cannot read."""
    return RawVerdict(
        **statement.model_dump(),
        error=short_message(exc),
        lm_failed=not isinstance(exc, AdapterParseError),
    )


_JSON_VERDICT = re.compile(rf'"(?:{"|".join(VERDICT_FIELDS)})"\s*:\s*"')


def _places(numbers: Sequence[Any], n: int) -> dict[Any, int]:
    """Return by the numbers of a joint reply the places of their statements, of those alone that are in no doubt.

    Statements are numbered from 1. A reply that numbers all of them from 0 is read so; one that could be either, as the
    last number is missing, and one that has the same number twice, is not.
    """
    times = Counter(numbers)
    if times == Counter(range(n)):
        return {number: number for number in range(n)}
    if n not in times or 0 in times:
        return {}
    return {place + 1: place for place in range(n) if times[place + 1] == 1}


def pool_samples(
    verdicts: Sequence[RawVerdict], instruction: Instruction
) -> RawVerdict:
    """Return several samples as one verdict: the most frequent label, and each label's share of all of them.

    A sample that failed supports nothing. Where less than half have a label, there is no verdict.
    """
    counts = Counter(verdict.label for verdict in verdicts if verdict.label)
    if 2 * counts.total() < len(verdicts):
        return next(verdict for verdict in verdicts if not verdict.label)
    label, _ = counts.most_common(1)[0]
    shares = {name: n / len(verdicts) for name, n in counts.items()}
    voter = next(verdict for verdict in verdicts if verdict.label == label)
    return voter.model_copy(update=expected_support(shares, instruction))
