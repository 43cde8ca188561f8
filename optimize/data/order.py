"""In which order answers are labelled. Choosing them was not shown to help: `tests/benchmarks/LABEL_ORDER.md`."""

from __future__ import annotations

import random
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.schema import Judgment, LabelledExample

First = Literal["random", "uncertain"]


def in_order(
    examples: Sequence[LabelledExample],
    first: First,
    judged: Callable[[Sequence[LabelledExample]], Sequence[Judgment]],
    seed: int = 0,
) -> list[LabelledExample]:
    """The answers in random order; or, in turns, those of half of the sources in random order, and of the other half
    those nearest to the threshold, one of each source at a time. The latter are tagged: no test is made of them."""
    order = sorted(examples, key=lambda e: e.id)
    random.Random(seed).shuffle(order)
    if first == "random":
        return order
    fair = {*[*dict.fromkeys(e.group_key for e in order)][::2]}
    rest = [e.model_copy(update={"tags": e.tags | {"drawn": first}}) for e in order if e.group_key not in fair]
    turn: Counter[str] = Counter()
    near = []
    for _, e in sorted(zip(map(_distance, judged(rest)), rest, strict=True), key=lambda pair: pair[0]):
        near.append((turn[e.group_key], e))
        turn[e.group_key] += 1
    chosen = [e for _, e in sorted(near, key=lambda pair: pair[0])]
    drawn = [e for e in order if e.group_key in fair]
    return [e for pair in zip_longest(drawn, chosen) for e in pair if e is not None]


def _distance(judgment: Judgment) -> float:
    """Of its probability from the threshold; what is unscored comes last."""
    p, threshold = judgment.ranking, judgment.threshold
    return 1.0 if p is None or threshold is None else abs(p - threshold)
