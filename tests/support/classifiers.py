"""Classifiers with numbers written by hand."""

from faith_dspy.scoring.classifier import (
    AnswerClassifier,
    Classifier,
    StatementClassifier,
)


def linear(weights, intercept=0.0, means=0.0, scales=1.0, of=StatementClassifier):
    """One stage of a classifier: weights by feature; means and scales for each of them, or one for all."""
    n = len(weights)
    return of(
        names=tuple(weights),
        means=means if isinstance(means, tuple) else (means,) * n,
        scales=scales if isinstance(scales, tuple) else (scales,) * n,
        weights=tuple(weights.values()),
        intercept=intercept,
    )


WEAKEST = linear({"weakest": 1.0}, of=AnswerClassifier)
"""An answer's log-odds are those of its weakest statement."""


def by_weakest(statement, threshold=0.5, **fields):
    """A classifier whose answers are worth as much as their weakest statement."""
    return Classifier(
        statement=statement, answer=WEAKEST, threshold=threshold, **fields
    )


CLEAR = "The kettle is blue."
OPEN = "The blue kettle juggles pineapples."
WRONG = "Zebras juggle pineapples."
WORDS = by_weakest(
    linear({"novel_words": -6.0}, intercept=3.0), review_range=(0.2, 0.8)
)
"""Over “The kettle is blue.” no word of `CLEAR` is novel: log-odds 3, probability .953; two of four words of `OPEN`:
log-odds 0, probability .5; all of `WRONG`: log-odds -3, probability .047."""
