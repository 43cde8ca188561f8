"""What a study is asked to do: the user's options, a budget by name, and variants by name, as objects or in a file.

# plan.toml: faith-dspy tune labels.jsonl --variants plan.toml
[[variants]]
name = "sentence"                 # one that exists ...

[[variants]]
name = "careful"                  # ... or one of your own: any option of JudgeConfig, and
granularity = "sentence"
criteria = "Dates have to be exact."
optimizer = "gepa"                # none when it is left out; yours: module:function
lm = "openai/gpt-4o-mini"         # the study's when it is left out
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, InputError, describe_invalid
from faith_dspy.io.columns import column_names
from faith_dspy.judge import NO_LM
from faith_dspy.lm.function import is_function
from faith_dspy.lm.make import is_local
from faith_dspy.lm.metered import Limits
from faith_dspy.optimize.classifier.fitting import BALANCED, OperatingPoint
from faith_dspy.optimize.compile.optimizers import Auto, optimizer_of
from faith_dspy.optimize.data.pool import Partition
from faith_dspy.optimize.results import BASELINES, CHAMPION

LEXICAL_ONLY = "lexical"
"""In place of a variant: no LM. Lexical features are candidates of every study."""
_RESERVED = (CHAMPION, *BASELINES, LEXICAL_ONLY, NO_LM)
BudgetName = Literal["quick", "standard", "thorough"]
_Count = Annotated[int, Field(ge=1)]
_ALL = 10**9


VARIANTS: dict[str, Variant] = {}
"""Those that a user can ask for by name, from ``variants.toml``."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Variant(_Model):
    """Describe a program shape and how it is compiled.

        >>> Variant(name="strict", granularity="answer", criteria="Dates count.").description
        'granularity answer, criteria Dates count.'

    Args:
        name: Its name; one of `VARIANTS` stands for that, of which nothing but LM and address may be another.
        config: The judge's options; or give these themselves in its place.
        optimizer: One of `faith_dspy.optimize.compile.optimizers.OPTIMIZERS`, or none.

    Raises:
        pydantic.ValidationError: An option or an optimizer does not exist.
    """

    name: Annotated[str, Field(min_length=1, pattern="^[^,]+$")]
    config: JudgeConfig
    optimizer: str | None = None
    description: str = ""
    lm: str | None = None
    """None: the study's."""
    api_base: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_config(cls, declared: Any) -> Any:
        if not isinstance(declared, dict) or "config" in declared:
            return declared
        if shipped := VARIANTS.get(str(declared.get("name"))):
            changed = sorted(declared.keys() - {"name", "lm", "api_base"})
            if changed:
                raise ValueError(
                    f"{shipped.name!r} is a variant of ours; give yours, with {changed[0]}, another name"
                )
            return shipped.model_dump() | declared
        fields = {k: v for k, v in declared.items() if k in cls.model_fields}
        options = {k: v for k, v in declared.items() if k not in fields}
        try:
            config = JudgeConfig.make(**options)
        except ConfigError as exc:
            raise ValueError(str(exc)) from exc
        if optimizer := fields.get("optimizer"):
            options["optimizer"] = optimizer
        description = ", ".join(f"{name} {value}" for name, value in options.items())
        return {"description": description, **fields, "config": config}

    @model_validator(mode="after")
    def _has_its_own_name_and_lm(self) -> Variant:
        if self.name in _RESERVED:
            raise ValueError(f"{self.name!r} is the name of a baseline; choose another")
        if self.api_base and self.lm is None:
            raise ValueError("api_base is the address of a variant's own lm; name it")
        return self

    @field_validator("optimizer", mode="before")
    @classmethod
    def _checked_optimizer(cls, name: Any) -> Any:
        if name in (None, "none"):
            return None
        try:
            optimizer_of(str(name))
        except ConfigError as exc:
            raise ValueError(str(exc).rstrip(".")) from exc
        return name


def _operating_point(value: Any) -> Any:
    return OperatingPoint.parse(value) if isinstance(value, str) else value


def _variants(value: Any) -> Any:
    """Names and variants, text with commas between names, or a TOML file."""
    if isinstance(value, str):
        is_file = value.endswith(".toml")
        return Path(value) if is_file else tuple(map(str.strip, value.split(",")))
    return value if isinstance(value, Path) else tuple(value or ())


class Options(_Model):
    """What a user can say about a study; see `faith_dspy.tune`."""

    lm: str = "local"
    api_base: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    timeout: float | None = None
    reflection_lm: str | None = None
    reflection_api_base: str | None = None
    scores: Annotated[tuple[str, ...], BeforeValidator(column_names)] = ()
    operating_point: Annotated[OperatingPoint, BeforeValidator(_operating_point)] = (
        BALANCED
    )
    budget: BudgetName = "quick"
    out: Path | None = None
    max_flips: float | None = Field(
        default=None,
        ge=0,
        le=1,
    )
    seed: int = 0
    variants: Annotated[
        tuple[str | Variant, ...] | Path, BeforeValidator(_variants)
    ] = ()
    calls: _Count | None = None
    tokens: _Count | None = None
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)

    @property
    def limits(self) -> Limits:
        """As meters take them."""
        seconds = None if self.minutes is None else 60 * self.minutes
        return Limits(
            calls=self.calls,
            tokens=self.tokens,
            dollars=self.dollars,
            seconds=seconds,
        )


class Budget(_Model):
    """How much a study spends."""

    auto: Auto = "light"
    """What an optimizer may spend."""
    pool: int = _ALL
    """At most so many labelled answers are used, each asked about once by every variant."""
    words: int = _ALL
    """At most so many words of context and answers are read of them, every context once."""
    minutes: float | None = None
    """No variant is begun after so many minutes, but for the first two: on a slow machine, too, a study tries to
    compile a prompt."""


class View(Protocol):
    """Where a study shows what it does."""

    def say(self, text: str) -> None:
        """Show one line that stays."""

    def task(
        self, what: str, total: int | None
    ) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar; the function it gives advances it."""


class Study(NamedTuple):
    """What every step of a study works with."""

    options: Options
    budget: Budget
    variants: list[Variant]
    """Those without an optimizer first; none where no LM is asked."""
    labels: Partition
    view: View


_shipped = Path(__file__).with_name("variants.toml").read_text(encoding="utf-8")
for _fields in tomllib.loads(_shipped)["variants"]:
    VARIANTS[_fields["name"]] = Variant.model_validate(_fields)

HOSTED = ("sentence", "answer", "sentence-few-shot", "sentence-guidelines")
"""What is tried with an LM of the user's; prompts are compiled by default."""
_MORE = ("joint", "answer-reasoning", "statement", "statement-gepa")
EMBEDDED = ("sentence", "sentence-few-shot")
"""The same with the embedded LM, which writes slowly. What more time buys there: tests/benchmarks/README.md."""
FUNCTION = ("sentence", "answer")
"""The same with a function, which has no prompt."""
_WRITTEN = ("answer-reasoning", "joint", "sentence-graded")

BUDGETS: dict[str, Budget] = {
    "quick": Budget(pool=100, words=40_000, minutes=10),
    "standard": Budget(pool=300, words=200_000, minutes=60),
    "thorough": Budget(auto="medium"),
}


def budget_variants(budget: BudgetName, lm: str) -> tuple[str, ...]:
    """Names of the variants that a budget tries with that LM."""
    if lm == NO_LM:
        return ()
    if is_function(lm):
        return FUNCTION
    if budget == "thorough":
        return tuple(
            name for name in VARIANTS if not (is_local(lm) and name in _WRITTEN)
        )
    if is_local(lm):
        return EMBEDDED if budget == "quick" else (*EMBEDDED, "sentence-guidelines")
    return HOSTED if budget == "quick" else (*HOSTED, *_MORE)


class _File(BaseModel, extra="forbid"):
    variants: list[Variant] = Field(min_length=1)


def plan(options: Options) -> tuple[Budget, list[Variant]]:
    """Return how much a study spends, and what it tries.

    Raises:
        ConfigError: a variant does not exist, or twice, or needs an LM where there is none.
        InputError: a file of variants that cannot be read.
    """
    budget = BUDGETS[options.budget]
    names: Sequence[str | Variant]
    if isinstance(options.variants, Path):
        names = _read_file(options.variants)
        budget = budget.model_copy(update={"minutes": None})  # it says what is tried
    else:
        names = options.variants or budget_variants(options.budget, options.lm)
    variants = [_variant(v) for v in names if v != LEXICAL_ONLY]
    _check_variants(variants, options.lm)
    variants.sort(key=lambda v: v.optimizer is not None)
    return budget, variants


def _variant(variant: str | Variant) -> Variant:
    """Return the variant of that name."""
    if isinstance(variant, Variant):
        return variant
    if variant not in VARIANTS:
        raise ConfigError(
            f"there is no variant {variant!r}; there are {LEXICAL_ONLY}, {', '.join(VARIANTS)}, and those of a file "
            "(NAME.toml)."
        )
    return VARIANTS[variant]


def _read_file(path: Path) -> list[Variant]:
    try:
        text = path.read_text(encoding="utf-8")
        return _File.model_validate(tomllib.loads(text)).variants
    except ValidationError as exc:
        raise InputError(
            f"{path}: {describe_invalid(exc)}. Expected [[variants]] with name and options."
        ) from exc
    except (OSError, ValueError) as exc:
        raise InputError(
            f"{path}: cannot be read ({exc}); expected a TOML file of variants."
        ) from exc


def _check_variants(variants: Sequence[Variant], lm: str) -> None:
    names = [v.name for v in variants]
    for v in variants:
        if names.count(v.name) > 1:
            raise ConfigError(
                f"two variants are called {v.name!r}; give each a name of its own."
            )
        if v.optimizer and is_function(v.lm or lm):
            raise ConfigError(
                f"the variant {v.name!r} compiles a prompt, and {v.lm or lm} is a function, which has none: choose of "
                f"{', '.join(FUNCTION)}."
            )
        if lm == NO_LM and v.lm is None:
            raise ConfigError(
                f"the variant {v.name!r} asks an LM, and --lm is {NO_LM}: name an LM, or leave --variants out."
            )
