"""What a study tries, by budget; a file can declare other variants, see `faith_dspy.optimize.select.plan`."""

from __future__ import annotations

from typing import NamedTuple

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError
from faith_dspy.optimize.compile.task import Effort

UNTUNED = "answer"
"""The variant every study includes: the whole answer, one verdict, nothing tuned."""


class Variant(NamedTuple):
    """A program shape and how it is compiled."""

    name: str
    config: JudgeConfig
    optimizer: str | None
    description: str
    lm: str | None = None
    """None: the study's."""
    api_base: str | None = None
    seed: int | None = None
    """Of the optimizer; None: the study's."""


class Budget(NamedTuple):
    """How much a study spends."""

    variants: tuple[str, ...]
    effort: Effort
    dev: int
    """At most so many answers of dev are judged by the best variants (`halving`); train, test: by champion, untuned."""
    train: int
    test: int
    words: int
    """At most so many words of context and answers are read of each part, every context once."""
    minutes: float | None
    """No variant is begun after so many minutes; champion, untuned and test are finished all the same."""


def _variant(name: str, granularity: str, optimizer: str | None, description: str, **options: object) -> Variant:
    return Variant(name, JudgeConfig.make(granularity=granularity, **options), optimizer, description)


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        _variant(UNTUNED, "answer", None, "whole answer, one verdict"),
        _variant("sentence", "sentence", None, "each sentence as written"),
        _variant("statement", "statement", None, "statements the LM extracts, each verified"),
        _variant("sentence-few-shot", "sentence", "labelled", "each sentence, with labelled examples shown"),
        _variant("sentence-mistakes", "sentence", "mistakes", "each sentence, with examples that the LM got wrong"),
        _variant("sentence-bootstrap", "sentence", "bootstrap", "each sentence, with bootstrapped examples shown"),
        _variant("sentence-search", "sentence", "search", "each sentence, by the best instruction of the bank"),
        _variant(
            "sentence-mipro",
            "sentence",
            "mipro",
            "each sentence, instruction and examples by MIPROv2 (not shown to help a 1.5B model)",
        ),
        _variant(
            "sentence-gepa",
            "sentence",
            "gepa",
            "each sentence, instruction rewritten from feedback by GEPA (not shown to help a 1.5B model)",
        ),
        _variant("statement-few-shot", "statement", "labelled", "extracted statements, examples of both stages shown"),
    )
}

_FIRST = (UNTUNED, "sentence", "sentence-few-shot")
_ALL = 10**9
# Optimizers that ask the LM while compiling take minutes, and none was shown to raise agreement on verdicts
# (tests/benchmarks/OPTIMIZERS.md): only the thorough budget tries them unasked.
BUDGETS: dict[str, Budget] = {
    "quick": Budget(
        _FIRST, Effort(demos=2, candidates=1, compare_on=8), dev=24, train=120, test=120, words=40_000, minutes=4
    ),
    "standard": Budget(
        (*_FIRST, "statement"),
        Effort(demos=4, candidates=3, compare_on=40),
        dev=100,
        train=240,
        test=400,
        words=200_000,
        minutes=60,
    ),
    "thorough": Budget(
        tuple(VARIANTS), Effort(demos=6, candidates=8, compare_on=120), _ALL, _ALL, _ALL, words=_ALL, minutes=None
    ),
}


def budget(name: str) -> Budget:
    """The budget of that name; `ConfigError` otherwise."""
    if name not in BUDGETS:
        raise ConfigError(f"there is no budget {name!r}; there are {', '.join(BUDGETS)}")
    return BUDGETS[name]
