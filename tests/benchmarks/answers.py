"""Which answers are judged: of a third of the sources, which no judge is tuned on."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.optimize.data.pool import assign_folds, with_sources
from faith_dspy.schema import LabelledExample

SETS = ("ragtruth_qa", "wice_oracle")
SEED = 0


class AnswerSet(NamedTuple):
    """A labelled set and those of its answers that are judged."""

    name: str
    label_hash: str
    """Of the whole set."""
    answers: list[LabelledExample]


def read_set(path: Path, n: int) -> AnswerSet:
    """The set at ``path`` with ``n`` answers of a third of its sources."""
    everything = with_sources(read_labels(path))
    fold_of = assign_folds(everything, SEED, folds=3)
    apart = [e for e in everything if fold_of[e.group_key] == 0]
    return AnswerSet(path.stem, label_set_hash(everything), choose(apart, n))


def choose(part: Sequence[LabelledExample], n: int) -> list[LabelledExample]:
    """At most ``n`` answers in a fixed order, context by context, with the part's share of faithful ones.

    Answers over one context follow each other, as they would in use.
    """
    by_context: dict[str, list[LabelledExample]] = {}
    for e in sorted(part, key=lambda e: e.id):
        by_context.setdefault(e.context_key, []).append(e)
    keys = sorted(by_context)
    random.Random(SEED).shuffle(keys)
    answers = [e for k in keys for e in by_context[k]]
    n = min(n, len(answers))
    faithful = round(n * sum(bool(e.label) for e in answers) / len(answers))
    room = {True: faithful, False: n - faithful}
    chosen = []
    for e in answers:
        if room[bool(e.label)]:
            room[bool(e.label)] -= 1
            chosen.append(e)
    return chosen
