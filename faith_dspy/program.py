"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NamedTuple

import dspy

from faith_dspy.adapter import CompactAdapter
from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import FaithDspyError, in_short
from faith_dspy.lm import metered
from faith_dspy.schema import Chunk, Finding, Sentence, Statement
from faith_dspy.segment import carries_statement, sentences
from faith_dspy.signals import PreparedContext, prepare, statement_signals
from faith_dspy.signatures import INSTRUCTIONS, ExtractStatements
from faith_dspy.verifier import JointVerifier, Verifier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faith_dspy.verifier import Replies

MAX_LOST = 1 / 3
"""Share of a sentence's content words that its statements may miss."""

log = logging.getLogger(__name__)


class FaithfulnessProgram(dspy.Module):
    """Extract, then verify. Input: question, context, answer; output: sentences and a `Finding` per statement."""

    def __init__(self, config: JudgeConfig, window: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.window = window
        """Bytes of context one call may hold; None: no limit. Longer contexts are read window by window."""
        self.verify = Verifier(config)
        self.joint = JointVerifier(config, self.verify.ear) if config.verification == "joint" else None
        self.extract = dspy.Predict(ExtractStatements) if config.granularity is Granularity.STATEMENT else None

    def forward(self, context: Sequence[Chunk], answer: str, question: str | None = None) -> dspy.Prediction:
        """Findings in the answer's order. An LM fault is kept in its finding; it never drops a statement."""
        parts = sentences(answer)
        read = windows(context, self.window)
        with dspy.context(adapter=CompactAdapter()):
            with metered() as extraction:
                statements = self.statements(parts, answer, question or "")
            given = [self._jointly(statements, w, question or "") for w in read]
            findings = [
                self._finding(s, read, [window[i] for window in given], question or "")
                for i, s in enumerate(statements)
            ]
        missed = sum(any(None in row for row in replies) for window in given for replies in window if replies)
        return dspy.Prediction(sentences=parts, findings=findings, fallbacks=missed, extraction=extraction.usage)

    def _jointly(self, statements: Sequence[Statement], window: Window, question: str) -> list[Replies | None]:
        """Replies to all statements at once; None for each where they are asked one by one, as a single one is."""
        if self.joint is None or len(statements) < 2:
            return [None] * len(statements)
        replies: list[Replies | None] = self.joint(
            context=window.texts, question=question, statements=[s.text for s in statements]
        )
        return replies

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
            log.warning("extraction failed (%s); judging sentences as written", in_short(exc))
            lines = []
        return assign(lines, carrying, question)

    def _finding(self, statement: Statement, read: list[Window], given: list[Replies | None], question: str) -> Finding:
        """The best-supported reading over all windows, with what it cost to ask."""
        with metered() as meter:
            found = self._best(statement, read, given, question)
        return found.model_copy(update={"usage": meter.usage})

    def _best(self, statement: Statement, read: list[Window], given: list[Replies | None], question: str) -> Finding:
        base = statement.model_dump()
        best: Finding | None = None
        for (ids, texts), said in zip(read, given, strict=True):
            try:
                p = self.verify(context=texts, question=question, statement=statement.text, given=said)
            except FaithDspyError:
                raise
            except Exception as exc:  # noqa: BLE001 - any LM fault: counted as unjudged, never dropped
                return Finding(**base, error=in_short(exc), lm_failed=True)
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
                    quotes=tuple(p.quotes),
                    reason=p.reason,
                    level=p.level if self.config.verdicts == "five_level" else None,
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
