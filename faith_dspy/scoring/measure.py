"""What scoring needs of an answer's context, measured once: an answer can then be scored under any options for free."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from faith_dspy.schema import Chunk, QuoteSpan, RawJudgment, RawVerdict
from faith_dspy.scoring.citations import resolve_citations
from faith_dspy.scoring.evidence import find_quotes
from faith_dspy.text.features import (
    DIRECTIONS,
    Comparison,
    IndexedContext,
    best_chunks,
    index_context,
    lexical_features,
    missing_words,
)
from faith_dspy.text.languages import language_gap

Evidence: TypeAlias = Mapping[int, Literal["cited", "quoted", "shared_words"]]
"""By chunk id, how it was found."""


@dataclass(frozen=True, slots=True)
class ByWords:
    """A statement's words beside those of chunks."""

    lexical: Mapping[str, float]
    """Its lexical features."""
    closest: tuple[int, ...]
    """Ids of at most two chunks that have most of its words."""
    missing: tuple[str, ...]
    """Its words that no chunk has."""


@dataclass(frozen=True, slots=True)
class StatementFeatures:
    """What scoring needs of the context about one statement."""

    by_context: ByWords
    by_cited: ByWords | None
    """By the chunks alone that the answer cites for it, where they are not those that the LM or its words point at."""
    named: Evidence
    """Chunks that the LM cites or quotes, and that exist."""
    spans: tuple[QuoteSpan, ...]
    quotes: tuple[str, ...]
    """The LM's quotes as the context has them."""
    cited_chunk_ids: tuple[int, ...]
    dropped_ids: int
    dropped_quotes: int

    @property
    def evidence(self) -> Evidence:
        """What carries its support: what the LM names, else what shares its words."""
        return self.named or dict.fromkeys(self.by_context.closest, "shared_words")


@dataclass(frozen=True, slots=True)
class AnswerFeatures:
    """What scoring needs of the context about one answer; made by `measure_features`."""

    statements: tuple[StatementFeatures, ...] = ()
    """In the order of the raw verdicts."""
    language_gap: str | None = None
    """Why words alone cannot compare the answer with its context."""
    unknown_citations: tuple[str, ...] | None = None
    """Cited numbers and names that no chunk has; None where the answer cites nothing."""
    escalated_to: AnswerFeatures | None = None
    """Those of the judgment that it was escalated to."""

    @property
    def last(self) -> AnswerFeatures:
        """Those of the judgment that stands."""
        return self.escalated_to or self


def measure_features(
    raw_judgment: RawJudgment,
    context: Sequence[Chunk],
    question: str | None,
    *,
    names: Collection[str] = DIRECTIONS.keys(),
    citations_from: int | None = None,
) -> AnswerFeatures:
    """Return what `judgment_of` needs of the context, for as many classifiers as one likes.

    The context is indexed once, and each statement compared with it once.

    Args:
        raw_judgment: What the LMs said about the answer.
        context: Its chunks.
        question: The question that it answers.
        names: The lexical features that classifiers will read.
        citations_from: The option of that name.
    """
    following = None
    if raw_judgment.escalated_to is not None:
        following = measure_features(
            raw_judgment.escalated_to,
            context,
            question,
            names=names,
            citations_from=citations_from,
        )
    verdicts = raw_judgment.raw_verdicts
    if not verdicts:
        return AnswerFeatures(escalated_to=following)
    indexed = index_context(context, question)
    cited, unknown = resolve_citations(
        verdicts, raw_judgment.sentences, context, citations_from
    )
    statements = []
    for raw, ids in zip(verdicts, cited, strict=True):
        measured = _measure_statement(raw, ids, context, question, indexed, names)
        statements.append(measured)
    gap = None
    if all(raw.logit is None for raw in verdicts):  # words alone will decide
        gap = language_gap(indexed.text, " ".join(raw.text for raw in verdicts))
    return AnswerFeatures(tuple(statements), gap, unknown, following)


def _measure_statement(
    raw: RawVerdict,
    cited: tuple[int, ...],
    context: Sequence[Chunk],
    question: str | None,
    indexed: IndexedContext,
    names: Collection[str],
) -> StatementFeatures:
    by_context = _compare(raw.text, indexed, names)
    texts = {chunk.id: chunk.text for chunk in context}
    cited_by_lm = set(raw.chunk_ids)
    ids = sorted(cited_by_lm & texts.keys())
    spans, dropped_quotes = find_quotes(raw.quotes, context, ids)
    named: dict[int, Literal["cited", "quoted", "shared_words"]] = {}
    named |= dict.fromkeys(ids, "cited")
    named |= {span.chunk_id: "quoted" for span in spans}
    pointed = {*named} or {*by_context.closest}
    by_cited = None
    if cited and (not pointed or not pointed <= {*cited}):
        alone = [chunk for chunk in context if chunk.id in cited]
        by_cited = _compare(raw.text, index_context(alone, question), names)
    return StatementFeatures(
        by_context=by_context,
        by_cited=by_cited,
        named=named,
        spans=spans,
        quotes=tuple(texts[q.chunk_id][q.start : q.end] for q in spans),
        cited_chunk_ids=cited,
        dropped_ids=len(cited_by_lm) - len(ids),
        dropped_quotes=dropped_quotes,
    )


def _compare(text: str, indexed: IndexedContext, names: Collection[str]) -> ByWords:
    compared = Comparison(text, indexed)
    return ByWords(
        lexical_features(compared, names),
        best_chunks(compared),
        missing_words(compared),
    )
