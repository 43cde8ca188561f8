"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each, window by window."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import dspy
from dspy.utils.exceptions import AdapterParseError

from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import ConfigError, FaithDspyError, in_short
from faith_dspy.lm.make import decision_model
from faith_dspy.program.adapter import CompactAdapter, Tokens, as_data, label_offset, read_verdict, support, tokens_of
from faith_dspy.program.decision import decide
from faith_dspy.program.extraction import Extracted, assign_statements
from faith_dspy.program.signatures import INSTRUCTIONS, Instruction, extraction_of, signature_of
from faith_dspy.schema import Chunk, RawVerdict, Sentence, Statement, Verdict
from faith_dspy.text.features import IndexedContext, index_context, is_covered, novelty
from faith_dspy.text.sentences import carries_statement, sentence_texts, sentences

TOP_LOGPROBS = 20  # alternatives requested per token: the most that OpenAI's API gives
LABEL_TOKENS = 12  # room for a label and the chunk ids after it, where one token is not enough
QUOTE_TOKENS = 80
REASON_TOKENS = {"none": 0, "after": 100, "before": 200}
ENTRY_TOKENS = 40  # room for the names and brackets around one verdict in JSON
TEMPERATURE = 0.7  # of repeated samples
MAX_WITHOUT = 3  # replies in a row without token probabilities after which there is always room for a label
AGAIN = 1_000_000  # added to the rollout_id of a question that is asked once more
BYTES_PER_TOKEN = 2.5  # careful guess for UTF-8 text; English has about 4, Hindi about 3
CONTEXT_SHARE = 0.7  # of the LM's context window that the answer's context may fill
NUMBER_BYTES = 12  # room for a chunk's number in the prompt: five tokens, in the bytes that windows are measured in

log = logging.getLogger(__name__)


class FaithfulnessProgram(dspy.Module):
    """Extract statements, then verify them. Needs an LM in `dspy.settings`; brings its own adapters."""

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        self.config = config
        self.window: int | None = None
        """Bytes of context that fit one call; None: as the LM says. A longer context is read window by window."""
        self.verify = Verifier(config)
        self.joint = dspy.Predict(signature_of(config, joint=True)) if config.verification == "joint" else None
        self.extract = dspy.Predict(extraction_of(config)) if config.granularity is Granularity.STATEMENT else None

    def forward(
        self, context: Sequence[Chunk], answer: str, question: str | None = None, ask_about: str = "all"
    ) -> dspy.Prediction:
        """``sentences``, ``raw_verdicts`` in the answer's order, ``fallbacks``, ``stand_ins``.

        An LM fault becomes the error of a verdict; no statement is dropped. All statements are verified by one window
        before the next, so that the server reads each window's text once.
        """
        parts, question_text, fallbacks = sentences(answer), question or "", 0
        with dspy.context(adapter=CompactAdapter()):
            statements, stand_ins = self._statements(parts, answer, question_text)
            without_lm: list[RawVerdict | None] = [None] * len(statements)
            if ask_about == "weakest":
                without_lm = verdicts_without_lm(statements, index_context(context, question))
            pending = [s for s, v in zip(statements, without_lm, strict=True) if v is None]
            found: list[list[RawVerdict]] = [[] for _ in pending]
            for window in windows(context, self._room(), NUMBER_BYTES):
                left = [i for i, verdicts in enumerate(found) if not any(v.error for v in verdicts)]
                jointly = self._ask_jointly([pending[i] for i in left], question_text, window)
                fallbacks += sum(None in given for given in jointly)
                for i, given in zip(left, jointly, strict=True):
                    found[i].append(self._verdict(pending[i], question_text, window, given))
        return dspy.Prediction(
            sentences=parts,
            raw_verdicts=combine_verdicts(without_lm, [merge_windows(verdicts) for verdicts in found]),
            fallbacks=fallbacks,
            stand_ins=stand_ins,
        )

    def _statements(self, parts: Sequence[Sentence], answer: str, question: str) -> Extracted:
        """The statements to verify. Every sentence that can assert something ends in at least one."""
        carrying = [p for p in parts if carries_statement(p.text)]
        if self.config.granularity is Granularity.ANSWER:
            return Extracted([Statement(text=answer.strip())] if carrying else [], 0)
        if self.extract is None or not carrying:
            return Extracted([Statement(text=p.text, sentence_index=p.index) for p in carrying], 0)
        texts, lines = [p.text for p in carrying], []
        room = min(40 + 2 * sum(map(len, texts)) // 3, 2000)
        try:
            lines = self.extract(question=question, sentences=texts, config={"max_tokens": room}).statements
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: the sentences as written stand in
            log.warning("extraction failed (%s); judging sentences as written", _in_short(exc))
        return assign_statements(lines, carrying, question)

    def _room(self) -> int | None:
        """Bytes of context that fit one call beside its demos, which hold contexts of their own."""
        window = self.window or bytes_of_context(dspy.settings.lm)
        if window is None:
            return None
        demos = self.verify.predict.demos
        shown = size_of(str([dict(d) for d in demos])) if demos else 0
        return max(window - shown, window // 4)

    def _verdict(self, statement: Statement, question: str, window: Window, given: Samples) -> RawVerdict:
        try:
            return self.verify.ask(statement, question, window, given)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: counted as unjudged, never dropped
            return RawVerdict(**statement.model_dump(), error=_in_short(exc), lm_failed=True)

    def _ask_jointly(self, statements: Sequence[Statement], question: str, window: Window) -> list[Samples]:
        """Verdicts on all statements by one call for each sample; empty where they are asked one by one."""
        if self.joint is None or len(statements) < 2:
            return [()] * len(statements)
        verify = self.verify
        inputs = {
            "context": {i: as_data(text) for i, text in enumerate(window.texts)},
            "question": as_data(question),
            "statements": {i: as_data(s.text) for i, s in enumerate(statements, 1)},
        }
        room = (LABEL_TOKENS + ENTRY_TOKENS + verify.extra_tokens) * len(statements)
        found: list[dict[int, RawVerdict]] = []
        for sample in verify.samples:
            found.append({})
            try:
                if decision_model(dspy.settings.lm):
                    replies = decide(verify.predict, window.texts, question, [s.text for s in statements])
                    for i, (s, reply) in enumerate(zip(statements, replies, strict=True), 1):
                        found[-1][i] = verify.read(reply, s, window, tokens_of(reply), None)
                    continue
                with dspy.context(adapter=dspy.JSONAdapter()):
                    prediction = verify.call(self.joint, inputs, room, sample)
            except FaithDspyError:
                raise
            except Exception as exc:  # noqa: BLE001 - any LM fault: the statements are asked one by one
                log.warning("joint verification failed (%s); asking statement by statement", _in_short(exc))
                continue
            entries, tokens = prediction.verdicts, tokens_of(prediction)
            labels_at = [match.end() for match in re.finditer(r'"verdict"\s*:\s*"', tokens.text)]
            if len(labels_at) != len(entries):  # no telling which token is whose
                tokens, labels_at = Tokens(), [0] * len(entries)
            times = Counter(entry.statement for entry in entries)
            for entry, at in zip(entries, labels_at, strict=True):
                if times[entry.statement] == 1 and 1 <= entry.statement <= len(statements):
                    read = verify.read(entry.model_dump(), statements[entry.statement - 1], window, tokens, at)
                    if read.label is not None:
                        found[-1][entry.statement] = read
        return [[verdicts.get(i) for verdicts in found] for i in range(1, len(statements) + 1)]


class Verifier(dspy.Module):
    """Asks about a statement, one call a sample, for token probabilities as long as the LM gives any."""

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        self.instruction = config.instruction
        self.reasons_first = config.reasoning == "before"
        self.confidence = config.confidence
        self.samples: list[int | None] = [*range(1, config.samples + 1)] if config.confidence == "samples" else [None]
        """A number per sample; None for a single reply that is not sampled."""
        self.extra_tokens = REASON_TOKENS[config.reasoning] + (QUOTE_TOKENS if config.quote else 0)
        self.tokens = LABEL_TOKENS + self.extra_tokens if self.extra_tokens or config.cite else 1
        self.refuses, self.without = False, 0
        """Whether the LM refuses to be asked for token probabilities; replies in a row that had none."""
        self.predict = dspy.Predict(signature_of(config))

    def forward(self, context: list[str], question: str, statement: str) -> dspy.Prediction:
        """What `ask` returns, as DSPy's optimizers take it: ``verdict`` is the label."""
        raw = self.ask(Statement(text=statement), question, Window(list(range(len(context))), context))
        found = {"verdict": raw.label, "supporting_chunk_ids": list(raw.chunk_ids)}
        return dspy.Prediction(**found, probability=raw.probability, logit=raw.logit)

    def ask(self, statement: Statement, question: str, window: Window, given: Samples = ()) -> RawVerdict:
        """What the LM says about one statement; ``given``: verdicts by sample that a joint call gave already."""
        inputs = {"context": window.texts, "question": question, "statement": statement.text}
        verdicts = [
            known or self._ask(statement, inputs, window, sample)
            for known, sample in zip(given or [None] * len(self.samples), self.samples, strict=True)
        ]
        return pool_samples(verdicts, INSTRUCTIONS[self.instruction])

    def _ask(self, statement: Statement, inputs: dict[str, Any], window: Window, sample: int | None) -> RawVerdict:
        """One sample. DSPy's cache keeps each reply as it comes: one that cannot be read is asked for once more."""
        for again in (False, True):
            try:
                prediction = self.call(self.predict, inputs, self.tokens, sample, again=again)
            except AdapterParseError:  # an empty reply
                if again or not _replayed():
                    raise
                continue
            tokens = tokens_of(prediction)
            at = label_offset(tokens.text, self.reasons_first)
            verdict = self.read(prediction, statement, window, tokens, at)
            prediction["verdict"] = verdict.label  # DSPy's optimizers make demos of it
            # GEPA shows all of a prediction to the LM that proposes: twenty alternatives a token would fill its window.
            if "logprobs" in prediction:
                del prediction["logprobs"]
            if not _replayed() or (verdict.label and (verdict.probability is not None or not tokens)):
                break
        return verdict

    def read(self, said: Any, statement: Statement, window: Window, tokens: Tokens, at: int | None) -> RawVerdict:
        """`read_verdict` with this verifier's instruction and the LM's temperature."""
        sampled = bool(getattr(dspy.settings.lm, "kwargs", {}).get("temperature"))
        instruction = INSTRUCTIONS[self.instruction]
        return read_verdict(said, statement, instruction, window.ids, tokens, at, sampled=sampled)

    def call(
        self, predict: dspy.Predict, inputs: dict[str, Any], tokens: int, sample: int | None, *, again: bool = False
    ) -> dspy.Prediction:
        """Ask for the reply with its token probabilities; for the label alone where the LM refuses or gives none.

        Raises `ConfigError` with ``confidence="probability"`` if there are none in three replies. A decision model
        always gives them, and takes none of these settings.
        """
        if decision_model(dspy.settings.lm):
            return decide(predict, inputs["context"], inputs["question"], [inputs["statement"]])[0]
        lm_kwargs = getattr(dspy.settings.lm, "kwargs", {})
        rollout = (sample or lm_kwargs.get("rollout_id") or 0) + again * AGAIN
        config: dict[str, Any] = {"rollout_id": rollout} if sample or again else {}
        if sample is not None and "max_completion_tokens" not in lm_kwargs:  # reasoning models take no temperature
            config["temperature"] = TEMPERATURE
        room = max(tokens, LABEL_TOKENS)
        demanded, least = self.confidence == "probability", room if self.without >= MAX_WITHOUT else tokens
        if self.confidence in ("none", "samples") or (self.refuses and not demanded):
            return predict(**inputs, config={**config, "max_tokens": room})
        wanted = {**config, "max_tokens": least, "logprobs": True, "top_logprobs": TOP_LOGPROBS}
        prediction = None
        for attempt in range(MAX_WITHOUT if demanded else 1):
            try:
                prediction = predict(**inputs, config=wanted | ({"rollout_id": rollout + attempt} if attempt else {}))
            except dspy.LMError as exc:
                if "logprob" not in str(exc).lower():
                    raise
                self.refuses = True
                break
            if tokens_of(prediction):
                self.without = 0
                return prediction
        if demanded:
            raise ConfigError(
                "confidence='probability', but the LM gives no token probabilities. Set confidence='samples' for "
                "repeated samples, or 'auto' to go on without a confidence."
            )
        self.without += 1
        if self.refuses or self.without == MAX_WITHOUT:
            log.warning("the LM gives no token probabilities; going on with labels alone")
        # A single token without probabilities may be a mere asterisk; a longer reply is as good as a second one.
        return prediction if prediction and least > 1 else predict(**inputs, config={**config, "max_tokens": room})


Samples = Sequence[RawVerdict | None]
"""Verdicts on one statement, one per sample, where a reply could be read; empty where none was asked for."""


def _in_short(fault: Exception) -> str:
    return in_short(fault, dspy.settings.lm)


def _replayed() -> bool:
    """Whether DSPy's cache gave the last reply."""
    return bool(getattr(dspy.settings.lm, "replayed", bool)())


def pool_samples(verdicts: Sequence[RawVerdict], instruction: Instruction) -> RawVerdict:
    """Several samples as one verdict: the most frequent label, and each label's share as its probability."""
    counts = Counter(v.label for v in verdicts if v.label is not None)
    if len(verdicts) == 1 or not counts:
        return verdicts[0]
    label, _ = counts.most_common(1)[0]
    shares = {name: n / counts.total() for name, n in counts.items()}
    return next(v for v in verdicts if v.label == label).model_copy(update=support(shares, instruction))


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
    out, used = [Window([], [])], 0
    longest = None if limit is None else limit - overhead
    for chunk_id, text in ((c.id, text) for c in context for text in _pieces(c.text, longest)):
        size = size_of(text) + overhead
        if out[-1].texts and limit is not None and used + size > limit:
            out.append(Window([], []))
            used = 0
        used += size
        out[-1].ids.append(chunk_id)
        out[-1].texts.append(text)
    return out


def bytes_of_context(lm: Any) -> int | None:
    """Bytes of context that fit one call of an LM; None if its window of tokens is unknown."""
    num_ctx = getattr(getattr(lm, "endpoint", None), "num_ctx", None) or lm.kwargs.get("num_ctx")
    return int(num_ctx * CONTEXT_SHARE * BYTES_PER_TOKEN) if num_ctx else None


def size_of(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def _pieces(text: str, limit: int | None) -> Iterator[str]:
    if limit is None or size_of(text) <= limit:
        yield text
        return
    piece, used = "", 0
    for part in (part.strip() for _, sentence in sentence_texts(text) for part in _cut(sentence, limit)):
        size = size_of(part)
        if piece and used + size > limit:
            yield piece.strip()
            piece, used = "", 0
        piece += f"{part} "
        used += size + 1
    yield piece.strip()


def _cut(text: str, limit: int) -> Iterator[str]:
    """Parts of at most ``limit`` bytes, but at least one character each."""
    start = size = 0
    for i, character in enumerate(text):
        size += size_of(character)
        if size > limit and i > start:
            yield text[start:i]
            start, size = i, size_of(character)
    yield text[start:]


def merge_windows(verdicts: Sequence[RawVerdict]) -> RawVerdict:
    """One verdict on a statement from those by each window: the best support, else a contradiction, else the nearest.

    Ids and quotes of other windows with the same verdict follow its own, where it has evidence. A contradiction beside
    full support is its reason's last word. A window that could not be read leaves the statement unjudged, because the
    support may be there.
    """
    best = next((v for v in verdicts if v.error), None) or max(verdicts, key=lambda v: (_logit(v), v.level or 0.0))
    against = [v for v in verdicts if v.verdict is Verdict.CONTRADICTORY]
    if best.error is None and against and best.verdict is not Verdict.FULLY_SUPPORTED:
        best = min(against, key=_logit)
    changes: dict[str, Any] = {}
    if best.verdict in (Verdict.FULLY_SUPPORTED, Verdict.PARTIALLY_SUPPORTED, Verdict.CONTRADICTORY):
        backing = [best, *(v for v in verdicts if v is not best and v.verdict is best.verdict)]
        for name in ("chunk_ids", "quotes"):
            changes[name] = tuple(dict.fromkeys(item for v in backing for item in getattr(v, name)))
    if best.verdict is Verdict.FULLY_SUPPORTED and against:
        changes["reason"] = " ".join(filter(None, (best.reason, "Another part of the context contradicts it.")))
    return best.model_copy(update=changes)


def _logit(verdict: RawVerdict) -> float:
    return verdict.logit or 0.0


def verdicts_without_lm(statements: Sequence[Statement], indexed: IndexedContext) -> list[RawVerdict | None]:
    """With ``ask_about="weakest"``: the verdicts that need no LM; None for the statement it is asked about, if any.

    A statement that is covered by the context's words is supported with probability 1. Of the others the LM is asked
    about the one with the most novelty; the rest are presumed supported, without a probability.
    """
    chance = [1.0 if is_covered(s.text, indexed) else None for s in statements]
    uncovered = [i for i, probability in enumerate(chance) if probability is None]
    weakest = max(uncovered, key=lambda i: novelty(statements[i].text, indexed), default=None)
    presumed = (
        RawVerdict(text=s.text, sentence_index=s.sentence_index, verdict=Verdict.FULLY_SUPPORTED, probability=p)
        for s, p in zip(statements, chance, strict=True)
    )
    return [None if i == weakest else verdict for i, verdict in enumerate(presumed)]


def combine_verdicts(without_lm: Sequence[RawVerdict | None], asked: Sequence[RawVerdict]) -> list[RawVerdict]:
    """All verdicts in the answer's order: those of `verdicts_without_lm`, its gaps filled from ``asked``.

    If the LM could not judge the weakest statement, nothing can be presumed of the others: they become unjudged, too.
    """
    replies, failed = iter(asked), next((v for v in asked if v.error), None)
    verdicts = [v or next(replies) for v in without_lm]
    if failed is None or len(asked) == len(verdicts):
        return verdicts
    unjudged: dict[str, Any] = {"verdict": None, "error": failed.error, "lm_failed": failed.lm_failed}
    return [v if v.error or v.probability is not None else v.model_copy(update=unjudged) for v in verdicts]
