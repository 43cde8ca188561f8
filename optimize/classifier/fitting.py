"""Fit the classifier on labels: statement features → probability per statement → probability per answer → threshold.

An answer is as well supported as its weakest statement: what is fitted beside the statement classifier is the slope and
offset that turn the weakest statement's log-odds into the answer's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from faith_dspy.errors import ConfigError, InputError, counted
from faith_dspy.optimize.classifier.logistic import (
    WIDTH,
    Floats,
    Regression,
    fit_logistic,
    platt_scaling,
    probabilities_of,
    standardized,
)
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.scoring.classifier import (
    AnswerClassifier,
    Classifier,
    StatementClassifier,
    sign_constraint,
    to_logit,
)
from faith_dspy.scoring.statistics import label_sources

ENOUGH_STATEMENT_LABELS = 40
"""With fewer labelled statements, or fewer than 5 of one class, the statement classifier learns from the answers'
labels."""
LM_PRIOR = 3
"""Prior weight of the LM, in lexical features: those repeat each other (`optimize/LOG.md`)."""
LM_WIDTH = 1.0
"""Standard deviation of the prior on the LM's weight, where no other labels tell how good that LM is. With that of the
lexical features a good LM was held at the weight of a poor one (optimize/LOG.md)."""
REVIEWED = 0.2
"""Share of the answers in the review range."""


class OperatingPoint(NamedTuple):
    """What the threshold is chosen for. Written ``balanced``, ``recall=0.9`` or ``cost=5``."""

    kind: Literal["balanced", "recall", "cost"] = "balanced"
    value: float = 0.0
    """Of ``recall`` the share of unfaithful answers to catch, above 0 and below 1; of ``cost`` how many times worse it
    is to pass an unfaithful answer than to fail a faithful one, above 0; of ``balanced`` nothing."""

    @classmethod
    def parse(cls, text: str) -> OperatingPoint:
        """Read ``balanced``, ``recall=R`` or ``cost=C``; `ConfigError` saying what each means."""
        kind, _, number = text.strip().lower().partition("=")
        if kind == "balanced" and not number:
            return BALANCED
        most = {"recall": 1.0, "cost": math.inf}.get(kind, 0.0)
        with suppress(ValueError):
            value = float(number)
            if 0 < value < most:
                return cls(kind, value)  # type: ignore[arg-type]  # checked
        raise ConfigError(
            f"got operating point {text!r}, expected one of balanced; recall=0.9, the share of unfaithful answers to "
            "catch, above 0 and below 1; cost=5, how many times worse it is to pass an unfaithful answer than to fail "
            "a faithful one."
        )

    def __str__(self) -> str:
        return f"{self.kind}={self.value:g}" if self.value else self.kind

    @property
    def cost(self) -> float:
        """How many times worse it is to pass an unfaithful answer than to fail a faithful one, where that was said; of
        the others both labels weigh the same."""
        return self.value if self.kind == "cost" else 0.0


BALANCED = OperatingPoint()


class FittedClassifier(NamedTuple):
    """A classifier, and one for each fold whose weights did not see it.

    Slope, offset and threshold of these saw all answers: what follows from them is to choose by, not agreement with
    people.
    """

    classifier: Classifier
    without_fold: dict[int, Classifier]


class ClassifierData:
    """Answers as arrays: one row per judged statement (``x``, ``labels``, ``owner``), one entry per answer (``y``).

    Missing features and labels are NaN; ``owner`` is the position of a row's answer. Only people's own verdicts on
    statements are labels of statements: what follows from an answer's label is not, since it has one side only.
    """

    def __init__(self, answers: Sequence[JudgedAnswer], names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.y = np.array([a.label for a in answers], dtype=np.float64)
        rows: list[list[float | None]] = []
        owner: list[int] = []
        labels: list[bool | None] = []
        for i, a in enumerate(answers):
            has_verdicts = any(s.verdict is not None for s in a.example.statements)
            for label, features in zip(a.labels, a.features, strict=True):
                if features is not None:
                    rows.append([features.get(name) for name in self.names])
                    owner.append(i)
                    labels.append(label if has_verdicts else None)
        # None becomes NaN.
        self.x = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
        self.owner = np.array(owner, dtype=np.int64)
        self.labels = np.array(labels, dtype=np.float64)
        rarer, other = sorted(np.sum(self.labels == label) for label in (0, 1))
        enough = rarer + other >= ENOUGH_STATEMENT_LABELS
        self.by_statement = bool(enough and rarer >= 5)
        """Whether the statement classifier learns from labels of statements, and not of answers."""

    def fit_statements(
        self,
        answers: NDArray[np.bool_],
        prior: Floats,
        **options: Any,
    ) -> Regression:
        """Fit a statement classifier on these answers (a mask), not yet calibrated.

        ``prior``: of `slopes_of`; ``options`` are those of `fit_logistic`.
        """
        rows = answers[self.owner]
        if self.by_statement:
            rows &= ~np.isnan(self.labels)
        if len(self.names) == 1:  # no weight to choose: calibration finds the slope
            means, scales, _ = standardized(self.x[rows])
            return Regression(means, scales, np.ones(1), 0.0)
        lm = np.array([name == "lm" for name in self.names])
        signs = np.array([sign_constraint(name) for name in self.names])
        directions = signs * np.where(lm, LM_PRIOR, 1)
        width = np.where(lm & np.isnan(prior), LM_WIDTH, WIDTH)
        fields = {"directions": directions, "width": width, "prior": prior, **options}
        if self.by_statement:
            return fit_logistic(self.x[rows], self.labels[rows], **fields)
        owners, bags = np.unique(self.owner[rows], return_inverse=True)
        return fit_logistic(self.x[rows], self.y[owners], bags=bags, **fields)


def fit_classifier(
    answers: Sequence[JudgedAnswer],
    names: Sequence[str],
    fold_of: Mapping[str, int],
    operating_point: OperatingPoint = BALANCED,
    prior: Classifier | None = None,
) -> FittedClassifier:
    """Fit a classifier on labelled answers whose statements were all judged, and once without each fold.

    Args:
        answers: n answers, both labels over at least two folds.
        names: the statement features it uses. Of a single one nothing but slope, offset and threshold is fitted.
        fold_of: the fold of each source (`faith_dspy.optimize.data.pool.assign_folds`).
        operating_point: what the threshold is for.
        prior: a classifier fitted to other labels; its weights are expected of the features that it uses.

    Classes weigh the same while fitting; probabilities are chances at the base rate of the labels. Raises `InputError`
    where the labels of all but one fold are of one kind.
    """
    data = ClassifierData(answers, names)
    fold = np.array([fold_of[a.source] for a in answers])
    spread = label_sources([a.label for a in answers], fold.tolist())
    if min(spread.values()) < 2:
        raise InputError(
            f"got {int(data.y.sum())} faithful and {int((1 - data.y).sum())} unfaithful scored answers; fitting needs "
            "both, over at least 2 sources each. Label more answers, over more contexts."
        )
    start = slopes_of(prior, data.names)
    everyone = np.ones(len(answers), dtype=bool)
    statement = data.fit_statements(everyone, start)
    without_fold = {}
    logits = np.empty(len(data.x))
    for k in np.unique(fold).tolist():
        held = fold[data.owner] == k
        without_fold[k] = data.fit_statements(fold != k, start)
        logits[held] = without_fold[k].logits(data.x[held])
    statement_scale = _AS_IT_IS
    statement_threshold = 0.5
    if data.by_statement:
        labelled = ~np.isnan(data.labels)
        labels = data.labels[labelled]
        statement_scale = platt_scaling(logits[labelled], labels)
        slope, shift = statement_scale
        logits = slope * logits + shift
        statement_threshold = float(labels.mean())
    weakest = np.full(len(answers), np.inf)
    np.minimum.at(weakest, data.owner, logits)
    calibration = _calibrate(weakest, data.y, operating_point)
    answer_scale = calibration.slope, calibration.shift
    if not data.by_statement:  # an answer passes where all of its statements do
        statement_scale, answer_scale = answer_scale, _AS_IT_IS
        statement_threshold = calibration.threshold

    def classifier_of(model: Regression) -> Classifier:
        slope, shift = answer_scale
        return Classifier(
            statement=StatementClassifier(
                **numbers(model.rescaled(*statement_scale), data.names)
            ),
            answer=AnswerClassifier(
                names=("weakest",),
                means=(0.0,),
                scales=(1.0,),
                weights=(slope,),
                intercept=shift,
            ),
            statement_threshold=statement_threshold,
            threshold=calibration.threshold,
            review_range=calibration.review_range,
        )

    return FittedClassifier(
        classifier_of(statement),
        {k: classifier_of(model) for k, model in without_fold.items()},
    )


_AS_IT_IS = 1.0, 0.0
"""Slope and shift that change nothing."""


def recalibrate(
    classifier: Classifier,
    answers: Sequence[JudgedAnswer],
    operating_point: OperatingPoint = BALANCED,
) -> Classifier:
    """Return the classifier with slope, offset and threshold fitted on these answers, and its weights as they are."""
    y = np.array([a.label for a in answers], dtype=np.float64)
    shipped = [classifier.probability(a.features) or 0.0 for a in answers]
    logits = np.array([to_logit(p) for p in shipped])
    calibration = _calibrate(logits, y, operating_point)
    slope, answer = calibration.slope, classifier.answer
    rescaled = {
        "weights": tuple(slope * w for w in answer.weights),
        "intercept": slope * answer.intercept + calibration.shift,
    }
    fitted = {
        "answer": answer.model_copy(update=rescaled),
        "threshold": calibration.threshold,
        "review_range": calibration.review_range,
        "fitted_to": "labels",
    }
    return classifier.model_copy(update=fitted)


class _Calibration(NamedTuple):
    slope: float
    shift: float
    threshold: float
    review_range: tuple[float, float]


def _calibrate(logits: Floats, y: Floats, point: OperatingPoint) -> _Calibration:
    """Return what turns answers' log-odds into probabilities, and these into verdicts."""
    slope, shift = platt_scaling(logits, y)
    probabilities = probabilities_of(slope * logits + shift)
    threshold = threshold_for(point, probabilities, y == 1)
    reach = review_range(probabilities, threshold)
    return _Calibration(slope, shift, threshold, reach)


def threshold_for(
    point: OperatingPoint, probabilities: Floats, labels: NDArray[np.bool_]
) -> float:
    """Return the threshold t for ``point``; an answer passes when its probability is at least t.

    - ``balanced``: the share of faithful answers, the best for calibrated probabilities.
    - ``cost=C``: C / (1 + C), where passing and failing cost the same on average (Elkan 2001, *The foundations of
      cost-sensitive learning*).
    - ``recall=R``: above the ⌈(n + 1) R⌉-th lowest of the n unfaithful answers: the rank by which split conformal
      prediction (Angelopoulos & Bates 2023, §1) catches the share R of new ones on average. Here the same answers also
      fitted the probabilities' slope and offset, so that is an aim and no guarantee.

    ``probabilities`` (cross-fitted) and ``labels`` (True = faithful) are of the same answers, with both labels.
    `InputError` where these are too few for R.
    """
    if point.kind == "balanced":
        return float(labels.mean())
    if point.kind == "cost":
        return point.value / (1 + point.value)
    unfaithful = np.sort(probabilities[~labels])
    check_recall(point, len(unfaithful))
    rank = _rank_of(point.value, len(unfaithful))
    last = unfaithful[rank - 1]
    above = probabilities[probabilities > last]
    following = above.min(initial=1.0)
    return float((last + following) / 2)


def _rank_of(recall: float, n: int) -> int:
    return math.ceil((n + 1) * recall - 1e-9)


def check_recall(point: OperatingPoint, unfaithful: int) -> None:
    """`InputError` where so many unfaithful answers are too few for a threshold that catches the share asked for."""
    if point.kind == "recall" and _rank_of(point.value, unfaithful) > unfaithful:
        least = math.ceil(point.value / (1 - point.value) - 1e-9)
        raise InputError(
            f"operating point {point}: got {counted(unfaithful, 'unfaithful answer')} to fit on, expected at least "
            f"{least}; label more of them, or ask for less."
        )


def review_range(probabilities: Floats, threshold: float) -> tuple[float, float]:
    """Return the range (low, high) around ``threshold`` that holds the share `REVIEWED` of the answers, those nearest
    to it.

    ``probabilities``: cross-fitted.
    """
    distances = np.abs(probabilities - threshold)
    reach = float(np.quantile(distances, REVIEWED))
    return max(0.0, threshold - reach), min(1.0, threshold + reach)


def slopes_of(classifier: Classifier | None, names: Sequence[str]) -> Floats:
    """Return a classifier's log-odds per unit of each statement feature; NaN of those that it does not use."""
    slopes: dict[str, float] = {}
    if classifier is not None:
        model = classifier.statement
        for name, weight, scale in zip(
            model.names, model.weights, model.scales, strict=True
        ):
            slopes[name] = weight / scale
    return np.array([slopes.get(name, math.nan) for name in names])


def numbers(model: Regression, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a `StatementClassifier` or `AnswerClassifier`."""
    return {
        "names": tuple(names),
        "means": tuple(model.means.tolist()),
        "scales": tuple(model.scales.tolist()),
        "weights": tuple((model.weights + 0.0).tolist()),
        "intercept": model.intercept,
    }
