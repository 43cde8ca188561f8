"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each, window by window."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import dspy
from dspy.utils.exceptions import ContextWindowExceededError

from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import FaithDspyError, short_message
from faith_dspy.io.inputs import as_chunks
from faith_dspy.lm.make import to_metered_lm
from faith_dspy.program.extraction import Extracted, assign_statements
from faith_dspy.program.prompt import (
    BoundPredict,
    CompactAdapter,
    JointAdapter,
    complete_demos,
)
from faith_dspy.program.signatures import (
    build_extraction_signature,
    build_verification_signature,
)
from faith_dspy.program.verifier import Samples, Verifier, failed_verdict
from faith_dspy.program.windows import (
    context_bytes,
    cut_into_windows,
    merge_windows,
    room_beside,
    utf8_size,
)
from faith_dspy.schema import Chunk, RawVerdict, Sentence, Statement, digest
from faith_dspy.scoring.score import pass_by_score
from faith_dspy.text.sentences import carries_statement, sentences

MAX_CUTS = 5
"""Times that a context is cut in half, because the server calls it too long as it is."""

log = logging.getLogger(__name__)


class FaithfulnessProgram(dspy.Module):
    """Extract statements from an answer, then verify them against its context.

    A plain `dspy.Module`: it asks the LM in `dspy.settings`, brings its own adapters, and any optimizer compiles it.

        program = judge.program
        program(context=["The kettle is blue."], question="Which colour?", answer="It is red.").faithful
    """

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        self.config = config
        self.window: int | None = None
        """Bytes of context that fit one call; None: as the LM says. A longer context is read window by window."""
        self.checks_statements = True
        """Whether statements may say only what the answer says; if not, they are judged as the LM wrote them."""
        self.verify = Verifier(config)
        self.joint: dspy.Predict | None = None
        self.extract: dspy.Predict | None = None
        if config.verification == "joint":
            signature = build_verification_signature(config, joint=True)
            self.joint = BoundPredict(signature, JointAdapter())
        if config.granularity is Granularity.STATEMENT:
            signature = build_extraction_signature(config)
            self.extract = BoundPredict(signature, CompactAdapter())

    def forward(
        self,
        context: Any,
        answer: str,
        question: str | None = None,
    ) -> dspy.Prediction:
        """Verify an answer. An LM fault becomes the error of a verdict; no statement is dropped.

        Args:
            context: Texts, or `Chunk` objects.
            answer: The answer.
            question: The question that it answers.

        Returns:
            ``statements`` (texts), their ``verdicts`` (None: unjudged), the ``chunk_ids`` that the LM cites for each,
            ``score`` and ``faithful`` (None while a statement is unjudged), as a judge without classifier has them;
            ``sentences``, ``raw_verdicts``, ``fallbacks`` and ``stand_ins`` as in a `RawJudgment`.
        """
        chunks = context
        if type(context) is not tuple or {type(chunk) for chunk in context} != {Chunk}:
            chunks = as_chunks(context)
        parts = sentences(answer)
        question = question or ""
        lm = dspy.settings.lm
        if type(lm) is dspy.LM:  # which does not find out what it can do
            lm = to_metered_lm(lm)
        with dspy.context(lm=lm):
            statements, stand_ins = self._statements(parts, answer, question)
            verdicts, fallbacks = self._verify(statements, question, chunks)
        labels = [verdict.verdict for verdict in verdicts]
        judged = [label for label in labels if label is not None]
        score = faithful = None
        if judged and len(judged) == len(labels):
            score, _, faithful = pass_by_score(judged, verdicts[0].level, self.config)
        return dspy.Prediction(
            statements=[verdict.text for verdict in verdicts],
            verdicts=labels,
            chunk_ids=[list(verdict.chunk_ids) for verdict in verdicts],
            score=score,
            faithful=faithful,
            sentences=parts,
            raw_verdicts=verdicts,
            fallbacks=fallbacks,
            stand_ins=stand_ins,
        )

    @property
    def prompts(self) -> dict[str, dspy.Predict]:
        """Its predictors by name: those, too, that an optimizer has marked as compiled."""
        prompts: dict[str, dspy.Predict] = {"verify.predict": self.verify.predict}
        if self.joint is not None:
            prompts["joint"] = self.joint
        if self.extract is not None:
            prompts["extract"] = self.extract
        return prompts

    @property
    def shown_prompts(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """What is asked: each predictor's instruction, and the demos that are shown."""
        shown = []
        for predict in self.prompts.values():
            signature = predict.signature
            demos = complete_demos(signature, predict.demos)
            shown.append((signature.instructions, demos))
        return shown

    @property
    def prompts_hash(self) -> str:
        """Hash of what is asked."""
        return digest(self.shown_prompts)

    def _statements(
        self, parts: Sequence[Sentence], answer: str, question: str
    ) -> Extracted:
        """Return the statements to verify. Every sentence that can assert something ends in at least one."""
        carrying = [part for part in parts if carries_statement(part.text)]
        if not carrying:
            return Extracted([], 0)
        if self.config.granularity is Granularity.ANSWER:
            return Extracted([Statement(text=answer.strip())], 0)
        if self.extract is None:
            return Extracted([as_statement(part) for part in carrying], 0)
        texts = [part.text for part in carrying]
        characters = sum(map(len, texts))
        config = {"max_tokens": min(40 + 2 * characters // 3, 2000)}
        lines: list[str] = []
        try:
            extracted = self.extract(question=question, sentences=texts, config=config)
            lines = extracted.statements
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: the sentences as written stand in
            log.warning(
                "extraction failed (%s); judging sentences as written",
                short_message(exc),
            )
        return assign_statements(
            lines, carrying, question, check=self.checks_statements
        )

    def _verify(
        self, statements: Sequence[Statement], question: str, chunks: Sequence[Chunk]
    ) -> tuple[list[RawVerdict], int]:
        """Return the LM's verdicts, and how many of a joint reply had to be asked for one by one."""
        lm = dspy.settings.lm
        demos = self.verify.predict.demos
        room = context_bytes(lm, demos)
        if self.window is not None:
            room = room_beside(self.window, demos)
        for _ in range(MAX_CUTS):
            replies: list[list[RawVerdict]] = [[] for _ in statements]
            unread = list(range(len(statements)))
            fallbacks = 0
            try:
                # All statements by one window before the next: the server reads each window's text once.
                for window in cut_into_windows(chunks, room):
                    joint_samples: Sequence[Samples] = [()] * len(unread)
                    if self.joint is not None and len(unread) > 1:
                        several = [statements[i] for i in unread]
                        joint_samples = self.verify.ask_jointly(
                            self.joint, several, question, window
                        )
                        fallbacks += sum(None in samples for samples in joint_samples)
                    for i, samples in zip(unread, joint_samples, strict=True):
                        about = (statements[i], question, window)
                        replies[i].append(self.verify.ask(*about, samples))
                    unread = [i for i in unread if not replies[i][-1].error]
            except ContextWindowExceededError as exc:
                error = exc
                room = (room or sum(utf8_size(chunk.text) for chunk in chunks)) // 2
            else:
                return [merge_windows(verdicts) for verdicts in replies], fallbacks
        return [failed_verdict(statement, error, lm) for statement in statements], 0


def as_statement(sentence: Sentence) -> Statement:
    """Return a sentence as a statement."""
    return Statement(text=sentence.text, sentence_index=sentence.index)
