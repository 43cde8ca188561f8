"""Fit the classifier on labels: features of statements → probability per statement → probability per answer → cut.

Leave the LM's features out of ``names`` and the same function fits the lexical baseline; give only `LENGTH_FEATURES` as
``answer_names`` and it fits the length baseline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.arrays import ClassifierData, ClassifierExample, Source
from faith_dspy.optimize.classifier.calibration import calibrate, probabilities_of
from faith_dspy.optimize.classifier.logistic import (
    Fit,
    balanced,
    best_width,
    fit,
    log_losses,
    recalibrate,
    soft_minimum,
    stable_threshold,
)
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint, threshold_for
from faith_dspy.optimize.classifier.review_range import review_range_for
from faith_dspy.scoring.classifier import LOGIT_LIMIT, AnswerClassifier, Classifier, StatementClassifier, to_probability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from faith_dspy.optimize.checks import ThresholdChoice

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


__all__ = ["ClassifierExample", "FittedClassifier", "fit_classifier", "grouped_folds"]


class FittedClassifier(NamedTuple):
    """A classifier, and what it says of its own training answers when it has not seen them."""

    classifier: Classifier
    probabilities: list[float | None]
    """Cross-fitted probability per answer: the numbers to compare variants by on the devset."""
    statement_probabilities: list[list[float | None]]
    """Cross-fitted probability per statement."""
    learned_from: Source
    """Which labels the statement classifier learned from; ``features`` when there is no statement classifier."""
    prior_widths: tuple[float, float]
    """The widths chosen for the statement and the answer classifier."""
    cut: ThresholdChoice
    """The threshold, with what it reaches on `probabilities`."""


def fit_classifier(
    examples: Sequence[ClassifierExample],
    *,
    names: Sequence[str] | None = None,
    answer_names: Sequence[str] = (),
    learn_from: Literal["auto", "statements", "answers"] = "auto",
    operating_point: OperatingPoint = BALANCED,
    prior_widths: tuple[float, float] | None = None,
    folds: int = 5,
    seed: int = 0,
) -> FittedClassifier:
    """Fit a classifier on labelled answers; every choice is made on held-out groups.

    ``names`` are the statement features to use (default: `CLASSIFIER_FEATURES` and the LM's; empty: no statement classifier),
    ``answer_names`` those of the whole answer. Probabilities are chances at the base rate of the labels given; classes
    weigh the same while fitting. The prior widths are chosen once, on all folds, unless given; all else a held-out
    answer meets was fitted without its group. ``operating_point`` rules the threshold; the review_range for people lies around it.
    Raises `InputError` when the labels cannot be split: it takes both classes, each in two groups.
    """
    data = ClassifierData(examples, names, answer_names)
    splits = grouped_folds([e.label for e in examples], [e.group for e in examples], folds, seed)
    source = data.source(learn_from)
    width = prior_widths[0] if prior_widths else _choose(data, splits, source)
    everyone = np.arange(len(examples))
    statements = _statement_stage(data, everyone, splits, source, width)
    features, ways = data.features(statements.logits, statements.unjudged, source), data.ways(source)
    answer_width = prior_widths[1] if prior_widths else best_width(
        splits,
        lambda train, held, w: log_losses(fit(features[train], data.y[train], ways, w).logits(features[held]),
                                          data.y[held]) * balanced(data.y)[held],
        len(examples),
    )  # fmt: skip
    honest = np.zeros(len(examples))
    for held in splits:
        train = np.setdiff1d(everyone, held)
        inner = [fold for s in splits if len(fold := np.intersect1d(train, s))]
        stage = _statement_stage(data, train, inner, source, width)
        rows = data.features(stage.logits, stage.unjudged, source)
        honest[held] = fit(rows[train], data.y[train], ways, answer_width).logits(rows[held])
    slope, shift, isotonic, calibrated = calibrate(honest, data.y, splits)
    judged = [not np.isnan(row).all() for row in features]
    probabilities = [float(p) if ok else None for p, ok in zip(calibrated, judged, strict=True)]
    labels = [e.label for e in examples]
    cut = threshold_for(operating_point, probabilities, labels, groups=[e.group for e in examples], seed=seed)
    classifier = Classifier(
        statement=StatementClassifier(**_numbers(statements.fit, data.names)) if statements.fit else None,
        answer=AnswerClassifier(
            **_numbers(_rescaled(fit(features, data.y, ways, answer_width), slope, shift), data.columns(source)),
            unjudged=statements.unjudged,
            isotonic=isotonic,
        ),
        threshold=cut.threshold,
        statement_threshold=_statement_cut(data, statements.logits, source),
        review_range=review_range_for(probabilities, labels, cut.threshold),
    )
    return FittedClassifier(
        classifier,
        probabilities,
        data.per_statement(statements.logits if source != "features" else None),
        source,
        (width, answer_width),
        cut,
    )


def grouped_folds(labels: Sequence[bool], groups: Sequence[str], folds: int, seed: int) -> list[Ints]:
    """Held-out indices of each fold, stratified by label, no group in two folds; fewer folds where labels are few."""
    per_class = [len({g for g, label in zip(groups, labels, strict=True) if label is want}) for want in (True, False)]
    n = min(folds, *per_class)
    if n < 2:
        raise InputError(
            f"got faithful answers in {per_class[0]} groups and unfaithful ones in {per_class[1]}; fitting needs both "
            "in at least 2 groups each. Label more answers, over more contexts."
        )
    splitter = StratifiedGroupKFold(n_splits=n, shuffle=True, random_state=seed)
    held = [h for _, h in splitter.split(np.zeros(len(labels)), np.array(labels), np.array(groups))]
    return [h for h in held if len(h)]


class _StatementStage(NamedTuple):
    """A statement classifier fitted on some examples."""

    fit: Fit | None
    logits: Floats
    """Of every row: cross-fitted for the examples it was fitted on, by `fit` for all others."""
    unjudged: float


def _statement_stage(
    data: ClassifierData, train: Ints, folds: list[Ints], source: Source, width: float
) -> _StatementStage:
    """Fit the statement classifier on ``train``, calibrated on its own held-out rows where people labelled statements."""
    if source == "features":
        return _StatementStage(None, np.zeros(len(data.x)), 0.5)
    whole = data.fit(train, source, width)
    logits = whole.logits(data.x)
    for held in folds:
        rows = np.isin(data.owner, held)
        logits[rows] = data.fit(np.setdiff1d(train, held), source, width).logits(data.x[rows])
    if source == "statements":
        rows = data.rows(train, source)
        slope, shift = recalibrate(logits[rows], data.labels[rows])
        whole, logits = _rescaled(whole, slope, shift), slope * logits + shift
    mean = float(np.clip(logits[np.isin(data.owner, train)], -LOGIT_LIMIT, LOGIT_LIMIT).mean())
    return _StatementStage(whole, logits, to_probability(mean))


def _choose(data: ClassifierData, splits: list[Ints], source: Source) -> float:
    """The statement classifier's prior width, by the held-out loss of the labels it learns from."""
    if source == "features":
        return 0.0

    def loss(train: Ints, held: Ints, width: float) -> Floats:
        model = data.fit(train, source, width)
        rows = data.rows(held, source)
        logits = model.logits(data.x[rows])
        if source == "statements":
            return log_losses(logits, data.labels[rows]) * balanced(data.labels[rows])
        owners, bags = np.unique(data.owner[rows], return_inverse=True)
        return log_losses(soft_minimum(logits, bags)[0], data.y[owners]) * balanced(data.y[owners])

    return best_width(splits, loss, len(data.y))


def _statement_cut(data: ClassifierData, logits: Floats, source: Source) -> float:
    rows = data.rows(np.arange(len(data.y)), "statements")
    return stable_threshold(probabilities_of(logits[rows]), data.labels[rows]) if source == "statements" else 0.5


def _rescaled(model: Fit, slope: float, shift: float) -> Fit:
    return model._replace(weights=model.weights * slope, intercept=model.intercept * slope + shift)


def _numbers(model: Fit, names: Sequence[str]) -> dict[str, Any]:
    return {
        "names": tuple(names),
        "means": tuple(model.means.tolist()),
        "scales": tuple(model.scales.tolist()),
        "weights": tuple((model.weights + 0.0).tolist()),
        "intercept": model.intercept,
    }
