"""What a study is asked to do: the user's options, a budget by name, and variants by name, list or TOML file.

# plan.toml: faith-dspy tune labels.jsonl --variants plan.toml
budget = "standard"               # what is not said below is taken from it
seeds = [0, 1]                    # every variant is tried with each

[sizes]                           # answers judged at most: dev by the variants, train and test by the champion
dev = 80

[effort]                          # of the optimizers
demos = 4

[limits]                          # of the whole study
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
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError, InputError, faults
from faith_dspy.lm.metered import Limits
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint
from faith_dspy.optimize.compile.optimizers import OPTIMIZERS, Effort

UNTUNED = "answer"
"""The variant every study includes: the whole answer, one verdict, nothing tuned."""


BudgetName = Literal["quick", "standard", "thorough"]
_Count = Annotated[int, Field(ge=1)]
_ALL = 10**9


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _one_or_several(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _variant_names(variants: Any) -> Any:
    """A list of names, text with commas between them, or a TOML file."""
    if not isinstance(variants, str):
        return variants if isinstance(variants, Path) else tuple(variants or ())
    return Path(variants) if variants.endswith(".toml") else tuple(n.strip() for n in variants.split(","))


class Spending(_Model):
    """What a study may spend. None: no limit."""

    calls: _Count | None = None
    tokens: _Count | None = None
    """Read and written."""
    dollars: float | None = Field(default=None, gt=0)
    minutes: float | None = Field(default=None, gt=0)

    @property
    def limits(self) -> Limits:
        """As meters take them."""
        seconds = None if self.minutes is None else 60 * self.minutes
        return Limits(calls=self.calls, tokens=self.tokens, dollars=self.dollars, seconds=seconds)


class Options(Spending):
    """What a user can say about a study; see `faith_dspy.tune`."""

    lm: str = "local"
    api_base: str | None = None
    api_key: str | None = Field(default=None, repr=False)
    timeout: float | None = None
    reflection_lm: str | None = None
    operating_point: Annotated[
        OperatingPoint, BeforeValidator(lambda v: OperatingPoint.parse(v) if isinstance(v, str) else v)
    ] = BALANCED
    budget: BudgetName = "quick"
    out: Path | None = None
    prefer: Literal["agreement", "cheapest"] = "agreement"
    max_flips: float | None = Field(default=None, ge=0, le=1)
    seed: int = 0
    variants: Annotated[tuple[str, ...] | Path, BeforeValidator(_variant_names)] = ()

    @property
    def times(self) -> dict[str, Any]:
        """Of every LM, as `make_lm` takes them."""
        return {"timeout": self.timeout}


class Variant(_Model):
    """A program shape and how it is compiled."""

    name: str
    config: JudgeConfig
    optimizer: str | None = None
    description: str
    lm: str | None = None
    """None: the study's."""
    api_base: str | None = None
    seed: int | None = None
    """Of the optimizer; None: the study's."""


class Budget(_Model):
    """How much a study spends."""

    variants: tuple[str, ...] = ()
    effort: Effort = Effort(demos=6, candidates=8, compare_on=120)
    dev: int = _ALL
    """At most so many answers of dev are judged by the variants; of train and test by the champion."""
    train: int = _ALL
    test: int = _ALL
    words: int = _ALL
    """At most so many words of context and answers are read of each part, every context once."""
    minutes: float | None = None
    """No variant is begun after so many minutes, but for the first two: on a slow machine, too, a study tries the
    untuned judge and the cheapest shape that can beat it."""


class Plan(NamedTuple):
    """What a study tries, on how many answers, and what it may spend."""

    budget: Budget
    variants: list[Variant]
    limits: Limits


class View(Protocol):
    """Where a study shows what it does."""

    def say(self, text: str) -> None:
        """Show one line that stays."""

    def task(self, what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar; the function it gives advances it."""


def _variant(name: str, granularity: str, optimizer: str | None, description: str, **options: Any) -> Variant:
    config = JudgeConfig.make(granularity=granularity, **options)
    return Variant(name=name, config=config, optimizer=optimizer, description=description)


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        _variant(UNTUNED, "answer", None, "whole answer, one verdict"),
        _variant("sentence", "sentence", None, "each sentence as written"),
        _variant("statement", "statement", None, "statements the LM extracts, each verified"),
        _variant("sentence-few-shot", "sentence", "labelled", "each sentence, with labelled examples shown"),
        _variant("sentence-mistakes", "sentence", "mistakes", "each sentence, with examples that the LM got wrong"),
        _variant("sentence-bootstrap", "sentence", "bootstrap", "each sentence, with bootstrapped examples shown"),
        _variant("sentence-mipro", "sentence", "mipro", "each sentence, instruction and examples by MIPROv2"),
        _variant("sentence-gepa", "sentence", "gepa", "each sentence, instruction rewritten from feedback by GEPA"),
        _variant("statement-few-shot", "statement", "labelled", "extracted statements, labelled examples shown"),
    )
}

_FIRST = (UNTUNED, "sentence", "sentence-few-shot")
# Optimizers that ask the LM while compiling take minutes, and none was shown to raise agreement on verdicts
# (tests/benchmarks/OPTIMIZERS.md). Extracted statements, which the LM has to write, took nearly as long as
# all else on RAGTruth's dev, and were dropped halfway (optimize/LOG.md). Only the thorough budget tries them unasked.
BUDGETS: dict[str, Budget] = {
    "quick": Budget(
        variants=_FIRST,
        effort=Effort(demos=2, candidates=1, compare_on=8),
        dev=24,
        train=120,
        test=120,
        words=40_000,
        minutes=4,
    ),
    "standard": Budget(
        variants=_FIRST,
        effort=Effort(demos=4, candidates=3, compare_on=40),
        dev=100,
        train=240,
        test=400,
        words=200_000,
        minutes=60,
    ),
    "thorough": Budget(variants=tuple(VARIANTS)),
}


class _Declared(BaseModel, extra="allow"):
    """A variant of a file. Whatever is not a field here is an option of `JudgeConfig`."""

    name: str
    optimizer: str | None = None
    description: str = ""
    lm: Annotated[list[str | None], BeforeValidator(_one_or_several)] = Field(default=[None], min_length=1)
    api_base: str | None = None
    seed: Annotated[list[int | None], BeforeValidator(_one_or_several)] = []

    @model_validator(mode="after")
    def _declared_once(self) -> _Declared:
        if self.optimizer not in (None, "none", *OPTIMIZERS):
            raise ValueError(f"there is no optimizer {self.optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
        declares = bool(self.model_extra) or "optimizer" in self.model_fields_set
        if declares == (self.name in VARIANTS):
            raise ValueError(
                f"{self.name!r} is to be one of {', '.join(VARIANTS)}, or another name with options of its own"
            )
        return self

    def variants(self, seeds: Sequence[int | None]) -> list[Variant]:
        """One for each LM and seed; ``seeds`` where it has none of its own."""
        options, seeds = self.model_extra or {}, self.seed or seeds
        optimizer = None if self.optimizer == "none" else self.optimizer
        told = {**options, **({"optimizer": optimizer} if optimizer else {})}
        description = self.description or ", ".join(f"{k} {v}" for k, v in told.items())
        base = VARIANTS.get(self.name) or Variant(
            name=self.name, config=JudgeConfig.make(**options), optimizer=optimizer, description=description
        )
        out = []
        for lm, seed in product(self.lm, seeds):
            suffix = (f"@{lm}" if len(self.lm) > 1 else "") + (f"#{seed}" if len(seeds) > 1 else "")
            own = {"name": self.name + suffix, "lm": lm, "api_base": self.api_base, "seed": seed}
            out.append(base.model_copy(update=own))
        return out


class _File(BaseModel, extra="forbid"):
    budget: BudgetName | None = None
    seeds: list[int | None] = Field(default=[None], min_length=1)
    sizes: dict[Literal["train", "dev", "test", "words"], _Count] = {}
    effort: dict[str, _Count] = {}
    limits: Spending = Spending()
    variants: list[_Declared] = Field(min_length=1)


def plan(options: Options) -> Plan:
    """The plan of a study. Limits that the user gave go before the file's.

    The untuned judge is always tried, and first: it is what the champion is measured against.
    """
    if isinstance(options.variants, Path):
        return _read(options.variants, options)
    base = BUDGETS[options.budget]
    names = options.variants or base.variants
    if unknown := [n for n in names if n not in VARIANTS]:
        raise ConfigError(
            f"there is no variant {unknown[0]!r}; there are {', '.join(VARIANTS)}, and those of a file (NAME.toml)."
        )
    return Plan(base, _untuned_first(VARIANTS[n] for n in names), options.limits)


def _read(path: Path, options: Options) -> Plan:
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        made = [v for declared in file.variants for v in declared.variants(file.seeds)]
        base = BUDGETS[file.budget or options.budget]
        effort = Effort(**base.effort.model_dump() | file.effort)
    except ValidationError as exc:
        raise InputError(f"{path}: {faults(exc)}. Sections are: {', '.join(_File.model_fields)}.") from exc
    except (OSError, ConfigError, ValueError) as exc:
        raise InputError(f"{path}: cannot be read ({exc}); expected a TOML file of variants.") from exc
    names = [v.name for v in made]
    if double := [n for n in names if names.count(n) > 1]:
        raise InputError(f"{path}: two variants are called {double[0]!r}; give each a name of its own.")
    # Sizes that were asked for are not cut again, and a file says itself what is tried: no words, no minutes.
    sizes = ({"words": _ALL} | file.sizes) if file.sizes else {}
    limits = file.limits.model_dump(exclude_none=True) | options.model_dump(
        include=set(Spending.model_fields), exclude_none=True
    )
    own = base.model_copy(update={**sizes, "effort": effort, "minutes": None})
    return Plan(own, _untuned_first(made), Spending(**limits).limits)


def _untuned_first(variants: Iterable[Variant]) -> list[Variant]:
    by_name = {UNTUNED: VARIANTS[UNTUNED]} | {v.name: v for v in variants if v.name != UNTUNED}
    return list(by_name.values())
