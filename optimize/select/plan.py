"""What a study tries and may spend: a budget by name, names of variants, or a file that declares both.

# plan.toml: faith-dspy tune labels.jsonl --variants plan.toml
budget = "standard"               # what is not said below is taken from it
seeds = [0, 1]                    # every variant is tried with each

[sizes]                           # answers judged at most: dev by every variant, train and test by the champion
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

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, InputError
from faith_dspy.lm import Limits
from faith_dspy.optimize.compile.optimizers import OPTIMIZERS
from faith_dspy.optimize.compile.task import Effort
from faith_dspy.optimize.select.variants import BUDGETS, UNTUNED, VARIANTS, Budget, Variant, budget

if TYPE_CHECKING:
    from collections.abc import Sequence

_OWN = {"name", "optimizer", "description", "lm", "api_base", "seed"}


class Plan(NamedTuple):
    """What a study tries, on how many answers, and what it may spend."""

    budget: Budget
    variants: list[Variant]
    limits: Limits


class _Sizes(BaseModel):
    model_config = ConfigDict(extra="forbid")

    train: int | None = Field(default=None, ge=1)
    dev: int | None = Field(default=None, ge=1)
    test: int | None = Field(default=None, ge=1)
    words: int | None = Field(default=None, ge=1)


class _Effort(BaseModel):
    model_config = ConfigDict(extra="forbid")

    demos: int | None = Field(default=None, ge=1)
    candidates: int | None = Field(default=None, ge=1)
    compare_on: int | None = Field(default=None, ge=4)


class _Limits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    calls: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    budget: str | None = None
    seeds: list[int] = Field(default_factory=list)
    sizes: _Sizes = _Sizes()
    effort: _Effort = _Effort()
    limits: _Limits = _Limits()
    variants: list[dict[str, Any]] = Field(min_length=1)


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
            f"there is no variant {unknown[0]!r}; there are {', '.join(VARIANTS)}, and those of a file (NAME.toml)"
        )
    return Plan(base, _untuned_first([VARIANTS[n] for n in names]), given)


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
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        file = _File.model_validate(document)
    except OSError as exc:
        raise InputError(f"{path}: cannot be read ({exc.strerror}); expected a TOML file of variants.") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InputError(f"{path}: is not TOML ({exc}).") from exc
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']} (got {e['input']!r})" for e in exc.errors())
        raise InputError(f"{path}: {problems}. Sections are: {', '.join(_File.model_fields)}.") from exc
    base = budget(file.budget or budget_name)
    sizes = file.sizes.model_dump(exclude_none=True)
    if sizes and "words" not in sizes:
        sizes["words"] = BUDGETS["thorough"].words  # sizes that were asked for are not cut again
    effort = Effort(**(base.effort._asdict() | file.effort.model_dump(exclude_none=True)))
    made = [v for row in file.variants for v in _variants(row, file.seeds, path)]
    names = [v.name for v in made]
    if double := [n for n in names if names.count(n) > 1]:
        raise InputError(f"{path}: two variants are called {double[0]!r}; give each a name of its own.")
    wanted = file.limits
    seconds = None if wanted.minutes is None else wanted.minutes * 60
    declared = Limits(calls=wanted.calls, tokens=wanted.tokens, dollars=wanted.dollars, seconds=seconds)
    limits = Limits(**{k: v if (v := getattr(given, k)) is not None else getattr(declared, k) for k in vars(declared)})
    # A file says itself what is tried: the time a budget gives to trying variants does not apply.
    return Plan(base._replace(**sizes, effort=effort, minutes=None), _untuned_first(made), limits)


def _variants(row: dict[str, Any], seeds: Sequence[int], path: Path) -> list[Variant]:
    """One declared variant, once per LM and seed."""
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"{path}: a variant has no name: {row}.")
    options = {k: v for k, v in row.items() if k not in _OWN}
    known = VARIANTS.get(name)
    if known is not None and (options or "optimizer" in row):
        raise InputError(f"{path}: there is a variant {name!r} already; give one with options of its own another name.")
    if known is None and not options and "optimizer" not in row:
        raise InputError(
            f"{path}: there is no variant {name!r}, and it declares nothing; there are {', '.join(VARIANTS)}."
        )
    optimizer = row.get("optimizer")
    if optimizer == "none":
        optimizer = None
    if optimizer is not None and optimizer not in OPTIMIZERS:
        raise InputError(f"{path}: {name} has the optimizer {optimizer!r}; there are none, {', '.join(OPTIMIZERS)}.")
    try:
        base = known or Variant(name, JudgeConfig.make(**options), optimizer, str(row.get("description") or _say(row)))
    except ConfigError as exc:
        raise InputError(f"{path}: {name}: {exc}") from exc
    lms, own_seeds = _several(row.get("lm")), _several(row.get("seed")) or list(seeds)
    out = []
    for lm, seed in product(lms or [None], own_seeds or [None]):
        if lm is not None and not isinstance(lm, str):
            raise InputError(f"{path}: {name} has the lm {lm!r}, expected a model string or a list of them.")
        if seed is not None and not isinstance(seed, int):
            raise InputError(f"{path}: {name} has the seed {seed!r}, expected a whole number or a list of them.")
        suffix = (f"@{lm}" if len(lms) > 1 else "") + (f"#{seed}" if len(own_seeds) > 1 else "")
        out.append(base._replace(name=name + suffix, lm=lm, api_base=row.get("api_base"), seed=seed))
    return out


def _several(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _say(row: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in row.items() if k not in {"name", "lm", "api_base", "seed"})


def _untuned_first(variants: list[Variant]) -> list[Variant]:
    rest = [v for v in dict.fromkeys(v.name for v in variants) if v != UNTUNED]
    by_name = {v.name: v for v in variants}
    return [VARIANTS[UNTUNED], *(by_name[n] for n in rest)]
