"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from faith_dspy.adapter import CompactAdapter, label_probabilities
from faith_dspy.calibration import to_logit, to_probability
from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import ConfigError, FaithDspyError
from faith_dspy.schema import Chunk, Finding, Sentence, Statement
from faith_dspy.segment import carries_statement, sentences
from faith_dspy.signals import PreparedContext, prepare, statement_signals
from faith_dspy.signatures import INSTRUCTIONS, ExtractStatements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOP_TOKENS = 20
"""Alternatives asked for per token; the most that OpenAI's API gives."""
LABEL_TOKENS = 12
"""Room for a label, and the chunk ids after it, where one token is not enough."""
UNTOLD_LOGIT = 2.0
"""Logit that stands for a label whose probability the LM does not tell (p = .88)."""
MAX_LOST = 1 / 3
"""Share of a sentence's content words that its statements may miss."""

log = logging.getLogger(__name__)


class Verifier(dspy.Module):
    """One call per statement and instruction; the label comes first and its probability is read off the token."""

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        unknown = [name for name in config.instructions if name not in INSTRUCTIONS]
        if unknown:
            raise ConfigError(f"there is no instruction {unknown[0]!r}; there are {', '.join(INSTRUCTIONS)}.")
        self.names = list(config.instructions)
        self.cite = config.cite
        self.supported_from = config.supported_from
        self.told: bool | None = None  # whether the LM tells token probabilities; found out by the first call
        self.ask = [
            dspy.Predict(INSTRUCTIONS[name].signature(cite=config.cite and i == 0, criteria=config.criteria))
            for i, name in enumerate(self.names)
        ]

    def forward(self, context: list[str], question: str, statement: str) -> dspy.Prediction:
        """Verdict (label), probability of support or None, logit per instruction, chunk ids named by the LM."""
        logits: dict[str, float] = {}
        first: dspy.Prediction | None = None
        labels: dict[str, float] | None = None
        told = False
        for i, (name, predict) in enumerate(zip(self.names, self.ask, strict=True)):
            instruction = INSTRUCTIONS[name]
            long = self.cite and i == 0
            prediction = self._call(predict, long, context=context, question=question, statement=statement)
            shares = label_probabilities(_top_tokens(prediction), instruction.labels)
            if shares:
                told = True
                support = sum(p * instruction.labels[label] for label, p in shares.items())
                logits[name] = to_logit(support)
                prediction.verdict = max(shares, key=lambda k: shares[k])
            elif prediction.verdict is not None:
                logits[name] = UNTOLD_LOGIT if instruction.labels[prediction.verdict] == 1.0 else -UNTOLD_LOGIT
            if first is None:
                first, labels = prediction, shares
        if first is None:
            raise ValueError("a verifier needs at least one instruction")
        mean = sum(logits.values()) / len(logits) if logits else None
        probability = to_probability(mean) if told and mean is not None else None
        verdict = first.verdict
        if labels and probability is not None and self.supported_from is not None:
            known = INSTRUCTIONS[self.names[0]].verdicts
            side = [k for k in labels if known[k].is_supported is (probability >= self.supported_from)]
            verdict = max(side, key=lambda k: labels[k])
        return dspy.Prediction(
            verdict=verdict,
            supporting_chunk_ids=list(getattr(first, "supporting_chunk_ids", None) or []),
            logits=logits,
            probability=probability,
        )

    def _call(self, predict: dspy.Predict, long: bool, **inputs: Any) -> dspy.Prediction:
        """Ask with token probabilities; where the LM refuses them, or has never told any, for the label alone."""
        if self.told is not False:
            config = {"max_tokens": LABEL_TOKENS if long else 1, "logprobs": True, "top_logprobs": TOP_TOKENS}
            try:
                prediction = predict(**inputs, config=config)
            except Exception as exc:
                if "logprob" not in str(exc).lower():
                    raise
                log.info("the LM tells no token probabilities; going on with labels alone")
                self.told = False
            else:
                if _top_tokens(prediction):
                    self.told = True
                    return prediction
                # An LM that told them before has missed once; one that never did will not be asked again.
                self.told = self.told or False
        return predict(**inputs, config={"max_tokens": LABEL_TOKENS})


def _top_tokens(prediction: dspy.Prediction) -> list[Any]:
    """Alternatives of the first token of the reply; empty when the LM tells none."""
    logprobs = getattr(prediction, "logprobs", None)
    content = logprobs.get("content") if isinstance(logprobs, dict) else getattr(logprobs, "content", None)
    if not content:
        return []
    first = content[0]
    top = first.get("top_logprobs") if isinstance(first, dict) else first.top_logprobs
    return list(top or [])


class FaithfulnessProgram(dspy.Module):
    """Extract, then verify. Input: question, context, answer; output: sentences and a `Finding` per statement."""

    def __init__(self, config: JudgeConfig, window: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.window = window
        """Bytes of context one call may hold; None: no limit. Longer contexts are read window by window."""
        self.verify = Verifier(config)
        self.extract = dspy.Predict(ExtractStatements) if config.granularity is Granularity.STATEMENT else None

    def forward(self, context: Sequence[Chunk], answer: str, question: str | None = None) -> dspy.Prediction:
        """Findings in the answer's order. An LM fault is kept in its finding; it never drops a statement."""
        parts = sentences(answer)
        read = windows(context, self.window)
        with dspy.context(adapter=CompactAdapter()):
            statements = self.statements(parts, answer, question or "")
            findings = [self._finding(s, read, question or "") for s in statements]
        return dspy.Prediction(sentences=parts, findings=findings)

    def statements(self, parts: Sequence[Sentence], answer: str, question: str) -> list[Statement]:
        """What verdicts are asked about. Every sentence that can assert something ends in at least one statement."""
        carrying = [p for p in parts if carries_statement(p.text)]
        if self.config.granularity is Granularity.ANSWER:
            return [Statement(text=answer.strip())] if carrying else []
        if self.extract is None or not carrying:
            return [Statement(text=p.text, sentence_index=p.index) for p in carrying]
        room = 40 + 2 * sum(len(p.text) for p in carrying) // 3
        try:
            reply = self.extract(
                question=question, sentences=[p.text for p in carrying], config={"max_tokens": min(room, 2000)}
            )
            lines = list(reply.statements)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: the sentences as written stand in
            log.warning("extraction failed (%s); judging sentences as written", exc)
            lines = []
        return assign(lines, carrying, question)

    def _finding(self, statement: Statement, read: list[Window], question: str) -> Finding:
        """The best-supported reading over all windows."""
        base = statement.model_dump()
        best: Finding | None = None
        for ids, texts in read:
            try:
                p = self.verify(context=texts, question=question, statement=statement.text)
            except FaithDspyError:
                raise
            except Exception as exc:  # noqa: BLE001 - any LM fault: counted as unjudged, never dropped
                return Finding(**base, error=f"{type(exc).__name__}: {exc}"[:300], lm_failed=True)
            if p.verdict is None:
                return Finding(**base, error="the LM's reply has no label that was asked for")
            # An id the window does not have stays unknown: -1 is no chunk's id.
            named = tuple(ids[i] if 0 <= i < len(ids) else -1 for i in p.supporting_chunk_ids)
            if best is None or sum(p.logits.values()) > sum(best.logits.values()):
                best = Finding(
                    **base,
                    verdict=INSTRUCTIONS[self.verify.names[0]].verdicts[p.verdict],
                    probability=p.probability,
                    logits=p.logits,
                    chunk_ids=named,
                )
        return best or Finding(**base, error="there is no context to judge by")


class Window(NamedTuple):
    """A part of the context that fits one call."""

    ids: list[int]
    """Chunk id of each text."""
    texts: list[str]


def windows(context: Sequence[Chunk], limit: int | None) -> list[Window]:
    """Chunks in as few windows of ``limit`` bytes as their order allows; long chunks are cut between sentences.

    Bytes of UTF-8, as they tell tokens in every script: a character of Hindi or Chinese may be a token of its own.
    """
    pieces: list[tuple[int, str]] = []
    for chunk in context:
        if limit is None or _size(chunk.text) <= limit:
            pieces.append((chunk.id, chunk.text))
            continue
        piece = ""
        for sentence in sentences(chunk.text):
            for part in _cut(sentence.text, limit):
                if piece and _size(piece) + _size(part) + 1 > limit:
                    pieces.append((chunk.id, piece))
                    piece = ""
                piece = f"{piece} {part}".strip()
        pieces.append((chunk.id, piece))
    out = [Window([], [])]
    for chunk_id, text in pieces:
        if out[-1].texts and limit is not None and sum(map(_size, out[-1].texts)) + _size(text) > limit:
            out.append(Window([], []))
        out[-1].ids.append(chunk_id)
        out[-1].texts.append(text)
    return out


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _cut(text: str, limit: int) -> Iterator[str]:
    """Parts of at most ``limit`` bytes, a character at least."""
    start = size = 0
    for i, character in enumerate(text):
        size += _size(character)
        if size > limit and i > start:
            yield text[start:i]
            start, size = i, _size(character)
    yield text[start:]


def assign(lines: Sequence[str], carrying: Sequence[Sentence], known: str = "") -> list[Statement]:
    """Statements from the LM's numbered lines (numbers count ``carrying`` from 1), in the order of the sentences.

    An LM that takes an answer apart may leave things out or put things in, and so be judged instead of the answer.
    So a statement with a content word that neither the answer nor ``known`` (the question) has is dropped, and a
    sentence of which more than a third of the content words are then missing stands as written. Only the word "none"
    after its number takes a sentence out, and only one without a number or a name in it.
    """
    found: dict[int, list[str]] = {}
    for line in lines:
        match = re.match(r"^[\s\-*\[(]*(\d{1,3})[\])]?[.:)\s]+(.+)$", line)
        if match and 1 <= int(match[1]) <= len(carrying):
            found.setdefault(int(match[1]), []).append(match[2].strip())
    said = prepare([Chunk(id=0, text=" ".join([known, *(p.text for p in carrying)]))])
    out: list[Statement] = []
    for number, part in enumerate(carrying, 1):
        lines_here = found.get(number, [])
        if lines_here and all(re.fullmatch(r"\W*none\W*", t, re.IGNORECASE) for t in lines_here):
            if not re.search(r"\d|\b[A-Z]\w+\s+[A-Z]", part.text):
                continue
            lines_here = []
        texts = [t for t in dict.fromkeys(lines_here) if _novel(t, said) == 0]
        if not texts or _novel(part.text, prepare([Chunk(id=0, text=" ".join(texts))])) > MAX_LOST:
            texts = [part.text]
        out += [Statement(text=t, sentence_index=part.index) for t in texts]
    return out


def _novel(text: str, said: PreparedContext) -> float:
    return statement_signals(text, [], prepared=said)["novel_words"]
