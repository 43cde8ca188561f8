"""All dials of a judge in one frozen model."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from faith_dspy.errors import ConfigError
from faith_dspy.schema import Verdict


class Granularity(StrEnum):
    """What one verdict is about."""

    STATEMENT = "statement"
    """The LM decomposes each sentence into statements, pronouns resolved."""
    SENTENCE = "sentence"
    """Sentences as written; no LM call to get them."""
    ANSWER = "answer"
    """The whole answer, one verdict."""


class JudgeConfig(BaseModel):
    """Dials of a judge. They combine freely unless a message says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    granularity: Granularity = Granularity.SENTENCE
    verdicts: Literal["binary", "graded"] = "binary"
    """``binary``: supported or not; ``graded``: the four verdicts."""
    instructions: tuple[str, ...] = ()
    """Seed instructions asked about each statement, by name in `faith_dspy.signatures.INSTRUCTIONS`. The first gives
    the verdict; all give signals. Empty: ``supported`` for binary, ``graded`` for graded verdicts."""
    criteria: str = ""
    """Extra instructions of the user's own, added to the verification prompt."""
    cite: bool = False
    """Ask the LM for the ids of supporting chunks. Off, they come from the words statement and chunks share."""
    verdict_scores: dict[Verdict, float] = Field(
        default_factory=lambda: {
            Verdict.FULLY_SUPPORTED: 1.0,
            Verdict.PARTIALLY_SUPPORTED: 0.5,
            Verdict.NO_EVIDENCE: 0.0,
            Verdict.CONTRADICTORY: -1.0,
            Verdict.NOT_SUPPORTED: 0.0,
        }
    )
    """Weight of each verdict; their mean over all statements asked about, clamped to [0, 1], is the score."""
    supported_from: float | None = Field(default=None, ge=0, le=1)
    """Probability of support from which the LM's verdict counts as fully supported; fitted by the optimizer `reanchor`.
    None: the label the LM finds most probable. A fitted head decides by its own threshold instead."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    """Pass mark on the score of an untuned judge. None: every statement must be fully supported.
    A tuned judge passes on its fitted probability instead."""
    no_statements: float | None = Field(default=None, ge=0, le=1)
    """Score of an answer without statements; None leaves it unscored."""
    abstention: float | None = Field(default=None, ge=0, le=1)
    """Score of an answer that only declines to answer; None leaves it unscored."""
    max_statements: int = Field(default=256, ge=1)
    """An answer with more is unscored as too long."""

    @model_validator(mode="after")
    def _all_verdicts_weighted(self) -> JudgeConfig:
        missing = [v.value for v in Verdict if v not in self.verdict_scores]
        if missing:
            raise ValueError(f"verdict_scores has no weight for {missing}; give one for every verdict")
        return self

    @model_validator(mode="before")
    @classmethod
    def _default_instructions(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("instructions"):
            first = "graded" if data.get("verdicts") == "graded" else "supported"
            return {**data, "instructions": (first,)}
        return data

    @classmethod
    def make(cls, **dials: object) -> JudgeConfig:
        """Build a config; unknown dials and values raise `ConfigError` naming what exists."""
        try:
            return cls.model_validate(dials)
        except ValidationError as exc:
            problems = "; ".join(
                f"{'.'.join(map(str, e['loc'])) or 'config'}: {e['msg']} (got {e.get('input')!r})" for e in exc.errors()
            )
            raise ConfigError(f"{problems}. Dials are: {', '.join(sorted(cls.model_fields))}.") from exc
