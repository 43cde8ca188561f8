"""Successive halving (Jamieson & Talwalkar 2016): a few answers of dev for all variants, more for the better half."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import InputError, LimitReachedError
from faith_dspy.optimize.data.splits import sample
from faith_dspy.optimize.select.champion import MARGIN, choose, test_price
from faith_dspy.optimize.select.spending import NOTHING, Cost, reserving
from faith_dspy.optimize.select.trial import Trial, begin, judge_dev, skipped
from faith_dspy.optimize.select.variants import UNTUNED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from faith_dspy.lm.metered import Meter
    from faith_dspy.optimize.data.splits import Parts
    from faith_dspy.optimize.options import Options, Tracker, View
    from faith_dspy.optimize.results import VariantResult
    from faith_dspy.optimize.select.plan import Plan
    from faith_dspy.schema import LabelledExample

FIRST = 20
"""Answers of dev that a variant is judged on at least before it may be dropped."""


class Tried(NamedTuple):
    """What became of the planned variants."""

    trials: dict[str, Trial]
    """All that were measured; the champion is chosen among those that were not dropped."""
    results: list[VariantResult]
    """Of all, dropped and skipped ones too, in the order of the plan."""
    finished: bool
    """False when it was stopped."""


def rungs(parts: Parts, variants: int, seed: int) -> list[list[LabelledExample]]:
    """Answers of dev that variants are compared on, each rung twice the one before and holding it; the last is dev.

    There are as many as leave two variants for all of dev, but none below `FIRST`: the winner among few answers is
    often a lucky one. Where dev is tested on as well (`Parts.cross_fitted`) there is one.
    """
    halvings = 0 if parts.cross_fitted else max(0, (variants - 1).bit_length() - 1)
    sizes = [n for k in range(halvings, 0, -1) if (n := len(parts.dev) >> k) >= FIRST]
    return [*(sample(parts.dev, n, 10**9, seed) for n in sizes), parts.dev]


def try_variants(
    planned: Plan, parts: Parts, options: Options, lm_name: str, meter: Meter, view: View, track: Tracker
) -> Tried:
    """Try all variants on the first of `rungs`, as long as enough is left to test the best one; then the better half.

    Where a later rung is stopped or reaches a limit, the one before it counts.
    """
    trials: dict[str, Trial] = {}
    results: dict[str, VariantResult] = {}
    finished = True

    def ended(result: VariantResult) -> None:
        results[result.name] = result
        track.variant(result)

    def reserved() -> AbstractContextManager[None]:
        minutes = planned.budget.minutes
        if trials and minutes is not None and meter.seconds > minutes * 60:
            raise LimitReachedError(f"the {minutes:g} minutes for trying variants were over")
        return reserving(meter, _reserve(trials, len(parts.test)))

    first, *later = rungs(parts, len(planned.variants), options.seed)
    try:
        for variant in planned.variants:
            try:
                with reserved():
                    begun = begin(variant, parts, planned.budget, options, lm_name, view)
                    trials[variant.name] = judge_dev(begun, first, options.seed, view)
                ended(trials[variant.name].result)
            except (InputError, LimitReachedError) as exc:
                if not trials:
                    if isinstance(exc, InputError):
                        raise
                    raise InputError(
                        f"{exc} before the untuned judge was measured on the {len(first)} answers of dev; "
                        "raise the limit, or give fewer answers with a smaller budget."
                    ) from exc
                ended(skipped(variant, str(exc), options, lm_name))
                view.say(f"{variant.name}: skipped, {results[variant.name].note}")
        for rung in later:
            ranked = sorted(_playing(trials), key=lambda t: (-(t.result.selection_score or 0.0), t.result.cost))
            half = max(2, (len(ranked) + 1) // 2)
            better, others = ranked[:half], ranked[half:]
            with reserved():
                judged = {t.result.name: judge_dev(t, rung, options.seed, view) for t in better}
            for t in others:
                note = f"others agreed better on {t.result.judged} of the {len(parts.dev)} answers of dev"
                dropped = t.result.model_copy(update={"status": "dropped", "note": note})
                judged[dropped.name] = t._replace(result=dropped)
                view.say(f"{dropped.name}: dropped, {note}")
            trials |= judged
            for t in judged.values():
                ended(t.result)
    except LimitReachedError as exc:
        view.say(f"{exc}: the champion is chosen by fewer answers of dev")
    except KeyboardInterrupt:
        if UNTUNED not in trials:
            raise
        view.say("Stopped. Going on to the test with the best variant so far; press Ctrl-C again to leave at once.")
        finished = False
    return Tried(trials, [results[v.name] for v in planned.variants if v.name in results], finished)


def _playing(trials: Mapping[str, Trial]) -> list[Trial]:
    return [t for t in trials.values() if t.result.status == "done"]


def _reserve(trials: Mapping[str, Trial], tested: int) -> Cost:
    """What it would cost to test the best variant so far and the untuned judge."""
    if not trials:
        return NOTHING
    best = choose([t.result for t in trials.values()]).name
    return test_price(trials, best).times(tested * MARGIN)
