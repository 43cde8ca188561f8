"""What a user can ask of a study, and where a study shows and records what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from faith_dspy.lm.metered import Limits
from faith_dspy.optimize.classifier.operating_point import BALANCED, OperatingPoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from faith_dspy.optimize.results import StudyResult, VariantResult


class Options(NamedTuple):
    """What a user can say about a study."""

    lm: str = "local"
    api_base: str | None = None
    api_key: str | None = None
    timeout: float | None = None
    budget: str = "quick"
    seed: int = 0
    out: Path | None = None
    limits: Limits = Limits()
    """Of the whole study; what it costs to test the champion is reserved."""
    variants: tuple[str, ...] | Path = ()
    """Names from `VARIANTS` to try instead of the budget's, or a file that declares them (`plan`)."""
    operating_point: OperatingPoint = BALANCED
    """What the champion's threshold is for."""
    prefer: str = "agreement"
    """``agreement``: the champion is what agrees best; ``cheapest``: what costs least and is not shown to be worse."""
    reflection_lm: str | None = None
    """LM that proposes instructions, as a model string; None: the judge's own."""
    max_flips: float | None = None
    """Share of verdicts on dev that a kind of injection may flip, or the champion is held back; None: not tried."""

    @property
    def times(self) -> dict[str, Any]:
        """Of every LM, as `make_lm` takes them."""
        return {"timeout": self.timeout}


class View(Protocol):
    """Where a study shows what it does."""

    def say(self, text: str) -> None:
        """Show one line that stays."""

    def task(self, what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar; the function it gives advances it."""


class Tracker(Protocol):
    """Where a study is recorded as it goes. `faith_dspy.optimize.tracking.study_run` is the one for MLflow."""

    @property
    def page(self) -> str:
        """Where the study can be seen, an address; or nothing."""

    def variant(self, result: VariantResult) -> None:
        """Record a finished or skipped variant."""

    def finish(self, result: StudyResult) -> str:
        """Record the finished study. Returns what became of the judge in the registry, a sentence, or nothing."""
