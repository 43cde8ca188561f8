"""Judge against human: agreement on answers, statements and evidence, each with interval and coverage.

`measure_agreement` is the one place that measures a judge; below it, `measure` compares any labels with predictions.
Throughout, a label or prediction is True for *faithful* (of a statement: *supported*); a judge is there to find the
others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from faith_dspy.errors import InputError
from faith_dspy.schema import Judgment, LabelledExample, StatementVerdict, Verdict
from faith_dspy.scoring.matching import match_statements, match_verdicts
from faith_dspy.scoring.statistics import (
    CONFUSION,
    Estimate,
    Floats,
    confusion_counts,
    estimates,
    extreme_share,
    label_sources,
    mean_of_shares,
    metric_values,
    ratios,
    weighted_kappa,
)


class _Level(BaseModel):
    """One thing that judge and people both say. Everything but `n` and `coverage` is over the scored ones."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int
    """Labelled answers; of the other levels, labelled statements."""
    scored: int
    """Those with a verdict; for evidence, those of a scored answer."""
    coverage: float
    """``scored / n``."""


class Agreement(_Level):
    """How far a judge agrees with human labels. For statements read *supported* for faithful, and *statement* for
    answer."""

    sources: int | None = None
    """Over which the scored answers were given: what intervals are made from. None in exports that do not say."""
    least_sources: int | None = None
    """Those of the label that is in fewer of them: it takes `SIGNIFICANT_FROM` to call anything significant."""
    confusion: dict[str, int]
    """``faithful_passed, faithful_failed, unfaithful_passed, unfaithful_failed``: the label, then the verdict."""
    balanced_accuracy: Estimate
    """Mean of the two recalls; 0.5 is chance."""
    cohen_kappa: Estimate
    """Agreement beyond chance (Cohen 1960); 0 is chance, 1 perfect."""
    auroc: Estimate
    """Chance that a faithful answer scores above an unfaithful one, ties one half (Hanley & McNeil 1982)."""
    mcc: Estimate
    """Correlation of labels and predictions (Matthews 1975); 0 when all predictions are the same."""
    f1_unfaithful: Estimate
    """F1 of finding unfaithful answers."""
    recall_unfaithful: Estimate
    """Share of the unfaithful answers that were failed."""
    recall_faithful: Estimate
    """Share of the faithful answers that were passed."""
    precision_unfaithful: Estimate
    """Share of the failed answers that are unfaithful."""
    ece: Estimate
    """Expected calibration error of the scores as probabilities: |share faithful - mean score|, averaged over ten
    equally full bins (Naeini et al. 2015, AAAI; equally full: Nguyen & O'Connor 2015). Small samples inflate it."""
    brier: Estimate
    """Mean squared error of the scores as probabilities (Brier 1950); 0 is perfect."""


class StatementAgreement(Agreement):
    """Agreement on statements."""

    weighted_kappa: Estimate | None = None
    """κ with linear weights on not supported < partially supported < fully supported (Cohen 1968). None where no
    label says ``partially_supported``."""
    recall_by_verdict: dict[str, Estimate] = Field(default_factory=dict)
    """Of the statements that people gave each verdict, the share that the judge gave it, too; ``not_supported`` stands
    for any verdict without support, on either side. Empty where labels only tell supported from not supported."""


class EvidenceAgreement(_Level):
    """How far the chunks a judge names are those that people named; ids are summed over statements (micro average).

    Counted are statements for which people named their chunks, even if none. One that the judge does not have counts as
    one without chunks.
    """

    precision: Estimate
    """Share of the judge's ids that people named."""
    recall: Estimate
    """Share of people's ids that the judge named."""
    f1: Estimate
    """``2 · shared ids / (judge's ids + people's ids)``."""


_NEEDS = {
    "answers": "no answer has a label",
    "statements": "no statement has a label",
    "evidence": "no label names chunks",
}
"""The levels of agreement, and why each cannot be measured."""


_NEED_BOTH = (
    "balanced_accuracy",
    "cohen_kappa",
    "mcc",
    "recall_unfaithful",
    "recall_faithful",
)
"""Metrics that need answers of both labels."""


class JudgeAgreement(BaseModel, extra="forbid", frozen=True):
    """Agreement on all that a judge says; each part is None where the labels do not say."""

    answers: Agreement | None
    statements: StatementAgreement | None
    evidence: EvidenceAgreement | None

    @property
    def measured(self) -> str:
        """Which levels these labels could measure, with the number labelled, and what the others would need."""
        measured, missing = [], []
        for level, needs in _NEEDS.items():
            agreement = getattr(self, level)
            if agreement is None:
                missing.append(f"{level} ({needs})")
            else:
                measured.append(f"{level} ({agreement.n})")
        text = "Not measured"
        if measured:
            text = f"Measured on {', '.join(measured)}"
        return f"{text}; not on {'; '.join(missing)}." if missing else f"{text}."

    def __repr__(self) -> str:
        """Return the balanced accuracy of answers, and what was measured; `print` its parts for more."""
        accuracy = self.answers.balanced_accuracy if self.answers else None
        return f"JudgeAgreement(balanced accuracy {accuracy}; {self.measured})"

    def to_json(self) -> dict[str, Any]:
        """Return the metrics of answers at the top level, beside ``statements`` and ``evidence`` (null where
        None)."""
        metrics = self.model_dump(mode="json")
        answers = metrics.pop("answers") or {}
        return {**answers, **metrics}


def measure_agreement(
    examples: Sequence[LabelledExample], judgments: Sequence[Judgment]
) -> JudgeAgreement:
    """Measure the agreement of a judge with people on answers, statements and evidence.

    ``judgments`` are of the same ``examples``, in the same order; unscored ones count in `coverage` and in no metric.
    Intervals are 95 %, over sources (`LabelledExample.group_key`). `InputError` when lengths differ, or
    without an example.

    Answers are compared by `Judgment.faithful`, and ranked by `Judgment.ranking`. Statements and evidence are compared
    where people labelled statements, each matched to the judge's as `faith_dspy.scoring.matching` describes:

    - Verdicts on statements count in unscored answers, too, where only other statements are unjudged.
    - A judged statement's label is the lowest verdict of the labelled statements it matches. One that matches none is
      left out; a labelled statement that matches none counts in `coverage` alone.
    - Chunks are compared as `measure_evidence` describes.
    """
    if not examples or len(examples) != len(judgments):
        raise InputError(
            f"got {len(judgments)} judgments of {len(examples)} labelled answers, expected one for each"
        )
    pairs = list(zip(examples, judgments, strict=True))
    answers = None
    labelled = [pair for pair in pairs if pair[0].label is not None]
    if labelled:
        answers = measure(
            [bool(example.label) for example, _ in labelled],
            [judgment.faithful for _, judgment in labelled],
            [judgment.ranking for _, judgment in labelled],
            groups=[example.group_key for example, _ in labelled],
        )
    return JudgeAgreement(
        answers=answers,
        statements=_measure_statements(pairs),
        evidence=measure_evidence(pairs),
    )


def measure(
    labels: Sequence[bool],
    predictions: Sequence[bool | None],
    scores: Sequence[float | None],
    *,
    groups: Sequence[str] | None = None,
    item: str = "answer",
) -> Agreement:
    """Measure the agreement of predictions with labels.

    Args:
        labels: n labels, True = faithful.
        predictions: n verdicts, None where unscored: those count in `coverage` and in no metric.
        scores: n probabilities that the answer is faithful, or raw scores (higher = more faithful); None where there is
            none, which leaves it out of AUROC, ECE and Brier. Scores outside [0, 1] leave ECE and Brier undefined.
        groups: n group names, such as the context's; the 95 % intervals are then over these sources.
        item: what is labelled, for the reasons given.
    """
    import numpy as np

    at = [i for i, prediction in enumerate(predictions) if prediction is not None]
    y = np.array(labels, dtype=bool)[at]
    p = np.array(predictions, dtype=bool)[at]
    s = np.array(scores, dtype=np.float64)[at]  # None is NaN
    sources: Sequence[Any] = at
    if groups is not None:
        sources = [groups[i] for i in at]
    same_label = f"all scored {item}s have the same label"
    unranked = f"all {item}s with a score have the same label"
    off_scale = "some scores are outside [0, 1], so they are not probabilities"
    if np.isnan(s).all():
        unranked = off_scale = f"no scored {item} has a score"
    why = {
        **dict.fromkeys(_NEED_BOTH, same_label),
        "f1_unfaithful": f"{same_label}, and none was failed",
        "precision_unfaithful": f"no {item} was failed",
        "auroc": unranked,
        "ece": off_scale,
        "brier": off_scale,
    }

    def metrics(w: Floats) -> dict[str, Floats]:
        return metric_values(w, y, p, s)

    measured = estimates(metrics, sources, item, why, y.tolist())
    by_label = label_sources(y.tolist(), sources)
    faithful = extreme_share(measured["recall_faithful"], by_label[True])
    unfaithful = extreme_share(measured["recall_unfaithful"], by_label[False])
    measured["recall_faithful"] = faithful
    measured["recall_unfaithful"] = unfaithful
    if {faithful.value, unfaithful.value} & {0.0, 1.0}:
        balanced = measured["balanced_accuracy"]
        measured["balanced_accuracy"] = mean_of_shares(balanced, faithful, unfaithful)
    counts = confusion_counts(np.ones(len(at)), y, p).astype(int)
    return Agreement(
        n=len(labels),
        scored=len(at),
        coverage=len(at) / len(labels),
        sources=len(set(sources)),
        least_sources=min(by_label.values()),
        confusion=dict(zip(CONFUSION, counts.tolist(), strict=True)),
        **measured,
    )


_SUPPORT = dict.fromkeys(Verdict, 0) | {
    Verdict.FULLY_SUPPORTED: 2,
    Verdict.PARTIALLY_SUPPORTED: 1,
}
"""Levels of weighted κ; 0 for the verdicts without support, which labels do not always tell apart."""


def _measure_statements(
    pairs: Sequence[tuple[LabelledExample, Judgment]],
) -> StatementAgreement | None:
    rows: list[tuple[Verdict, StatementVerdict, str]] = []
    missed = StatementVerdict(text="")  # stands for what the judge has no statement of
    for example, judgment in pairs:
        group = example.group_key
        matched, unmatched = match_verdicts(judgment.statements, example)
        for verdicts, statement in zip(matched, judgment.statements, strict=True):
            if verdicts:
                label = min(verdicts, key=_SUPPORT.__getitem__)
                rows.append((label, statement, group))
        rows += [(label, missed, group) for label in unmatched]
    if not rows:
        return None
    agreement = measure(
        [label.is_supported for label, _, _ in rows],
        [statement.is_supported for _, statement, _ in rows],
        [statement.confidence for _, statement, _ in rows],
        groups=[group for *_, group in rows],
        item="statement",
    )
    return StatementAgreement(**dict(agreement), **_graded(rows))


def _graded(rows: Sequence[tuple[Verdict, StatementVerdict, str]]) -> dict[str, Any]:
    """Return weighted κ and the recall of each verdict; nothing where labels only tell supported from not supported."""
    import numpy as np

    kinds = {label for label, _, _ in rows}
    if kinds <= {Verdict.FULLY_SUPPORTED, Verdict.NOT_SUPPORTED}:
        return {}
    scored = []
    sources = []
    for label, statement, group in rows:
        if statement.verdict is not None:
            scored.append((label, statement.verdict))
            sources.append(group)
    is_same = np.array([_same(*pair) for pair in scored], dtype=np.float64)
    recalls = {}
    why = {}
    for kind in Verdict:
        if kind in kinds:
            has_label = np.array([label is kind for label, _ in scored], np.float64)
            recalls[kind.value] = (is_same * has_label, has_label)
            why[kind.value] = f"no statement labelled {kind.value} was scored"
    if Verdict.PARTIALLY_SUPPORTED in kinds:
        why["kappa"] = "all labels and verdicts are on one level"
    people = np.array([_SUPPORT[label] for label, _ in scored], dtype=np.int_)
    judge = np.array([_SUPPORT[verdict] for _, verdict in scored], dtype=np.int_)

    def metrics(w: Floats) -> dict[str, Floats]:
        return {"kappa": weighted_kappa(w, people, judge, 3), **ratios(recalls)(w)}

    measured = estimates(metrics, sources, "statement", why)
    return {
        "weighted_kappa": measured.pop("kappa", None),
        "recall_by_verdict": measured,
    }


def _same(label: Verdict, verdict: Verdict) -> bool:
    """Return whether two verdicts say the same, as far as both say it."""
    if label is verdict:
        return True
    is_unsupported = _SUPPORT[label] == _SUPPORT[verdict] == 0
    return is_unsupported and Verdict.NOT_SUPPORTED in (label, verdict)


def evidence_counts(
    example: LabelledExample, judgment: Judgment
) -> list[tuple[int, int, int]]:
    """Return, for each statement whose chunks people named, how many chunks both name, the judge, and people."""
    labelled = [s for s in example.statements if s.supporting_chunk_ids is not None]
    if not labelled:
        return []
    texts = [s.text for s in labelled]
    matches = match_statements(texts, judgment.statements, example.answer)
    gold_by_match: defaultdict[Any, set[int]] = defaultdict(set)
    for i, (statement, match) in enumerate(zip(labelled, matches, strict=True)):
        alone = None if match else i  # one that matches nothing
        gold_by_match[match, alone].update(statement.supporting_chunk_ids or ())
    counts = []
    for (match, _), gold in gold_by_match.items():
        named: set[int] = set()
        for i in match:
            named.update(judgment.statements[i].supporting_chunk_ids)
        counts.append((len(named & gold), len(named), len(gold)))
    return counts


def measure_evidence(
    pairs: Sequence[tuple[LabelledExample, Judgment]],
) -> EvidenceAgreement | None:
    """Measure the micro-averaged precision, recall and F1 of supporting chunk ids; None where no statement's chunks are
    labelled.

    A labelled statement's chunks are compared with those of all judged statements it matches together; labelled
    statements that match the same ones are compared as one. 95 % intervals are over sources.
    """
    import numpy as np

    n = 0
    scored: list[tuple[int, int, int]] = []
    groups = []
    for example, judgment in pairs:
        counts = evidence_counts(example, judgment)
        n += len(counts)
        if not judgment.unscored:
            scored += counts
            groups += [example.group_key] * len(counts)
    if not n:
        return None
    columns = np.array(scored, dtype=np.float64).reshape(-1, 3).T
    both, by_judge, by_people = columns
    metrics = ratios(
        {
            "precision": (both, by_judge),
            "recall": (both, by_people),
            "f1": (2 * both, by_judge + by_people),
        }
    )
    why = {
        "precision": "the judge named no chunk",
        "recall": "people named no chunk",
        "f1": "nobody named a supporting chunk",
    }
    measured = estimates(metrics, groups, "statement", why)
    return EvidenceAgreement(
        n=n,
        scored=len(scored),
        coverage=len(scored) / n,
        **measured,
    )
