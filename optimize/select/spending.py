"""What a study may still spend, so that it always ends with a champion that was tested."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import LimitReachedError
from faith_dspy.lm import Limits, metered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faith_dspy.lm import Meter
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
        n = max(1, answers)
        tokens = usage.computed_tokens + usage.output_tokens
        return cls(usage.calls / n, tokens / n, (usage.dollars or 0.0) / n, usage.seconds / n)

    def times(self, n: float) -> Cost:
        """Of n of them."""
        return Cost(*(v * n for v in self))

    def plus(self, other: Cost) -> Cost:
        """Both."""
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))


class Allowance:
    """The limits of a study, less what its meter has counted against them."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self.limits = meter, meter.limits

    @property
    def seconds(self) -> float:
        """How long the study has taken."""
        return self._meter.seconds

    def left(self, reserve: Cost | None = None) -> Limits:
        """What may still be spent when ``reserve`` is kept back; nothing left is 0, None is no limit."""
        spent, kept = self._meter.spent, reserve or Cost()

        def rest(name: str) -> float | None:
            limit = getattr(self.limits, name)
            return None if limit is None else max(0.0, limit - spent[name] - getattr(kept, name))

        calls, token = rest("calls"), rest("tokens")
        return Limits(
            calls=None if calls is None else int(calls),
            tokens=None if token is None else int(token),
            dollars=rest("dollars"),
            seconds=rest("seconds"),
        )

    def affords(self, price: Cost, reserve: Cost | None = None) -> int:
        """How many answers at that price can still be paid for, the clock left aside; `PLENTY` without a limit."""
        left = self.left(reserve)
        counts = [
            int(amount / each)
            for amount, each in zip((left.calls, left.tokens, left.dollars), price[:3], strict=True)
            if amount is not None and each > 0
        ]
        return min(counts, default=PLENTY)

    @contextmanager
    def reserving(self, reserve: Cost) -> Iterator[None]:
        """Work that may spend what is left beyond ``reserve``; ends in `LimitReachedError` when that is spent.

        Optimizers take a refused call for a failed one: what they make of it does not count as a result.
        """
        if not self.limits:
            yield
            return
        before = self._meter.refused
        with metered(self.left(reserve)) as meter:
            try:
                yield
            except LimitReachedError:
                raise LimitReachedError(self._reason(meter, reserve)) from None
            except Exception as exc:
                if meter.reached:
                    raise LimitReachedError(self._reason(meter, reserve)) from exc
                raise
            if meter.refused or self._meter.refused > before:
                raise LimitReachedError(self._reason(meter, reserve))

    def _reason(self, meter: Meter, reserve: Cost) -> str:
        which = self.limits.describe(meter.reached or "calls")
        if not any(reserve):
            return f"the limit of {which} is reached"
        return f"the rest of the limit of {which} is kept to test the champion"
