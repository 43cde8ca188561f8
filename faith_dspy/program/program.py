"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each, window by window."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import dspy
from dspy.utils.exceptions import ContextWindowExceededError

from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import (
    ConfigError,
    FaithDspyError,
    PendingReplyError,
    short_message,
)
from faith_dspy.io.inputs import as_chunks
from faith_dspy.lm.make import to_metered_lm
from faith_dspy.lm.metered import run_async
from faith_dspy.program.extraction import Extracted, assign_statements
from faith_dspy.program.prompt import (
    BoundPredict,
    CompactAdapter,
    FollowUpAdapter,
    complete_demos,
)
from faith_dspy.program.signatures import ExplainVerdict, build_extraction_signature
from faith_dspy.program.verifier import REASON_TOKENS, Verifier, failed_verdict
from faith_dspy.program.windows import (
    context_bytes,
    cut_into_windows,
    merge_windows,
    utf8_size,
)
from faith_dspy.schema import Chunk, RawVerdict, Sentence, Statement, digest
from faith_dspy.scoring.score import decide
from faith_dspy.text.sentences import SplitAnswer, sentence_texts, split_answer

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
        self.checks_statements = True
        """Whether statements may say only what the answer says; if not, they are judged as the LM wrote them."""
        self.verify = Verifier(config)
        self.extract: dspy.Predict | None = None
        if config.granularity is Granularity.STATEMENT:
            signature = build_extraction_signature(config)
            self.extract = BoundPredict(signature, CompactAdapter())

    def forward(
        self, context: Any, answer: str, question: str | None = None
    ) -> dspy.Prediction:
        """Verify an answer. An LM fault becomes the error of a verdict; no statement is dropped.

        Args:
            context: Texts, or `Chunk` objects.
            answer: The answer.
            question: The question that it answers.

        Returns:
            ``statements`` (texts), their ``verdicts`` (None: unjudged), the ``chunk_ids`` that the LM cites for each,
            ``faithful`` as a judge without classifier has it (None while a statement is unjudged), and the
            ``raw_verdicts`` that a judge scores.
        """
        lm = self.verify.predict.lm or dspy.settings.lm
        if lm is None:
            raise ConfigError(
                "no LM is set: call dspy.configure(lm=judge.lm), or use dspy.context(lm=judge.lm)."
            )
        if type(lm) is dspy.LM:  # which does not find out what it can do
            lm = to_metered_lm(lm)
        with dspy.context(lm=lm):
            statements, _ = self.extract_statements(split_answer(answer), question)
            verdicts, _ = self.verify_statements(
                statements, as_chunks(context), question
            )
        labels = [verdict.verdict for verdict in verdicts]
        judged = [label for label in labels if label is not None]
        faithful = None
        if judged and len(judged) == len(labels):
            *_, faithful = decide(judged, verdicts[0].level, self.config)
        return dspy.Prediction(
            statements=[verdict.text for verdict in verdicts],
            verdicts=[label and label.value for label in labels],
            chunk_ids=[list(verdict.chunk_ids) for verdict in verdicts],
            faithful=faithful,
            raw_verdicts=verdicts,
        )

    async def aforward(self, *args: Any, **kwargs: Any) -> dspy.Prediction:
        """`forward` without blocking the event loop. Once cancelled, it makes no further LM call."""
        return await run_async(partial(type(self).forward, self, *args, **kwargs))

    @property
    def prompts(self) -> dict[str, dspy.Predict]:
        """Its predictors by name: those, too, that an optimizer has marked as compiled."""
        prompts = {
            "verify.predict": self.verify.predict,
            "joint": self.verify.joint,
            "extract": self.extract,
        }
        return {name: prompt for name, prompt in prompts.items() if prompt is not None}

    @property
    def shown_prompts(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """What is asked: each predictor's instruction, and the demos that are shown."""
        return [
            (one.signature.instructions, complete_demos(one.signature, one.demos))
            for one in self.prompts.values()
        ]

    @property
    def prompts_hash(self) -> str:
        """Hash of what is asked."""
        return digest(self.shown_prompts)

    def extract_statements(
        self, answer: SplitAnswer, question: str | None
    ) -> Extracted:
        """Return the statements to verify. Every sentence that can assert something ends in at least one."""
        if not answer.stating:
            return Extracted([], 0)
        if self.config.granularity is Granularity.ANSWER:
            return Extracted([Statement(text=answer.said)], 0)
        if self.extract is None:
            return Extracted([as_statement(one) for one in answer.stating], 0)
        texts = [sentence.text for sentence in answer.stating]
        characters = sum(map(len, texts))
        config = {"max_tokens": min(40 + 2 * characters // 3, 2000)}
        asked = question or ""
        lines: list[str] = []
        try:
            extracted = self.extract(question=asked, sentences=texts, config=config)
            lines = extracted.statements
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: the sentences as written stand in
            log.warning(
                "extraction failed (%s); judging sentences as written",
                short_message(exc),
            )
        return assign_statements(
            lines, answer.stating, asked, check=self.checks_statements
        )

    def verify_statements(
        self,
        statements: Sequence[Statement],
        context: Sequence[Chunk],
        question: str | None,
    ) -> Verified:
        """Return the LM's verdicts, all statements by one window of the context before the next: the server reads the
        text of each window once."""
        lm = dspy.settings.lm
        room = context_bytes(lm, self.verify.predict.demos)
        for _ in range(MAX_CUTS):
            replies: list[list[RawVerdict]] = [[] for _ in statements]
            pending: PendingReplyError | None = None
            fallbacks = 0
            try:
                for window in cut_into_windows(context, room):
                    unread = [
                        i
                        for i, said in enumerate(replies)
                        if not any(verdict.error for verdict in said)
                    ]
                    several = [statements[i] for i in unread]
                    try:
                        samples = self.verify.ask_jointly(several, question, window)
                    except PendingReplyError as exc:
                        pending = exc
                        continue
                    fallbacks += sum(None in answered for answered in samples)
                    for i, answered in zip(unread, samples, strict=True):
                        about = statements[i], question, window, answered
                        try:
                            replies[i].append(self.verify.ask(*about))
                        except PendingReplyError as exc:
                            pending = exc  # a batch takes the others along
                if pending:
                    raise pending
            except ContextWindowExceededError as exc:
                error = exc
                size = sum(utf8_size(chunk.text) for chunk in context)
                room = min(room or size, size) // 2
            else:
                verdicts = [merge_windows(by_window) for by_window in replies]
                return Verified(verdicts, fallbacks)
        return Verified([failed_verdict(one, error) for one in statements], 0)

    def explain(
        self,
        verdict: RawVerdict,
        context: Sequence[Chunk],
        question: str | None,
        nearest: Collection[int],
    ) -> str | None:
        """Return why the LM gave a statement that verdict, in a sentence, by the window that has most of the
        ``nearest`` chunks; None if the LM failed."""
        verify = self.verify.predict
        lm = verify.lm or dspy.settings.lm
        windows = cut_into_windows(context, context_bytes(lm, verify.demos))
        window = max(windows, key=lambda one: len(set(nearest).intersection(one.ids)))
        lines: list[str] = []
        try:
            lines = BoundPredict(ExplainVerdict, FollowUpAdapter(verify))(
                context=window.texts,
                question=question or "",
                statement=verdict.text,
                verdict=verdict.label,
                lm=lm,
                config={"max_tokens": REASON_TOKENS["after"]},
            ).reason
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: the verdict stands without a reason
            log.warning("no reason: %s", short_message(exc))
        sentences = sentence_texts(" ".join(lines))
        return sentences[0][1] if sentences else None


class Verified(NamedTuple):
    """What the LM says about statements."""

    verdicts: list[RawVerdict]
    fallbacks: int
    """Statements that joint replies left out or garbled, asked one by one."""


def as_statement(sentence: Sentence) -> Statement:
    """Return a sentence as a statement."""
    return Statement(text=sentence.text, sentence_index=sentence.index)
