"""Fit the classifier on labels: statement features → probability per statement → probability per answer → threshold.

Without the LM's feature in ``names`` this fits the lexical baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.logistic import Fit, Floats, Ints, fit, platt_scaling, probabilities_of
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint, review_range_for, threshold_for
from faith_dspy.optimize.data.splits import deal
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.scoring.classifier import (
    AGGREGATES,
    AnswerClassifier,
    Classifier,
    StatementClassifier,
    aggregates,
    direction,
)
from faith_dspy.text.features import DIRECTIONS

Source = Literal["statements", "answers"]
"""Labels that the statement classifier learns from."""

FOLDS = 5
ENOUGH_STATEMENT_LABELS = 40
"""With fewer labelled statements, or fewer than 5 of one class, the statement classifier learns from the
answers' labels."""
LM_PRIOR = 3
"""Prior weight of the LM, in lexical features. Those repeat each other: with a prior of 1, they outvoted the LM where
labels were few (optimize/LOG.md)."""


class FittedClassifier(NamedTuple):
    """A classifier, and its cross-fitted probabilities: each answer's by a classifier that did not see its source.

    Calibration and threshold saw all of them: these are numbers to choose by, not agreement with people.
    """

    classifier: Classifier
    probabilities: list[float]


class ClassifierData:
    """Answers as arrays: one row per judged statement (``x``, ``labels``, ``owner``), one entry per answer (``y``).

    Missing features and labels are NaN; ``owner`` is the position of a row's answer. Only people's own verdicts on
    statements are labels of statements: what follows from an answer's label is not, since it has one side only.
    ``prior``: a classifier fitted to other labels, whose weights each stage expects where it has the same features.
    """

    def __init__(self, answers: Sequence[JudgedAnswer], names: Sequence[str], prior: Classifier | None = None) -> None:
        self.names, self.prior = tuple(names), prior
        self.directions = [direction(n) * (1 if n in DIRECTIONS else LM_PRIOR) for n in self.names]
        self.y = np.array([a.label for a in answers], dtype=np.float64)
        rows, owner, labels = [], [], []
        for i, a in enumerate(answers):
            own = any(s.verdict is not None for s in a.example.statements)
            for label, features in zip(a.labels, a.features, strict=True):
                if features is not None:
                    rows.append([features.get(n, np.nan) for n in self.names])
                    owner.append(i)
                    labels.append(float(label) if own and label is not None else np.nan)
        self.x = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.names))
        self.owner, self.labels = np.array(owner, dtype=np.int64), np.array(labels, dtype=np.float64)
        per_class = [int((self.labels == value).sum()) for value in (0, 1)]
        enough = sum(per_class) >= ENOUGH_STATEMENT_LABELS and min(per_class) >= 5
        self.source: Source = "statements" if enough else "answers"

    def rows(self, answers: Ints) -> Any:
        """Mask of the rows of these answers that the statement classifier can learn from."""
        mine = np.isin(self.owner, answers)
        return mine & ~np.isnan(self.labels) if self.source == "statements" else mine

    def fit_statements(self, answers: Ints, **options: Any) -> Fit:
        """A statement classifier fitted on these answers, not yet calibrated; ``options`` are those of `fit`."""
        rows = self.rows(answers)
        prior = as_fit(self.prior.statement if self.prior else None, self.names)
        if self.source == "statements":
            return fit(self.x[rows], self.labels[rows], self.directions, prior=prior, **options)
        owners, bags = np.unique(self.owner[rows], return_inverse=True)
        return fit(self.x[rows], self.y[owners], self.directions, bags, prior=prior, **options)

    def fit_answers(self, x: Floats, answers: Ints, **options: Any) -> Fit:
        """An answer classifier fitted on these answers; ``x``: `answer_features` of all."""
        prior = as_fit(self.prior.answer if self.prior else None, AGGREGATES)
        return fit(x[answers], self.y[answers], [direction(n) for n in AGGREGATES], prior=prior, **options)

    def answer_features(self, logits: Floats) -> Floats:
        """The answer classifier's features, shape (answers, `AGGREGATES`), from log-odds of each row."""
        probabilities = probabilities_of(logits)
        made = [aggregates(probabilities[self.owner == i].tolist()) for i in range(len(self.y))]
        return np.array([[a.get(n, np.nan) for n in AGGREGATES] for a in made])


def fit_classifier(
    answers: Sequence[JudgedAnswer],
    names: Sequence[str],
    *,
    operating_point: OperatingPoint = BALANCED,
    prior: Classifier | None = None,
    seed: int = 0,
) -> FittedClassifier:
    """Fit a classifier on labelled answers whose statements were all judged.

    ``names``: the statement features to use. Classes weigh the same while fitting; probabilities are chances at the
    base rate of the labels. ``operating_point`` decides the threshold, around which the review range lies. `InputError`
    unless both classes occur, each over two sources.
    """
    data = ClassifierData(answers, names, prior)
    labels = [a.label for a in answers]
    folds = grouped_folds(labels, [a.source for a in answers], seed)
    everyone = np.arange(len(answers))
    statement, logits = _fit_statement_stage(data, everyone, folds)
    features = data.answer_features(logits)

    held_out = np.zeros(len(answers))
    for held in folds:
        train = np.setdiff1d(everyone, held)
        inner = [fold for f in folds if len(fold := np.intersect1d(train, f))]
        x = data.answer_features(_fit_statement_stage(data, train, inner)[1])
        held_out[held] = data.fit_answers(x, train).logits(x[held])
    slope, shift = platt_scaling(held_out, data.y)
    probabilities = probabilities_of(slope * held_out + shift).tolist()

    threshold = threshold_for(operating_point, probabilities, labels)
    known = data.labels[data.rows(everyone)]
    classifier = Classifier(
        statement=StatementClassifier(**numbers(statement, data.names)),
        answer=AnswerClassifier(**numbers(data.fit_answers(features, everyone).rescaled(slope, shift), AGGREGATES)),
        threshold=threshold,
        statement_threshold=float(known.mean()) if data.source == "statements" else 0.5,
        review_range=review_range_for(probabilities, labels, threshold),
    )
    return FittedClassifier(classifier, probabilities)


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


def _fit_statement_stage(data: ClassifierData, train: Ints, folds: Sequence[Ints]) -> tuple[Fit, Floats]:
    """A statement classifier fitted on ``train``, and log-odds of every row: cross-fitted for ``train``.

    Where statements are labelled, it is calibrated on its held-out rows.
    """
    whole = data.fit_statements(train)
    logits = whole.logits(data.x)
    for held in folds:
        rows = np.isin(data.owner, held)
        logits[rows] = data.fit_statements(np.setdiff1d(train, held)).logits(data.x[rows])
    if data.source == "answers":
        return whole, logits
    rows = data.rows(train)
    slope, shift = platt_scaling(logits[rows], data.labels[rows])
    return whole.rescaled(slope, shift), slope * logits + shift


def as_fit(model: StatementClassifier | AnswerClassifier | None, names: Sequence[str]) -> Fit | None:
    """A classifier's numbers as a prior; None where it is over other features."""
    if model is None or model.names != tuple(names):
        return None
    return Fit(np.array(model.means), np.array(model.scales), np.array(model.weights), model.intercept)


def numbers(model: Fit, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a `StatementClassifier` or `AnswerClassifier`."""
    return {
        "names": tuple(names),
        "means": tuple(model.means.tolist()),
        "scales": tuple(model.scales.tolist()),
        "weights": tuple((model.weights + 0.0).tolist()),
        "intercept": model.intercept,
    }
