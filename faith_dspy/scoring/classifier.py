"""The classifier: features of support → probability per statement → probability per answer. Numbers only, no pickle.

Applying a classifier needs no numpy. Fitting one is `faith_dspy.optimize.classifier.fitting`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from faith_dspy.config import JudgeConfig
from faith_dspy.text.features import DIRECTIONS

LOGIT_LIMIT = 6.0
"""Logits are clipped to ± this: a classifier does not distinguish probabilities of .9975 and .9999."""

AGGREGATES = ("weakest", "second_weakest", "soft_weakest", "mean")
"""What an answer classifier may use of its statements' logits; all but ``mean`` depend mostly on the worst statements.

None grows with the number of statements as such. A sum of log-probabilities would, and so measure length.
"""


COLUMN = "column "
"""Begins the name of the feature that is another judge's number (`RawJudgment.scores`)."""


def is_judge(name: str) -> bool:
    """Tell whether a feature is what a judge says – ``lm``, the LM's log-odds, or another's number –, and not words."""
    return name == "lm" or name.startswith(COLUMN)


def sign_constraint(name: str) -> int:
    """+1 for a feature that may only speak for support (what a judge says, and all aggregates), -1 if only against it,
    0 if either."""
    if is_judge(name) or name in AGGREGATES:
        return 1
    return DIRECTIONS.get(name, 0)


def to_logit(probability: float) -> float:
    """Return log-odds, clipped at ±`LOGIT_LIMIT`."""
    if probability <= 0:
        return -LOGIT_LIMIT
    if probability >= 1:
        return LOGIT_LIMIT
    return _clipped(math.log(probability / (1 - probability)))


def _clipped(logit: float) -> float:
    return max(-LOGIT_LIMIT, min(LOGIT_LIMIT, logit))


def to_probability(logit: float) -> float:
    """Return the inverse of log-odds, without overflow."""
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    odds = math.exp(logit)
    return odds / (1 + odds)


class _Linear(BaseModel):
    """A logistic regression over named features: ``intercept + Σ weight · (feature − mean) / scale``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    names: tuple[str, ...]
    means: tuple[float, ...]
    """Mean of each feature where it was fitted; stands in for a feature that is missing."""
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    """Per standard deviation of the feature, in log-odds."""
    intercept: float

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        n = len(set(self.names))
        parts = (self.names, self.means, self.scales, self.weights)
        if any(len(part) != n for part in parts):
            raise ValueError(
                f"expected a mean, scale and weight for each name, each name once; got {self.names}"
            )
        if any(s <= 0 for s in self.scales):
            raise ValueError("every scale must be above 0")
        wrong = []
        for name, weight in zip(self.names, self.weights, strict=True):
            if weight * sign_constraint(name) < 0:
                wrong.append(name)
        if wrong:
            raise ValueError(
                f"the weights of {wrong} have the wrong sign: novelty never speaks for a statement"
            )
        return self

    def logit(self, features: Mapping[str, float]) -> float:
        """Return log-odds of support, not clipped; a feature that is missing counts as its mean."""
        terms = []
        parts = zip(self.names, self.means, self.scales, self.weights, strict=True)
        for name, mean, scale, weight in parts:
            if name in features:
                terms.append(weight * (features[name] - mean) / scale)
        return self.intercept + math.fsum(terms)


class StatementClassifier(_Linear):
    """Features of one statement → probability that a person would call it fully supported."""

    def probability(self, features: Mapping[str, float]) -> float:
        return to_probability(_clipped(self.logit(features)))


class AnswerClassifier(_Linear):
    """Probabilities of the statements → probability that a person would call the answer faithful.

    Its weights on `AGGREGATES` are never negative, so raising any statement's probability never lowers the answer's.
    """

    def probability(
        self, statements: Sequence[float | None], unjudged: float = 0.0
    ) -> float | None:
        """Return probability that the answer is faithful; None without a judged statement.

        ``unjudged`` is the probability that stands in for that of an unjudged statement.
        """
        features = aggregates(statements, unjudged)
        if not features:
            return None
        return to_probability(_clipped(self.logit(features)))


def aggregates(
    statements: Sequence[float | None], unjudged: float = 0.0
) -> dict[str, float]:
    """Return `AGGREGATES` of the statements' logits; none where no statement was judged.

    ``soft_weakest`` is ``−log mean exp(−logit)``: near the weakest, and unchanged when every statement is repeated.
    """
    if all(p is None for p in statements):
        return {}
    logits = sorted(to_logit(unjudged if p is None else p) for p in statements)
    n = len(logits)
    odds_against = math.fsum(math.exp(-logit) for logit in logits)
    return {
        "weakest": logits[0],
        "second_weakest": logits[:2][-1],
        "soft_weakest": -math.log(odds_against / n),
        "mean": math.fsum(logits) / n,
    }


class Classifier(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Everything fitted on labels that turns features into a judgment."""

    statement: StatementClassifier
    answer: AnswerClassifier
    threshold: float = Field(ge=0, le=1)
    """An answer passes at this probability or above."""
    statement_threshold: float = Field(default=0.5, ge=0, le=1)
    """A statement counts as supported at this probability or above."""
    review_range: tuple[float, float] | None = None
    """``needs_review`` is set when ``review_range[0] <= probability < review_range[1]``; holds the threshold. None: no
    range was fitted."""
    fitted_to: Literal["labels", "default"] = "labels"
    """``labels``: the user's; ``default``: public sets, and none of the user's labels (`default_classifier`)."""

    @model_validator(mode="after")
    def _range_around_threshold(self) -> Self:
        low, high = self.review_range or (0.0, 1.0)
        if not 0 <= low <= self.threshold <= high <= 1:
            raise ValueError(
                f"review_range ({low}, {high}) must hold the threshold {self.threshold} and lie in [0, 1]"
            )
        return self

    @property
    def columns(self) -> list[str]:
        """Other judges' columns that it reads, and that every answer has to have."""
        names = self.statement.names
        return [n.removeprefix(COLUMN) for n in names if n.startswith(COLUMN)]

    def needs_review(self, probability: float) -> bool | None:
        """Return whether a person should look at an answer of that probability; None without a `review_range`."""
        if self.review_range is None:
            return None
        low, high = self.review_range
        return low <= probability < high

    def statement_probabilities(
        self, statements: Sequence[Mapping[str, float] | None]
    ) -> list[float | None]:
        """Return one probability per statement; None for one without features."""
        classify = self.statement.probability
        return [None if one is None else classify(one) for one in statements]

    def probability(
        self, statements: Sequence[Mapping[str, float] | None]
    ) -> float | None:
        """Return probability of an answer from its statements' features, see `AnswerClassifier.probability`."""
        return self.answer.probability(self.statement_probabilities(statements))


DEFAULT_FILE = "default_classifier.json"
"""The default classifiers, fitted to public human labels for users who have none yet; ``DEFAULT.md`` says to which, and
how each agreed with people on sets it had not seen."""


@cache
def default_classifiers() -> dict[str, Classifier]:
    """Return them by LM: ``none`` (lexical features alone), ``local`` (the embedded model)."""
    file = files("faith_dspy.scoring") / DEFAULT_FILE
    stored = json.loads(file.read_text(encoding="utf-8"))
    return {lm: Classifier.model_validate(fields) for lm, fields in stored.items()}


def default_classifier(lm: str, config: JudgeConfig) -> Classifier | None:
    """Return the default classifier for the replies of that LM, ``none`` for no LM.

    None for an LM it was not fitted to, where the options change anything of what is asked or replied, and with a
    threshold on the score. Such a judge is untuned.
    """
    asks_as_fitted = config.program_options == JudgeConfig().program_options
    if not asks_as_fitted or config.threshold is not None:
        return None
    return default_classifiers().get(lm)


def describe_fit(classifier: Classifier | None) -> str:
    """Return what a judge with that classifier was fitted to, in words."""
    if classifier is None:
        return "untuned judge"
    if classifier.fitted_to == "default":
        return "default judge, not fitted to your labels"
    return "tuned judge"
