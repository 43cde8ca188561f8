"""The answers of a study: the sources they share, folds by source, and a test of the user's own beside them."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from faith_dspy.errors import InputError, counted, import_optional
from faith_dspy.io.labels import label_set_hash, read_labels
from faith_dspy.io.readers import name_of
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.statistics import label_sources

FOLDS = 5
MIN_LABELS = 10
MIN_SOURCES = 3
"""With fewer labels, or a label in fewer sources, nothing can be fitted and measured on other answers."""

NEAR_SAME = 0.9
"""Contexts whose TF-IDF vectors (words and word pairs) have at least this cosine count as one source."""
LONG_ANSWER = 60
"""Normalised characters. A longer answer that occurs twice is a copy; a shorter one may be a stock reply."""
_TEST = "test"
_NAMED = 5
"""Leaks that are named."""
_ATTEMPTS = 10
"""At folds that hold both labels, where sources are few."""
# One token a word; one a character where words are not spaced (Chinese, Japanese).
_TOKEN = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"


class Partition(NamedTuple):
    """A study's labels. `LabelledExample.group` is the source of each."""

    pool: list[LabelledExample]
    """What is tuned on, and cross-validated: all labels, or a sample of them."""
    fold_of: dict[str, int]
    """The fold of each source of the pool."""
    test: list[LabelledExample]
    """The user's own test, which nothing learns from; empty without one."""
    labelled: list[LabelledExample]
    """All labels of both, used or not."""
    answers: list[LabelledExample]
    """The pool's with those that have no label because annotators are split."""

    @property
    def report(self) -> dict[str, Any]:
        """Return, as JSON, how many answers of each part are ``used``, their ``hashes`` (`label_set_hash`), the
        ``sources`` of the pool, and its ``folds``."""
        parts = {"pool": self.pool, "test": self.test}
        used = {name: part for name, part in parts.items() if part}
        return {
            "used": {name: len(part) for name, part in used.items()},
            "hashes": {name: label_set_hash(part) for name, part in used.items()},
            "sources": len(self.fold_of),
            "folds": len(set(self.fold_of.values())),
        }

    @property
    def sentence(self) -> str:
        """Return the line a study begins with."""
        text = f"Labels: {_size_of(self.pool)}, each used to teach and to test (cross-validation)"
        if self.test:
            text += f" · a test of your own: {_size_of(self.test)}"
        return text


def _size_of(part: Sequence[LabelledExample]) -> str:
    faithful = sum(bool(e.label) for e in part)
    sources = len({e.group_key for e in part})
    return f"{counted(len(part), 'answer')} ({faithful} faithful, {counted(sources, 'source')})"


def read_partition(
    labels: Any,
    test: Any,
    size: int,
    words: int,
    seed: int,
    scores: Sequence[str] = (),
) -> Partition:
    """Read labels (`read_labels`) and a test of the user's own, from ``test`` or from rows with ``split: test``.

    With ``test``, rows of ``labels`` with ``split: test`` are used for nothing. ``size`` and ``words``: answers of the
    pool, and words of them, that are used at most. ``scores``: columns with what other judges said. `InputError` where
    the two share a source, or labels are too few.
    """
    recorded = [column.removeprefix("!") for column in scores]
    answers = read_labels(labels, require_label=False, recorded=recorded)
    own = [e for e in answers if e.split == _TEST]
    rest = [e for e in answers if e.split != _TEST]
    if test is None and not any(e.label is not None for e in rest):
        own, rest = [], answers  # nothing is left to tune on: no test was meant
    name = "split test"
    if test is not None:
        own, name = read_labels(test, recorded=recorded), name_of(test)
    tuned = [e for e in rest if e.label is not None]
    tested = [e for e in own if e.label is not None]
    if not tuned:
        read_labels(labels)  # raises, and says what a usable label is
    check_leakage(tuned, tested)  # before sources are renamed
    if tested and min(count_sources(tested).values()) < 1:  # nothing can be measured
        raise InputError(
            f"{name}: {_sources_of_each(tested)}; expected at least 1 of each"
        )
    sourced = with_sources(tuned)
    pool = sample(check_pool(sourced), size, words, seed)
    tested = with_sources(tested)
    return Partition(
        pool=pool,
        fold_of=assign_folds(pool, seed),
        test=tested,
        labelled=[*sourced, *tested],
        answers=rest,
    )


def check_pool(labelled: list[LabelledExample]) -> list[LabelledExample]:
    """Return the labels; `InputError` where they are too few to be tuned on."""
    spread = min(count_sources(labelled).values())
    if len(labelled) < MIN_LABELS or spread < MIN_SOURCES:
        raise InputError(
            f"got {_sources_of_each(labelled)}; expected at least {MIN_LABELS} answers, and {MIN_SOURCES} sources with "
            "each label: label more of the rarer kind, over other contexts (answers over one context share a source)"
        )
    return labelled


def sample(
    labelled: Sequence[LabelledExample],
    n: int,
    words: int,
    seed: int,
) -> list[LabelledExample]:
    """Draw at most ``n`` examples and ``words`` words: one of each source before the second of any, in an order that
    ``seed`` fixes.

    A context's words count once, an answer's words each time. Either limit gives way until both labels occur in
    `MIN_SOURCES` sources each.
    """
    drawn: list[LabelledExample] = []
    contexts: set[str] = set()
    sources: defaultdict[bool, set[str]] = defaultdict(set)
    for e in _sources_in_turn(labelled, seed):
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
    labelled: Sequence[LabelledExample], seed: int
) -> Iterator[LabelledExample]:
    """Return all examples: the first of each source, then the second of each, and so on."""
    by_source: defaultdict[str, list[LabelledExample]] = defaultdict(list)
    for e in sorted(labelled, key=lambda e: e.id):
        by_source[e.group_key].append(e)
    rng = random.Random(seed)
    order = [by_source[source] for source in sorted(by_source)]
    rng.shuffle(order)
    for members in order:
        rng.shuffle(members)
    for turn in zip_longest(*order):
        yield from (e for e in turn if e is not None)


def assign_folds(
    examples: Sequence[LabelledExample],
    seed: int,
    folds: int = FOLDS,
    least: int = MIN_SOURCES,
) -> dict[str, int]:
    """Return the fold of each source: stratified by label, each label in at least ``least`` folds.

    Fewer than ``folds`` where a label is in fewer sources. Where a source goes depends on its name and ``seed``, not
    on the order of the examples.
    """
    import_optional("sklearn", "Dividing labels into folds")
    from sklearn.model_selection import StratifiedGroupKFold

    labelled = [e for e in examples if e.label is not None]
    labelled.sort(key=lambda e: (e.group_key, e.id))
    labels = [bool(e.label) for e in labelled]
    sources = [e.group_key for e in labelled]
    spread = count_sources(labelled)
    n = min(folds, *spread.values())
    for attempt in range(_ATTEMPTS if n >= least else 0):
        divide = StratifiedGroupKFold(n, shuffle=True, random_state=seed + attempt)
        fold_of: dict[str, int] = {}
        for fold, (_, held) in enumerate(divide.split(labels, labels, sources)):
            fold_of |= {sources[i]: fold for i in held}
        in_folds = label_sources(labels, [fold_of[source] for source in sources])
        if min(in_folds.values()) >= least:
            return fold_of
    raise InputError(
        f"got faithful answers in {spread[True]} sources and unfaithful ones in {spread[False]}; expected both in at "
        f"least {least}. Label more answers, over more contexts."
    )


def halves(
    examples: Sequence[LabelledExample], seed: int
) -> tuple[list[LabelledExample], list[LabelledExample]]:
    """Return the answers of one half of the sources and those of the other, both labels in each."""
    fold_of = assign_folds(examples, seed, folds=2, least=2)
    one = [e for e in examples if fold_of[e.group_key] == 0]
    other = [e for e in examples if fold_of[e.group_key] == 1]
    return one, other


def with_sources(examples: Sequence[LabelledExample]) -> list[LabelledExample]:
    """Return the same examples with their source as `LabelledExample.group`, wherever `group_key` is not just that.

    A source is all that is joined, one through the other, by the same `group`, the same or a near-same context
    (`NEAR_SAME`), or the same long answer; it is named by its content.
    """
    hierarchy = import_optional("scipy.cluster.hierarchy", "Finding sources")
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


def count_sources(part: Sequence[LabelledExample]) -> dict[bool, int]:
    """Return in how many sources each label occurs."""
    labels = [bool(e.label) for e in part]
    sources = [e.group_key for e in part]
    return label_sources(labels, sources)


def _sources_of_each(part: Sequence[LabelledExample]) -> str:
    spread = count_sources(part)
    count = Counter(bool(e.label) for e in part)
    return (
        f"{counted(count[True], 'faithful answer')} over {counted(spread[True], 'source')} and "
        f"{count[False]} unfaithful over {spread[False]}"
    )


def check_leakage(
    tuning: Sequence[LabelledExample], test: Sequence[LabelledExample]
) -> None:
    """Raise `InputError` naming the first test examples that share a group, a context (or nearly) or a long answer with
    what tunes a judge, if there are any."""
    both = [*tuning, *test]
    leaks: dict[int, str] = {}
    for reason, members in _shared_sources(both if test else ()):
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
            f"{'; '.join(named)}. Remove them from one side, or leave the test out: every label is cross-validated"
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
    return sorted(zip(pairs.row.tolist(), pairs.col.tolist(), strict=True))


def _shared_sources(
    examples: Sequence[LabelledExample],
) -> Iterator[tuple[str, list[int]]]:
    """Positions of examples that share a source, in order, with the kind of source."""
    groups, contexts, answers = (defaultdict[str, list[int]](list) for _ in range(3))
    for i, e in enumerate(examples):
        if e.group is not None:
            groups[e.group].append(i)
        if _has_context(e):
            contexts["\n".join(c.text for c in e.context)].append(i)
        answer = " ".join(re.findall(r"\w+", e.answer.casefold()))
        if len(answer) > LONG_ANSWER:
            answers[answer].append(i)
    kinds = {"same group": groups, "same context": contexts, "same answer": answers}
    for reason, shared in kinds.items():
        yield from ((reason, members) for members in shared.values())
    texts = list(contexts)
    for a, b in near_same(texts):
        yield "near-same context", sorted(contexts[texts[a]] + contexts[texts[b]])


def _has_context(e: LabelledExample) -> bool:
    return any(c.text.strip() for c in e.context)
