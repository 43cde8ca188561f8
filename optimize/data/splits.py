"""The answers of a study: the sources they share, pool and test by source, and a sample of each part."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from faith_dspy.errors import InputError, counted, import_optional
from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.io.readers import name_of
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.statistics import label_sources

SHARES = {"pool": 0.65, "test": 0.35}
PARTS = tuple(SHARES)
_TUNING = ("train", "dev", "pool")
_FIXED = {**dict.fromkeys(_TUNING, "pool"), "test": "test"}
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
_NAMED = 5
"""Leaks that are named."""
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
        """Return `Splits.report`, how many answers of each part are ``used``, their ``hashes`` (`label_set_hash`), and
        whether the test is ``cross_fitted``."""
        parts = {"pool": self.pool, "test": self.test}
        hashes = {}
        for name, part in parts.items():
            if part:
                hashes[name] = label_set_hash(part)
        return self.splits.report | {
            "used": {name: len(part) for name, part in parts.items()},
            "hashes": hashes,
            "cross_fitted": self.cross_fitted,
        }

    @property
    def labelled(self) -> list[LabelledExample]:
        """Return all labelled answers, used or not; of a testset of its own, those used."""
        return [*self.splits.pool, *(self.splits.test or self.test)]

    @property
    def cross_fitted(self) -> bool:
        """Return whether there are too few labels for a test part, so that every answer is judged by what others
        taught."""
        return not self.test

    @property
    def sentence(self) -> str:
        """Return the line a study begins with."""
        text = f"Labels: pool {_size_of(self.pool)}"
        if self.cross_fitted:
            return f"{text}. Too few for a test part: agreement will be cross-fitted"
        text += f" · test {_size_of(self.test)}"
        answers = [*self.splits.pool, *self.splits.test]
        own = sorted({e.split for e in answers if e.split})
        if own and not self.splits.report["fixed"]:
            text += f". Split by source: the file's own split ({', '.join(own[:3])}) has no test beside train or dev"
        return text


def _size_of(part: Sequence[LabelledExample]) -> str:
    faithful = sum(bool(e.label) for e in part)
    sources = len({e.group_key for e in part})
    return f"{counted(len(part), 'answer')} ({faithful} faithful, {counted(sources, 'source')})"


def read_parts(
    labels: Any,
    test: Any,
    sizes: Sequence[int],
    words: int,
    seed: int,
) -> Parts:
    """Read and split labels (`read_labels`), or take the test from labels of its own.

    ``sizes``: answers of pool and test that are used at most; ``words``: words of each part at most.
    """
    examples = read_labels(labels)
    if test is None:
        splits = split(examples, seed=seed)
        tested: Sequence[LabelledExample] = splits.test
    else:
        splits = split(examples, seed=seed, parts=("pool",))
        tested = with_sources(read_labels(test))
        check_leakage(examples, tested)
        _check_part(tested, name_of(test))
    pool = sample(splits.pool, sizes[0], words, seed)
    return Parts(splits, pool, sample(tested, sizes[1], words, seed))


def sample(
    part: Sequence[LabelledExample],
    n: int,
    words: int,
    seed: int,
) -> list[LabelledExample]:
    """Draw at most ``n`` examples and ``words`` words: one of each source before the second of any, in an order that
    ``seed`` fixes.

    A context's words count once, an answer's words each time. Either limit gives way until both labels occur in
    `MIN_SOURCES` sources each, as far as there are so many: a classifier cannot be cross-fitted on less.
    """
    drawn: list[LabelledExample] = []
    contexts: set[str] = set()
    sources: defaultdict[bool, set[str]] = defaultdict(set)
    for e in _sources_in_turn(part, seed):
        spread = min(len(sources[True]), len(sources[False]))
        if spread >= MIN_SOURCES and (len(drawn) >= n or words <= 0):
            break
        if e.context_key not in contexts:
            contexts.add(e.context_key)
            words -= words_of_context(e)
        words -= len(e.answer.split())
        sources[bool(e.label)].add(e.group_key)
        drawn.append(e)
    return drawn


def words_of_context(e: LabelledExample) -> int:
    """Count the words of an example's context."""
    return sum(len(c.text.split()) for c in e.context)


def _sources_in_turn(
    part: Sequence[LabelledExample], seed: int
) -> Iterator[LabelledExample]:
    """Return all examples: the first of each source, then the second of each, and so on."""
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
    own = {e.split for e in labelled}
    fixed = len(parts) > 1 and "test" in own and not own.isdisjoint(_TUNING)
    part_of = _fixed_parts(labelled) if fixed else _dealt_parts(labelled, parts, seed)
    divided: dict[str, list[LabelledExample]] = {name: [] for name in PARTS}
    for e, name in zip(labelled, part_of, strict=True):
        divided[name].append(e)
    if fixed:
        _check_part(divided["pool"], "split train and dev", PER_PART)
        _check_part(divided["test"], "split test")
        check_leakage(divided["pool"], divided["test"])
    report = {
        "parts": {name: _counts(part) for name, part in divided.items() if part},
        "fixed": fixed,
        "groups": len({e.group_key for e in labelled}),
        "unlabelled": len(examples) - len(labelled),
        "seed": seed,
    }
    return Splits(tuple(divided["pool"]), tuple(divided["test"]), report)


def _dealt_parts(
    labelled: Sequence[LabelledExample], parts: Sequence[str], seed: int
) -> list[str]:
    """`InputError` where the labels are too few to be tuned on."""
    spread = min(count_sources(labelled).values())
    if len(labelled) < MIN_LABELS or spread < MIN_SOURCES:
        raise InputError(
            f"got {_sources_of_each(labelled)}; expected at least {MIN_LABELS} answers, and {MIN_SOURCES} sources with "
            "each label: label more of the rarer kind, over other contexts (answers over one context share a source)"
        )
    rarer = min(Counter(e.label for e in labelled).values())
    if spread < PER_PART * len(parts) or rarer < MIN_PER_CLASS:
        return ["pool"] * len(labelled)
    shares = [SHARES[name] for name in parts]
    return [parts[k] for k in deal(labelled, shares, PER_PART, seed)]


def deal(
    examples: Sequence[LabelledExample],
    shares: Sequence[float],
    least: int,
    seed: int,
) -> list[int]:
    """Deal out labelled examples, and return the part of each: whole sources, both labels of each near its share, and
    in ``least`` sources of a part.

    First each part gets the sources it needs, small ones, of the rarer label first; then each of the others goes, the
    largest first, where most is missing. Both labels must be in ``least · parts`` sources. Where a source goes depends
    on its name and ``seed``, not on the order of the examples.
    """
    np = import_optional("numpy", "Splitting labels")
    sources = [e.group_key for e in examples]
    names, source_of = np.unique(sources, return_inverse=True)
    labels = [int(bool(e.label)) for e in examples]
    size = np.zeros((len(names), 2))  # answers of each source, by label
    np.add.at(size, (source_of, labels), 1)
    share = np.array(shares)[:, None] / sum(shares)
    total = size.sum(axis=0)
    order = list(range(len(names)))
    random.Random(seed).shuffle(order)
    order.sort(key=lambda source: size[source].sum())
    part_of = np.full(len(names), -1)
    dealt = np.zeros((len(shares), 2))

    def give(source: int, part: int) -> None:
        part_of[source] = part
        dealt[part] += size[source]

    spread = (size > 0).sum(axis=0)
    rarer_first = np.argsort(spread[::-1], kind="stable")
    for label in 1 - rarer_first:
        for part in [*range(len(shares))] * least:
            in_part = (part_of == part) & (size[:, label] > 0)
            if in_part.sum() < least:
                left = (s for s in order if part_of[s] < 0 and size[s, label])
                give(next(left), part)
    for source in reversed(order):
        if part_of[source] < 0:
            missing = share - dealt / total
            gain = (size[source] * missing / total).sum(axis=1)
            give(source, gain.argmax())
    parts: list[int] = part_of[source_of].tolist()
    return parts


def with_sources(examples: Sequence[LabelledExample]) -> list[LabelledExample]:
    """Return the same examples with their source as `LabelledExample.group`, wherever `group_key` is not just that.

    A source is all that is joined, one through the other, by the same `group`, the same or a near-same context
    (`NEAR_SAME`), or the same long answer; it is named by its content.
    """
    hierarchy = import_optional("scipy.cluster.hierarchy", "Splitting labels")
    joined = hierarchy.DisjointSet(range(len(examples)))
    for _, members in _shared_sources(examples):
        for other in members[1:]:
            joined.merge(members[0], other)
    own_keys = []
    for e in examples:
        is_alone = not e.group and not _has_context(e)  # answers without a context
        own_keys.append(f"{e.group_key} {e.id}" if is_alone else e.group_key)
    sourced = list(examples)
    for members in joined.subsets():
        source = min(own_keys[i] for i in members)
        for i in members:
            if examples[i].group_key != source:
                sourced[i] = examples[i].model_copy(update={"group": source})
    return sourced


def _fixed_parts(labelled: Sequence[LabelledExample]) -> list[str]:
    """Return the parts of the labels file; `InputError` when an example has none."""
    odd = [e for e in labelled if e.split not in _FIXED]
    if odd:
        raise InputError(
            f"got split in {counted(len(odd), 'example')} beside train, dev and test, such as {odd[0].id!r} with "
            f"{odd[0].split!r}; expected one of the three in each, or none to split them by source"
        )
    return [_FIXED[str(e.split)] for e in labelled]


def _check_part(part: Sequence[LabelledExample], name: str, least: int = 1) -> None:
    """`InputError` unless each label is in so many sources: on less nothing can be fitted, or measured."""
    if min(count_sources(part).values()) < least:
        raise InputError(
            f"{name}: {_sources_of_each(part)}; expected at least {least} of each"
        )


def count_sources(part: Sequence[LabelledExample]) -> dict[bool, int]:
    """Return in how many sources each label occurs."""
    labels = [bool(e.label) for e in part]
    sources = [e.group_key for e in part]
    return label_sources(labels, sources)


def _sources_of_each(part: Sequence[LabelledExample]) -> str:
    spread = count_sources(part)
    faithful = sum(bool(e.label) for e in part)
    return (
        f"{counted(faithful, 'faithful answer')} over {counted(spread[True], 'source')} and "
        f"{len(part) - faithful} unfaithful over {spread[False]}"
    )


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
    """Raise `InputError` naming the first test examples that share a group, a context (or nearly) or a long answer with
    what tunes a judge, if there are any."""
    both = [*tuning, *test]
    leaks: dict[int, str] = {}
    for reason, members in _shared_sources(both):
        first = members[0]  # they are in order: it is one of those tuned on, if any is
        for i in members:
            if first < len(tuning) <= i:
                pair = f"{both[i].id!r} and {both[first].id!r}"
                leaks.setdefault(i, f"{pair} ({reason})")
    if leaks:
        named = [leaks[i] for i in sorted(leaks)]
        if len(named) > _NAMED:
            named[_NAMED:] = ["…"]
        raise InputError(
            f"got {len(leaks)} of {len(test)} test examples that share a source with the ones tuned on, expected none: "
            f"{'; '.join(named)}. Remove them from one side, or have one file split by group"
        )


def near_same(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs (i < j) of texts whose TF-IDF cosine is at least `NEAR_SAME`. Compares all pairs, block by block."""
    if len(texts) < 2:
        return []
    import_optional("sklearn", "Finding near-same contexts")
    from scipy.sparse import triu
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import radius_neighbors_graph

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=_TOKEN)
    near = radius_neighbors_graph(
        vectorizer.fit_transform(texts), radius=1 - NEAR_SAME + 1e-12, metric="cosine"
    )
    pairs = triu(near, k=1)
    rows, columns = pairs.row.tolist(), pairs.col.tolist()
    return sorted(zip(rows, columns, strict=True))


def _shared_sources(
    examples: Sequence[LabelledExample],
) -> Iterator[tuple[Reason, list[int]]]:
    """Positions of examples that share a source, in order, with the kind of source."""
    shared: dict[Reason, defaultdict[str, list[int]]] = {
        "same group": defaultdict(list),
        "same context": defaultdict(list),
        "same answer": defaultdict(list),
    }
    for i, e in enumerate(examples):
        if e.group is not None:
            shared["same group"][e.group].append(i)
        if _has_context(e):
            context = "\n".join(c.text for c in e.context)
            shared["same context"][context].append(i)
        answer = " ".join(re.findall(r"\w+", e.answer.casefold()))
        if len(answer) > LONG_ANSWER:
            shared["same answer"][answer].append(i)
    for reason, members_of in shared.items():
        for members in members_of.values():
            if len(members) > 1:
                yield reason, members
    members_of = shared["same context"]
    texts = list(members_of)
    for a, b in near_same(texts):
        members = members_of[texts[a]] + members_of[texts[b]]
        yield "near-same context", sorted(members)


def _has_context(e: LabelledExample) -> bool:
    return any(c.text.strip() for c in e.context)
