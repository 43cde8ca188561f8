"""What the user wants of the threshold, and the threshold that gives it.

It is chosen on cross-fitted probabilities. What it reaches there is what it was chosen for, so it flatters a little;
the testset says what holds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from faith_dspy.errors import ConfigError, InputError
from faith_dspy.optimize.checks import ThresholdChoice
from faith_dspy.optimize.classifier.logistic import stable_threshold
from faith_dspy.scoring.agreement import measure
from faith_dspy.scoring.statistics import Estimate, check_labels, from_draws, need, resample_weights
from faith_dspy.scoring.thresholds import threshold_for_recall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.scoring.statistics import Bools


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OperatingPoint(_Frozen):
    """What the threshold is for. Written ``balanced``, ``recall=0.9`` or ``cost=5``."""

    kind: Literal["balanced", "recall", "cost"] = "balanced"
    value: float | None = None
    """Of ``recall`` the share of unfaithful answers to stop, above 0 and below 1; of ``cost`` how many times worse it
    is to pass an unfaithful answer than to stop a faithful one, above 0; None for ``balanced``."""

    @model_validator(mode="after")
    def _value_fits(self) -> Self:
        v = self.value
        if self.kind == "balanced":
            if v is not None:
                raise ValueError("balanced takes no number")
        elif v is None or not math.isfinite(v) or v <= 0 or (self.kind == "recall" and v >= 1):
            raise ValueError(_EXPECTED[self.kind])
        return self

    @classmethod
    def parse(cls, text: str) -> OperatingPoint:
        """Read ``balanced``, ``recall=R``, ``cost=C`` or ``cost=C:1``; `ConfigError` saying what each means."""
        kind, equals, number = text.strip().lower().partition("=")
        if kind == "balanced" and not equals:
            return BALANCED
        if kind not in _EXPECTED:
            raise ConfigError(
                f"got operating_point {text!r}, expected one of balanced; recall=0.9 (stop nine in ten of the unfaithful answers);"
                " cost=5 (passing an unfaithful answer is five times worse than stopping a faithful one)."
            )
        over, _, under = number.partition(":")
        try:
            value = float(over) / (float(under) if kind == "cost" and ":" in number else 1)
            return cls(kind=kind, value=value)  # type: ignore[arg-type]  # checked above
        except (ValueError, ZeroDivisionError) as exc:
            raise ConfigError(f"got operating_point {text!r}; {_EXPECTED[kind]}.") from exc

    def __str__(self) -> str:
        return self.kind if self.value is None else f"{self.kind}={self.value:g}"


_EXPECTED = {
    "recall": "recall takes the share of unfaithful answers to stop, above 0 and below 1, such as recall=0.9",
    "cost": "cost takes how many times worse it is to pass an unfaithful answer than to stop a faithful one, such as "
    "cost=5 or cost=5:1",
}
BALANCED = OperatingPoint()


def threshold_for(
    operating_point: OperatingPoint,
    probabilities: Sequence[float | None],
    labels: Sequence[bool],
    *,
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> ThresholdChoice:
    """The threshold t for ``operating_point``; an answer passes when its probability is at least t.

    - ``balanced``: best balanced accuracy, each cut counted with its neighbours (`stable_threshold`).
    - ``recall=R``: the lowest t that stops ``ceil(R (n + 1))`` of the n unfaithful answers. On new answers it then
      stops R of them on average over draws of the labels (split conformal prediction: Vovk, Gammerman & Shafer 2005;
      the finite-sample term: Lei et al. 2018, JASA 113); one draw may do worse, see the interval. With fewer than
      R / (1-R) unfaithful answers no t assures it: it then stops all of them and says so.
    - ``cost=C``: least ``(C · unfaithful passed + faithful stopped) / n``, counted with its neighbours, at the share of
      faithful answers that the labels have.

    ``probabilities``, ``labels`` (True = faithful) and ``groups`` are of the same answers, probabilities cross-fitted;
    answers with None are left out. Intervals resample groups. `InputError` when lengths differ, or without a
    probability for answers of both labels.
    """
    check_labels(labels, probabilities=probabilities, groups=groups)
    at = [i for i, p in enumerate(probabilities) if p is not None]
    p = np.array([probabilities[i] for i in at], dtype=np.float64)
    y = np.array([bool(labels[i]) for i in at], dtype=bool)
    kept = [str(i) for i in at] if groups is None else [groups[i] for i in at]
    if not y.any() or y.all():
        raise InputError(f"got {y.sum()} faithful and {(~y).sum()} unfaithful scored answers, expected both kinds")
    note = None
    if operating_point.kind == "recall":
        assert operating_point.value is not None
        n = int((~y).sum())
        wanted = math.ceil(operating_point.value * (n + 1) - 1e-9)
        if wanted > n:
            least = math.ceil(operating_point.value / (1 - operating_point.value) - 1e-9)
            note = f"recall {operating_point.value:g} cannot be assured with {n} unfaithful answers labelled: it takes {least}."
        t = threshold_for_recall(y.tolist(), p.tolist(), min(wanted, n) / n)
    else:
        t = stable_threshold(p, y.astype(np.float64), operating_point.value)
    passed = p >= t
    found = measure(y.tolist(), passed.tolist(), [None] * len(at), groups=kept, seed=seed)
    recall = found.recall_unfaithful
    if recall.low is None:
        recall = share(passed[~y], False)  # every resample alike: the bootstrap has nothing to say
    if (
        operating_point.kind == "recall"
        and operating_point.value is not None
        and recall.low is not None
        and recall.low < operating_point.value
    ):
        likely = f"On new answers it may be as low as {recall.low:.2f}: {(~y).sum()} unfaithful ones were labelled."
        note = f"{note} {likely}" if note else likely
    return ThresholdChoice(
        operating_point=str(operating_point),
        threshold=t,
        balanced_accuracy=found.balanced_accuracy,
        recall_unfaithful=recall,
        recall_faithful=found.recall_faithful,
        cost=_cost(y, passed, operating_point.value, kept, seed)
        if operating_point.kind == "cost" and operating_point.value is not None
        else None,
        note=note,
    )


def _cost(y: Bools, passed: Bools, ratio: float, groups: Sequence[str], seed: int) -> Estimate:
    each = np.where(y, ~passed, passed * ratio).astype(np.float64)
    draws = np.concatenate([w @ each / w.sum(axis=1) for w in resample_weights(len(y), groups, 1000, seed)])
    return from_draws(float(each.mean()), draws, 0.95, "")


def share(flags: Bools, wanted: bool) -> Estimate:
    """Share of ``flags`` that are ``wanted``, with Wilson's interval (1927, JASA 22)."""
    if not len(flags):
        return Estimate(why="no such answer")
    stats = need("scipy.stats", "Fitting a threshold")
    n = int((flags == wanted).sum())
    interval = stats.binomtest(n, len(flags)).proportion_ci(method="wilson")
    return Estimate(value=n / len(flags), low=float(interval.low), high=float(interval.high))
