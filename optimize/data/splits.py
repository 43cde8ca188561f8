"""The answers of a study: the sources they share, pool and test by source, and a sample of each part."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from faith_dspy.errors import InputError, counted, need
from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.io.readers import name_of
from faith_dspy.schema import LabelledExample

SHARES = {"pool": 0.65, "test": 0.35}
PARTS = tuple(SHARES)
_FIXED = {"train": "pool", "dev": "pool", "pool": "pool", "test": "test"}
"""The part that an example's own ``split`` puts it into."""
PER_PART = 2
"""Sources of each label that a part has at least: one with a single source can be neither cross-fitted nor measured."""
MIN_PER_CLASS = 8
"""With fewer answers of a label there is no test part."""
MIN_LABELS = 10
MIN_SOURCES = 3
"""With fewer labels, or a label in fewer sources, nothing can be fitted and judged by cross-fitting either."""

NEAR_SAME = 0.9
"""Contexts whose TF-IDF vectors (words and word pairs) have at least this cosine count as one source."""
LONG_ANSWER = 60
"""Normalised characters. A longer answer that occurs twice is a copy; a shorter one may be a stock reply."""
# One token a word; one a character where words are not spaced (Chinese, Japanese).
_TOKEN = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"

Reason = Literal["same group", "same context", "near-same context", "same answer"]


class Splits(NamedTuple):
    """Labelled examples in parts, each in the order of the input; `LabelledExample.group` is their source."""

    pool: tuple[LabelledExample, ...]
    test: tuple[LabelledExample, ...]
    """Empty when the testset is a file of its own, and where labels are too few: then all of them are in ``pool``."""
    report: dict[str, Any]
    """As JSON: ``parts`` (of each ``n, faithful_share, groups, contexts``), whether they were ``fixed`` by the labels
    file itself, ``groups``, ``unlabelled`` (examples without a label, in no part) and ``seed``."""


class Parts(NamedTuple):
    """A study's labels: as they were split, and the answers of each part that are used."""

    splits: Splits
    pool: list[LabelledExample]
    """What is tuned on, cross-fitted."""
    test: list[LabelledExample]

    @property
    def report(self) -> dict[str, Any]:
        """`Splits.report`, how many answers of each part are ``used``, their ``hashes`` (`label_set_hash`), and whether
        the test is ``cross_fitted``."""
        parts = {"pool": self.pool, "test": self.test}
        used = {name: len(part) for name, part in parts.items()}
        hashes = {name: label_set_hash(part) for name, part in parts.items() if part}
        return self.splits.report | {
            "used": used,
            "hashes": hashes,
            "cross_fitted": self.cross_fitted,
        }

    @property
    def cross_fitted(self) -> bool:
        """Whether there are too few labels for a test part, so that every answer is judged by what others taught."""
        return not self.test

    @property
    def sentence(self) -> str:
        """The line a study begins with."""
        parts = {"pool": self.pool, "test": self.test}
        text = "Labels: " + " · ".join(
            f"{name} {_described(part)}" for name, part in parts.items() if part
        )
        if self.cross_fitted:
            return f"{text}. Too few for a test part: agreement will be cross-fitted"
        own = sorted({e.split for part in self.splits[:2] for e in part if e.split})
        if own and not self.splits.report["fixed"]:
            text += f". Split by source: the file's own split ({', '.join(own[:3])}) has no test beside train or dev"
        return text


def _described(part: Sequence[LabelledExample]) -> str:
    faithful = sum(bool(e.label) for e in part)
    sources = len({e.group_key for e in part})
    return f"{counted(len(part), 'answer')} ({faithful} faithful, {counted(sources, 'source')})"


def read_parts(
    labels: Any, test: Any, sizes: Sequence[int], words: int, seed: int
) -> Parts:
    """Read and split labels (`read_labels`), or take the test from labels of its own.

    ``sizes``: answers of pool and test that are used at most; ``words``: words of each part at most.
    """
    examples = read_labels(labels)
    if test is None:
        splits = split(examples, seed=seed)
        tested: Sequence[LabelledExample] = splits.test
    else:
        tested = read_labels(test)
        check_leakage(examples, tested)
        tested = with_sources(tested)
        _check_part(tested, name_of(test))
        splits = split(examples, seed=seed, parts=("pool",))
    return Parts(
        splits,
        sample(splits.pool, sizes[0], words, seed),
        sample(tested, sizes[1], words, seed),
    )


def sample(
    part: Sequence[LabelledExample], n: int, words: int, seed: int
) -> list[LabelledExample]:
    """At most ``n`` examples and ``words`` words: one of each source before the second of any, in an order that
    ``seed`` fixes.

    A context's words count once, an answer's words each time. Either limit gives way until both labels occur in
    `MIN_SOURCES` sources each, as far as there are so many: a classifier cannot be cross-fitted on less.
    """
    taken: list[LabelledExample] = []
    read: set[str] = set()
    sources: dict[bool, set[str]] = {True: set(), False: set()}
    for e in _sources_in_turn(part, seed):
        enough = min(map(len, sources.values())) >= MIN_SOURCES
        if enough and (len(taken) >= n or words <= 0):
            break
        if e.context_key not in read:
            read.add(e.context_key)
            words -= sum(len(c.text.split()) for c in e.context)
        words -= len(e.answer.split())
        sources[bool(e.label)].add(e.group_key)
        taken.append(e)
    return taken


def _sources_in_turn(
    part: Sequence[LabelledExample], seed: int
) -> Iterator[LabelledExample]:
    """All examples: the first of each source, then the second of each, and so on."""
    by_source: defaultdict[str, list[LabelledExample]] = defaultdict(list)
    for e in sorted(part, key=lambda e: e.id):
        by_source[e.group_key].append(e)
    rng = random.Random(seed)
    order = [by_source[source] for source in sorted(by_source)]
    rng.shuffle(order)
    for members in order:
        rng.shuffle(members)
    for turn in zip_longest(*order):
        yield from (e for e in turn if e is not None)


def split(
    examples: Sequence[LabelledExample], *, seed: int = 0, parts: Sequence[str] = PARTS
) -> Splits:
    """Split into pool and test by source, and write each example's source into its ``group``.

    When `LabelledExample.split` names a test beside train or dev, those parts are taken, after a check for leaks.
    Otherwise `deal` divides the sources (`with_sources`) by `SHARES`. ``parts``: the pool alone when the testset is a
    file of its own. Each part has both labels, each in `PER_PART` sources; where there are too few sources for that, or
    fewer than `MIN_PER_CLASS` answers of a label, all examples are in the pool.
    """
    labelled = with_sources([e for e in examples if e.label is not None])
    labels, sources = [bool(e.label) for e in labelled], [e.group_key for e in labelled]
    own = {e.split for e in labelled}
    fixed = (
        len(parts) > 1
        and "test" in own
        and not own.isdisjoint({"train", "dev", "pool"})
    )
    if fixed:
        part_of = _fixed_parts(labelled)
    else:
        _check_enough(labels, sources)
        part_of = ["pool"] * len(labelled)
        wide = min(_spread(labels, sources)) >= PER_PART * len(parts)
        if wide and min(Counter(labels).values()) >= MIN_PER_CLASS:
            dealt = deal(labels, sources, [SHARES[p] for p in parts], PER_PART, seed)
            part_of = [parts[k] for k in dealt]
    held = {
        p: tuple(e for e, part in zip(labelled, part_of, strict=True) if part == p)
        for p in PARTS
    }
    report = {
        "parts": {p: _counts(examples) for p, examples in held.items() if examples},
        "fixed": fixed,
        "groups": len(set(sources)),
        "unlabelled": len(examples) - len(labelled),
        "seed": seed,
    }
    return Splits(held["pool"], held["test"], report)


def _check_enough(labels: Sequence[bool], sources: Sequence[str]) -> None:
    """`InputError` where the labels are too few to be tuned on."""
    if len(labels) < MIN_LABELS or min(_spread(labels, sources)) < MIN_SOURCES:
        faithful = sum(labels)
        raise InputError(
            f"got {counted(len(set(sources)), 'source')} with {faithful} faithful and "
            f"{counted(len(labels) - faithful, 'unfaithful example')}, expected at least {MIN_LABELS} examples, and "
            f"each label in {MIN_SOURCES} sources: label answers over more contexts (those over one context share a "
            "source), and more of the rarer label"
        )


def deal(
    labels: Sequence[bool],
    sources: Sequence[str],
    shares: Sequence[float],
    least: int,
    seed: int,
) -> list[int]:
    """The part of each example: whole sources, both labels of each near its share, and in ``least`` sources of a part.

    First each part gets the sources it needs, small ones, of the rarer label first; then each of the others goes, the
    largest first, where most is missing. Both labels must be in ``least · parts`` sources. Where a source goes depends
    on its name and ``seed``, not on the order of the examples.
    """
    size: defaultdict[str, Counter[bool]] = defaultdict(Counter)
    for label, source in zip(labels, sources, strict=True):
        size[source][label] += 1
    order = sorted(size)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda s: size[s].total())
    total = Counter(labels)
    dealt: dict[str, int] = {}
    given = [Counter[bool]() for _ in shares]

    def missing(part: int, source: str) -> float:
        """The part's share of what is dealt out that it has not got, by the labels of this source."""
        return sum(
            n
            * (shares[part] / sum(shares) - given[part][label] / total[label])
            / total[label]
            for label, n in size[source].items()
        )

    def give(source: str, part: int) -> None:
        dealt[source] = part
        given[part].update(size[source])

    for label in sorted(
        (True, False), key=lambda label: sum(label in size[s] for s in order)
    ):
        for part in [*range(len(shares))] * least:
            having = sum(label in size[s] for s, p in dealt.items() if p == part)
            if having < least:
                give(
                    next(s for s in order if s not in dealt and label in size[s]), part
                )
    for source in reversed([s for s in order if s not in dealt]):
        give(source, max(range(len(shares)), key=lambda part: missing(part, source)))
    return [dealt[s] for s in sources]


def with_sources(examples: Sequence[LabelledExample]) -> list[LabelledExample]:
    """The same examples with their source as `LabelledExample.group`, wherever `group_key` is not just that.

    A source is all that is joined, one through the other, by the same `group`, the same or a near-same context
    (`NEAR_SAME`), or the same long answer; it is named by its content.
    """
    csgraph, sparse = (
        need("scipy.sparse.csgraph", "Splitting labels"),
        need("scipy.sparse", "Splitting labels"),
    )
    edges = [
        (members[0], i) for _, members in _shared_sources(examples) for i in members[1:]
    ]
    rows, cols = zip(*edges, strict=True) if edges else ((), ())
    graph = sparse.coo_matrix(
        ([True] * len(edges), (rows, cols)), shape=(len(examples), len(examples))
    )
    component = csgraph.connected_components(graph, directed=False)[1].tolist()
    own = [
        e.group_key if e.group or _has_context(e) else f"{e.group_key} {e.id}"
        for e in examples
    ]
    names: dict[int, str] = {}
    for c, name in zip(component, own, strict=True):
        names[c] = min(name, names.get(c, name))
    sources = [names[c] for c in component]
    return [
        e if e.group_key == source else e.model_copy(update={"group": source})
        for e, source in zip(examples, sources, strict=True)
    ]


def _fixed_parts(labelled: Sequence[LabelledExample]) -> list[str]:
    """The part that the labels file says of each; `InputError` when one has none, leaks, or has too few sources."""
    if odd := [e for e in labelled if e.split not in _FIXED]:
        got = f"{counted(len(odd), 'example')} beside train, dev and test, such as {odd[0].id!r} with {odd[0].split!r}"
        raise InputError(
            f"got split in {got}; expected one of the three in each, or none to split them by source"
        )
    part_of = [_FIXED[str(e.split)] for e in labelled]
    pool, test = (
        [e for e, part in zip(labelled, part_of, strict=True) if part == name]
        for name in PARTS
    )
    _check_part(pool, "split train and dev", PER_PART)
    _check_part(test, "split test")
    check_leakage(pool, test)
    return part_of


def _check_part(part: Sequence[LabelledExample], name: str, least: int = 1) -> None:
    """`InputError` unless each label is in so many sources: on less nothing can be fitted, or measured."""
    if (
        min(
            spread := _spread(
                [bool(e.label) for e in part], [e.group_key for e in part]
            )
        )
        < least
    ):
        raise InputError(
            f"{name}: faithful answers over {counted(spread[0], 'source')}, unfaithful ones over {spread[1]}; "
            f"expected at least {least} of each"
        )


def _spread(labels: Sequence[bool], sources: Sequence[str]) -> list[int]:
    """Sources with a faithful answer, and with an unfaithful one."""
    both = set(zip(labels, sources, strict=True))
    return [sum(label is want for label, _ in both) for want in (True, False)]


def _counts(part: Sequence[LabelledExample]) -> dict[str, Any]:
    return {
        "n": len(part),
        "faithful_share": sum(bool(e.label) for e in part) / len(part),
        "groups": len({e.group_key for e in part}),
        "contexts": len({e.context_key for e in part}),
    }


def check_leakage(
    tuning: Sequence[LabelledExample], test: Sequence[LabelledExample]
) -> None:
    """`InputError` naming the first test examples that share a group, a context (or nearly) or a long answer with what
    tunes a judge, if there are any."""
    both = [*tuning, *test]
    leaks: dict[int, str] = {}
    for reason, members in _shared_sources(both):
        seen = [i for i in members if i < len(tuning)]
        for i in (i for i in members if seen and i >= len(tuning)):
            leaks.setdefault(i, f"{both[i].id!r} and {both[seen[0]].id!r} ({reason})")
    if leaks:
        first = "; ".join(leaks[i] for i in sorted(leaks)[:5])
        raise InputError(
            f"got {len(leaks)} of {len(test)} test examples that share a source with the ones tuned on, expected none: "
            f"{first}{'; …' * (len(leaks) > 5)}. Remove them from one side, or have one file split by group"
        )


def near_same(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs (i < j) of texts whose TF-IDF cosine is at least `NEAR_SAME`. Compares all pairs, block by block."""
    text = need("sklearn.feature_extraction.text", "Finding near-same contexts")
    neighbors = need("sklearn.neighbors", "Finding near-same contexts")
    if len(texts) < 2:
        return []
    vectors = text.TfidfVectorizer(
        ngram_range=(1, 2), token_pattern=_TOKEN
    ).fit_transform(texts)
    graph = neighbors.radius_neighbors_graph(
        vectors, radius=1 - NEAR_SAME + 1e-12, metric="cosine"
    ).tocoo()
    return sorted(
        (i, j)
        for i, j in zip(graph.row.tolist(), graph.col.tolist(), strict=True)
        if i < j
    )


def _shared_sources(
    examples: Sequence[LabelledExample],
) -> Iterator[tuple[Reason, list[int]]]:
    """Positions of examples that share a source, with the kind of source."""
    kinds: dict[Reason, dict[str, list[int]]] = {
        "same group": {},
        "same context": {},
        "same answer": {},
    }
    texts: dict[str, str] = {}
    for i, e in enumerate(examples):
        if e.group is not None:
            kinds["same group"].setdefault(e.group, []).append(i)
        if _has_context(e):  # answers without a context have none in common
            kinds["same context"].setdefault(e.context_key, []).append(i)
            texts.setdefault(e.context_key, "\n".join(c.text for c in e.context))
        if (
            len(answer := " ".join(re.findall(r"\w+", e.answer.casefold())))
            > LONG_ANSWER
        ):
            kinds["same answer"].setdefault(answer, []).append(i)
    for reason, found in kinds.items():
        yield from ((reason, members) for members in found.values() if len(members) > 1)
    keys, contexts = list(texts), kinds["same context"]
    for a, b in near_same(list(texts.values())):
        yield "near-same context", sorted(contexts[keys[a]] + contexts[keys[b]])


def _has_context(e: LabelledExample) -> bool:
    return any(c.text.strip() for c in e.context)
