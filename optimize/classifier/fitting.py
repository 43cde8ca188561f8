"""Fit the classifier on labels: statement features → probability per statement → probability per answer → threshold.

An answer is as well supported as its weakest statement: what is fitted beside the statement classifier is the slope and
offset that turn the weakest statement's log-odds into the answer's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.logistic import (
    WIDTH,
    Fit,
    Floats,
    Ints,
    fit,
    platt_scaling,
    probabilities_of,
    standardized,
)
from faith_dspy.optimize.classifier.operating_point import (
    BALANCED,
    OperatingPoint,
    review_range,
    threshold_for,
)
from faith_dspy.optimize.data.splits import deal
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.scoring.classifier import (
    AnswerClassifier,
    Classifier,
    StatementClassifier,
    direction,
    to_logit,
)

FOLDS = 5
ENOUGH_STATEMENT_LABELS = 40
"""With fewer labelled statements, or fewer than 5 of one class, the statement classifier learns from the answers'
labels."""
LM_PRIOR = 3
"""Prior weight of the LM, in lexical features: those repeat each other."""
LM_WIDTH = 1.0
"""Standard deviation of the prior on the LM's weight, where no other labels tell how good that LM is. With that of the
lexical features a good LM was held at the weight of a poor one (optimize/LOG.md)."""
_WEAKEST = ("weakest",)


class FittedClassifier(NamedTuple):
    """A classifier, and its cross-fitted probabilities: each answer's by weights that did not see its source.

    Slope, offset and threshold saw all of them: these are numbers to choose by, not agreement with people.
    """

    classifier: Classifier
    probabilities: list[float]


class ClassifierData:
    """Answers as arrays: one row per judged statement (``x``, ``labels``, ``owner``), one entry per answer (``y``).

    Missing features and labels are NaN; ``owner`` is the position of a row's answer. Only people's own verdicts on
    statements are labels of statements: what follows from an answer's label is not, since it has one side only.
    """

    def __init__(self, answers: Sequence[JudgedAnswer], names: Sequence[str]) -> None:
        self.names = tuple(names)
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
        self.owner, self.labels = (
            np.array(owner, dtype=np.int64),
            np.array(labels, dtype=np.float64),
        )
        per_class = [int((self.labels == value).sum()) for value in (0, 1)]
        enough = sum(per_class) >= ENOUGH_STATEMENT_LABELS and min(per_class) >= 5
        self.source: Literal["statements", "answers"] = (
            "statements" if enough else "answers"
        )
        """Labels that the statement classifier learns from."""

    def rows(self, answers: Ints) -> Any:
        """Mask of the rows of these answers that the statement classifier can learn from."""
        mine = np.isin(self.owner, answers)
        return mine & ~np.isnan(self.labels) if self.source == "statements" else mine

    def fit_statements(
        self, answers: Ints, prior: Fit | None = None, **options: Any
    ) -> Fit:
        """A statement classifier fitted on these answers, not yet calibrated.

        ``prior``: of `weights_of`; ``options`` are those of `fit`.
        """
        rows = self.rows(answers)
        if (
            len(self.names) == 1
        ):  # there is no weight to choose: calibration finds the slope
            means, scales, _ = standardized(self.x[rows])
            return Fit(means, scales, np.ones(1), 0.0)
        lm = np.array([name == "lm" for name in self.names])
        directions = [direction(name) for name in self.names] * np.where(
            lm, LM_PRIOR, 1
        )
        unknown = (
            np.ones(len(lm), dtype=bool) if prior is None else np.isnan(prior.weights)
        )
        options = {
            "directions": directions,
            "width": np.where(lm & unknown, LM_WIDTH, WIDTH),
            **options,
        }
        if self.source == "statements":
            return fit(self.x[rows], self.labels[rows], prior=prior, **options)
        owners, bags = np.unique(self.owner[rows], return_inverse=True)
        return fit(self.x[rows], self.y[owners], bags=bags, prior=prior, **options)

    def weakest(self, logits: Floats) -> Floats:
        """The lowest of each answer's statements' log-odds."""
        lowest = np.full(len(self.y), np.inf)
        np.minimum.at(lowest, self.owner, logits)
        return lowest


def fit_classifier(
    answers: Sequence[JudgedAnswer],
    names: Sequence[str],
    fold_of: Mapping[str, int],
    operating_point: OperatingPoint = BALANCED,
    prior: Classifier | None = None,
) -> FittedClassifier:
    """Fit a classifier on labelled answers whose statements were all judged, and cross-fit it.

    Args:
        answers: n answers, both labels over at least two folds.
        names: the statement features it uses. Of a single one nothing but slope, offset and threshold is fitted.
        fold_of: the fold of each source (`assign_folds`).
        operating_point: what the threshold is for.
        prior: a classifier fitted to other labels; its weights are expected of the features that it uses.

    Classes weigh the same while fitting; probabilities are chances at the base rate of the labels. Raises `InputError`
    where the labels of all but one fold are of one kind.
    """
    data = ClassifierData(answers, names)
    folds = _folds(answers, fold_of)
    start = weights_of(prior, data.names)
    everyone = np.arange(len(answers))
    statement = data.fit_statements(everyone, start)
    logits = statement.logits(data.x)
    for held in folds:
        rows = np.isin(data.owner, held)
        logits[rows] = data.fit_statements(np.setdiff1d(everyone, held), start).logits(
            data.x[rows]
        )
    learned = data.rows(everyone)
    statement_threshold = None
    if data.source == "statements":
        slope, shift = platt_scaling(logits[learned], data.labels[learned])
        statement, logits = statement.rescaled(slope, shift), slope * logits + shift
        statement_threshold = float(data.labels[learned].mean())
    weakest = data.weakest(logits)
    slope, shift = platt_scaling(weakest, data.y)
    if statement_threshold is None:  # an answer passes where all of its statements do
        statement, weakest = statement.rescaled(slope, shift), slope * weakest + shift
        slope, shift = 1.0, 0.0
    probabilities = probabilities_of(slope * weakest + shift).tolist()
    threshold = threshold_for(
        operating_point, probabilities, [a.label for a in answers]
    )
    answer = Fit(np.zeros(1), np.ones(1), np.array([slope]), shift)
    classifier = Classifier(
        statement=StatementClassifier(**numbers(statement, data.names)),
        answer=AnswerClassifier(**numbers(answer, _WEAKEST)),
        threshold=threshold,
        statement_threshold=threshold
        if statement_threshold is None
        else statement_threshold,
        review_range=review_range(probabilities, threshold),
    )
    return FittedClassifier(classifier, probabilities)


def recalibrate(
    classifier: Classifier,
    answers: Sequence[JudgedAnswer],
    operating_point: OperatingPoint = BALANCED,
) -> FittedClassifier:
    """The classifier with slope, offset and threshold fitted on these answers, and its weights as they are."""
    y = np.array([a.label for a in answers], dtype=np.float64)
    logits = np.array(
        [to_logit(classifier.probability(a.features) or 0.0) for a in answers]
    )
    slope, shift = platt_scaling(logits, y)
    probabilities = probabilities_of(slope * logits + shift).tolist()
    threshold = threshold_for(
        operating_point, probabilities, [a.label for a in answers]
    )
    answer = classifier.answer
    fitted = {
        "answer": answer.model_copy(
            update={
                "weights": tuple(slope * w for w in answer.weights),
                "intercept": slope * answer.intercept + shift,
            }
        ),
        "threshold": threshold,
        "review_range": review_range(probabilities, threshold),
        "fitted_to": "labels",
    }
    return FittedClassifier(classifier.model_copy(update=fitted), probabilities)


def assign_folds(
    labels: Sequence[bool], sources: Sequence[str], seed: int
) -> dict[str, int]:
    """The fold of each source, both labels in each; fewer than `FOLDS` folds where a label is in fewer sources."""
    per_class = [
        len({s for s, label in zip(sources, labels, strict=True) if label is want})
        for want in (True, False)
    ]
    n = min(FOLDS, *per_class)
    if n < 2:
        raise InputError(
            f"got faithful answers in {per_class[0]} sources and unfaithful ones in {per_class[1]}; fitting needs both "
            "in at least 2 sources each. Label more answers, over more contexts."
        )
    return dict(zip(sources, deal(labels, sources, [1] * n, 1, seed), strict=True))


def _folds(answers: Sequence[JudgedAnswer], fold_of: Mapping[str, int]) -> list[Ints]:
    """Positions of the answers of each fold; `InputError` unless either label occurs in two of them."""
    fold = np.array([fold_of[a.source] for a in answers])
    labels = np.array([a.label for a in answers], dtype=bool)
    spread = [len(np.unique(fold[labels == label])) for label in (True, False)]
    if min(spread) < 2:
        raise InputError(
            f"got {int(labels.sum())} faithful and {int((~labels).sum())} unfaithful scored answers; fitting needs "
            "both, over at least 2 sources each. Label more answers, over more contexts."
        )
    return [np.flatnonzero(fold == k) for k in np.unique(fold)]


def weights_of(classifier: Classifier | None, names: Sequence[str]) -> Fit | None:
    """The classifier's weights of statement features as a prior; NaN of those that it does not use."""
    if classifier is None:
        return None
    model = classifier.statement
    weights = dict(zip(model.names, model.weights, strict=True))
    scales = dict(zip(model.names, model.scales, strict=True))
    return Fit(
        np.zeros(len(names)),
        np.array([scales.get(name, 1.0) for name in names]),
        np.array([weights.get(name, math.nan) for name in names]),
        0.0,
    )


def numbers(model: Fit, names: Sequence[str]) -> dict[str, Any]:
    """The fields of a `StatementClassifier` or `AnswerClassifier`."""
    return {
        "names": tuple(names),
        "means": tuple(model.means.tolist()),
        "scales": tuple(model.scales.tolist()),
        "weights": tuple((model.weights + 0.0).tolist()),
        "intercept": model.intercept,
    }
