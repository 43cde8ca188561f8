"""The `dspy.Module` inside a judge: answer → statements → what the LM says about each."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

import dspy

from faith_dspy.config import Granularity, JudgeConfig
from faith_dspy.errors import FaithDspyError, in_short, redact
from faith_dspy.lm.meter import counted
from faith_dspy.program.adapter import CompactAdapter
from faith_dspy.program.extraction import Extracted, assign_statements
from faith_dspy.program.selection import combine_verdicts, verdicts_without_lm
from faith_dspy.program.signatures import INSTRUCTIONS, extraction_of
from faith_dspy.program.verifier import JointVerifier, Verifier
from faith_dspy.program.windows import size_of, windows
from faith_dspy.schema import RawVerdict, Statement, Usage, Verdict
from faith_dspy.text.context import index_context
from faith_dspy.text.focus import focused
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faith_dspy.program.verifier import Replies
    from faith_dspy.program.windows import Window
    from faith_dspy.schema import Chunk, Sentence

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
            before = counted()
            statements, stand_ins = self._statements(parts, answer, question or "")
            extraction = counted() - before
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
        before = counted()
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
        usage = counted() - before
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
