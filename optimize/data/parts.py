"""The answers a study works on: the labels in parts, and as many of each part as the budget allows."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import counted
from faith_dspy.io.labels import label_set_hash, name_of, read_labels
from faith_dspy.optimize.data.sources import check_leakage
from faith_dspy.optimize.data.splits import PARTS, Splits, check_labels, split, split_train_dev

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

MIN_GROUPS = 3
"""Groups in which each label occurs at least, in every part that is judged."""


class Parts(NamedTuple):
    """A study's labels: as they were split, and the answers of each part that are used."""

    splits: Splits
    train: list[LabelledExample]
    dev: list[LabelledExample]
    test: list[LabelledExample]

    @property
    def used(self) -> dict[str, list[LabelledExample]]:
        """The answers of each part by its name."""
        return dict(zip(PARTS, self[1:], strict=True))

    @property
    def report(self) -> dict[str, Any]:
        """`Splits.report`, how many answers of each part are ``used``, their ``hashes`` (`label_set_hash`), and whether
        the test is ``cross_fitted``.
        """
        used = {name: len(part) for name, part in self.used.items()}
        hashes = {name: label_set_hash(part) for name, part in self.used.items() if part}
        return self.splits.report | {"used": used, "hashes": hashes, "cross_fitted": self.cross_fitted}

    @property
    def cross_fitted(self) -> bool:
        """Whether there are too few labels for a test part, so that every answer is judged by what others taught."""
        return not self.test

    @property
    def sentence(self) -> str:
        """The line a study begins with."""
        text = "Labels: " + " · ".join(
            f"{name} {counted(len(part), 'answer')} ({sum(bool(e.label) for e in part)} faithful, "
            f"{counted(len({e.context_key for e in part}), 'context')})"
            for name, part in self.used.items()
            if part
        )
        if self.cross_fitted:
            return f"{text}. Too few for a test part: agreement will be cross-fitted"
        own = sorted({e.split for part in self.splits[:3] for e in part if e.split})
        if own and not self.splits.report["fixed"]:
            text += f". Split by context: the file's own split ({', '.join(own[:3])}) is not train, dev and test"
        return text


def read_parts(labels: Any, test: Any, sizes: Sequence[int], words: int, seed: int) -> Parts:
    """Read and split labels, or take the test from labels of its own; `InputError` when they cannot be used.

    ``labels`` and ``test``: as `faith_dspy.io.labels.read_labels` takes them.
    ``sizes``: answers of train, dev and test that are used at most; ``words``: words of each part at most.
    """
    examples = read_labels(labels)
    if test is None:
        splits = split(examples, seed=seed)
        tested: Sequence[LabelledExample] = splits.test
    else:
        splits = split_train_dev(examples, seed=seed)
        tested = read_labels(test)
        check_leakage(examples, tested)
        check_labels(tested, name_of(test))
    if not splits.train:  # dev holds all there is
        sizes, words = (sizes[0], sum(sizes), sizes[2]), len(sizes) * words
    parts = zip((splits.train, splits.dev, tested), sizes, strict=True)
    return Parts(splits, *(sample(part, n, words, seed) for part, n in parts))


def sample(part: Sequence[LabelledExample], n: int, words: int, seed: int) -> list[LabelledExample]:
    """At most ``n`` examples and ``words`` words, context by context in an order that ``seed`` fixes.

    A context's words count once, an answer's words each time. Either limit gives way until both labels occur in
    `MIN_GROUPS` groups each, as far as there are so many: a classifier cannot be cross-fitted on less.
    """
    keys = sorted({e.context_key for e in part})
    random.Random(seed).shuffle(keys)
    place = {k: i for i, k in enumerate(keys)}
    out: list[LabelledExample] = []
    read: set[str] = set()
    for e in sorted(part, key=lambda e: (place[e.context_key], e.id)):
        fewest = min(len({o.group_key for o in out if o.label is label}) for label in (True, False))
        if (len(out) >= n or words <= 0) and fewest >= MIN_GROUPS:
            break
        if e.context_key not in read:
            read.add(e.context_key)
            words -= sum(len(c.text.split()) for c in e.context)
        words -= len(e.answer.split())
        out.append(e)
    return out
