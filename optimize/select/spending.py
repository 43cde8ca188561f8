"""What a study may still spend, so that it always ends with a champion that was tested."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import LimitReachedError
from faith_dspy.lm.metered import Limits, metered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from faith_dspy.lm.metered import Meter
    from faith_dspy.schema import Usage

PLENTY = 10**9


class Cost(NamedTuple):
    """An amount, named as in `Limits`."""

    calls: float = 0.0
    tokens: float = 0.0
    dollars: float = 0.0
    seconds: float = 0.0

    @classmethod
    def per_answer(cls, usage: Usage, answers: int) -> Cost:
        """The mean of so many answers."""
        tokens = usage.computed_tokens + usage.output_tokens
        return cls(usage.calls, tokens, usage.dollars or 0.0, usage.seconds).times(1 / max(1, answers))

    def times(self, n: float) -> Cost:
        """Of n of them."""
        return Cost(*(v * n for v in self))

    @classmethod
    def sum(cls, costs: Iterable[Cost]) -> Cost:
        """All of them."""
        return cls(*map(sum, zip(*costs, strict=True)))


NOTHING = Cost()


def left(meter: Meter, reserve: Cost = NOTHING) -> Limits:
    """What may still be spent of the meter's limits when ``reserve`` is kept back; None stays no limit."""
    spent, kept = meter.spent, reserve._asdict()
    rest: dict[str, Any] = {
        name: max(0.0, limit - spent[name] - kept[name])
        for name, limit in vars(meter.limits).items()
        if limit is not None
    }
    return Limits(**rest | {name: int(rest[name]) for name in ("calls", "tokens") if name in rest})


def affords(meter: Meter, price: Cost, reserve: Cost = NOTHING) -> int:
    """How many answers at that price can still be paid for, the clock left aside; `PLENTY` without a limit."""
    rest = left(meter, reserve)
    counts = [
        int(amount / each)
        for amount, each in zip((rest.calls, rest.tokens, rest.dollars), price, strict=False)
        if amount is not None and each > 0
    ]
    return min(counts, default=PLENTY)


@contextmanager
def reserving(meter: Meter, reserve: Cost) -> Iterator[None]:
    """Work that may spend what is left beyond ``reserve``; ends in `LimitReachedError` when that is spent.

    Optimizers take a refused call for a failed one: what they make of it does not count as a result.
    """
    before = meter.refused
    with metered(left(meter, reserve)) as work:
        failure = None
        try:
            yield
        except Exception as exc:
            if not (work.refused or meter.refused > before):
                raise
            failure = exc
        if work.refused or meter.refused > before:
            which = meter.limits.describe(work.reached or "calls")
            rest = f"the rest of the limit of {which} is kept to test the champion"
            raise LimitReachedError(rest if any(reserve) else f"the limit of {which} is reached") from failure
