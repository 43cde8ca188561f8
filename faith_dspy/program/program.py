"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each, window by window."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import dspy
from dspy.utils.exceptions import ContextWindowExceededError

from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import FaithDspyError, in_short
from faith_dspy.io.inputs import as_chunks
from faith_dspy.lm.make import adopt
from faith_dspy.program.extraction import Extracted, assign_statements
from faith_dspy.program.prompt import (
    BoundPredict,
    CompactAdapter,
    JointAdapter,
    complete_demos,
)
from faith_dspy.program.signatures import extraction_of, signature_of
from faith_dspy.program.verifier import Samples, Verifier
from faith_dspy.program.windows import (
    context_bytes,
    cut_into_windows,
    merge_windows,
    room_beside,
)
from faith_dspy.schema import Chunk, RawVerdict, Sentence, Statement, Verdict, digest
from faith_dspy.scoring.score import pass_by_score
from faith_dspy.text.features import IndexedContext, index_context, is_covered, novelty
from faith_dspy.text.sentences import carries_statement, sentences

MAX_CUTS = 4
"""Times that a context is cut anew because the server calls it too long."""

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
        self.verify = Verifier(config)
        self.joint: dspy.Predict | None = None
        self.extract: dspy.Predict | None = None
        if config.verification == "joint":
            self.joint = BoundPredict(signature_of(config, joint=True), JointAdapter())
        if config.granularity is Granularity.STATEMENT:
            self.extract = BoundPredict(extraction_of(config), CompactAdapter())

    def forward(
        self,
        context: Any,
        answer: str,
        question: str | None = None,
        ask_about: str | None = None,
    ) -> dspy.Prediction:
        """Verify an answer. An LM fault becomes the error of a verdict; no statement is dropped.

        Args:
            context: Texts, or `Chunk` objects.
            answer: The answer.
            question: The question that it answers.
            ask_about: ``all`` or ``weakest``, in place of the option.

        Returns:
            ``statements`` (texts), their ``verdicts`` (None: unjudged), the ``chunk_ids`` that the LM cites for each,
            ``score`` and ``faithful`` (None while a statement is unjudged), as a judge without classifier has them;
            ``sentences``, ``raw_verdicts``, ``fallbacks`` and ``stand_ins`` as in a `RawJudgment`.
        """
        chunks = context if _are_chunks(context) else as_chunks(context)
        parts = sentences(answer)
        with dspy.context(lm=_metered(dspy.settings.lm)):
            statements, stand_ins = self._statements(parts, answer, question or "")
            presumed: list[RawVerdict | None] = [None] * len(statements)
            if (ask_about or self.config.ask_about) == "weakest":
                presumed = verdicts_without_lm(
                    statements, index_context(chunks, question)
                )
            pending = [
                s
                for s, verdict in zip(statements, presumed, strict=True)
                if verdict is None
            ]
            fallbacks = 0
            for attempt in range(MAX_CUTS + 1):
                replies: list[list[RawVerdict]] = [[] for _ in pending]
                try:
                    # All statements by one window before the next: the server reads each window's text once.
                    for window in cut_into_windows(chunks, self._room()):
                        open_ = [
                            i
                            for i, verdicts in enumerate(replies)
                            if not any(v.error for v in verdicts)
                        ]
                        known: Sequence[Samples] = [()] * len(open_)
                        if self.joint is not None and len(open_) > 1:
                            asked = [pending[i] for i in open_]
                            known = self.verify.ask_jointly(
                                self.joint, asked, question or "", window
                            )
                            fallbacks += sum(None in samples for samples in known)
                        for i, samples in zip(open_, known, strict=True):
                            replies[i].append(
                                self.verify.ask(
                                    pending[i], question or "", window, samples
                                )
                            )
                    break
                except ContextWindowExceededError as exc:
                    if attempt == MAX_CUTS:
                        error = in_short(exc, dspy.settings.lm)
                        replies = [
                            [RawVerdict(**s.model_dump(), error=error, lm_failed=True)]
                            for s in pending
                        ]
        verdicts = combine_verdicts(
            presumed, [merge_windows(of_statement) for of_statement in replies]
        )
        judged = [
            verdict.verdict for verdict in verdicts if verdict.verdict is not None
        ]
        score, faithful = None, None
        if judged and len(judged) == len(verdicts):
            score, _, faithful = pass_by_score(judged, verdicts[0].level, self.config)
        return dspy.Prediction(
            statements=[verdict.text for verdict in verdicts],
            verdicts=[verdict.verdict for verdict in verdicts],
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
        named = {
            "verify.predict": self.verify.predict,
            "joint": self.joint,
            "extract": self.extract,
        }
        return {name: predict for name, predict in named.items() if predict is not None}

    @property
    def shown_prompts(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """What is asked: each predictor's instruction, and the demos that are shown."""
        return [
            (
                predict.signature.instructions,
                complete_demos(predict.signature, predict.demos),
            )
            for predict in self.prompts.values()
        ]

    @property
    def prompts_hash(self) -> str:
        """Hash of what is asked."""
        return digest(self.shown_prompts)

    def _statements(
        self, parts: Sequence[Sentence], answer: str, question: str
    ) -> Extracted:
        """Return the statements to verify. Every sentence that can assert something ends in at least one."""
        carrying = [part for part in parts if carries_statement(part.text)]
        if self.config.granularity is Granularity.ANSWER:
            return Extracted([Statement(text=answer.strip())] if carrying else [], 0)
        if self.extract is None or not carrying:
            return Extracted(
                [
                    Statement(text=part.text, sentence_index=part.index)
                    for part in carrying
                ],
                0,
            )
        texts = [part.text for part in carrying]
        room = min(40 + 2 * sum(map(len, texts)) // 3, 2000)
        lines: list[str] = []
        try:
            lines = self.extract(
                question=question, sentences=texts, config={"max_tokens": room}
            ).statements
        except FaithDspyError:
            raise
        except Exception as exc:  # noqa: BLE001 - any LM fault: the sentences as written stand in
            log.warning(
                "extraction failed (%s); judging sentences as written",
                in_short(exc, dspy.settings.lm),
            )
        return assign_statements(lines, carrying, question)

    def _room(self) -> int | None:
        """Return the bytes of context that fit one call; None for any number."""
        demos = self.verify.predict.demos
        if self.window is not None:
            return room_beside(self.window, demos)
        return context_bytes(dspy.settings.lm, demos)


def _are_chunks(context: Any) -> bool:
    return isinstance(context, tuple) and all(
        isinstance(item, Chunk) for item in context
    )


def _metered(lm: Any) -> Any:
    """The LM as one that finds out what it can do, where it is DSPy's own."""
    return adopt(lm) if type(lm) is dspy.LM else lm


def verdicts_without_lm(
    statements: Sequence[Statement], indexed: IndexedContext
) -> list[RawVerdict | None]:
    """Return, with ``ask_about="weakest"``, the verdicts that need no LM; None for the statement it is asked about.

    A statement that is covered by the context's words is supported with probability 1. Of the others the LM is asked
    about the one with the most novelty; the rest are presumed supported, without a probability.
    """
    covered = [is_covered(statement.text, indexed) for statement in statements]
    uncovered = [i for i, is_known in enumerate(covered) if not is_known]
    weakest = max(
        uncovered, key=lambda i: novelty(statements[i].text, indexed), default=None
    )
    verdicts: list[RawVerdict | None] = []
    for i, statement in enumerate(statements):
        about = statement.model_dump()
        probability = 1.0 if covered[i] else None
        presumed = RawVerdict(
            **about, verdict=Verdict.FULLY_SUPPORTED, probability=probability
        )
        verdicts.append(None if i == weakest else presumed)
    return verdicts


def combine_verdicts(
    presumed: Sequence[RawVerdict | None], asked: Sequence[RawVerdict]
) -> list[RawVerdict]:
    """Return all verdicts in the answer's order: those of `verdicts_without_lm`, its gaps filled from ``asked``.

    If the LM could not judge the weakest statement, nothing can be presumed of the others: they become unjudged, too.
    """
    replies = iter(asked)
    verdicts = [verdict or next(replies) for verdict in presumed]
    failed = next((verdict for verdict in asked if verdict.error), None)
    if failed is None or len(asked) == len(verdicts):
        return verdicts
    unjudged: dict[str, Any] = {
        "verdict": None,
        "error": failed.error,
        "lm_failed": failed.lm_failed,
    }
    return [
        v if v.error or v.probability is not None else v.model_copy(update=unjudged)
        for v in verdicts
    ]
