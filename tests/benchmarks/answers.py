"""Which answers are judged: of the part that `tune` with the same seed tests on, so that no tuned judge saw one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from faith_dspy.errors import InputError
from faith_dspy.eval_sets.catalog import path_of
from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.optimize.data.splits import split

from .systems import Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from faith_dspy.schema import LabelledExample

SETS = ("ragtruth_qa", "wice_oracle")
SHIPPED = "quickstart"
"""Taken where the folder of human-labelled sets is missing."""
SEED = 0


class AnswerSet(NamedTuple):
    """A labelled set and the part of it that is judged."""

    name: str
    label_hash: str
    """Of the whole set."""
    answers: list[LabelledExample]


def read_set(path: Path, n: int | None) -> AnswerSet:
    """The set at ``path`` with ``n`` answers of its test part; None: all."""
    splits = split(read_labels(path), seed=SEED)
    everything = [*splits.train, *splits.dev, *splits.test]
    return AnswerSet(path.stem, label_set_hash(everything), choose(splits.test, n))


def find_sets(folder: Path, names: Sequence[str]) -> list[Path]:
    """The label files of these names; the shipped set where the folder is missing. `InputError` where a file is."""
    if not folder.is_dir():
        return [path_of(SHIPPED)]
    found = [folder / f"{name}.jsonl" for name in names]
    if missing := [f for f in found if not f.is_file()]:
        there = ", ".join(sorted(f.stem for f in folder.glob("*.jsonl"))) or "none"
        raise InputError(f"{missing[0]} is missing; label files there: {there}.")
    return found


def choose(part: Sequence[LabelledExample], n: int | None, seed: int = SEED) -> list[LabelledExample]:
    """At most ``n`` answers in a fixed order, context by context, with the part's share of faithful ones.

    Answers over one context follow each other, as they would in use, and a context comes whole or not at all – but for
    the last places, when nothing fits whole: they are filled from contexts that were passed over.
    """
    by_context: dict[str, list[LabelledExample]] = {}
    for e in sorted(part, key=lambda e: e.id):
        by_context.setdefault(e.context_key, []).append(e)
    keys = sorted(by_context)
    random.Random(seed).shuffle(keys)
    if n is None or n >= len(part):
        return [e for k in keys for e in by_context[k]]
    faithful = round(n * sum(bool(e.label) for e in part) / len(part))
    room = {True: faithful, False: n - faithful}
    out: list[LabelledExample] = []
    for whole in (True, False):
        for k in [k for k in keys if by_context[k]]:
            fits, left = [], dict(room)
            for e in by_context[k]:
                if left[bool(e.label)]:
                    left[bool(e.label)] -= 1
                    fits.append(e)
            if fits and (not whole or len(fits) == len(by_context[k])):
                out += fits
                room = left
                by_context[k] = []
    return out


def record_of(example: LabelledExample) -> Record:
    """What every system is given."""
    return Record(question=example.question, context=tuple(c.text for c in example.context), answer=example.answer)
