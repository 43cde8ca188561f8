"""Grouped train/dev/test: what shares a source never sits on two sides of a measurement."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from faith_dspy.errors import InputError
from faith_dspy.scoring.statistics import need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faith_dspy.schema import LabelledExample

PARTS = ("train", "dev", "test")
MIN_PER_CLASS = 8
MIN_GROUPS = 6
NEAR_SAME = 0.9  # cosine of two contexts' TF-IDF vectors (words and word pairs)
LONG_ANSWER = 60  # normalised characters; a longer answer that occurs twice is a copy, a shorter one a stock reply

_FOLDS, _TRIES, _ROWS = 20, 400, 512
# One token a word; one a character where words are not spaced (Chinese, Japanese).
_TOKEN = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"

Reason = Literal["same group", "same context", "near-same context", "same answer"]


class Leak(NamedTuple):
    """A test example whose source the judge could have seen while it was tuned."""

    tuning_id: str
    test_id: str
    reason: Reason


class PartReport(BaseModel):
    """What one part holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n: int
    faithful_share: float
    groups: int
    contexts: int


class SplitReport(BaseModel):
    """How the labels were split."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parts: dict[str, PartReport]
    fixed: bool
    """Whether the labels file fixed the parts itself."""
    groups: int
    unlabelled: int
    """Examples without a label, in no part."""
    seed: int


class Splits(NamedTuple):
    """Labelled examples in parts, each in the order of the input."""

    train: tuple[LabelledExample, ...]
    dev: tuple[LabelledExample, ...]
    test: tuple[LabelledExample, ...]
    """Empty when the test set is a file of its own."""
    report: SplitReport


def split(
    examples: Sequence[LabelledExample], *, seed: int = 0, shares: tuple[float, float, float] = (0.40, 0.25, 0.35)
) -> Splits:
    """Split into train, dev and test by group, both classes in each.

    When train, dev and test all occur in `LabelledExample.split`, those parts are taken, after a check for leaks.
    Otherwise `split` is ignored and groups are formed: examples with the same `group`, the same or a near-same context
    (`NEAR_SAME`), or the same long answer, and whatever they are joined to through others. Groups go into stratified
    folds (`StratifiedGroupKFold`), whole folds into parts so that sizes come as near to `shares` as they can. Where a
    group goes depends on its content and `seed`, not on the order of the lines. `InputError` with fewer than 8 examples
    of a class or 6 groups, when no split has both classes in each part, and when fixed parts leak or leave one out.
    """
    labelled = [e for e in examples if e.label is not None]
    if not set(PARTS) <= {e.split for e in labelled}:
        return _by_group(examples, seed, dict(zip(PARTS, shares, strict=True)))
    if odd := [e for e in labelled if e.split not in PARTS]:
        got = f"{len(odd)} examples beside fixed train, dev and test, such as {odd[0].id!r} with {odd[0].split!r}"
        raise InputError(f"got split in {got}; expected one of the three in each, or none to split them by group")
    train, dev, test = (tuple(e for e in labelled if e.split == p) for p in PARTS)
    check_leakage(train, dev)
    check_leakage([*train, *dev], test)
    place = [PARTS.index(str(e.split)) for e in labelled]
    return _splits(examples, place, group_ids(labelled), seed, fixed=True)


def split_train_dev(examples: Sequence[LabelledExample], *, seed: int = 0) -> Splits:
    """As `split`, into train and dev alone (8 : 5), for a test set in a file of its own; see `check_leakage`."""
    return _by_group(examples, seed, {"train": 0.40, "dev": 0.25})


def find_leaks(tuning: Sequence[LabelledExample], test: Sequence[LabelledExample]) -> list[Leak]:
    """One leak for each test example that shares a group, a context (or nearly) or a long answer with `tuning`."""
    both = [*tuning, *test]
    leaks: dict[int, Leak] = {}
    for reason, members in _shared(both):
        seen = [i for i in members if i < len(tuning)]
        for i in (i for i in members if seen and i >= len(tuning)):
            leaks.setdefault(i, Leak(both[seen[0]].id, both[i].id, reason))
    return [leaks[i] for i in sorted(leaks)]


def check_leakage(tuning: Sequence[LabelledExample], test: Sequence[LabelledExample]) -> None:
    """`InputError` naming the first leaks between what tunes a judge and what tests it, if there are any."""
    if leaks := find_leaks(tuning, test):
        first = "; ".join(f"{k.test_id!r} and {k.tuning_id!r} ({k.reason})" for k in leaks[:5])
        raise InputError(
            f"got {len(leaks)} of {len(test)} test examples that share a source with the ones tuned on, expected none: "
            f"{first}{'; …' * (len(leaks) > 5)}. Remove them from one side, or have one file split by group"
        )


def group_ids(examples: Sequence[LabelledExample]) -> list[int]:
    """The group of each example: connected components of whatever shares a source, numbered by content, not order."""
    csgraph, sparse = need("scipy.sparse.csgraph", "Splitting labels"), need("scipy.sparse", "Splitting labels")
    edges = [(members[0], i) for _, members in _shared(examples) for i in members[1:]]
    rows, cols = zip(*edges, strict=True) if edges else ((), ())
    graph = sparse.coo_matrix(([True] * len(edges), (rows, cols)), shape=(len(examples), len(examples)))
    component = csgraph.connected_components(graph, directed=False)[1].tolist()
    names = [f"{e.context_key} {_plain(e.answer)} {e.id}" for e in examples]
    by_name = [c for _, c in sorted(zip(names, component, strict=True))]
    rank = {c: r for r, c in enumerate(dict.fromkeys(by_name))}
    return [rank[c] for c in component]


def _plain(answer: str) -> str:
    return " ".join(re.findall(r"\w+", answer.casefold()))


def _shared(examples: Sequence[LabelledExample]) -> Iterator[tuple[Reason, list[int]]]:
    """Positions of examples that share a source, with what they share."""
    kinds: dict[Reason, dict[str, list[int]]] = {"same group": {}, "same context": {}, "same answer": {}}
    texts: dict[str, str] = {}
    for i, e in enumerate(examples):
        if e.group is not None:
            kinds["same group"].setdefault(e.group, []).append(i)
        if any(c.text.strip() for c in e.context):  # answers without a context have none in common
            kinds["same context"].setdefault(e.context_key, []).append(i)
            texts.setdefault(e.context_key, "\n".join(c.text for c in e.context))
        if len(answer := _plain(e.answer)) > LONG_ANSWER:
            kinds["same answer"].setdefault(answer, []).append(i)
    for reason, found in kinds.items():
        yield from ((reason, members) for members in found.values() if len(members) > 1)
    keys, contexts = list(texts), kinds["same context"]
    for a, b in _near_same(list(texts.values())):
        yield "near-same context", sorted(contexts[keys[a]] + contexts[keys[b]])


def _near_same(texts: list[str]) -> Iterator[tuple[int, int]]:
    """Pairs of texts whose TF-IDF cosine is at least `NEAR_SAME`.

    Exact and sparse, by prefix filtering (Bayardo, Ma & Srikant 2007, *Scaling up all pairs similarity search*): of
    each unit vector take the rarest features until the rest is shorter than `NEAR_SAME`; a near-same text has one too.
    """
    text = need("sklearn.feature_extraction.text", "RawVerdict near-same contexts")
    import numpy as np

    if len(texts) < 2:
        return
    words = text.HashingVectorizer(ngram_range=(1, 2), token_pattern=_TOKEN, n_features=2**22, norm=None)
    x = text.TfidfTransformer().fit_transform(words.transform(texts)).tocsr()
    common = np.bincount(x.indices, minlength=x.shape[1])
    prefix = x.copy()
    for i in range(x.shape[0]):
        row = slice(x.indptr[i], x.indptr[i + 1])
        order = np.argsort(common[x.indices[row]], kind="stable")
        before = np.cumsum(x.data[row][order] ** 2) - x.data[row][order] ** 2
        prefix.data[row][order[1 - before < (NEAR_SAME - 1e-6) ** 2]] = 0
    prefix.data[common[prefix.indices] == 1] = 0  # what no other text has finds no partner
    prefix.eliminate_zeros()
    columns = x.T.tocsr()
    for start in range(0, x.shape[0], _ROWS):
        candidates = (prefix[start : start + _ROWS] @ columns).tocoo()
        keep = candidates.row + start != candidates.col
        rows, cols = np.unique(candidates.row[keep]), np.unique(candidates.col[keep])
        if len(rows):
            near = (x[start + rows] @ columns[:, cols]).tocoo()
            a, b = start + rows[near.row], cols[near.col]
            keep = (near.data >= NEAR_SAME) & (a < b)
            yield from zip(a[keep].tolist(), b[keep].tolist(), strict=True)


def _by_group(examples: Sequence[LabelledExample], seed: int, shares: dict[str, float]) -> Splits:
    np, selection = need("numpy", "Splitting labels"), need("sklearn.model_selection", "Splitting labels")
    labelled = [e for e in examples if e.label is not None]
    groups = group_ids(labelled)
    y = np.array([bool(e.label) for e in labelled], dtype=bool)
    n_groups, n_good, n_bad = len(set(groups)), int(y.sum()), int((~y).sum())
    got = f"got {n_groups} groups with {n_good} faithful and {n_bad} unfaithful examples"
    if n_groups < MIN_GROUPS or min(n_good, n_bad) < MIN_PER_CLASS:
        raise InputError(
            f"{got}, expected at least {MIN_GROUPS} groups and {MIN_PER_CLASS} of each class: label answers over more "
            "contexts (answers over one context are one group), and more of the rarer class"
        )
    order = np.lexsort((y, groups))
    folds = selection.StratifiedGroupKFold(min(_FOLDS, n_groups, max(n_good, n_bad)), shuffle=True, random_state=seed)
    fold = np.empty(len(y), dtype=int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fewer of a class than folds: whole folds are joined below
        for f, (_, held) in enumerate(folds.split(y, y[order], np.array(groups)[order])):
            fold[order[held]] = f
    counts = np.array([[(y & (fold == f)).sum(), (~y & (fold == f)).sum()] for f in range(folds.get_n_splits())])
    target = np.array(list(shares.values())) / sum(shares.values())
    best, place = np.inf, None
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        shuffled = rng.permutation(len(counts))
        filled = np.cumsum(counts[shuffled].sum(axis=1)) - counts[shuffled].sum(axis=1) / 2
        # The last parts are filled first: a fold belongs where its middle falls.
        part = np.empty(len(counts), dtype=int)
        part[shuffled] = len(target) - 1 - np.searchsorted(np.cumsum(target[::-1])[:-1] * len(y), filled)
        held = np.array([counts[part == k].sum(axis=0) for k in range(len(target))])
        off = np.abs(held / counts.sum(axis=0) - target[:, None]).sum()
        if held.min() > 0 and off < best - 1e-12:
            best, place = off, part
    if place is None:
        why = f"no way to have both classes in each of {', '.join(shares)}: one class sits in too few groups"
        raise InputError(f"{got}, but found {why}. Label answers of that class over more contexts")
    return _splits(examples, place[fold].tolist(), groups, seed, fixed=False)


def _splits(examples: Sequence[LabelledExample], place: list[int], groups: list[int], seed: int, fixed: bool) -> Splits:
    rows = list(zip((e for e in examples if e.label is not None), place, groups, strict=True))
    held = [tuple(e for e, k, _ in rows if k == i) for i in range(len(PARTS))]
    reports = {
        part: PartReport(
            n=len(held[i]),
            faithful_share=sum(e.label is True for e in held[i]) / len(held[i]),
            groups=len({g for _, k, g in rows if k == i}),
            contexts=len({e.context_key for e in held[i]}),
        )
        for i, part in enumerate(PARTS)
        if held[i]
    }
    counts = {"groups": len(set(groups)), "unlabelled": len(examples) - len(rows)}
    return Splits(held[0], held[1], held[2], SplitReport(parts=reports, fixed=fixed, seed=seed, **counts))
