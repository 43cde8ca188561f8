"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each."""

from __future__ import annotations

import logging
import re
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import dspy

from faith_dspy.concurrency import meanwhile
from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import FaithDspyError, in_short
from faith_dspy.lm.endpoint import redact
from faith_dspy.lm.meter import counted
from faith_dspy.program.adapter import ADAPTER, CompactAdapter, unwatched
from faith_dspy.program.signatures import INSTRUCTIONS, ExtractStatements
from faith_dspy.program.verifier import JointVerifier, Verifier
from faith_dspy.schema import Chunk, RawVerdict, Sentence, Statement, Usage
from faith_dspy.text.context import IndexedContext, index_context
from faith_dspy.text.features import CLASSIFIER_FEATURES, is_covered, lexical_features, novelty
from faith_dspy.text.focus import focused
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faith_dspy.program.verifier import Replies

MAX_LOST = 1 / 3
"""Share of a sentence's content words that its statements may miss."""
NUMBER_BYTES = 12
"""What a chunk's number in the prompt takes of a window: five tokens, in bytes as `Judge` counts them."""

_Open: TypeAlias = tuple[Statement, list[RawVerdict]]
"""A statement the LM is asked about, and its readings so far."""

log = logging.getLogger(__name__)


class FaithfulnessProgram(dspy.Module):
    """Extract, then verify. Input: question, context, answer; output: sentences and a `RawVerdict` per statement."""

    def __init__(self, config: JudgeConfig, window: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.window = window
        """Bytes of context one call may hold; None: no limit. Longer contexts are read window by window."""
        self.verify = Verifier(config)
        self.joint = JointVerifier(config, self.verify.ear) if config.verification == "joint" else None
        self.extract = dspy.Predict(ExtractStatements) if config.granularity is Granularity.STATEMENT else None

    def forward(
        self, context: Sequence[Chunk], answer: str, question: str | None = None, ask_about: str = "all"
    ) -> dspy.Prediction:
        """Findings in the answer's order. An LM fault is kept in its raw_verdict; it never drops a statement.

        ``ask_about``: the option of `JudgeConfig`.
        """
        parts = sentences(answer)
        missed = 0
        with nullcontext() if isinstance(dspy.settings.adapter, CompactAdapter) else dspy.context(adapter=ADAPTER):
            before = counted()
            statements = self.statements(parts, answer, question or "")
            extraction = counted() - before
            passed: list[RawVerdict | None] = [None] * len(statements)
            if ask_about != "all":
                passed = passed_over(statements, index_context(context, question), ask_about)
            todo: list[_Open] = [(s, []) for s, p in zip(statements, passed, strict=True) if p is None]
            for window, asked in self._turns(context, todo):
                given = self._jointly([s for s, _ in asked], window, question or "")
                missed += sum(any(None in row for row in replies) for replies in given if replies)
                for (statement, found), said in zip(asked, given, strict=True):
                    if not any(f.error for f in found):
                        with meanwhile(partial(_signals, statement.text, context, question)):
                            found.append(self._reading(statement, window, said, question or ""))
        raw_verdicts = completed(passed, [merged(found) for _, found in todo])
        return dspy.Prediction(sentences=parts, raw_verdicts=raw_verdicts, fallbacks=missed, extraction=extraction)

    def _turns(self, context: Sequence[Chunk], todo: list[_Open]) -> Iterator[tuple[Window, list[_Open]]]:
        """What is asked about one after the other: all statements of a window before the next one, so that the server
        reads the window's text once; with `focus` each statement with sentences of its own."""
        room = self._room()
        if self.config.focus is None:
            yield from ((window, todo) for window in windows(context, room, NUMBER_BYTES))
            return
        for one in todo:
            shown = focused(context, one[0].text, self.config.focus)
            yield from ((window, [one]) for window in windows(shown, room, NUMBER_BYTES))

    def _room(self) -> int | None:
        """Bytes of context that a call has room for beside its demos, which hold contexts of their own."""
        if self.window is None:
            return None
        shown = max((_size(str([dict(d) for d in ask.demos])) for ask in self.verify.ask if ask.demos), default=0)
        return max(self.window - shown, self.window // 4)

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
            said = redact(in_short(exc), dspy.settings.lm)
            log.warning("extraction failed (%s); judging sentences as written", said)
            lines = []
        return assign(lines, carrying, question)

    def _reading(self, statement: Statement, window: Window, given: Replies | None, question: str) -> RawVerdict:
        """What the LM says about a statement by one window."""
        verify = self.verify
        inputs: dict[str, Any] = {
            "context": window.texts,
            "question": question,
            "statement": statement.text,
            "given": given,
        }
        found: dict[str, Any] = {"text": statement.text, "sentence_index": statement.sentence_index}
        before = counted()
        try:
            p = verify.reading(**inputs) if unwatched(verify) else verify(**inputs)
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: counted as unjudged, never dropped
            found |= {"error": redact(in_short(exc), dspy.settings.lm), "lm_failed": True}
        else:
            found |= self._found(p, window.ids)
        return RawVerdict(**found, usage=counted() - before)

    def _found(self, p: Any, ids: Sequence[int]) -> dict[str, Any]:
        """A reading as the fields of a `RawVerdict`."""
        if p.verdict is None:
            return {"error": "the LM's reply has no label that was asked for"}
        return {
            "verdict": INSTRUCTIONS[self.verify.names[0]].verdicts[p.verdict],
            "probability": p.probability,
            "logits": p.logits,
            # An id the window does not have stays unknown: -1 is no chunk's id.
            "chunk_ids": tuple(ids[i] if 0 <= i < len(ids) else -1 for i in p.supporting_chunk_ids),
            "quotes": tuple(p.quotes),
            "reason": p.reason,
            "level": p.level if self.config.verdicts == "five_level" else None,
        }


def passed_over(statements: Sequence[Statement], indexed: IndexedContext, ask_about: str) -> list[RawVerdict | None]:
    """What stands for the statements that the LM is not asked about; None for those it is.

    ``ask_about``: the option of `JudgeConfig`, ``novel`` or ``weakest``.
    """
    found = [RawVerdict.cleared(s) if is_covered(s.text, indexed) else None for s in statements]
    left = [i for i, f in enumerate(found) if f is None]
    if ask_about == "weakest" and left:
        left.remove(max(left, key=lambda i: novelty(statements[i].text, indexed)))
        for i in left:
            found[i] = RawVerdict.presumed(statements[i])
    return found


def completed(passed: Sequence[RawVerdict | None], asked: Sequence[RawVerdict]) -> list[RawVerdict]:
    """All raw_verdicts, in the answer's order. Where the weakest statement cannot be judged, none is presumed by it."""
    told = iter(asked)
    lost = next((f for f in asked if f.verdict is None), None)
    return [
        next(told) if p is None
        else p if lost is None or p.probability is not None
        else lost.model_copy(update={"text": p.text, "sentence_index": p.sentence_index, "usage": Usage()})
        for p in passed
    ]  # fmt: skip


def _signals(statement: str, context: Sequence[Chunk], question: str | None) -> None:
    """Lexical features take no less time than the rest; they are remembered for the judgment that follows.

    Those that most classifiers use: of others the context is read by then.
    """
    lexical_features(statement, (), indexed=index_context(context, question), names=CLASSIFIER_FEATURES)


def merged(readings: Sequence[RawVerdict]) -> RawVerdict:
    """One raw_verdict from a statement's readings by all windows: the best-supported one.

    Where it is supported, ids and quotes of the other windows that support it stand after its own. A window that could
    not be read leaves the statement unjudged: what stands there might have been the support.
    """
    if len(readings) == 1 and not (readings[0].chunk_ids or readings[0].quotes):
        return readings[0]
    usage = sum((r.usage for r in readings), Usage())
    failed = next((r for r in readings if r.error), None)
    best = failed or max(readings, key=lambda r: sum(r.logits.values()))
    if best.verdict is None or not best.verdict.is_supported:
        return best.model_copy(update={"usage": usage})
    backing = [best, *(r for r in readings if r is not best and r.verdict is best.verdict)]
    return best.model_copy(
        update={
            name: tuple(dict.fromkeys(item for r in backing for item in getattr(r, name)))
            for name in ("chunk_ids", "quotes")
        }
        | {"usage": usage}
    )


class Window(NamedTuple):
    """A part of the context that fits one call."""

    ids: list[int]
    """Chunk id of each text."""
    texts: list[str]


def windows(context: Sequence[Chunk], limit: int | None, each: int = 0) -> list[Window]:
    """Chunks in as few windows of ``limit`` bytes as their order allows; long chunks are cut between sentences.

    ``each``: what every chunk takes beside its text. Bytes of UTF-8, as they tell tokens in every script: a character
    of Hindi or Chinese may be a token of its own.
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
    taken = 0
    for chunk_id, text in pieces:
        size = _size(text) + each
        if out[-1].texts and limit is not None and taken + size > limit:
            out.append(Window([], []))
            taken = 0
        taken += size
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
    said = index_context([Chunk(id=0, text=" ".join([known, *(p.text for p in carrying)]))])
    out: list[Statement] = []
    for number, part in enumerate(carrying, 1):
        lines_here = found.get(number, [])
        if lines_here and all(re.fullmatch(r"\W*none\W*", t, re.IGNORECASE) for t in lines_here):
            if not re.search(r"\d|\b[A-Z]\w+\s+[A-Z]", part.text):
                continue
            lines_here = []
        texts = [t for t in dict.fromkeys(lines_here) if _novel(t, said) == 0]
        if not texts or _novel(part.text, index_context([Chunk(id=0, text=" ".join(texts))])) > MAX_LOST:
            texts = [part.text]
        out += [Statement(text=t, sentence_index=part.index) for t in texts]
    return out


def _novel(text: str, said: IndexedContext) -> float:
    return lexical_features(text, [], indexed=said, names=["novel_words"])["novel_words"]
