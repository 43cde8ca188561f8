"""Labelled answers as the arrays a classifier is fitted on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.optimize.classifier.logistic import Fit, fit
from faith_dspy.scoring.classifier import AGGREGATES, LOGIT_LIMIT, aggregates, direction, to_probability
from faith_dspy.text.features import CLASSIFIER_FEATURES, DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from faith_dspy.scoring.classifier import AnswerClassifier, Classifier, StatementClassifier

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Source = Literal["statements", "answers", "features"]
"""Labels that the statement classifier learns from; ``features``: there is no statement classifier."""

ENOUGH_STATEMENT_LABELS = 40
"""With fewer labelled statements, or fewer than 5 of one class, the statement classifier learns from the
answers' labels."""

LM_PRIOR = 3
"""Prior weight of the LM, in lexical features. Those repeat each other: with a prior of 1, they outvoted the LM where
labels were few (optimize/LOG.md)."""


class ClassifierExample(NamedTuple):
    """One labelled answer as the classifier sees it."""

    statements: Sequence[Mapping[str, float] | None]
    """Features of each statement; None where it could not be judged."""
    label: bool
    """Whether people call the answer faithful."""
    group: str
    """Examples of one group never stand on both sides of a fold."""
    labels: Sequence[bool | None] = ()
    """People's labels of the statements: one for each, or none at all."""
    features: Mapping[str, float] = {}
    """Features of the whole answer."""


class ClassifierData:
    """The examples as arrays: one row per judged statement (``x``, ``labels``, ``owner``), one entry per answer (``y``,
    ``answer_x``). Missing features and labels are NaN; ``owner`` is the position of a row's example."""

    def __init__(
        self,
        examples: Sequence[ClassifierExample],
        names: Sequence[str] | None,
        answer_names: Sequence[str],
        prior: Classifier | None = None,
    ) -> None:
        if names is None:
            occurring = sorted({n for e in examples for s in e.statements if s for n in s})
            names = [n for n in occurring if n in CLASSIFIER_FEATURES or n not in DIRECTIONS]
        self.names, self.answer_names, self.examples = tuple(names), tuple(answer_names), examples
        self.prior = prior
        """A classifier fitted to other labels, whose weights each stage expects where it has the same features."""
        self.y = np.array([e.label for e in examples], dtype=np.float64)
        rows, owner, labels = [], [], []
        for i, e in enumerate(examples):
            if e.labels and len(e.labels) != len(e.statements):
                raise InputError(f"example {i} has {len(e.statements)} statements but {len(e.labels)} labels of them")
            for label, s in zip(e.labels or [None] * len(e.statements), e.statements, strict=True):
                if s is not None:
                    rows.append([s.get(n, np.nan) for n in self.names])
                    owner.append(i)
                    labels.append(np.nan if label is None else float(label))
        self.x = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.names))
        self.owner = np.array(owner, dtype=np.int64)
        self.labels = np.array(labels, dtype=np.float64)
        self.answer_x = np.array(
            [[e.features.get(n, np.nan) for n in self.answer_names] for e in examples], dtype=np.float64
        ).reshape(len(examples), len(self.answer_names))

    @property
    def source(self) -> Source:
        """Which labels the statement classifier learns from."""
        if not self.names or not len(self.x):
            return "features"
        per_class = [int((self.labels == value).sum()) for value in (0, 1)]
        return "statements" if sum(per_class) >= ENOUGH_STATEMENT_LABELS and min(per_class) >= 5 else "answers"

    def rows(self, examples: Ints, source: Source) -> NDArray[np.bool_]:
        """Mask of the rows of these examples that the statement classifier can learn from."""
        mine = np.isin(self.owner, examples)
        return mine & ~np.isnan(self.labels) if source == "statements" else mine

    def fit_statements(self, examples: Ints, source: Source, width: float, *, weights: Floats | None = None) -> Fit:
        """A statement classifier fitted on these examples, not yet calibrated. ``weights``, of answers' labels: as in
        `fit`."""
        rows = self.rows(examples, source)
        prior = as_fit(self.prior.statement if self.prior else None, self.names)
        if source == "statements":
            return fit(self.x[rows], self.labels[rows], self.prior_directions, width, prior=prior)
        owners, bags = np.unique(self.owner[rows], return_inverse=True)
        chosen = None if weights is None else weights[owners]
        return fit(
            self.x[rows],
            self.y[owners],
            self.prior_directions,
            width,
            bags,
            weights=chosen,
            prior=prior,
        )

    def fit_answers(self, x: Floats, examples: Ints, source: Source, width: float) -> Fit:
        """An answer classifier fitted on these examples; ``x``: `answer_features` of all."""
        columns = self.answer_columns(source)
        prior = as_fit(self.prior.answer if self.prior else None, columns)
        return fit(x[examples], self.y[examples], [direction(c) for c in columns], width, prior=prior)

    @property
    def prior_directions(self) -> list[float]:
        """The direction of each statement feature, times its prior weight."""
        return [direction(n) * (1 if n in DIRECTIONS else LM_PRIOR) for n in self.names]

    def answer_columns(self, source: Source) -> tuple[str, ...]:
        """Names of the answer classifier's features."""
        return (*(AGGREGATES if source != "features" else ()), *self.answer_names)

    def answer_features(self, logits: Floats, source: Source) -> Floats:
        """The answer classifier's features, shape (answers, `answer_columns`), from log-odds of each row."""
        if source == "features":
            return self.answer_x
        made = [aggregates(p) for p in self.per_statement(logits)]
        return np.hstack([np.array([[a.get(n, np.nan) for n in AGGREGATES] for a in made]), self.answer_x])

    def per_statement(self, logits: Floats | None) -> list[list[float | None]]:
        """Log-odds of each row as probabilities in the shape of the examples' statements; None where there is none."""
        values = iter([] if logits is None else np.clip(logits, -LOGIT_LIMIT, LOGIT_LIMIT).tolist())
        return [
            [None if s is None or logits is None else to_probability(next(values)) for s in e.statements]
            for e in self.examples
        ]


def as_fit(model: StatementClassifier | AnswerClassifier | None, names: Sequence[str]) -> Fit | None:
    """A classifier's numbers as a prior; None where it is over other features."""
    if model is None or model.names != tuple(names):
        return None
    return Fit(np.array(model.means), np.array(model.scales), np.array(model.weights), model.intercept)
