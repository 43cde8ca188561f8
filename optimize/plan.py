"""What a study is asked to do: the user's options, a budget by name, and variants by name, as objects or in a file.

# plan.toml: faith-dspy tune labels.jsonl --variants plan.toml
[sizes]                           # answers at most: of the pool by every variant, of the testset by the champion
pool = 80                         # what is not said is taken from --budget

[effort]                          # of the optimizers
demos = 4

[[variants]]
name = "sentence"                 # one that exists ...

[[variants]]
name = "careful"                  # ... or one of your own: any option of JudgeConfig, and
granularity = "sentence"
instruction = "every_detail"
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
from faith_dspy.lm.make import is_local
from faith_dspy.lm.metered import Limits
from faith_dspy.optimize.classifier.fitting import BALANCED, OperatingPoint
from faith_dspy.optimize.compile.metric import EVIDENCE_WEIGHT
from faith_dspy.optimize.compile.optimizers import OPTIMIZERS, Effort, optimizer_of
from faith_dspy.optimize.data.splits import Parts

WHOLE = "answer"
"""The variant every study includes: the whole answer, one verdict, nothing tuned."""

BudgetName = Literal["quick", "standard", "thorough"]
Prefer = Literal["agreement", "cheapest"]
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

    name: Annotated[str, Field(min_length=1)]
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
        if optimizer := OPTIMIZERS.get(str(fields.get("optimizer"))):
            options = {**optimizer.options, **options}
        try:
            config = JudgeConfig.make(**options)
        except ConfigError as exc:
            raise ValueError(str(exc)) from exc
        if fields.get("optimizer"):
            options["optimizer"] = fields["optimizer"]
        description = ", ".join(f"{name} {value}" for name, value in options.items())
        return {"description": description, **fields, "config": config}

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
    if isinstance(value, str) and value.endswith(".toml"):
        return Path(value)
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(","))
    return value if isinstance(value, Path) else tuple(value or ())


class Options(_Model):
    """What a user can say about a study; see `faith_dspy.tune`."""

    lm: str = "local"
    api_base: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    timeout: float | None = None
    reflection_lm: str | None = None
    reflection_api_base: str | None = None
    operating_point: Annotated[OperatingPoint, BeforeValidator(_operating_point)] = (
        BALANCED
    )
    budget: BudgetName = "quick"
    out: Path | None = None
    prefer: Prefer = "agreement"
    evidence_weight: float = Field(
        default=EVIDENCE_WEIGHT,
        ge=0,
        le=1,
    )
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

    effort: Effort
    pool: int = _ALL
    """At most so many answers of the pool are judged by every variant, and of the testset by the champion."""
    test: int = _ALL
    words: int = _ALL
    """At most so many words of context and answers are read of either part, every context once."""
    minutes: float | None = None
    """No variant is begun after so many minutes, but for the first two: on a slow machine, too, a study tries the
    untuned judge and the cheapest shape that can beat it."""


class Plan(NamedTuple):
    """What a study tries, and on how many answers."""

    budget: Budget
    variants: list[Variant]


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

    plan: Plan
    options: Options
    parts: Parts
    view: View


_shipped = Path(__file__).with_name("variants.toml").read_text(encoding="utf-8")
for _fields in tomllib.loads(_shipped)["variants"]:
    VARIANTS[_fields["name"]] = Variant.model_validate(_fields)

HOSTED = (WHOLE, "answer-reasoning", "joint", "sentence", "sentence-graded")
"""What is tried with an LM of the user's, unless the budget is thorough."""
# Optimizers that ask the LM while compiling take minutes, and none was shown to raise agreement on verdicts
# (tests/benchmarks/OPTIMIZERS.md). Extracted statements, which the LM has to write, took nearly as long as all else.
EMBEDDED = (WHOLE, "sentence", "sentence-few-shot")
"""The same with the embedded LM, which writes slowly."""
_WRITTEN = ("answer-reasoning", "joint", "sentence-graded")

BUDGETS: dict[str, Budget] = {
    "quick": Budget(
        effort=Effort(demos=2),
        pool=80,
        test=120,
        words=40_000,
        minutes=4,
    ),
    "standard": Budget(
        effort=Effort(demos=4),
        pool=200,
        test=400,
        words=200_000,
        minutes=60,
    ),
    "thorough": Budget(
        effort=Effort(
            demos=6,
            candidates=8,
            compare_on=120,
        )
    ),
}


def budget_variants(budget: BudgetName, lm: str) -> tuple[str, ...]:
    """Names of the variants that a budget tries with that LM."""
    if budget == "thorough":
        return tuple(
            name for name in VARIANTS if not (is_local(lm) and name in _WRITTEN)
        )
    return EMBEDDED if is_local(lm) else HOSTED


class _File(BaseModel, extra="forbid"):
    sizes: dict[Literal["pool", "test", "words"], _Count] = {}
    effort: dict[str, _Count] = {}
    variants: list[Variant] = Field(min_length=1)


def plan(options: Options) -> Plan:
    """Return the plan of a study.

    The untuned judge is always tried, and first: it is what the champion is measured against.
    """
    budget = BUDGETS[options.budget]
    if isinstance(options.variants, Path):
        return _read_file(options.variants, budget)
    names = options.variants or budget_variants(options.budget, options.lm)
    if options.reflection_lm and "statement" in names and "statement-gepa" not in names:
        names = (*names, "statement-gepa")
    variants = []
    for v in names:
        if isinstance(v, str) and v not in VARIANTS:
            raise ConfigError(
                f"there is no variant {v!r}; there are {', '.join(VARIANTS)}, and those of a file (NAME.toml)."
            )
        variants.append(VARIANTS[v] if isinstance(v, str) else v)
    return Plan(budget, _whole_first(variants))


def _read_file(path: Path, budget: Budget) -> Plan:
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        effort = Effort(**budget.effort.model_dump() | file.effort)
    except ValidationError as exc:
        raise InputError(
            f"{path}: {describe_invalid(exc)}. Sections are: {', '.join(_File.model_fields)}."
        ) from exc
    except (OSError, ValueError) as exc:
        raise InputError(
            f"{path}: cannot be read ({exc}); expected a TOML file of variants."
        ) from exc
    # Sizes that were asked for are not cut again, and a file says itself what is tried: no words, no minutes.
    sizes = ({"words": _ALL} | file.sizes) if file.sizes else {}
    update = {**sizes, "effort": effort, "minutes": None}
    variants = _whole_first(file.variants, f"{path}: ")
    return Plan(budget.model_copy(update=update), variants)


def _whole_first(variants: Sequence[Variant], where: str = "") -> list[Variant]:
    names = [v.name for v in variants]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"{where}two variants are called {name!r}; give each a name of its own."
            )
    return [VARIANTS[WHOLE], *(v for v in variants if v.name != WHOLE)]
