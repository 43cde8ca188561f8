"""From what the LM said to a judgment: evidence check, classifier, verdicts, score – or unscored, with the reason.

Nothing here calls an LM, so a study can score the same `RawJudgment` again, under other options, for free.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import counted
from faith_dspy.schema import (
    Chunk,
    Judgment,
    RawJudgment,
    RawVerdict,
    StatementVerdict,
    Unscored,
    Verdict,
)
from faith_dspy.scoring.citations import measure_citations
from faith_dspy.scoring.classifier import COLUMN, Classifier, is_judge
from faith_dspy.scoring.measure import AnswerFeatures, Evidence, StatementFeatures
from faith_dspy.text.sentences import SplitAnswer
from faith_dspy.text.words import has_words, is_null

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


def raw_judgment_without_lm(answer: SplitAnswer) -> RawJudgment:
    """Return an answer's sentences as statements that no LM was asked about, for a classifier of lexical features
    alone."""
    raw_verdicts = []
    for sentence in answer.stating:
        raw = RawVerdict(
            text=sentence.text,
            sentence_index=sentence.index,
            verdict=Verdict.NOT_SUPPORTED,
        )
        raw_verdicts.append(raw)
    return RawJudgment(sentences=answer.sentences, raw_verdicts=tuple(raw_verdicts))


def statement_values(
    raw_judgment: RawJudgment, features: AnswerFeatures, names: Collection[str]
) -> list[dict[str, float] | None]:
    """Return what a classifier reads of each statement: the lexical features in ``names``, ``lm``, the LM's log-odds of
    support, and what other judges said of the answer; None for a statement that could not be judged."""
    scores = {COLUMN + name: value for name, value in raw_judgment.scores.items()}
    values = []
    verdicts = raw_judgment.raw_verdicts
    for raw, measured in zip(verdicts, features.statements, strict=True):
        lexical = measured.by_context.lexical
        of_statement = {
            name: lexical[name] for name in names if name in lexical
        } | scores
        if raw.logit is not None:
            of_statement["lm"] = raw.logit
        values.append(of_statement if raw.verdict else None)
    return values


def unjudged_reason(raw_judgment: RawJudgment) -> Unscored | None:
    """Return why statements of an answer are unjudged; None if none is."""
    unjudged = [raw for raw in raw_judgment.raw_verdicts if raw.verdict is None]
    if any(raw.lm_failed for raw in unjudged):
        return Unscored.LM_FAILED
    return Unscored.PARSE_FAILED if unjudged else None


def decide(
    verdicts: Sequence[Verdict], level: float | None, config: JudgeConfig
) -> tuple[float, float | None, bool]:
    """Return an answer's score, the threshold that counts, and whether it passes, by its verdicts alone.

    The score is Σ weight of each verdict / number of statements asked about, clamped to [0, 1]: the formula of axion's
    Faithfulness; with the weights 1 and 0 it is RAGAS's share of supported statements. ``level``, that of a five-level
    verdict, is its score. Without a threshold every statement has to be supported.
    """
    weights = [config.verdict_scores[verdict] for verdict in verdicts]
    score = min(1.0, max(0.0, sum(weights) / len(weights)))
    if config.verdicts == "five_level" and level is not None:
        score = level
    threshold = config.threshold
    if threshold is None:
        return score, None, all(verdict.is_supported for verdict in verdicts)
    return score, threshold, score >= threshold


def judgment_of(
    raw_judgment: RawJudgment,
    features: AnswerFeatures,
    config: JudgeConfig,
    classifier: Classifier | None = None,
) -> Judgment:
    """Return the judgment on what the LM said about an answer. A classifier decides verdicts and threshold as fitted.

    An unjudged statement counts as not supported. Where the answer would pass if it were supported, that would turn a
    failure of the LM into a verdict: such an answer is unscored.

    Args:
        raw_judgment: What the LM said.
        features: What its statements have in the context (`measure_features`).
        config: The options.
        classifier: Numbers fitted on labels; None: what the LM says counts.
    """
    verdicts = raw_judgment.raw_verdicts
    if not verdicts:
        value = config.no_statements
        return policy_judgment(Unscored.NO_STATEMENTS, value, raw_judgment)
    lacking = lacking_scores(raw_judgment, classifier)
    if lacking is not None:
        return lacking
    if _is_by_words(classifier) and features.language_gap:
        why = f"{features.language_gap}: name an LM to judge it"
        return unscored(Unscored.LANGUAGE, why, raw_judgment)
    values: list[dict[str, float] | None] = [None for _ in verdicts]
    confidences = [raw.probability for raw in verdicts]
    if classifier is not None:
        values = statement_values(raw_judgment, features, classifier.statement.names)
        confidences = classifier.statement_probabilities(values)
    statements = [
        _statement(*about, classifier)
        for about in zip(
            verdicts, features.statements, confidences, values, strict=True
        )
    ]
    citations = None
    if features.unknown_citations is not None:
        by_cited = [one.by_cited for one in features.statements]
        alone = [words.closest if words else () for words in by_cited]
        citations = measure_citations(statements, alone, features.unknown_citations)

    def outcome(unjudged: Verdict) -> tuple[float, float | None, float | None, bool]:
        """Return score, probability, threshold, and whether the answer passes, if every unjudged statement had that
        verdict."""
        judged_as = [statement.verdict or unjudged for statement in statements]
        value, threshold, passes = decide(judged_as, verdicts[0].level, config)
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
        dropped_chunk_ids=sum(one.dropped_ids for one in features.statements),
        dropped_quotes=sum(one.dropped_quotes for one in features.statements),
        fallbacks=raw_judgment.joint_fallbacks,
        stand_ins=raw_judgment.extraction_fallbacks,
        detail=detail,
        **fit,
    )


def lacking_scores(raw: RawJudgment, classifier: Classifier | None) -> Judgment | None:
    """Return the judgment on an answer without a number that the classifier reads; None of any other."""
    lacking = set(classifier.columns if classifier else ()) - raw.scores.keys()
    if not lacking:
        return None
    names = [repr(name.removeprefix("!")) for name in sorted(lacking)]
    why = (
        f"the record has no number or verdict in {', '.join(names)}, which this judge reads; a call takes "
        f"scores={{{names[0]}: …}}"
    )
    return unscored(Unscored.PARSE_FAILED, why, raw)


def _is_by_words(classifier: Classifier | None) -> bool:
    return classifier is not None and not any(map(is_judge, classifier.statement.names))


def _statement(
    raw: RawVerdict,
    measured: StatementFeatures,
    confidence: float | None,
    values: Mapping[str, float] | None,
    classifier: Classifier | None,
) -> StatementVerdict:
    """Return the statement with evidence that exists.

    Only supported and contradicted statements have evidence. A supported one without any gets the chunks that share
    its words; one without evidence the words that the context lacks. The LM's reason goes with the LM's verdict only.
    """
    verdict = raw.verdict
    if verdict and classifier and confidence is not None:
        if confidence >= classifier.statement_threshold:
            verdict = Verdict.FULLY_SUPPORTED
        elif verdict.is_supported:
            verdict = Verdict.NOT_SUPPORTED
    evidence: Evidence = {}
    has_support = verdict in (Verdict.FULLY_SUPPORTED, Verdict.PARTIALLY_SUPPORTED)
    if has_support:
        evidence = measured.evidence
    elif verdict is Verdict.CONTRADICTORY:
        evidence = measured.named
    has_quotes = has_support or verdict is Verdict.CONTRADICTORY
    supporting = tuple(sorted(evidence))
    is_supported = verdict is Verdict.FULLY_SUPPORTED
    return StatementVerdict(
        text=raw.text,
        sentence_index=raw.sentence_index,
        verdict=verdict,
        supporting_chunk_ids=supporting,
        found_by=tuple(evidence[i] for i in supporting),
        closest_chunk_ids=measured.by_context.closest,
        cited_chunk_ids=measured.cited_chunk_ids,
        citations_support=_citations_support(raw, measured, is_supported, classifier),
        quotes=measured.quotes if has_quotes else (),
        quote_spans=measured.spans if has_quotes else (),
        reason=raw.reason if verdict is raw.verdict else None,
        confidence=confidence,
        missing=measured.by_context.missing if verdict and not evidence else None,
        features={name: round(value, 6) for name, value in (values or {}).items()},
        error=raw.error,
    )


def _citations_support(
    raw: RawVerdict,
    measured: StatementFeatures,
    is_supported: bool,
    classifier: Classifier | None,
) -> bool | None:
    """Return whether what a statement cites supports it alone; None where it cites nothing, or nobody could tell.

    Where cited and supporting chunks differ, the LM's verdict on the cited ones decides; without an LM the classifier.
    """
    if raw.verdict is None or not measured.cited_chunk_ids:
        return None
    if not is_supported or measured.by_cited is None:
        return is_supported
    if classifier is None or not _is_by_words(classifier):
        return raw.cited_support
    probability = classifier.statement.probability(measured.by_cited.lexical)
    return probability >= classifier.statement_threshold


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
        usage=raw.usage - raw.cached_usage,
        replayed=raw.cached_usage,
        **fields,
    )


def early_judgment(
    context: Sequence[Chunk], answer: SplitAnswer, config: JudgeConfig
) -> Judgment | None:
    """Return the judgment on an answer that no LM has to be asked about; None for any other."""
    raw = RawJudgment(sentences=answer.sentences)
    if not any(has_words(c.text) and not is_null(c.text) for c in context):
        why = "there is no context to judge the answer by"
        return unscored(Unscored.NO_CONTEXT, why, raw)
    if answer.declines:
        return policy_judgment(Unscored.ABSTAINED, config.abstention, raw)
    if len(raw.sentences) == 1 and is_null(raw.sentences[0].text):
        why = f"the answer is {raw.sentences[0].text!r}, which stands for none"
        return unscored(Unscored.NO_STATEMENTS, why, raw)
    if len(raw.sentences) > config.max_sentences:
        why = f"the answer has {counted(len(raw.sentences), 'sentence')}, max_sentences is {config.max_sentences}"
        return unscored(Unscored.TOO_LONG, why, raw)
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
