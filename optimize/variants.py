"""What a study tries, by budget. One line per variant; edit here to try something else."""

from __future__ import annotations

from typing import NamedTuple

from faith_dspy.config import JudgeConfig
from faith_dspy.errors import ConfigError
from faith_dspy.optimize.optimizers import Effort

BASELINE = "answer"
"""The variant every study includes: the whole answer, one verdict, nothing tuned."""


class Variant(NamedTuple):
    """A program shape and how it is compiled."""

    name: str
    config: JudgeConfig
    optimizer: str | None
    description: str


class Budget(NamedTuple):
    """How much a study spends."""

    variants: tuple[str, ...]
    effort: Effort
    dev: int
    """At most so many answers of dev are judged per variant; train, test: likewise, by champion and baseline."""
    train: int
    test: int


def _config(granularity: str, *instructions: str) -> JudgeConfig:
    return JudgeConfig.make(granularity=granularity, instructions=instructions or ("supported",))


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        Variant(BASELINE, _config("answer"), None, "whole answer, one verdict"),
        Variant("sentence", _config("sentence"), None, "each sentence as written"),
        Variant("statement", _config("statement"), None, "statements the LM extracts, each verified"),
        Variant("sentence-few-shot", _config("sentence"), "labelled", "each sentence, with labelled examples shown"),
        Variant(
            "sentence-bootstrap",
            _config("sentence"),
            "bootstrap",
            "each sentence, with examples found by bootstrapping and random search",
        ),
        Variant(
            "sentence-pooled",
            _config("sentence", "supported", "every_detail"),
            None,
            "each sentence, two instructions pooled",
        ),
    )
}

_FIRST = (BASELINE, "sentence", "sentence-few-shot", "sentence-bootstrap", "statement")
BUDGETS: dict[str, Budget] = {
    "quick": Budget(_FIRST, Effort(demos=4, candidates=1, compare_on=20), dev=60, train=80, test=120),
    "standard": Budget((*_FIRST, "sentence-pooled"), Effort(4, 4, 60), dev=120, train=240, test=400),
    "thorough": Budget((*_FIRST, "sentence-pooled"), Effort(6, 10, 150), dev=10**6, train=10**6, test=10**6),
}


def budget(name: str) -> Budget:
    """The budget of that name; `ConfigError` otherwise."""
    if name not in BUDGETS:
        raise ConfigError(f"there is no budget {name!r}; there are {', '.join(BUDGETS)}")
    return BUDGETS[name]
