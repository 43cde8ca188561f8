"""All options of a judge in one frozen model."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from faith_dspy.errors import ConfigError
from faith_dspy.schema import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

WEIGHTS = {
    Verdict.FULLY_SUPPORTED: 1.0,
    Verdict.PARTIALLY_SUPPORTED: 0.5,
    Verdict.NO_EVIDENCE: 0.0,
    Verdict.CONTRADICTORY: -1.0,
    Verdict.NOT_SUPPORTED: 0.0,
}
"""What each verdict adds to an answer's score."""
STRICT_WEIGHTS = WEIGHTS | {Verdict.NO_EVIDENCE: -1.0, Verdict.NOT_SUPPORTED: -1.0}
"""The same with `strict_mode`: what is not supported counts like what is contradicted."""


_CONCLUDED = {
    "ask_about", "strict_mode", "verdict_scores", "threshold", "uncertain", "no_statements", "abstention",
    "max_statements",
}  # fmt: skip


class Granularity(StrEnum):
    """What one verdict is about."""

    STATEMENT = "statement"
    """The LM decomposes each sentence into statements, pronouns resolved."""
    SENTENCE = "sentence"
    """Sentences as written; no LM call to get them."""
    ANSWER = "answer"
    """The whole answer, one verdict."""


class JudgeConfig(BaseModel):
    """Options of a judge. They combine freely unless a message says otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    granularity: Granularity = Granularity.SENTENCE
    verification: Literal["each", "joint"] = "each"
    """``each``: one call per statement, for small LMs; ``joint``: all statements of the answer in one call, in JSON
    where the endpoint holds replies to a schema. What a joint reply leaves out or garbles is asked one by one."""
    verdicts: Literal["binary", "graded", "five_level"] = "binary"
    """``binary``: supported or not; ``graded``: the four verdicts; ``five_level``: how far a whole answer is supported,
    from Not At All (0) to Completely Yes (1). Goes with ``granularity="answer"``; the level is the score."""
    instructions: tuple[str, ...] = ()
    """Seed instructions asked about each statement, by name in `faith_dspy.program.signatures.INSTRUCTIONS`. The first gives
    the verdict; all give features. Empty: ``supported`` for binary verdicts, else the one named like `verdicts`."""
    reasoning: Literal["none", "after", "before"] = "none"
    """A sentence why, after the verdict, or thoughts before it. Kept as the statement's ``reason``."""
    ask_about: Literal["all", "novel", "weakest"] = "all"
    """``novel``: statements that words clear pass unverified, which are those with nothing in them that is not in the
    context: no content word, name, number or quotation, no number moved to other words, no other negation.
    ``weakest``: of what is left the LM is asked about one, the statement with most in it that is new to the context.
    The others are left to the classifier; without one they are presumed supported: the answer passes if that one does."""
    focus: int | None = Field(default=None, ge=1)
    """Sentences of the context that the LM is shown, for each sentence it is asked about: those that share most of its
    words. None: all of the context. Cheaper where a long context is asked about once or twice; where many statements
    are about one context, the prefix cache makes all of it cheaper."""
    confidence: Literal["auto", "probability", "samples", "none"] = "auto"
    """``auto``: the label's probability where the LM tells token probabilities, else None – never samples, which cost
    `samples` times the calls. ``probability``: the same, and an LM that tells none is an error. ``samples``: the share
    of support among repeated samples. ``none``: not asked for."""
    samples: int = Field(default=5, ge=2)
    """Replies sampled per statement and instruction with ``confidence="samples"``."""
    strictness: Literal["strict", "lenient"] = "strict"
    """``strict``: only what the context says counts; ``lenient``: what plainly follows from it, too."""
    criteria: str = ""
    """Extra instructions of the user's own, added to the verification prompt."""
    system_prompt: str = ""
    """The user's own words in place of what stands on top of the verification prompt. Empty: the seed prompt's."""
    cite: bool = False
    """Ask the LM for the ids of supporting chunks. Off, they come from the words statement and chunks share."""
    quote: bool = False
    """Ask the LM for the shortest verbatim passage that shows it. Only quotes found in a chunk are kept."""
    strict_mode: bool = False
    """No evidence, and a plain “not supported”, count −1 instead of 0; `verdict_scores` given take precedence."""
    verdict_scores: dict[Verdict, float] = Field(default_factory=lambda: dict(WEIGHTS))
    """Weight of each verdict; their mean over all statements asked about, clamped to [0, 1], is the score."""
    supported_from: float | None = Field(default=None, ge=0, le=1)
    """Probability of support from which the LM's verdict counts as fully supported; fitted by the optimizer `reanchor`.
    None: the label the LM finds most probable. A fitted classifier decides by its own threshold instead."""
    threshold: float | None = Field(default=None, ge=0, le=1)
    """Threshold on the score of an untuned judge. None: every statement must be fully supported; of a five-level
    verdict, 0.5. A tuned judge passes on its fitted probability instead."""
    uncertain: tuple[float, float] = (0.2, 0.8)
    """An answer whose least supported statement has a probability of support in here is left open: escalated to the
    judge's `escalate_to`, where it has one. A tuned judge goes by its classifier's review_range instead."""
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
        if not all(map(math.isfinite, self.verdict_scores.values())):
            raise ValueError("verdict_scores has a weight that is no finite number")
        return self

    @model_validator(mode="after")
    def _levels_are_of_answers(self) -> JudgeConfig:
        if self.verdicts == "five_level" and self.granularity is not Granularity.ANSWER:
            raise ValueError(
                "verdicts='five_level' judges whole answers: set granularity='answer' with it, or verdicts='graded'"
            )
        return self

    @model_validator(mode="after")
    def _each_its_own_sentences(self) -> JudgeConfig:
        if self.focus is not None and self.verification == "joint":
            raise ValueError(
                "focus shows each statement sentences of its own, verification='joint' asks about all at once: "
                "set one of them"
            )
        return self

    @model_validator(mode="after")
    def _uncertain_is_an_interval(self) -> JudgeConfig:
        low, high = self.uncertain
        if not 0 <= low <= high <= 1:
            raise ValueError(f"uncertain is [{low}, {high}], expected two probabilities, the lower one first")
        return self

    @model_validator(mode="before")
    @classmethod
    def _defaults_that_follow(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        verdicts = data.get("verdicts")
        if not data.get("instructions"):
            data = {**data, "instructions": (verdicts if verdicts in ("graded", "five_level") else "supported",)}
        return data

    @model_validator(mode="after")
    def _strict_weights(self) -> JudgeConfig:
        if self.strict_mode and "verdict_scores" not in self.model_fields_set:
            self.__dict__["verdict_scores"] = dict(STRICT_WEIGHTS)  # frozen for users, not yet for its own making
        return self

    @property
    def asked(self) -> dict[str, Any]:
        """The options that decide how the LM is asked and heard; the others about what, and what follows from it."""
        return self.model_dump(mode="json", exclude=_CONCLUDED)

    @property
    def scored_by(self) -> dict[str, Any]:
        """The others, as they were given."""
        return self.model_dump(include=_CONCLUDED, exclude_unset=True)

    @classmethod
    def make(cls, **options: object) -> JudgeConfig:
        """Build a config; unknown options and values raise `ConfigError` naming what exists."""
        try:
            return cls.model_validate(options)
        except ValidationError as exc:
            problems = "; ".join(
                f"{'.'.join(map(str, e['loc'])) or 'config'}: {e['msg']} (got {e.get('input')!r})" for e in exc.errors()
            )
            raise ConfigError(f"{problems}. Options are: {', '.join(sorted(cls.model_fields))}.") from exc

    @classmethod
    def parse(cls, settings: Iterable[str]) -> dict[str, object]:
        """Options written as ``name=value``, as `make` takes them; lists and objects in JSON, names also after commas."""
        options: dict[str, object] = {}
        for setting in settings:
            name, equals, value = (part.strip() for part in setting.partition("="))
            if not equals or name not in cls.model_fields:
                raise ConfigError(
                    f"{setting!r} sets no option; expected option=value, e.g. verdicts=graded. "
                    f"Options are: {', '.join(sorted(cls.model_fields))}."
                )
            if name in options:
                raise ConfigError(f"{name} is set twice; give each option once.")
            options[name] = cls._value(name, value)
        return options

    @classmethod
    def _value(cls, name: str, value: str) -> object:
        if value[:1] in ("{", "[") or value == "null":
            try:
                return json.loads(value)
            except ValueError as exc:
                raise ConfigError(f"{name}={value!r} is no JSON ({exc}).") from exc
        if name == "instructions":
            return [part.strip() for part in value.split(",")]
        return value
