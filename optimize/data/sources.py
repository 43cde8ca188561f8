"""Sources that answers share: the groups a split keeps whole, and the leaks of a split that is given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from faith_dspy.errors import InputError, need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faith_dspy.schema import LabelledExample

NEAR_SAME = 0.9
"""Contexts whose TF-IDF vectors (words and word pairs) have at least this cosine count as one source."""
LONG_ANSWER = 60
"""Normalised characters. A longer answer that occurs twice is a copy; a shorter one may be a stock reply."""

# One token a word; one a character where words are not spaced (Chinese, Japanese).
_TOKEN = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"

Reason = Literal["same group", "same context", "near-same context", "same answer"]


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
