"""What the champion relies on, and where it is good, from replies already paid for: no LM call."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.classifier.operating_point import review_range_sentence
from faith_dspy.optimize.results import Ablated, CalibrationCheck, Diagnosis, GroupResult, ShortcutCheck
from faith_dspy.optimize.select.comparison import Side, differences
from faith_dspy.optimize.select.evaluate import agreement, classifier_example
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.metrics import weighted_auroc
from faith_dspy.scoring.statistics import bootstrap
from faith_dspy.text.features import DIRECTIONS, LENGTH_FEATURES
from faith_dspy.text.words import language_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.optimize.classifier.arrays import ClassifierExample
    from faith_dspy.optimize.classifier.fitting import FittedClassifier
    from faith_dspy.optimize.results import PredictionRow
    from faith_dspy.optimize.select.champion import Promotion
    from faith_dspy.optimize.select.evaluate import JudgedExample
    from faith_dspy.scoring.statistics import Floats

MIN_CLASS = 8
"""Scored answers of each label that a group needs to be measured; below, one answer moves its figure by six points."""
_READ = 2_000
"""Characters from which a language is guessed."""


def diagnose(promotion: Promotion, seed: int, advance: Callable[[int], None]) -> Diagnosis:
    """Threshold, review range, calibration, length shortcut, ablation and groups of the champion.

    In a cascade, calibration and review range on test are about the answers that were escalated to the champion's
    classifier. ``advance`` is called once per ablation.
    """
    fitted, rows = promotion.fitted, promotion.tested[0].predictions
    cascade = promotion.judge.escalate_to is not None
    examples = [classifier_example(e) for e in promotion.fitted_on]
    own = [lm_probability(e) for e in promotion.fitted_on]
    parts = {
        "cross-fitted": [
            (before, after, e.label, e.group)
            for before, after, e in zip(own, fitted.probabilities, examples, strict=True)
        ],
        "test": [
            (lm_probability(e._replace(raw_judgment=e.raw_judgment.last)), r.probability, r.label, r.group)
            for e, r in zip(promotion.test, rows, strict=True)
            if not cascade or e.raw_judgment.escalated is not None
        ],
    }
    classifier = fitted.classifier
    review_range: dict[str, str] = {}
    calibration: dict[str, CalibrationCheck] = {}
    for part, judged in parts.items():
        if classifier.review_range is not None and judged:
            _, after, labels, _ = zip(*judged, strict=True)
            review_range[part] = review_range_sentence(classifier.review_range, after, labels)
        known = [(b, a, label, group) for b, a, label, group in judged if b is not None and a is not None]
        if known:
            calibration[part] = calibration_check(*zip(*known, strict=True), seed=seed)
    return Diagnosis(
        threshold=fitted.threshold,
        review_range=review_range,
        calibration=calibration,
        shortcuts=shortcut_check(examples, fitted.probabilities, seed=seed),
        ablation=tuple(ablate(examples, fitted, seed=seed, advance=advance)),
        groups=by_group(rows, seed),
    )


def lm_probability(judged: JudgedExample) -> float | None:
    """The LM's own probability of its least supported statement; None where it gave none for one of them."""
    known = [v.probability for v in judged.raw_judgment.raw_verdicts]
    given = [p for p in known if p is not None]
    return min(given) if given and len(given) == len(known) and judged.unscored is None else None


def calibration_check(
    before: Sequence[float], after: Sequence[float], labels: Sequence[bool], groups: Sequence[str], *, seed: int = 0
) -> CalibrationCheck:
    """Calibration error of two probabilities of each answer; ``after`` of answers the classifier did not see."""
    first, second = (
        measure(labels, [p >= 0.5 for p in side], side, groups=groups, seed=seed).ece for side in (before, after)
    )
    return CalibrationCheck(before=first, after=second)


def shortcut_check(
    examples: Sequence[ClassifierExample], probabilities: Sequence[float | None], *, seed: int = 0
) -> ShortcutCheck:
    """Whether probabilities the judge gave to answers it had not seen go by length; answers with None are left out.

    ``within`` takes only pairs of answers from one third by words; answers of one length share a third.
    """
    at = [i for i, p in enumerate(probabilities) if p is not None]
    y = np.array([examples[i].label for i in at], dtype=bool)
    scores = {n: np.array([examples[i].features[n] for i in at], dtype=np.float64) for n in LENGTH_FEATURES}
    scores["judge"] = p = np.array([probabilities[i] for i in at], dtype=np.float64)
    words = np.rint(np.expm1(scores["answer_words"]))
    third = np.searchsorted(np.sort(words), words) * 3 // max(1, len(words))

    def within(w: Floats) -> Floats:
        """Each third's AUROC, weighted by its pairs of a faithful and an unfaithful answer."""
        won, pairs = np.zeros(len(w)), np.zeros(len(w))
        for k in np.unique(third):
            rows = third == k
            n = (w[:, rows] @ y[rows]) * (w[:, rows] @ ~y[rows])
            won += np.where(n > 0, n * np.nan_to_num(weighted_auroc(w[:, rows], y[rows], p[rows])), 0)
            pairs += n
        with np.errstate(invalid="ignore"):
            return won / pairs

    found = bootstrap(
        lambda w: {n: weighted_auroc(w, y, s) for n, s in scores.items()} | {"within": within(w)},
        len(at),
        [examples[i].group for i in at],
        dict.fromkeys(scores, "all answers have the same label")
        | {"within": "no third by length has answers of both labels"},
        seed=seed,
    )
    return ShortcutCheck(alone={n: found[n] for n in LENGTH_FEATURES}, auroc=found["judge"], within=found["within"])


def ablate(
    examples: Sequence[ClassifierExample],
    fitted: FittedClassifier,
    *,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Ablated]:
    """The classifier fitted anew without the LM, without lexical features, and without each feature by itself; of the
    latter, the most missed first.

    The prior widths stay those of ``fitted``, so that only the features differ. Differences are on ``examples``, the
    answers ``fitted`` was fitted on, each judged by a classifier that did not see its group. Empty where there is no
    statement classifier, or it has a single feature.
    """
    names = fitted.classifier.statement.names if fitted.classifier.statement else ()
    sources = {
        "the LM": tuple(n for n in names if n not in DIRECTIONS),
        "lexical features": tuple(n for n in names if n in DIRECTIONS),
    }
    labels, groups = [e.label for e in examples], [e.group for e in examples]
    found = []
    for without, left_out in {**sources, **{n: (n,) for n in names}}.items():
        rest = [n for n in names if n not in left_out]
        if rest and left_out:
            less = fit_classifier(examples, names=rest, prior_widths=fitted.prior_widths, seed=seed)
            accuracy, auroc = differences(labels, _side(fitted), _side(less), groups, n_resamples=1000, seed=seed)
            found.append(Ablated(without=without, balanced_accuracy=accuracy, auroc=auroc))
        advance(1)
    return sorted(found, key=lambda a: (a.without not in sources, a.without in sources or -(a.auroc.value or 0.0)))


def _side(fitted: FittedClassifier) -> Side:
    passed = [None if p is None else p >= fitted.classifier.threshold for p in fitted.probabilities]
    return Side(passed, fitted.probabilities)


def by_group(rows: Sequence[PredictionRow], seed: int = 0) -> tuple[GroupResult, ...]:
    """Agreement of one judge by kind of test answer: each value of each tag of the labels file, and each language.

    The language is guessed from answer and context where the labels file does not say. In each facet the largest group
    comes first; those with too few answers to be measured are counted in one row. Facets with fewer than two groups, or
    none to measure, are left out. Intervals are those of `measure`: the lowest of many groups is low by chance, too.
    """
    facets: defaultdict[str, defaultdict[str, list[PredictionRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        language = row.tags.get("language") or language_of(" ".join([row.answer, *row.context])[:_READ])
        for facet, name in {**row.tags, "language": language}.items():
            facets[facet][" ".join(name.split())].append(row)  # a name is one line of a table
    found = []
    for facet, groups in facets.items():
        measured = {name: part for name, part in groups.items() if _enough(part)}
        small = [part for part in groups.values() if not _enough(part)]
        if not measured or len(groups) < 2:
            continue
        found += [
            GroupResult(facet=facet, name=name, n=len(part), agreement=agreement(part, seed))
            for name, part in sorted(measured.items(), key=lambda i: -len(i[1]))
        ]
        if small:
            found.append(GroupResult(facet=facet, name=f"({len(small)} too small)", n=sum(map(len, small))))
    return tuple(found)


def _enough(part: Sequence[PredictionRow]) -> bool:
    labels = [r.label for r in part if r.predicted is not None]
    return min(sum(labels), len(labels) - sum(labels)) >= MIN_CLASS
