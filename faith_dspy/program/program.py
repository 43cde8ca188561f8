"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import dspy

from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import ConfigError, FaithDspyError, in_short, redact
from faith_dspy.lm.metered import used
from faith_dspy.program.adapter import (
    CompactAdapter,
    Reply,
    is_sampled,
    label_offset,
    read_reply,
    response_format,
    tokens_of,
)
from faith_dspy.program.extraction import Extracted, assign_statements
from faith_dspy.program.signatures import INSTRUCTIONS, Instruction, extraction_of, signature_of
from faith_dspy.schema import Chunk, RawVerdict, Sentence, Statement, Usage, Verdict
from faith_dspy.scoring.classifier import to_logit, to_probability
from faith_dspy.text.features import IndexedContext, index_context, is_covered, novelty
from faith_dspy.text.focus import focused
from faith_dspy.text.sentences import carries_statement, sentences

TOP_LOGPROBS = 20  # alternatives requested per token: the most that OpenAI's API gives
LABEL_TOKENS = 12  # room for a label and the chunk ids after it, where one token is not enough
QUOTE_TOKENS = 80
REASON_TOKENS = {"none": 0, "after": 100, "before": 200}
ENTRY_TOKENS = 40  # room for the names and brackets around one verdict in JSON
TEMPERATURE = 0.7  # of repeated samples
MAX_WITHOUT = 3  # replies in a row without token probabilities before they are no longer asked for
ASKED_AGAIN = 50  # of the replies after that, every so many-th is asked for them once more
LABEL_LOGIT = 2.0  # log-odds that stand for a label without a probability (p = .88)

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


BYTES_PER_TOKEN = 2.5
"""Careful guess for UTF-8 text; English has about 4, Hindi about 3."""
CONTEXT_SHARE = 0.7
"""Share of the LM's context window that the answer's context may fill."""


class Window(NamedTuple):
    """A part of the context that fits one call."""

    ids: list[int]
    """Chunk id of each text."""
    texts: list[str]


def windows(context: Sequence[Chunk], limit: int | None, overhead: int = 0) -> list[Window]:
    """Chunks in order, in as few windows of at most ``limit`` bytes as possible; long chunks are cut between sentences.

    ``overhead``: bytes each chunk takes beside its text. Sizes are bytes of UTF-8, not characters, because a single
    character of Hindi or Chinese may be a token of its own.
    """
    out = [Window([], [])]
    used = 0
    for chunk_id, text in _pieces(context, limit):
        size = size_of(text) + overhead
        if out[-1].texts and limit is not None and used + size > limit:
            out.append(Window([], []))
            used = 0
        used += size
        out[-1].ids.append(chunk_id)
        out[-1].texts.append(text)
    return out


def bytes_of_context(num_ctx: int | None) -> int | None:
    """Bytes of context that fit one call of an LM with a window of ``num_ctx`` tokens; None if that is unknown."""
    return int(num_ctx * CONTEXT_SHARE * BYTES_PER_TOKEN) if num_ctx else None


def size_of(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _pieces(context: Sequence[Chunk], limit: int | None) -> Iterator[tuple[int, str]]:
    for chunk in context:
        if limit is None or size_of(chunk.text) <= limit:
            yield chunk.id, chunk.text
            continue
        piece = ""
        for sentence in sentences(chunk.text):
            for part in _cut(sentence.text, limit):
                if piece and size_of(piece) + size_of(part) + 1 > limit:
                    yield chunk.id, piece
                    piece = ""
                piece = f"{piece} {part}".strip()
        yield chunk.id, piece


def _cut(text: str, limit: int) -> Iterator[str]:
    """Parts of at most ``limit`` bytes, but at least one character each."""
    start = size = 0
    for i, character in enumerate(text):
        size += size_of(character)
        if size > limit and i > start:
            yield text[start:i]
            start, size = i, size_of(character)
    yield text[start:]


def verdicts_without_lm(statements: Sequence[Statement], indexed: IndexedContext) -> list[RawVerdict | None]:
    """Verdicts on the statements that need no LM; None for the one it is asked about, if any.

    A statement that is covered by the context's words is supported with probability 1. Of the others the LM is asked
    about the one with the most novelty; the rest are presumed supported, without a probability.
    """
    verdicts = [_supported(s, certain=True) if is_covered(s.text, indexed) else None for s in statements]
    uncovered = [i for i, v in enumerate(verdicts) if v is None]
    if uncovered:
        weakest = max(uncovered, key=lambda i: novelty(statements[i].text, indexed))
        for i in uncovered:
            verdicts[i] = None if i == weakest else _supported(statements[i], certain=False)
    return verdicts


def combine_verdicts(without_lm: Sequence[RawVerdict | None], asked: Sequence[RawVerdict]) -> list[RawVerdict]:
    """All verdicts in the answer's order: those of `verdicts_without_lm`, its gaps filled from ``asked``.

    If the LM could not judge the weakest statement, nothing can be presumed of the others: they become unjudged, too.
    """
    replies = iter(asked)
    failed = next((v for v in asked if v.verdict is None), None)
    out = []
    for verdict in without_lm:
        if verdict is None:
            out.append(next(replies))
        elif failed is None or verdict.probability is not None:
            out.append(verdict)
        else:
            same = {"text": verdict.text, "sentence_index": verdict.sentence_index, "usage": Usage()}
            out.append(failed.model_copy(update=same))
    return out


def _supported(statement: Statement, *, certain: bool) -> RawVerdict:
    return RawVerdict(
        text=statement.text,
        sentence_index=statement.sentence_index,
        verdict=Verdict.FULLY_SUPPORTED,
        probability=1.0 if certain else None,
        level=1.0 if certain else None,
    )


NUMBER_BYTES = 12
"""Room for a chunk's number in the prompt: five tokens, in the bytes that windows are measured in."""

_Pending: TypeAlias = tuple[Statement, list[RawVerdict]]
"""A statement the LM is asked about, and its verdicts by the windows read so far."""

log = logging.getLogger(__name__)


class FaithfulnessProgram(dspy.Module):
    """Extract statements, then verify them. Needs an LM in `dspy.settings`; brings its own adapter."""

    def __init__(self, config: JudgeConfig, window: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.window = window
        """Bytes of context that fit one call; None: no limit. A longer context is read window by window."""
        self.verify = Verifier(config)
        self.joint = JointVerifier(config, self.verify.caller) if config.verification == "joint" else None
        self.extract = dspy.Predict(extraction_of(config)) if config.granularity is Granularity.STATEMENT else None

    def forward(
        self, context: Sequence[Chunk], answer: str, question: str | None = None, ask_about: str = "all"
    ) -> dspy.Prediction:
        """``sentences``, ``raw_verdicts`` in the answer's order, ``fallbacks``, ``stand_ins``, usage of ``extraction``.

        An LM fault becomes the error of a verdict; no statement is dropped.
        """
        parts = sentences(answer)
        fallbacks = 0
        with dspy.context(adapter=CompactAdapter()):
            before = used()
            statements, stand_ins = self._statements(parts, answer, question or "")
            extraction = used() - before
            without_lm: list[RawVerdict | None] = [None] * len(statements)
            if ask_about == "weakest":
                without_lm = verdicts_without_lm(statements, index_context(context, question))
            pending: list[_Pending] = [(s, []) for s, v in zip(statements, without_lm, strict=True) if v is None]
            for window, asked in self._turns(context, pending):
                joint = self._ask_jointly([s for s, _ in asked], window, question or "")
                fallbacks += sum(None in replies for replies in joint if replies)
                for (statement, verdicts), replies in zip(asked, joint, strict=True):
                    if not any(v.error for v in verdicts):
                        verdicts.append(self._verdict(statement, window, replies, question or ""))
        raw_verdicts = combine_verdicts(without_lm, [merge_windows(verdicts) for _, verdicts in pending])
        return dspy.Prediction(
            sentences=parts,
            raw_verdicts=raw_verdicts,
            fallbacks=fallbacks,
            stand_ins=stand_ins,
            extraction=extraction,
        )

    def _statements(self, parts: Sequence[Sentence], answer: str, question: str) -> Extracted:
        """The statements to verify. Every sentence that can assert something ends in at least one."""
        carrying = [p for p in parts if carries_statement(p.text)]
        if self.config.granularity is Granularity.ANSWER:
            return Extracted([Statement(text=answer.strip())] if carrying else [], 0)
        if self.extract is None or not carrying:
            return Extracted([Statement(text=p.text, sentence_index=p.index) for p in carrying], 0)
        room = 40 + 2 * sum(len(p.text) for p in carrying) // 3
        try:
            reply = self.extract(
                question=question, sentences=[p.text for p in carrying], config={"max_tokens": min(room, 2000)}
            )
            lines = list(reply.statements)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: the sentences as written stand in
            log.warning("extraction failed (%s); judging sentences as written", redact(in_short(exc), dspy.settings.lm))
            lines = []
        return assign_statements(lines, carrying, question)

    def _turns(self, context: Sequence[Chunk], pending: list[_Pending]) -> Iterator[tuple[Window, list[_Pending]]]:
        """Pairs of a window and the statements to verify by it.

        All statements come before the next window, so that the server reads each window's text once. With the option
        `focus` each statement has sentences of its own.
        """
        room = self._room()
        if self.config.focus is None:
            yield from ((window, pending) for window in windows(context, room, NUMBER_BYTES))
            return
        for one in pending:
            shown = focused(context, one[0].text, self.config.focus)
            yield from ((window, [one]) for window in windows(shown, room, NUMBER_BYTES))

    def _room(self) -> int | None:
        """Bytes of context that fit one call beside its demos, which hold contexts of their own."""
        if self.window is None:
            return None
        demos = self.verify.predict.demos
        shown = size_of(str([dict(d) for d in demos])) if demos else 0
        return max(self.window - shown, self.window // 4)

    def _ask_jointly(self, statements: Sequence[Statement], window: Window, question: str) -> Sequence[Replies | None]:
        """Replies to all statements at once; None for each where they, like any single one, are asked one by one."""
        if self.joint is None or len(statements) < 2:
            return [None] * len(statements)
        return self.joint.ask(window.texts, question, [s.text for s in statements])

    def _verdict(self, statement: Statement, window: Window, replies: Replies | None, question: str) -> RawVerdict:
        before = used()
        fields: dict[str, Any]
        try:
            fields = self.verify.ask(window.texts, question, statement.text, replies)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: counted as unjudged, never dropped
            fields = {"error": redact(in_short(exc), dspy.settings.lm), "lm_failed": True}
        else:
            ids, label = fields.pop("supporting_chunk_ids"), fields["verdict"]
            if label is None:
                fields = {"error": "the LM's reply has no label that was asked for"}
            else:
                fields["verdict"] = INSTRUCTIONS[self.verify.instruction].verdicts[label]
                # An id that the window does not have stays unknown: -1 is no chunk's id.
                fields["chunk_ids"] = tuple(window.ids[i] if 0 <= i < len(window.ids) else -1 for i in ids)
                if self.config.verdicts != "five_level":
                    del fields["level"]
        usage = used() - before
        return RawVerdict(text=statement.text, sentence_index=statement.sentence_index, **fields, usage=usage)


def merge_windows(verdicts: Sequence[RawVerdict]) -> RawVerdict:
    """One verdict on a statement from those by each window: the best supported one.

    If it is supported, fully or partly, ids and quotes of other windows with the same verdict follow its own. A window
    that could not be read leaves the statement unjudged, because the support may be there.
    """
    usage = sum((v.usage for v in verdicts), Usage())
    failed = next((v for v in verdicts if v.error), None)
    best = failed or max(verdicts, key=lambda v: v.logit or 0.0)
    if best.verdict not in (Verdict.FULLY_SUPPORTED, Verdict.PARTIALLY_SUPPORTED):
        return best.model_copy(update={"usage": usage})
    backing = [best, *(v for v in verdicts if v is not best and v.verdict is best.verdict)]
    evidence = {
        name: tuple(dict.fromkeys(item for v in backing for item in getattr(v, name)))
        for name in ("chunk_ids", "quotes")
    }
    return best.model_copy(update={**evidence, "usage": usage})
