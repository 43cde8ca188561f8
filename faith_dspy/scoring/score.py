"""From what the LM said to a judgment: evidence check, classifier, verdicts, score – or unscored, with the reason.

Nothing here calls an LM, so a study can draw other conclusions from the same raw_judgments for free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faith_dspy.schema import Judgment, RawJudgment, RawVerdict, StatementVerdict, Unscored, Verdict
from faith_dspy.text.context import index_context
from faith_dspy.text.evidence import find_quotes, valid_chunk_ids
from faith_dspy.text.features import CLASSIFIER_FEATURES, DIRECTIONS, best_chunks, lexical_features
from faith_dspy.text.sentences import carries_statement, sentences

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from faith_dspy.config import JudgeConfig
    from faith_dspy.schema import Chunk
    from faith_dspy.scoring.classifier import Classifier
    from faith_dspy.text.context import IndexedContext

LEVELS = ("Not At All", "Not Generally", "Neutral/Mixed", "Generally Yes", "Completely Yes")
"""Five-level labels, evenly spaced over [0, 1]."""


def unverified(answer: str) -> RawJudgment:
    """An answer's sentences as statements that no LM is asked about: for a classifier that goes by lexical features alone."""
    parts = sentences(answer)
    raw_verdicts = tuple(
        RawVerdict(text=p.text, sentence_index=p.index, verdict=Verdict.NOT_SUPPORTED)
        for p in parts
        if carries_statement(p.text)
    )
    return RawJudgment(sentences=parts, raw_verdicts=raw_verdicts)


def statement_features(
    raw_judgment: RawJudgment, indexed: IndexedContext, names: Collection[str] = DIRECTIONS.keys()
) -> list[dict[str, float]]:
    """Features of each statement: the lexical ones of ``names``, and ``lm``, the log-odds of support by the LM's reply."""
    return [
        lexical_features(v.text, (), indexed=indexed, names=names) | ({} if v.logit is None else {"lm": v.logit})
        for v in raw_judgment.raw_verdicts
    ]


def score(verdicts: Iterable[Verdict | None], config: JudgeConfig) -> float:
    """Σ weight of each verdict / number of statements asked about, clamped to [0, 1]. Unjudged ones add nothing.

    The formula of axion's Faithfulness; with the weights 1 and 0 it is RAGAS's share of supported statements. A
    five-level verdict is scored by its level instead.
    """
    verdicts = list(verdicts)
    total = sum(config.verdict_scores[v] for v in verdicts if v is not None)
    return min(1.0, max(0.0, total / len(verdicts)))


def score_answer(
    raw_judgment: RawJudgment,
    context: Sequence[Chunk],
    question: str | None,
    config: JudgeConfig,
    classifier: Classifier | None = None,
) -> Judgment:
    """The judgment on one observed answer. With a classifier, verdicts and threshold are the fitted ones."""
    raw_verdicts = raw_judgment.raw_verdicts
    if not raw_verdicts:
        return policy_judgment(Unscored.NO_STATEMENTS, config.no_statements, raw_judgment)
    if all(f.verdict is None for f in raw_verdicts):
        failed = any(f.lm_failed for f in raw_verdicts)
        return unscored(
            Unscored.LM_FAILED if failed else Unscored.PARSE_FAILED,
            f"none of {len(raw_verdicts)} statements could be judged; the first: {raw_verdicts[0].error}",
            raw_judgment,
        )
    indexed = index_context(context, question)
    features = statement_features(raw_judgment, indexed, _asked_for(classifier))
    judged = [None if f.verdict is None else s for f, s in zip(raw_verdicts, features, strict=True)]
    confidences = [f.probability for f in raw_verdicts]
    if classifier is not None and classifier.statement is not None:
        confidences = classifier.statement_probabilities(judged)
    dropped = dropped_quotes = 0
    text_of = {c.id: c.text for c in context}
    statements = []
    for raw_verdict, signal, confidence in zip(raw_verdicts, features, confidences, strict=True):
        verdict = _verdict(raw_verdict, confidence, classifier)
        ids, unknown = valid_chunk_ids(raw_verdict.chunk_ids, context)
        dropped += unknown
        spans, missing = find_quotes(raw_verdict.quotes, context, ids)
        dropped_quotes += missing
        ids = tuple(sorted({*ids, *(q.chunk_id for q in spans)}))
        if verdict is Verdict.FULLY_SUPPORTED or verdict is Verdict.PARTIALLY_SUPPORTED:
            ids = ids or best_chunks(raw_verdict.text, indexed)
        elif verdict is not Verdict.CONTRADICTORY:
            ids, spans = (), ()
        statements.append(
            StatementVerdict(
                text=raw_verdict.text,
                sentence_index=raw_verdict.sentence_index,
                verdict=verdict,
                supporting_chunk_ids=ids,
                quotes=tuple(text_of[q.chunk_id][q.start : q.end] for q in spans),
                quote_spans=spans,
                reason=raw_verdict.reason,
                confidence=confidence,
                features={k: round(v, 6) for k, v in signal.items()},
                error=raw_verdict.error,
            )
        )
    value = score((s.verdict for s in statements), config)
    threshold = config.threshold
    if config.verdicts == "five_level" and raw_verdicts[0].level is not None:
        value, threshold = raw_verdicts[0].level, 0.5 if threshold is None else threshold
    probability = classifier.probability(judged) if classifier is not None else None
    if classifier is not None and probability is not None:
        faithful = probability >= classifier.threshold
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
        needs_review=None if classifier is None or probability is None else classifier.needs_review(probability),
        statements=tuple(statements),
        sentences=raw_judgment.sentences,
        dropped_chunk_ids=dropped,
        dropped_quotes=dropped_quotes,
        fallbacks=raw_judgment.fallbacks,
        detail=f"{unjudged} of {len(statements)} statements could not be judged" if unjudged else None,
        usage=raw_judgment.usage,
    )


def _asked_for(classifier: Classifier | None) -> Collection[str]:
    """The lexical features that the confidence is made from; without a classifier those that most classifiers use."""
    if classifier is None or classifier.statement is None:
        return CLASSIFIER_FEATURES
    return [name for name in classifier.statement.names if name in DIRECTIONS]


def _verdict(raw_verdict: RawVerdict, confidence: float | None, classifier: Classifier | None) -> Verdict | None:
    if raw_verdict.verdict is None or classifier is None or classifier.statement is None or confidence is None:
        return raw_verdict.verdict
    if confidence >= classifier.statement_threshold:
        return Verdict.FULLY_SUPPORTED
    return Verdict.NOT_SUPPORTED if raw_verdict.verdict.is_supported else raw_verdict.verdict


def level(value: float) -> str:
    """The nearest of the five levels."""
    return LEVELS[round(value * 4)]


def unscored(reason: Unscored, detail: str, raw_judgment: RawJudgment) -> Judgment:
    """A judgment without a score, its statements kept as unjudged."""
    return Judgment(
        unscored=reason,
        detail=detail,
        sentences=raw_judgment.sentences,
        statements=tuple(
            StatementVerdict(text=f.text, sentence_index=f.sentence_index, error=f.error)
            for f in raw_judgment.raw_verdicts
        ),
        usage=raw_judgment.usage,
    )


def policy_judgment(reason: Unscored, worth: float | None, raw_judgment: RawJudgment) -> Judgment:
    """An answer that asserts nothing: unscored, or worth what the user's policy says."""
    if worth is None:
        words = {
            Unscored.NO_STATEMENTS: "the answer has no sentence that states anything",
            Unscored.ABSTAINED: "the answer only declines to answer",
        }
        return unscored(reason, words[reason], raw_judgment)
    return Judgment(
        score=worth,
        faithful=worth >= 0.5,
        level=level(worth),
        detail=f"{reason.value}: scored {worth:g} by policy",
        sentences=raw_judgment.sentences,
        usage=raw_judgment.usage,
    )
