"""All options of a judge in one frozen model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from faith_dspy.errors import ConfigError, describe_invalid
from faith_dspy.schema import Verdict

WEIGHTS = {
    Verdict.FULLY_SUPPORTED: 1.0,
    Verdict.PARTIALLY_SUPPORTED: 0.5,
    Verdict.NO_EVIDENCE: 0.0,
    Verdict.CONTRADICTORY: -1.0,
    Verdict.NOT_SUPPORTED: 0.0,
}
"""What each verdict adds to an answer's score."""

_SCORING_OPTIONS = {
    "verdict_scores", "threshold", "review_range", "citations_from", "no_statements", "abstention", "max_sentences",
    "reasons", "scores",
}  # fmt: skip
"""Options that change nothing about how the LM is asked for verdicts."""


def _fill_in_default_weights(weights: Any) -> Any:
    """Return the weights by the verdicts' names in lower case, with the defaults of those that have none."""
    if not isinstance(weights, Mapping):
        return weights
    return WEIGHTS | {"_".join(str(k).lower().split()): w for k, w in weights.items()}


class Granularity(StrEnum):
    """What one verdict is about."""

    STATEMENT = "statement"
    """The LM splits each sentence into statements and resolves its pronouns."""
    SENTENCE = "sentence"
    """Sentences as written; getting them takes no LM call."""
    ANSWER = "answer"
    """The whole answer, one verdict."""


class JudgeConfig(BaseModel, extra="forbid", frozen=True):
    """Options of a judge. They combine freely except where validation says otherwise; this folder's README says more.

        >>> JudgeConfig(verdict_scores={"no_evidence": -1}).verdict_scores[Verdict.NO_EVIDENCE]
        -1.0

    Args:
        options: Each field below. `JudgeConfig.make` takes the same, and raises `ConfigError` in our words.

    Raises:
        pydantic.ValidationError: An option, a value or a combination does not exist.
    """

    granularity: Granularity = Granularity.SENTENCE
    verification: Literal["each", "joint"] = "each"
    """``each``: one call per statement; ``joint``: all statements of the answer in one call, in JSON."""
    verdicts: Literal["binary", "graded", "five_level"] = "binary"
    """``five_level`` needs ``granularity="answer"``; the LM's level, from 0 to 1, is then the score."""
    reasoning: Literal["none", "after", "before"] = "none"
    """A sentence why, after the verdict or before it. Kept as the statement's ``reason``."""
    reasons: Literal["none", "unsupported"] = "none"
    """``unsupported``: the LM is asked once more, over the same beginning, why it calls a statement unsupported."""
    confidence: Literal["auto", "probability", "samples", "none"] = "auto"
    """``auto``: the label's probability if the LM gives it; ``probability``: an LM that gives none is an error;
    ``samples``: the share of support among repeated samples; ``none``: not requested."""
    samples: int = Field(default=5, ge=2, le=1000)
    """Replies sampled per statement with ``confidence="samples"``."""
    criteria: str = ""
    """The user's own instructions, added to the top of both prompts, extraction's and verification's. To replace a
    prompt give its predictor another signature, as anywhere in DSPy: ``judge.program.prompts``."""
    cite: bool = False
    """Ask the LM for the ids of supporting chunks. Without it they are found by shared words."""
    citations_from: int | None = Field(default=None, ge=0, le=1)
    """Number of the first chunk in the answer's own citations, 0 or 1. None: 0 where an answer cites [0], else 1."""
    quote: bool = False
    """Ask the LM for the shortest verbatim passage that shows it. Quotes that are in no chunk are dropped."""
    verdict_scores: Annotated[
        dict[Verdict, float], BeforeValidator(_fill_in_default_weights)
    ] = Field(default_factory=dict, validate_default=True)
    """Weight of each verdict, named in any case; the mean over all statements, clamped to [0, 1], is the score."""
    threshold: float | None = Field(default=None, ge=0, le=1, validate_default=True)
    """Score from which an answer passes an untuned judge; a tuned one decides by its probability. None: every statement
    must be fully supported. With five-level verdicts 0.5, unless given."""
    review_range: tuple[float, float] = (0.2, 0.8)
    """An untuned judge escalates an answer whose least supported statement has a probability in [low, high)."""
    no_statements: float | None = Field(default=None, ge=0, le=1)
    """Score of an answer without statements; None leaves it unscored."""
    abstention: float | None = Field(default=None, ge=0, le=1)
    """Score of an answer that only declines to answer; None leaves it unscored."""
    max_sentences: int = Field(default=256, ge=1)
    """An answer with more is unscored as too long."""

    scores: tuple[str, ...] = ()
    """Columns of the records with what other judges said, as ``faith-dspy tune --scores`` takes them: the classifier is
    fitted to these numbers, too, and an answer without them is unscored."""

    @field_validator(
        "samples",
        "threshold",
        "no_statements",
        "abstention",
        "max_sentences",
        "citations_from",
        mode="before",
    )
    @classmethod
    def _number(cls, value: Any) -> Any:
        if isinstance(value, bool):  # which pydantic takes for 0 and 1
            raise ValueError(f"expected a number, got {value}")
        return value

    @field_validator("threshold")
    @classmethod
    def _middle_of_five_levels(
        cls, value: float | None, options: ValidationInfo
    ) -> float | None:
        if value is None and options.data.get("verdicts") == "five_level":
            return 0.5
        return value

    @model_validator(mode="after")
    def _consistent(self) -> JudgeConfig:
        full, part, *other = (self.verdict_scores[verdict] for verdict in WEIGHTS)
        is_ordered = full >= part >= max(other)
        if not (is_ordered and all(map(math.isfinite, (full, part, *other)))):
            raise ValueError(
                "verdict_scores must be finite, with fully_supported ≥ partially_supported ≥ every other verdict"
            )
        if self.verdicts == "five_level" and self.granularity is not Granularity.ANSWER:
            raise ValueError(
                "verdicts='five_level' judges whole answers: set granularity='answer' with it, or verdicts='graded'"
            )
        low, high = self.review_range
        if not 0 <= low <= high <= 1:
            raise ValueError(
                f"review_range is [{low}, {high}], expected two probabilities, the lower one first"
            )
        return self

    @property
    def program_options(self) -> dict[str, Any]:
        """The options that the program is built from: judges that differ in none of them can share one."""
        return self.model_dump(mode="json", exclude=_SCORING_OPTIONS)

    @property
    def scoring_options(self) -> dict[str, Any]:
        """The other options, as far as they were given."""
        return self.model_dump(include=_SCORING_OPTIONS, exclude_unset=True)

    @classmethod
    def make(cls, **options: object) -> JudgeConfig:
        """Build a config.

        Raises:
            ConfigError: An option, a value or a combination does not exist; the message says what does.
        """
        try:
            return cls.model_validate(options)
        except ValidationError as exc:
            message = f"{describe_invalid(exc)}."
            if options.keys() - cls.model_fields.keys():
                message += f" Options are: {', '.join(sorted(cls.model_fields))}."
            raise ConfigError(message) from exc

    @classmethod
    def parse(cls, settings: Iterable[str]) -> dict[str, object]:
        """Return options written as ``name=value``, in the form that `make` takes. Lists and objects are JSON."""
        options: dict[str, object] = {}
        for setting in settings:
            name, equals, value = (part.strip() for part in setting.partition("="))
            if not equals or name in options:
                raise ConfigError(
                    f"{setting!r}: expected option=value, e.g. verdicts=graded, each option once."
                )
            options[name] = value
            if value[:1] in ("{", "[") or value == "null":
                try:
                    options[name] = json.loads(value)
                except ValueError as exc:
                    raise ConfigError(
                        f"{name}={value[:200]!r} is not valid JSON ({exc})."
                    ) from exc
        return options
