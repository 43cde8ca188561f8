"""How far people agree with each other, from the label each of them gave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faith_dspy.io.words import rating, vote
from faith_dspy.scoring.agreement import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample
    from faith_dspy.scoring.agreement import Agreement


def annotator_agreement(examples: Sequence[LabelledExample], *, seed: int = 0) -> Agreement | None:
    """One annotator against the majority of the others, as a ceiling for a judge. None when no label can be used.

    `LabelledExample.annotators` is a list of labels, one per person; such a list inside a list of one; or a mapping
    from person to label. `vote` reads each label; the highest rating in the set (at least 1) means faithful. Labels it
    cannot read, and opinions where the others tie, are left out; `n` counts opinions. Intervals resample groups.
    """
    people = [_labels(e.annotators) for e in examples]
    top = max([1.0, *(r for labels in people for x in labels if (r := rating(x)) is not None)])
    opinions: list[tuple[bool, bool, str]] = []
    for example, labels in zip(examples, people, strict=True):
        votes = [v for x in labels if (v := vote(x, top)) is not None]
        for one in votes:
            margin = 2 * (sum(votes) - one) - (len(votes) - 1)
            if margin:
                opinions.append((margin > 0, one, example.group_key))
    if not opinions:
        return None
    others, ones, groups = zip(*opinions, strict=True)
    return measure(others, ones, [None] * len(ones), groups=groups, seed=seed)


def _labels(annotators: Any) -> list[Any]:
    if isinstance(annotators, list | tuple) and len(annotators) == 1 and isinstance(annotators[0], list | tuple):
        annotators = annotators[0]
    if isinstance(annotators, dict):
        annotators = list(annotators.values())
    return list(annotators) if isinstance(annotators, list | tuple) else []
