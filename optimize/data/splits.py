"""The answers of a study: the sources they share, train, dev and test by source, and a sample of each part."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from faith_dspy.errors import InputError, counted, need
from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.io.readers import name_of
from faith_dspy.schema import LabelledExample

SHARES = {"train": 0.40, "dev": 0.25, "test": 0.35}
PARTS = tuple(SHARES)
PER_PART = 2
"""Sources of each label that every part has at least: a part with one can be neither cross-fitted nor measured."""
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
    def report(self) -> dict[str, Any]:
        """`Splits.report`, how many answers of each part are ``used``, their ``hashes`` (`label_set_hash`), and whether
        the test is ``cross_fitted``."""
        parts = dict(zip(PARTS, self[1:], strict=True))
        used = {name: len(part) for name, part in parts.items()}
        hashes = {name: label_set_hash(part) for name, part in parts.items() if part}
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
            f"{counted(len({e.group_key for e in part}), 'source')})"
            for name, part in zip(PARTS, self[1:], strict=True)
            if part
        )
        if self.cross_fitted:
            return f"{text}. Too few for a test part: agreement will be cross-fitted"
        own = sorted({e.split for part in self.splits[:3] for e in part if e.split})
        if own and not self.splits.report["fixed"]:
            text += f". Split by source: the file's own split ({', '.join(own[:3])}) is not train, dev and test"
        return text


def read_parts(labels: Any, test: Any, sizes: Sequence[int], words: int, seed: int) -> Parts:
    """Read and split labels (`read_labels`), or take the test from labels of its own.

    ``sizes``: answers of train, dev and test that are used at most; ``words``: words of each part at most.
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
        splits = split(examples, seed=seed, parts=PARTS[:2])
    if not splits.train:  # dev holds all there is
        sizes, words = (sizes[0], sum(sizes), sizes[2]), len(sizes) * words
    parts = zip((splits.train, splits.dev, tested), sizes, strict=True)
    return Parts(splits, *(sample(part, n, words, seed) for part, n in parts))


def sample(part: Sequence[LabelledExample], n: int, words: int, seed: int) -> list[LabelledExample]:
    """At most ``n`` examples and ``words`` words, context by context in an order that ``seed`` fixes.

    A context's words count once, an answer's words each time. Either limit gives way until both labels occur in
    `MIN_SOURCES` sources each, as far as there are so many: a classifier cannot be cross-fitted on less.
    """
    keys = sorted({e.context_key for e in part})
    random.Random(seed).shuffle(keys)
    place = {k: i for i, k in enumerate(keys)}
    out: list[LabelledExample] = []
    read: set[str] = set()
    for e in sorted(part, key=lambda e: (place[e.context_key], e.id)):
        fewest = min(len({o.group_key for o in out if o.label is label}) for label in (True, False))
        if (len(out) >= n or words <= 0) and fewest >= MIN_SOURCES:
            break
        if e.context_key not in read:
            read.add(e.context_key)
            words -= sum(len(c.text.split()) for c in e.context)
        words -= len(e.answer.split())
        out.append(e)
    return out


def split(examples: Sequence[LabelledExample], *, seed: int = 0, parts: Sequence[str] = PARTS) -> Splits:
    """Split into parts by source, and write each example's source into its ``group``.

    When train, dev and test all occur in `LabelledExample.split`, those parts are taken, after a check for leaks.
    Otherwise `deal` divides the sources (`with_sources`) by `SHARES`; those of answers that were chosen to be labelled
    (`in_order`) are in train. ``parts``: train and dev alone when the testset is a file of its own. Each part has both
    labels, each in `PER_PART` sources; where there are too few sources for that, or fewer than `MIN_PER_CLASS` answers
    of a label, all examples are in ``dev``, to be cross-fitted.
    """
    labelled = with_sources([e for e in examples if e.label is not None])
    labels, sources = [bool(e.label) for e in labelled], [e.group_key for e in labelled]
    fixed = tuple(parts) == PARTS and set(PARTS) <= {e.split for e in labelled}
    if fixed:
        part_of = _fixed_parts(labelled)
    else:
        n, spread = Counter(labels), _spread(labels, sources)
        if len(labelled) < MIN_LABELS or min(spread) < MIN_SOURCES:
            raise InputError(
                f"got {counted(len(set(sources)), 'source')} with {n[True]} faithful and "
                f"{counted(n[False], 'unfaithful example')}, expected at least {MIN_LABELS} examples, and each label "
                f"in {MIN_SOURCES} sources: label answers over more contexts (those over one context share a source), "
                "and more of the rarer label"
            )
        part_of = ["dev"] * len(labelled)
        # What was chosen to be labelled is no fair sample: it teaches, and nothing is tested on it.
        chosen = {e.group_key for e in labelled if e.tags.get("drawn") == "uncertain"}
        fair = [i for i, source in enumerate(sources) if source not in chosen]
        dealt = [labels[i] for i in fair], [sources[i] for i in fair]
        if min(_spread(*dealt)) >= PER_PART * len(parts) and min(map(dealt[0].count, (True, False))) >= MIN_PER_CLASS:
            part_of = ["train"] * len(labelled)
            for i, k in zip(fair, deal(*dealt, [SHARES[p] for p in parts], PER_PART, seed), strict=True):
                part_of[i] = parts[k]
    held = {p: tuple(e for e, part in zip(labelled, part_of, strict=True) if part == p) for p in PARTS}
    report = {
        "parts": {p: _counts(found) for p, found in held.items() if found},
        "fixed": fixed,
        "groups": len(set(sources)),
        "unlabelled": len(examples) - len(labelled),
        "seed": seed,
    }
    return Splits(held["train"], held["dev"], held["test"], report)


def deal(labels: Sequence[bool], sources: Sequence[str], shares: Sequence[float], least: int, seed: int) -> list[int]:
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
            n * (shares[part] / sum(shares) - given[part][label] / total[label]) / total[label]
            for label, n in size[source].items()
        )

    def give(source: str, part: int) -> None:
        dealt[source] = part
        given[part].update(size[source])

    for label in sorted((True, False), key=lambda label: sum(label in size[s] for s in order)):
        for part in [*range(len(shares))] * least:
            having = sum(label in size[s] for s, p in dealt.items() if p == part)
            if having < least:
                give(next(s for s in order if s not in dealt and label in size[s]), part)
    for source in reversed([s for s in order if s not in dealt]):
        give(source, max(range(len(shares)), key=lambda part: missing(part, source)))
    return [dealt[s] for s in sources]


def with_sources(examples: Sequence[LabelledExample]) -> list[LabelledExample]:
    """The same examples with their source as `LabelledExample.group`, wherever `group_key` is not just that.

    A source is all that is joined, one through the other, by the same `group`, the same or a near-same context
    (`NEAR_SAME`), or the same long answer; it is named by its content.
    """
    csgraph, sparse = need("scipy.sparse.csgraph", "Splitting labels"), need("scipy.sparse", "Splitting labels")
    edges = [(members[0], i) for _, members in _shared_sources(examples) for i in members[1:]]
    rows, cols = zip(*edges, strict=True) if edges else ((), ())
    graph = sparse.coo_matrix(([True] * len(edges), (rows, cols)), shape=(len(examples), len(examples)))
    component = csgraph.connected_components(graph, directed=False)[1].tolist()
    own = [e.group_key if e.group or _has_context(e) else f"{e.group_key} {e.id}" for e in examples]
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
    if odd := [e for e in labelled if e.split not in PARTS]:
        got = f"{counted(len(odd), 'example')} beside train, dev and test, such as {odd[0].id!r} with {odd[0].split!r}"
        raise InputError(f"got split in {got}; expected one of the three in each, or none to split them by source")
    train, dev, test = ([e for e in labelled if e.split == part] for part in PARTS)
    for name, part, least in (("train", train, PER_PART), ("dev", dev, PER_PART), ("test", test, 1)):
        _check_part(part, f"split {name!r}", least)
    check_leakage(train, dev)
    check_leakage([*train, *dev], test)
    return [str(e.split) for e in labelled]


def _check_part(part: Sequence[LabelledExample], name: str, least: int = 1) -> None:
    """`InputError` unless each label is in so many sources: on less nothing can be fitted, or measured."""
    if min(spread := _spread([bool(e.label) for e in part], [e.group_key for e in part])) < least:
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


def check_leakage(tuning: Sequence[LabelledExample], test: Sequence[LabelledExample]) -> None:
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
        if _has_context(e):  # answers without a context have none in common
            kinds["same context"].setdefault(e.context_key, []).append(i)
            texts.setdefault(e.context_key, "\n".join(c.text for c in e.context))
        if len(answer := " ".join(re.findall(r"\w+", e.answer.casefold()))) > LONG_ANSWER:
            kinds["same answer"].setdefault(answer, []).append(i)
    for reason, found in kinds.items():
        yield from ((reason, members) for members in found.values() if len(members) > 1)
    keys, contexts = list(texts), kinds["same context"]
    for a, b in near_same(list(texts.values())):
        yield "near-same context", sorted(contexts[keys[a]] + contexts[keys[b]])


def _has_context(e: LabelledExample) -> bool:
    return any(c.text.strip() for c in e.context)
