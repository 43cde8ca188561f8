"""From what the LM said to a judgment: evidence check, head, verdicts, score – or unscored, with the reason.

Nothing here calls an LM, so a study can draw other conclusions from the same observations for free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.text.evidence import find_quotes, valid_chunk_ids
from faith_dspy.text.context import prepare
from faith_dspy.schema import Finding, Judgment, Observation, StatementVerdict, Unscored, Verdict
from faith_dspy.text.sentences import carries_statement, sentences
from faith_dspy.text.features import DIRECTIONS, HEAD_SIGNALS, best_chunks, statement_signals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from faith_dspy.scoring.classifier import Head
    from faith_dspy.config import JudgeConfig
    from faith_dspy.text.context import PreparedContext
    from faith_dspy.schema import Chunk

LEVELS = ("Not At All", "Not Generally", "Neutral/Mixed", "Generally Yes", "Completely Yes")
"""Five-level labels, evenly spaced over [0, 1]."""


def unasked(answer: str) -> Observation:
    """An answer's sentences as statements that no LM is asked about: for a head that goes by words alone."""
    parts = sentences(answer)
    findings = tuple(
        Finding(text=p.text, sentence_index=p.index, verdict=Verdict.NOT_SUPPORTED)
        for p in parts
        if carries_statement(p.text)
    )
    return Observation(sentences=parts, findings=findings)


def all_signals(
    observation: Observation, prepared: PreparedContext, names: Collection[str] = DIRECTIONS.keys()
) -> list[dict[str, float]]:
    """Signals of each statement: of words those of ``names``, and ``lm:<instruction>`` logits where the LM answered."""
    return [
        statement_signals(f.text, (), prepared=prepared, names=names) | {f"lm:{k}": v for k, v in f.logits.items()}
        for f in observation.findings
    ]


def score(verdicts: Iterable[Verdict | None], config: JudgeConfig) -> float:
    """Σ weight of each verdict / number of statements asked about, clamped to [0, 1]. Unjudged ones add nothing.

    The formula of axion's Faithfulness; with the weights 1 and 0 it is RAGAS's share of supported statements. A
    five-level verdict is scored by its level instead.
    """
    verdicts = list(verdicts)
    total = sum(config.verdict_scores[v] for v in verdicts if v is not None)
    return min(1.0, max(0.0, total / len(verdicts)))


def conclude(
    observation: Observation,
    context: Sequence[Chunk],
    question: str | None,
    config: JudgeConfig,
    head: Head | None = None,
) -> Judgment:
    """The judgment on one observed answer. With a head, verdicts and pass mark are the fitted ones."""
    findings = observation.findings
    if not findings:
        return by_policy(Unscored.NO_STATEMENTS, config.no_statements, observation)
    if all(f.verdict is None for f in findings):
        failed = any(f.lm_failed for f in findings)
        return unscored(
            Unscored.LM_FAILED if failed else Unscored.PARSE_FAILED,
            f"none of {len(findings)} statements could be judged; the first: {findings[0].error}",
            observation,
        )
    prepared = prepare(context, question)
    signals = all_signals(observation, prepared, _asked_for(head))
    judged = [None if f.verdict is None else s for f, s in zip(findings, signals, strict=True)]
    confidences = [f.probability for f in findings]
    if head is not None and head.statement is not None:
        confidences = head.statement_probabilities(judged)
    dropped = dropped_quotes = 0
    text_of = {c.id: c.text for c in context}
    statements = []
    for finding, signal, confidence in zip(findings, signals, confidences, strict=True):
        verdict = _verdict(finding, confidence, head)
        ids, unknown = valid_chunk_ids(finding.chunk_ids, context)
        dropped += unknown
        spans, missing = find_quotes(finding.quotes, context, ids)
        dropped_quotes += missing
        ids = tuple(sorted({*ids, *(q.chunk_id for q in spans)}))
        if verdict is Verdict.FULLY_SUPPORTED or verdict is Verdict.PARTIALLY_SUPPORTED:
            ids = ids or best_chunks(finding.text, prepared)
        elif verdict is not Verdict.CONTRADICTORY:
            ids, spans = (), ()
        statements.append(
            StatementVerdict(
                text=finding.text,
                sentence_index=finding.sentence_index,
                verdict=verdict,
                supporting_chunk_ids=ids,
                quotes=tuple(text_of[q.chunk_id][q.start : q.end] for q in spans),
                quote_spans=spans,
                reason=finding.reason,
                confidence=confidence,
                signals={k: round(v, 6) for k, v in signal.items()},
                error=finding.error,
            )
        )
    value = score((s.verdict for s in statements), config)
    threshold = config.threshold
    if config.verdicts == "five_level" and findings[0].level is not None:
        value, threshold = findings[0].level, 0.5 if threshold is None else threshold
    probability = head.probability(judged) if head is not None else None
    if head is not None and probability is not None:
        faithful = probability >= head.threshold
    elif threshold is not None:
        faithful = value >= threshold
    else:
        faithful = all(s.is_supported for s in statements)
    unjudged = sum(s.verdict is None for s in statements)
    return Judgment(
        score=value,
        faithful=faithful,
        probability=probability,
        level=level(value if probability is None else probability),
        send_to_person=None if head is None or probability is None else head.send_to_person(probability),
        statements=tuple(statements),
        sentences=observation.sentences,
        dropped_chunk_ids=dropped,
        dropped_quotes=dropped_quotes,
        fallbacks=observation.fallbacks,
        detail=f"{unjudged} of {len(statements)} statements could not be judged" if unjudged else None,
        usage=observation.usage,
    )


def _asked_for(head: Head | None) -> Collection[str]:
    """The signals of words that the confidence is made from; without a head those that most heads use."""
    if head is None or head.statement is None:
        return HEAD_SIGNALS
    return [name for name in head.statement.names if name in DIRECTIONS]


def _verdict(finding: Finding, confidence: float | None, head: Head | None) -> Verdict | None:
    if finding.verdict is None or head is None or head.statement is None or confidence is None:
        return finding.verdict
    if confidence >= head.statement_threshold:
        return Verdict.FULLY_SUPPORTED
    return Verdict.NOT_SUPPORTED if finding.verdict.is_supported else finding.verdict


def level(value: float) -> str:
    """The nearest of the five levels."""
    return LEVELS[round(value * 4)]


def unscored(reason: Unscored, detail: str, observation: Observation) -> Judgment:
    """A judgment without a score, its statements kept as unjudged."""
    return Judgment(
        unscored=reason,
        detail=detail,
        sentences=observation.sentences,
        statements=tuple(
            StatementVerdict(text=f.text, sentence_index=f.sentence_index, error=f.error) for f in observation.findings
        ),
        usage=observation.usage,
    )


def by_policy(reason: Unscored, worth: float | None, observation: Observation) -> Judgment:
    """An answer that asserts nothing: unscored, or worth what the user's policy says."""
    if worth is None:
        words = {
            Unscored.NO_STATEMENTS: "the answer has no sentence that states anything",
            Unscored.ABSTAINED: "the answer only declines to answer",
        }
        return unscored(reason, words[reason], observation)
    return Judgment(
        score=worth,
        faithful=worth >= 0.5,
        level=level(worth),
        detail=f"{reason.value}: scored {worth:g} by policy",
        sentences=observation.sentences,
        usage=observation.usage,
    )
