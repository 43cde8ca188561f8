"""What a study tries and may spend: a budget by name, names of variants, or a file that declares both.

# plan.toml: faith-dspy tune labels.jsonl --variants plan.toml
budget = "standard"               # what is not said below is taken from it
seeds = [0, 1]                    # every variant is tried with each

[sizes]                           # answers judged at most: dev by the best variants, train and test by the champion
dev = 80

[effort]                          # of the optimizers
demos = 4

[limits]                          # of the whole study; what finishing costs is kept back
calls = 5000
minutes = 90

[[variants]]
name = "sentence"                 # one that exists ...

[[variants]]
name = "careful"                  # ... or one of your own: any option of JudgeConfig, and
granularity = "sentence"
instruction = "every_detail"
optimizer = "bootstrap"           # none when it is left out
lm = ["local", "openai/gpt-4o-mini"]
"""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, InputError, did_you_mean, fault
from faith_dspy.lm.metered import Limits
from faith_dspy.optimize.compile.optimizers import OPTIMIZERS
from faith_dspy.optimize.select.variants import BUDGETS, UNTUNED, VARIANTS, Budget, Variant, budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Plan(NamedTuple):
    """What a study tries, on how many answers, and what it may spend."""

    budget: Budget
    variants: list[Variant]
    limits: Limits


class _Sizes(BaseModel, extra="forbid"):
    train: int | None = Field(default=None, ge=1)
    dev: int | None = Field(default=None, ge=1)
    test: int | None = Field(default=None, ge=1)
    words: int | None = Field(default=None, ge=1)


class _Effort(BaseModel, extra="forbid"):
    demos: int | None = Field(default=None, ge=1)
    candidates: int | None = Field(default=None, ge=1)
    compare_on: int | None = Field(default=None, ge=4)


class _Limits(BaseModel, extra="forbid"):
    calls: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)


class _Variant(BaseModel, extra="allow"):
    """Whatever is not a field here is an option of `JudgeConfig`."""

    name: str = Field(min_length=1)
    optimizer: str | None = None
    description: str = ""
    lm: list[str | None] = Field(default=[None], min_length=1)
    api_base: str | None = None
    seed: list[int | None] = []

    @field_validator("lm", "seed", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return value if isinstance(value, list) else [value]

    @field_validator("optimizer")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value not in (None, "none", *OPTIMIZERS):
            raise ValueError(f"there is no such optimizer; choose one of {', '.join(OPTIMIZERS)}, or 'none'")
        return None if value == "none" else value

    @model_validator(mode="after")
    def _declared_once(self) -> _Variant:
        declares = bool(self.model_extra) or "optimizer" in self.model_fields_set
        if self.name in VARIANTS and declares:
            raise ValueError(f"there is a variant {self.name!r} already; give one with options of its own another name")
        if self.name not in VARIANTS and not declares:
            raise ValueError(
                f"there is no variant {self.name!r}, and it declares nothing; there are {', '.join(VARIANTS)}"
            )
        return self

    def variants(self, seeds: Sequence[int | None]) -> list[Variant]:
        """One for each LM and seed; ``seeds`` where it has none of its own."""
        options, seeds = self.model_extra or {}, self.seed or seeds
        told = {**options, **({"optimizer": self.optimizer} if self.optimizer else {})}
        description = self.description or ", ".join(f"{k} {v}" for k, v in told.items())
        base = VARIANTS.get(self.name) or Variant(self.name, JudgeConfig.make(**options), self.optimizer, description)
        out = []
        for lm, seed in product(self.lm, seeds):
            suffix = (f"@{lm}" if len(self.lm) > 1 else "") + (f"#{seed}" if len(seeds) > 1 else "")
            out.append(base._replace(name=self.name + suffix, lm=lm, api_base=self.api_base, seed=seed))
        return out


class _File(BaseModel, extra="forbid"):
    budget: str | None = None
    seeds: list[int | None] = Field(default=[None], min_length=1)
    sizes: _Sizes = _Sizes()
    effort: _Effort = _Effort()
    limits: _Limits = _Limits()
    variants: list[_Variant] = Field(min_length=1)


def plan(budget_name: str, variants: Sequence[str] | Path = (), limits: Limits | None = None) -> Plan:
    """The plan of a study. ``variants``: names, or a TOML file; none: the budget's. ``limits`` go before the file's.

    The untuned judge is always tried, and first: it is what the champion is measured against.
    """
    given = limits or Limits()
    if isinstance(variants, Path):
        return _read(variants, budget_name, given)
    base = budget(budget_name)
    names = list(variants) or list(base.variants)
    unknown = [n for n in names if n not in VARIANTS]
    if unknown:
        raise ConfigError(
            f"there is no variant {unknown[0]!r}; there are {', '.join(VARIANTS)}, and those of a file (NAME.toml)."
            + did_you_mean(unknown[0], VARIANTS)
        )
    return Plan(base, _untuned_first(VARIANTS[n] for n in names), given)


def named(variants: str | Path | Sequence[str]) -> tuple[str, ...] | Path:
    """Variants as a user gives them: a list of names, text with commas between them, or a TOML file."""
    if isinstance(variants, Path):
        return variants
    if not isinstance(variants, str):
        return tuple(variants)
    names = tuple(n.strip() for n in variants.split(",") if n.strip())
    if not names:
        raise InputError(f"got variants {variants!r}, expected names with commas between, or NAME.toml.")
    return Path(names[0]) if len(names) == 1 and names[0].endswith(".toml") else names


def _read(path: Path, budget_name: str, given: Limits) -> Plan:
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        made = [v for declared in file.variants for v in declared.variants(file.seeds)]
        base = budget(file.budget or budget_name)
    except OSError as exc:
        raise InputError(f"{path}: cannot be read ({exc.strerror}); expected a TOML file of variants.") from exc
    except ValidationError as exc:
        problems = "; ".join(f"{fault(e)} (got {e['input']!r})" for e in exc.errors())
        raise InputError(f"{path}: {problems}. Sections are: {', '.join(_File.model_fields)}.") from exc
    except ConfigError as exc:
        raise InputError(f"{path}: {exc}") from exc
    except ValueError as exc:
        raise InputError(f"{path}: is not TOML ({exc}).") from exc
    names = [v.name for v in made]
    if double := [n for n in names if names.count(n) > 1]:
        raise InputError(f"{path}: two variants are called {double[0]!r}; give each a name of its own.")
    sizes = file.sizes.model_dump(exclude_none=True)
    if sizes:
        sizes.setdefault("words", BUDGETS["thorough"].words)  # sizes that were asked for are not cut again
    effort = base.effort._replace(**file.effort.model_dump(exclude_none=True))
    declared = file.limits.model_dump(exclude_none=True)
    if "minutes" in declared:
        declared["seconds"] = 60 * declared.pop("minutes")
    limits = Limits(**declared | {k: v for k, v in vars(given).items() if v is not None})
    # A file says itself what is tried: the time a budget gives to trying variants does not apply.
    return Plan(base._replace(**sizes, effort=effort, minutes=None), _untuned_first(made), limits)


def _untuned_first(variants: Iterable[Variant]) -> list[Variant]:
    by_name = {UNTUNED: VARIANTS[UNTUNED]} | {v.name: v for v in variants if v.name != UNTUNED}
    return list(by_name.values())
