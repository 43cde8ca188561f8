"""From what the LM said to a judgment: evidence check, classifier, verdicts, score – or unscored, with the reason.

Nothing here calls an LM, so a study can score the same `RawJudgment` again, under other options, for free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import counted
from faith_dspy.schema import (
    Chunk,
    Citations,
    Judgment,
    RawJudgment,
    RawVerdict,
    StatementVerdict,
    Unscored,
    Verdict,
)
from faith_dspy.scoring.citations import cite, measure_citations, needs_verdict
from faith_dspy.scoring.classifier import Classifier
from faith_dspy.scoring.evidence import find_quotes, valid_chunk_ids
from faith_dspy.text.features import (
    DIRECTIONS,
    Comparison,
    best_chunks,
    compare,
    index_context,
    lexical_features,
    missing_words,
)
from faith_dspy.text.languages import language_gap
from faith_dspy.text.sentences import carries_statement, declines, sentences
from faith_dspy.text.words import has_words

LEVELS = (
    "Not At All",
    "Not Generally",
    "Neutral/Mixed",
    "Generally Yes",
    "Completely Yes",
)
"""Five-level labels, evenly spaced over [0, 1]; from the middle one up an answer passes."""
_POLICY_THRESHOLD = 0.5
"""Threshold of answers scored by `no_statements=` or `abstention=`."""


def raw_judgment_without_lm(answer: str) -> RawJudgment:
    """Return an answer's sentences as statements that no LM was asked about, for a classifier of lexical features
    alone."""
    parts = sentences(answer)
    raw_verdicts = []
    for sentence in parts:
        if carries_statement(sentence.text):
            raw = RawVerdict(
                text=sentence.text,
                sentence_index=sentence.index,
                verdict=Verdict.NOT_SUPPORTED,
            )
            raw_verdicts.append(raw)
    return RawJudgment(sentences=parts, raw_verdicts=tuple(raw_verdicts))


def statement_features(
    raw_verdicts: Iterable[RawVerdict],
    comparisons: Iterable[Comparison],
    names: Collection[str] = DIRECTIONS.keys(),
) -> list[dict[str, float]]:
    """Return features of each statement: the lexical ones in ``names``, and ``lm``, the LM's log-odds of support."""
    features = []
    for raw, compared in zip(raw_verdicts, comparisons, strict=True):
        values = lexical_features(compared, names)
        if raw.logit is not None:
            values["lm"] = raw.logit
        features.append(values)
    return features


def unjudged_reason(raw_judgment: RawJudgment) -> Unscored | None:
    """Return why statements of an answer are unjudged; None if none is."""
    unjudged = [raw for raw in raw_judgment.raw_verdicts if raw.verdict is None]
    if any(raw.lm_failed for raw in unjudged):
        return Unscored.LM_FAILED
    return Unscored.PARSE_FAILED if unjudged else None


def score(verdicts: Iterable[Verdict | None], config: JudgeConfig) -> float:
    """Return Σ weight of each verdict / number of statements asked about, clamped to [0, 1]; None: not supported.

    The formula of axion's Faithfulness; with the weights 1 and 0 it is RAGAS's share of supported statements. A
    five-level verdict is scored by its level instead.
    """
    weights = [
        config.verdict_scores[verdict or Verdict.NOT_SUPPORTED] for verdict in verdicts
    ]
    mean = sum(weights) / len(weights)
    return min(1.0, max(0.0, mean))


def pass_by_score(
    verdicts: Sequence[Verdict], level: float | None, config: JudgeConfig
) -> tuple[float, float | None, bool]:
    """Return an answer's score, the threshold that counts, and whether it passes, by its verdicts alone.

    Without a threshold every statement has to be supported. ``level``: that of a five-level verdict.
    """
    value = score(verdicts, config)
    threshold = config.threshold
    if config.verdicts == "five_level" and level is not None:
        value = level
        if threshold is None:
            threshold = 0.5
    if threshold is None:
        return value, None, all(verdict.is_supported for verdict in verdicts)
    return value, threshold, value >= threshold


def score_answer(
    raw_judgment: RawJudgment,
    context: Sequence[Chunk],
    question: str | None,
    config: JudgeConfig,
    classifier: Classifier | None = None,
) -> Judgment:
    """Return the judgment on what the LM said about an answer. A classifier decides verdicts and threshold as fitted.

    An unjudged statement counts as not supported. Where the answer would pass if it were supported, that would turn a
    failure of the LM into a verdict: such an answer is unscored.
    """
    verdicts = raw_judgment.raw_verdicts
    if not verdicts:
        value = config.no_statements
        return policy_judgment(Unscored.NO_STATEMENTS, value, raw_judgment)
    indexed = index_context(context, question)
    if _needs_no_lm(classifier):
        text = " ".join(raw.text for raw in verdicts)
        gap = language_gap(indexed.text, text)
        if gap is not None:
            why = f"{gap}: name an LM to judge it"
            return unscored(Unscored.LANGUAGE, why, raw_judgment)
    comparisons = compare([raw.text for raw in verdicts], indexed)
    features: list[dict[str, float]] = [{} for _ in verdicts]
    confidences = [raw.probability for raw in verdicts]
    if classifier is not None:
        names = [name for name in classifier.statement.names if name in DIRECTIONS]
        features = statement_features(verdicts, comparisons, names)
        pairs = zip(verdicts, features, strict=True)
        judged = [values if raw.verdict else None for raw, values in pairs]
        confidences = classifier.statement_probabilities(judged)
    statements = []
    dropped_ids = dropped_quotes = 0
    by_statement = zip(verdicts, confidences, features, comparisons, strict=True)
    for raw, confidence, values, compared in by_statement:
        about = (raw, confidence, classifier, values, context, compared)
        statement, ids, quotes = _statement(*about)
        statements.append(statement)
        dropped_ids += ids
        dropped_quotes += quotes
    statements, citations = _cited(
        statements, raw_judgment, context, question, config, classifier
    )

    def outcome(unjudged: Verdict) -> tuple[float, float | None, float | None, bool]:
        """Return score, probability, threshold, and whether the answer passes, if every unjudged statement had that
        verdict."""
        judged_as = [statement.verdict or unjudged for statement in statements]
        value, threshold, passes = pass_by_score(judged_as, verdicts[0].level, config)
        if classifier is None:
            return value, None, threshold, passes
        support = float(unjudged.is_supported)
        probability = classifier.answer.probability(confidences, unjudged=support)
        if probability is not None:
            threshold = classifier.threshold
            passes = probability >= threshold
        return value, probability, threshold, passes

    detail = None
    reason = unjudged_reason(raw_judgment)
    if reason is not None:
        errors = [raw.error for raw in verdicts if raw.verdict is None]
        detail = f"{len(errors)} of {counted(len(verdicts), 'statement')} could not be judged; the first: {errors[0]}"
        *_, could_pass = outcome(Verdict.FULLY_SUPPORTED)
        if could_pass or len(errors) == len(verdicts):
            return unscored(reason, detail, raw_judgment, statements)
    value, probability, threshold, passes = outcome(Verdict.NOT_SUPPORTED)
    faithful = passes and reason is None
    on_scale = value if probability is None else probability
    fit: dict[str, Any] = {}
    if classifier is not None:
        fit["statement_threshold"] = classifier.statement_threshold
        if probability is not None:
            fit["fitted_to"] = classifier.fitted_to
            fit["needs_review"] = classifier.needs_review(probability)
    return _judgment(
        raw_judgment,
        score=value,
        faithful=faithful,
        probability=probability,
        threshold=threshold,
        level=level(on_scale, threshold, faithful),
        statements=tuple(statements),
        citations=citations,
        dropped_chunk_ids=dropped_ids,
        dropped_quotes=dropped_quotes,
        fallbacks=raw_judgment.fallbacks,
        stand_ins=raw_judgment.stand_ins,
        detail=detail,
        **fit,
    )


def _needs_no_lm(classifier: Classifier | None) -> bool:
    return classifier is not None and "lm" not in classifier.statement.names


def _cited(
    statements: list[StatementVerdict],
    raw_judgment: RawJudgment,
    context: Sequence[Chunk],
    question: str | None,
    config: JudgeConfig,
    classifier: Classifier | None,
) -> tuple[list[StatementVerdict], Citations | None]:
    """Return the statements with what they cite and whether it supports them, and how good the citations are.

    Where cited and supporting chunks differ, the LM's verdict on the cited ones decides; without an LM the classifier.
    """
    cited = cite(statements, raw_judgment.sentences, context, config.citations_from)
    if cited is None:
        return statements, None
    citing, unknown = cited
    by_id = {chunk.id: chunk for chunk in context}
    judged = []
    for statement, raw in zip(citing, raw_judgment.raw_verdicts, strict=True):
        supports = None
        if statement.cited_chunk_ids:
            is_open = needs_verdict(statement)
            supports = bool(statement.is_supported) and not is_open
            if statement.is_supported and raw.cited_support is not None:
                supports = raw.cited_support
            elif classifier is not None and is_open and _needs_no_lm(classifier):
                chunks = [by_id[i] for i in statement.cited_chunk_ids]
                cited_alone = index_context(chunks, question)
                names = classifier.statement.names
                compared = Comparison(statement.text, cited_alone)
                features = lexical_features(compared, names)
                probability = classifier.statement.probability(features)
                supports = probability >= classifier.statement_threshold
        judged.append(statement.model_copy(update={"citations_support": supports}))
    return judged, measure_citations(judged, unknown, context, question)


def _statement(
    raw: RawVerdict,
    confidence: float | None,
    classifier: Classifier | None,
    features: dict[str, float],
    context: Sequence[Chunk],
    compared: Comparison,
) -> tuple[StatementVerdict, int, int]:
    """Return the statement with evidence that exists; how many chunk ids and quotes of the LM are not in the context.

    Only supported and contradicted statements have evidence. A supported one without any gets the chunks that share
    its words; one without evidence the words that the context lacks. The LM's reason goes with the LM's verdict only.
    """
    verdict = raw.verdict
    if verdict and classifier and confidence is not None:
        if confidence >= classifier.statement_threshold:
            verdict = Verdict.FULLY_SUPPORTED
        elif verdict.is_supported:
            verdict = Verdict.NOT_SUPPORTED
    ids, dropped_ids = valid_chunk_ids(raw.chunk_ids, context)
    spans, dropped_quotes = find_quotes(raw.quotes, context, ids)
    closest = best_chunks(compared)
    evidence: dict[int, Literal["cited", "quoted", "shared_words"]] = {}
    if verdict in (
        Verdict.FULLY_SUPPORTED,
        Verdict.PARTIALLY_SUPPORTED,
        Verdict.CONTRADICTORY,
    ):
        evidence |= dict.fromkeys(ids, "cited")
        evidence |= {span.chunk_id: "quoted" for span in spans}
        if not evidence and verdict is not Verdict.CONTRADICTORY:
            evidence |= dict.fromkeys(closest, "shared_words")
    else:
        spans = ()
    supporting_chunk_ids = tuple(sorted(evidence))
    missing = None
    if verdict and not evidence:
        missing = missing_words(compared)
    texts = {chunk.id: chunk.text for chunk in context}
    statement = StatementVerdict(
        text=raw.text,
        sentence_index=raw.sentence_index,
        verdict=verdict,
        supporting_chunk_ids=supporting_chunk_ids,
        found_by=tuple(evidence[i] for i in supporting_chunk_ids),
        closest_chunk_ids=closest,
        quotes=tuple(texts[q.chunk_id][q.start : q.end] for q in spans),
        quote_spans=spans,
        reason=raw.reason if verdict is raw.verdict else None,
        confidence=confidence,
        missing=missing,
        features={name: round(value, 6) for name, value in features.items()},
        error=raw.error,
    )
    return statement, dropped_ids, dropped_quotes


def level(value: float, threshold: float | None, faithful: bool) -> str:
    """Return the nearest of the five levels on a scale whose middle is the threshold: from Neutral/Mixed up it is
    faithful.

    No threshold: every statement had to be fully supported, which is the top of the scale.
    """
    top = 1.0 if threshold is None else threshold
    if not faithful:
        return LEVELS[min(1, round(2 * value / top)) if top > 0 else 0]
    if top == 1:
        return LEVELS[4]
    return LEVELS[2 + round(2 * (value - top) / (1 - top))]


def unscored(
    reason: Unscored,
    detail: str,
    raw_judgment: RawJudgment,
    statements: Sequence[StatementVerdict] = (),
) -> Judgment:
    """Return a judgment without a score; ``statements`` keep the verdicts they have."""
    return _judgment(
        raw_judgment,
        unscored=reason,
        detail=detail,
        statements=tuple(statements),
    )


def _judgment(raw: RawJudgment, **fields: Any) -> Judgment:
    return Judgment(
        sentences=raw.sentences,
        usage=raw.usage - raw.replayed,
        replayed=raw.replayed,
        **fields,
    )


def early_judgment(
    context: Sequence[Chunk], answer: str, config: JudgeConfig
) -> Judgment | None:
    """Return the judgment on an answer that no LM has to be asked about; None for any other."""
    raw = RawJudgment(sentences=sentences(answer))
    if not any(has_words(c.text) for c in context):
        why = "there is no context to judge the answer by"
        return unscored(Unscored.NO_CONTEXT, why, raw)
    if len(raw.sentences) > config.max_statements:
        why = f"the answer has {counted(len(raw.sentences), 'sentence')}, max_statements is {config.max_statements}"
        return unscored(Unscored.TOO_LONG, why, raw)
    if declines(answer):
        return policy_judgment(Unscored.ABSTAINED, config.abstention, raw)
    return None


def policy_judgment(
    reason: Unscored, value: float | None, raw_judgment: RawJudgment
) -> Judgment:
    """Return an answer that asserts nothing: unscored, or with the score that the user's policy gives it."""
    if value is None:
        why = "the answer has no sentence that states anything"
        if reason is Unscored.ABSTAINED:
            why = "the answer only declines to answer"
        return unscored(reason, why, raw_judgment)
    faithful = value >= _POLICY_THRESHOLD
    return _judgment(
        raw_judgment,
        score=value,
        faithful=faithful,
        threshold=_POLICY_THRESHOLD,
        level=level(value, _POLICY_THRESHOLD, faithful),
        detail=f"{reason.value}: scored {value:g} by policy",
    )
