"""The answers of a study: the sources they share, train, dev and test by source, and a sample of each part."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from faith_dspy.errors import InputError, counted, need
from faith_dspy.io.labels import label_set_hash, name_of, read_labels
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

GROUPS_TO_FIT = 3
"""Groups in which each label occurs at least, in every part that is judged."""

NEAR_SAME = 0.9
"""Contexts whose TF-IDF vectors (words and word pairs) have at least this cosine count as one source."""
LONG_ANSWER = 60
"""Normalised characters. A longer answer that occurs twice is a copy; a shorter one may be a stock reply."""

# One token a word; one a character where words are not spaced (Chinese, Japanese).
_TOKEN = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"

Reason = Literal["same group", "same context", "near-same context", "same answer"]


class Splits(NamedTuple):
    """Labelled examples in parts, each in the order of the input."""

    train: tuple[LabelledExample, ...]
    dev: tuple[LabelledExample, ...]
    test: tuple[LabelledExample, ...]
    """Empty when the testset is a file of its own, and where labels are too few: then all of them are in ``dev``."""
    report: dict[str, Any]
    """As JSON: ``parts`` (of each ``n, faithful_share, groups, contexts``), whether they were ``fixed`` by the labels
    file itself, ``groups``, ``unlabelled`` (examples without a label, in no part) and ``seed``."""


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
    `GROUPS_TO_FIT` groups each, as far as there are so many: a classifier cannot be cross-fitted on less.
    """
    keys = sorted({e.context_key for e in part})
    random.Random(seed).shuffle(keys)
    place = {k: i for i, k in enumerate(keys)}
    out: list[LabelledExample] = []
    read: set[str] = set()
    for e in sorted(part, key=lambda e: (place[e.context_key], e.id)):
        fewest = min(len({o.group_key for o in out if o.label is label}) for label in (True, False))
        if (len(out) >= n or words <= 0) and fewest >= GROUPS_TO_FIT:
            break
        if e.context_key not in read:
            read.add(e.context_key)
            words -= sum(len(c.text.split()) for c in e.context)
        words -= len(e.answer.split())
        out.append(e)
    return out


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


def find_leaks(tuning: Sequence[LabelledExample], test: Sequence[LabelledExample]) -> dict[str, tuple[str, Reason]]:
    """By id, each test example that shares a group, a context (or nearly) or a long answer with `tuning`.

    The value is the id of the first it shares it with, and what it shares.
    """
    both = [*tuning, *test]
    leaks: dict[int, tuple[str, Reason]] = {}
    for reason, members in _shared_sources(both):
        seen = [i for i in members if i < len(tuning)]
        for i in (i for i in members if seen and i >= len(tuning)):
            leaks.setdefault(i, (both[seen[0]].id, reason))
    return {both[i].id: leaks[i] for i in sorted(leaks)}


def check_leakage(tuning: Sequence[LabelledExample], test: Sequence[LabelledExample]) -> None:
    """Raise `InputError` naming the first leaks between what tunes a judge and what tests it, if there are any."""
    if leaks := find_leaks(tuning, test):
        first = "; ".join(f"{new!r} and {old!r} ({reason})" for new, (old, reason) in [*leaks.items()][:5])
        raise InputError(
            f"got {len(leaks)} of {len(test)} test examples that share a source with the ones tuned on, expected none: "
            f"{first}{'; …' * (len(leaks) > 5)}. Remove them from one side, or have one file split by group"
        )


def group_ids(examples: Sequence[LabelledExample]) -> list[int]:
    """The group of each example: connected components of what shares a source, numbered by content."""
    csgraph, sparse = need("scipy.sparse.csgraph", "Splitting labels"), need("scipy.sparse", "Splitting labels")
    edges = [(members[0], i) for _, members in _shared_sources(examples) for i in members[1:]]
    rows, cols = zip(*edges, strict=True) if edges else ((), ())
    graph = sparse.coo_matrix(([True] * len(edges), (rows, cols)), shape=(len(examples), len(examples)))
    component = csgraph.connected_components(graph, directed=False)[1].tolist()
    names = [f"{e.context_key} {_normalised(e.answer)} {e.id}" for e in examples]
    by_name = [c for _, c in sorted(zip(names, component, strict=True))]
    rank = {c: r for r, c in enumerate(dict.fromkeys(by_name))}
    return [rank[c] for c in component]


def near_same(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (i < j) of texts whose TF-IDF cosine is at least `NEAR_SAME`. Compares all pairs, block by block."""
    text = need("sklearn.feature_extraction.text", "Finding near-same contexts")
    neighbors = need("sklearn.neighbors", "Finding near-same contexts")
    if len(texts) < 2:
        return []
    vectors = text.TfidfVectorizer(ngram_range=(1, 2), token_pattern=_TOKEN).fit_transform(texts)
    graph = neighbors.radius_neighbors_graph(vectors, radius=1 - NEAR_SAME + 1e-12, metric="cosine").tocoo()
    return sorted((i, j) for i, j in zip(graph.row.tolist(), graph.col.tolist(), strict=True) if i < j)


def _shared_sources(examples: Sequence[LabelledExample]) -> Iterator[tuple[Reason, list[int]]]:
    """Positions of examples that share a source, with the kind of source."""
    kinds: dict[Reason, dict[str, list[int]]] = {"same group": {}, "same context": {}, "same answer": {}}
    texts: dict[str, str] = {}
    for i, e in enumerate(examples):
        if e.group is not None:
            kinds["same group"].setdefault(e.group, []).append(i)
        if any(c.text.strip() for c in e.context):  # answers without a context have none in common
            kinds["same context"].setdefault(e.context_key, []).append(i)
            texts.setdefault(e.context_key, "\n".join(c.text for c in e.context))
        if len(answer := _normalised(e.answer)) > LONG_ANSWER:
            kinds["same answer"].setdefault(answer, []).append(i)
    for reason, found in kinds.items():
        yield from ((reason, members) for members in found.values() if len(members) > 1)
    keys, contexts = list(texts), kinds["same context"]
    for a, b in near_same(list(texts.values())):
        yield "near-same context", sorted(contexts[keys[a]] + contexts[keys[b]])


def _normalised(answer: str) -> str:
    return " ".join(re.findall(r"\w+", answer.casefold()))
