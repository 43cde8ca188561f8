"""Fit the classifier on labels: statement features → probability per statement → probability per answer → threshold.

Without the LM's feature in ``names`` this fits the lexical baseline; with `LENGTH_FEATURES` as ``answer_names`` and no
``names``, the length baseline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.arrays import ClassifierData, ClassifierExample, Source
from faith_dspy.optimize.classifier.logistic import (
    Fit,
    best_width,
    class_weights,
    log_losses,
    platt_scaling,
    probabilities_of,
    soft_minimum,
)
from faith_dspy.optimize.classifier.operating_point import (
    BALANCED,
    OperatingPoint,
    balanced_threshold,
    review_range_for,
    threshold_for,
)
from faith_dspy.optimize.data.splits import deal
from faith_dspy.scoring.classifier import AnswerClassifier, Classifier, StatementClassifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from faith_dspy.optimize.results import ThresholdChoice

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

FOLDS = 5


class FittedClassifier(NamedTuple):
    """A classifier, and its cross-fitted probabilities: each answer's by a classifier that did not see its group."""

    classifier: Classifier
    probabilities: list[float | None]
    """Per answer: the numbers to compare variants by on the devset."""
    statement_probabilities: list[list[float | None]]
    learned_from: Source
    """Which labels the statement classifier learned from; ``features`` when there is no statement classifier."""
    prior_widths: tuple[float, float]
    """Of the statement and the answer classifier."""
    threshold: ThresholdChoice
    """The threshold, with what it reaches on `probabilities`."""


def fit_classifier(
    examples: Sequence[ClassifierExample],
    *,
    names: Sequence[str] | None = None,
    answer_names: Sequence[str] = (),
    operating_point: OperatingPoint = BALANCED,
    prior_widths: tuple[float, float] | None = None,
    prior: Classifier | None = None,
    seed: int = 0,
) -> FittedClassifier:
    """Fit a classifier on labelled answers; every choice is made on held-out groups.

    ``names`` are the statement features to use (default: `CLASSIFIER_FEATURES` and the LM's; empty: no statement
    classifier), ``answer_names`` those of the whole answer. Classes weigh the same while fitting; probabilities are
    chances at the base rate of the labels. The prior widths are chosen once, on all folds, unless given; everything
    else that yields an answer's cross-fitted probability was fitted without its group. ``prior``: a classifier fitted
    to other labels, whose weights are the prior's means where it has the same features. ``operating_point`` decides the
    threshold, around which the review range lies. Raises `InputError` when the labels cannot be split: both classes
    are needed, each in two groups.
    """
    data = ClassifierData(examples, names, answer_names, prior)
    labels, groups = [e.label for e in examples], [e.group for e in examples]
    splits = grouped_folds(labels, groups, seed)
    everyone = np.arange(len(examples))
    source = data.source

    width = prior_widths[0] if prior_widths else _statement_width(data, splits, source)
    stage = _fit_statement_stage(data, everyone, splits, source, width)
    features = data.answer_features(stage.logits, source)
    answer_width = prior_widths[1] if prior_widths else _answer_width(data, features, source, splits)

    held_out = np.zeros(len(examples))
    for held in splits:
        train = np.setdiff1d(everyone, held)
        inner = [fold for s in splits if len(fold := np.intersect1d(train, s))]
        without = _fit_statement_stage(data, train, inner, source, width)
        x = data.answer_features(without.logits, source)
        held_out[held] = data.fit_answers(x, train, source, answer_width).logits(x[held])
    slope, shift = platt_scaling(held_out, data.y)
    calibrated = probabilities_of(slope * held_out + shift)
    judged = [not np.isnan(row).all() for row in features]
    probabilities = [p if ok else None for p, ok in zip(calibrated.tolist(), judged, strict=True)]

    choice = threshold_for(operating_point, probabilities, labels, groups=groups, seed=seed)
    answer = data.fit_answers(features, everyone, source, answer_width).rescaled(slope, shift)
    classifier = Classifier(
        statement=StatementClassifier(**numbers(stage.fit, data.names)) if stage.fit else None,
        answer=AnswerClassifier(**numbers(answer, data.answer_columns(source))),
        threshold=choice.threshold,
        statement_threshold=_statement_threshold(data, stage.logits, source),
        review_range=review_range_for(probabilities, labels, choice.threshold),
    )
    per_statement = data.per_statement(stage.logits if source != "features" else None)
    return FittedClassifier(classifier, probabilities, per_statement, source, (width, answer_width), choice)


def grouped_folds(labels: Sequence[bool], groups: Sequence[str], seed: int) -> list[Ints]:
    """Held-out positions of each fold, both labels in each, no source in two; fewer folds where labels are few."""
    per_class = [len({g for g, label in zip(groups, labels, strict=True) if label is want}) for want in (True, False)]
    n = min(FOLDS, *per_class)
    if n < 2:
        raise InputError(
            f"got faithful answers in {per_class[0]} groups and unfaithful ones in {per_class[1]}; fitting needs both "
            "in at least 2 groups each. Label more answers, over more contexts."
        )
    fold = np.array(deal(labels, groups, [1] * n, 1, seed))
    return [np.flatnonzero(fold == k) for k in range(n)]


class _StatementStage(NamedTuple):
    """A statement classifier fitted on some examples."""

    fit: Fit | None
    logits: Floats
    """Of every row: cross-fitted for the examples it was fitted on, by `fit` for all others."""


def _fit_statement_stage(
    data: ClassifierData, train: Ints, folds: Sequence[Ints], source: Source, width: float
) -> _StatementStage:
    """Fit the statement classifier on ``train``; where statements are labelled, calibrate it on its held-out rows."""
    if source == "features":
        return _StatementStage(None, np.zeros(len(data.x)))
    whole = data.fit_statements(train, source, width)
    logits = whole.logits(data.x)
    for held in folds:
        rows = np.isin(data.owner, held)
        logits[rows] = data.fit_statements(np.setdiff1d(train, held), source, width).logits(data.x[rows])
    if source == "statements":
        rows = data.rows(train, source)
        slope, shift = platt_scaling(logits[rows], data.labels[rows])
        whole, logits = whole.rescaled(slope, shift), slope * logits + shift
    return _StatementStage(whole, logits)


def _statement_width(data: ClassifierData, splits: Sequence[Ints], source: Source) -> float:
    """The statement classifier's prior width, by the held-out loss of the labels it learns from."""
    if source == "features":
        return 0.0

    def loss(train: Ints, held: Ints, width: float) -> Floats:
        rows = data.rows(held, source)
        logits = data.fit_statements(train, source, width).logits(data.x[rows])
        if source == "statements":
            y = data.labels[rows]
            return log_losses(logits, y) * class_weights(y)
        owners, bags = np.unique(data.owner[rows], return_inverse=True)
        y = data.y[owners]
        return log_losses(soft_minimum(logits, bags)[0], y) * class_weights(y)

    return best_width(splits, loss, len(data.y))


def _answer_width(data: ClassifierData, x: Floats, source: Source, splits: Sequence[Ints]) -> float:
    """The answer classifier's prior width, by the held-out loss of the answers' labels."""
    weights = class_weights(data.y)

    def loss(train: Ints, held: Ints, width: float) -> Floats:
        logits = data.fit_answers(x, train, source, width).logits(x[held])
        return log_losses(logits, data.y[held]) * weights[held]

    return best_width(splits, loss, len(data.y))


def _statement_threshold(data: ClassifierData, logits: Floats, source: Source) -> float:
    if source != "statements":
        return 0.5
    rows = data.rows(np.arange(len(data.y)), source)
    return balanced_threshold(probabilities_of(logits[rows]), data.labels[rows])


def numbers(model: Fit, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a `StatementClassifier` or `AnswerClassifier`."""
    return {
        "names": tuple(names),
        "means": tuple(model.means.tolist()),
        "scales": tuple(model.scales.tolist()),
        "weights": tuple((model.weights + 0.0).tolist()),
        "intercept": model.intercept,
    }
