"""Grouped train, dev and test: answers that share a source never sit on two sides of a measurement."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import InputError, counted, need
from faith_dspy.optimize.data.sources import check_leakage, group_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.schema import LabelledExample

SHARES = {"train": 0.40, "dev": 0.25, "test": 0.35}
PARTS = tuple(SHARES)
MIN_PER_CLASS = 8
MIN_GROUPS = 6
"""With fewer answers of a class or fewer groups there is no test part: see `split`."""
MIN_LABELS = 10
MIN_GROUPS_PER_CLASS = 3
"""With fewer labels, or a class in fewer groups, nothing can be fitted and judged by cross-fitting either."""

_FOLDS, _TRIES = 20, 400


class Splits(NamedTuple):
    """Labelled examples in parts, each in the order of the input."""

    train: tuple[LabelledExample, ...]
    dev: tuple[LabelledExample, ...]
    test: tuple[LabelledExample, ...]
    """Empty when the testset is a file of its own, and where labels are too few: then all of them are in ``dev``."""
    report: dict[str, Any]
    """As JSON: ``parts`` (of each ``n, faithful_share, groups, contexts``), whether they were ``fixed`` by the labels
    file itself, ``groups``, ``unlabelled`` (examples without a label, in no part) and ``seed``."""


def split(examples: Sequence[LabelledExample], *, seed: int = 0) -> Splits:
    """Split into train, dev and test by group, both classes in each.

    When train, dev and test all occur in `LabelledExample.split`, those parts are taken, after a check for leaks.
    Otherwise `split` is ignored and groups are formed: examples with the same `group`, the same or a near-same context
    (`NEAR_SAME`), or the same long answer, and whatever they are joined to through others. Groups go into stratified
    folds (`StratifiedGroupKFold`), whole folds into parts so that sizes come as near to `SHARES` as they can. Where a
    group goes depends on its content and `seed`, not on the order of the lines.

    With fewer than 8 examples of a class or 6 groups, or when no split has both classes in each part, all examples are
    in ``dev``, to be cross-fitted. `InputError` with fewer than `MIN_LABELS` or with a class in fewer groups than
    `MIN_GROUPS_PER_CLASS`, and when fixed parts leak, leave one out or have one label alone.
    """
    labelled = [e for e in examples if e.label is not None]
    if not set(PARTS) <= {e.split for e in labelled}:
        return _split_by_group(examples, seed, SHARES)
    if odd := [e for e in labelled if e.split not in PARTS]:
        got = f"{counted(len(odd), 'example')} beside train, dev and test, such as {odd[0].id!r} with {odd[0].split!r}"
        raise InputError(f"got split in {got}; expected one of the three in each, or none to split them by group")
    train, dev, test = (tuple(e for e in labelled if e.split == p) for p in PARTS)
    for name, part in zip(PARTS, (train, dev, test), strict=True):
        check_labels(part, f"split {name!r}")
    check_leakage(train, dev)
    check_leakage([*train, *dev], test)
    part_of = [PARTS.index(str(e.split)) for e in labelled]
    return _splits(examples, part_of, group_ids(labelled), seed, fixed=True)


def check_labels(part: Sequence[LabelledExample], name: str) -> None:
    """`InputError` unless both labels occur: on one alone nothing can be fitted or measured."""
    if len({e.label for e in part}) < 2:
        raise InputError(f"{name}: {counted(len(part), 'answer')} of one label alone, expected both")


def split_train_dev(examples: Sequence[LabelledExample], *, seed: int = 0) -> Splits:
    """As `split`, into train and dev alone (8 : 5), for a testset in a file of its own; see `check_leakage`."""
    return _split_by_group(examples, seed, {part: SHARES[part] for part in PARTS[:2]})


def _split_by_group(examples: Sequence[LabelledExample], seed: int, shares: dict[str, float]) -> Splits:
    np, selection = need("numpy", "Splitting labels"), need("sklearn.model_selection", "Splitting labels")
    labelled = [e for e in examples if e.label is not None]
    groups = group_ids(labelled)
    y = np.array([bool(e.label) for e in labelled], dtype=bool)
    n_groups, n_good, n_bad = len(set(groups)), int(y.sum()), int((~y).sum())
    got = f"got {counted(n_groups, 'group')} with {n_good} faithful and {counted(n_bad, 'unfaithful example')}"
    per_class = [len({g for g, label in zip(groups, y, strict=True) if label == want}) for want in (True, False)]
    if len(y) < MIN_LABELS or min(per_class) < MIN_GROUPS_PER_CLASS:
        raise InputError(
            f"{got}, expected at least {MIN_LABELS} examples, and each class in {MIN_GROUPS_PER_CLASS} groups: label "
            "answers over more contexts (answers over one context are one group), and more of the rarer class"
        )
    if n_groups < MIN_GROUPS or min(n_good, n_bad) < MIN_PER_CLASS:
        return _splits(examples, [PARTS.index("dev")] * len(y), groups, seed, fixed=False)
    order = np.lexsort((y, groups))  # by content, so that the order of the lines does not matter
    folds = selection.StratifiedGroupKFold(min(_FOLDS, n_groups, max(n_good, n_bad)), shuffle=True, random_state=seed)
    fold = np.empty(len(y), dtype=int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fewer of a class than folds: whole folds are joined below
        for f, (_, held) in enumerate(folds.split(y, y[order], np.array(groups)[order])):
            fold[order[held]] = f
    counts = np.array([[(y & (fold == f)).sum(), (~y & (fold == f)).sum()] for f in range(folds.get_n_splits())])
    part_of_fold = _join_folds(counts, np.array(list(shares.values())) / sum(shares.values()), seed)
    if part_of_fold is None:
        return _splits(examples, [PARTS.index("dev")] * len(y), groups, seed, fixed=False)
    return _splits(examples, part_of_fold[fold].tolist(), groups, seed, fixed=False)


def _join_folds(counts: Any, shares: Any, seed: int) -> Any:
    """The part each fold goes to, shape (folds,): the best of `_TRIES` random orders, by distance from ``shares``.

    ``counts`` has shape (folds, 2), faithful and unfaithful; ``shares`` (parts,) sums to 1. None when no order puts
    both classes in each part.
    """
    import numpy as np

    n_parts, sizes = len(shares), counts.sum(axis=1)
    best, chosen = np.inf, None
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        shuffled = rng.permutation(len(counts))
        middle = np.cumsum(sizes[shuffled]) - sizes[shuffled] / 2
        # The last parts are filled first: a fold belongs where its middle falls.
        part = np.empty(len(counts), dtype=int)
        part[shuffled] = n_parts - 1 - np.searchsorted(np.cumsum(shares[::-1])[:-1] * sizes.sum(), middle)
        held = np.array([counts[part == k].sum(axis=0) for k in range(n_parts)])
        distance = np.abs(held / counts.sum(axis=0) - shares[:, None]).sum()
        if held.min() > 0 and distance < best - 1e-12:
            best, chosen = distance, part
    return chosen


def _splits(
    examples: Sequence[LabelledExample], part_of: list[int], groups: list[int], seed: int, fixed: bool
) -> Splits:
    rows = list(zip((e for e in examples if e.label is not None), part_of, groups, strict=True))
    held = [tuple(e for e, k, _ in rows if k == i) for i in range(len(PARTS))]
    parts = {
        part: {
            "n": len(held[i]),
            "faithful_share": sum(e.label is True for e in held[i]) / len(held[i]),
            "groups": len({g for _, k, g in rows if k == i}),
            "contexts": len({e.context_key for e in held[i]}),
        }
        for i, part in enumerate(PARTS)
        if held[i]
    }
    counts = {"groups": len(set(groups)), "unlabelled": len(examples) - len(rows)}
    return Splits(held[0], held[1], held[2], {"parts": parts, "fixed": fixed, **counts, "seed": seed})
