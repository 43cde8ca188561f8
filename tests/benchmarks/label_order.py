"""Does it help to choose what to label? Agreement after 10, 20, 40 and 80 labels, in either order.

``python -m tests.benchmarks.label_order``

Replays the labels of the public sets: a third of the contexts is held out, the rest is the pool that a judge ranks with
the classifier it has before any label of the set; then so many labels of either order are given to it. Five seeds; the
intervals are t over sets. The table is in LABEL_ORDER.md.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import mean, stdev
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np
from scipy.stats import t as student

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.judge import NO_LM
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.select.evaluate import usable, without_lm
from faith_dspy.scoring.statistics import metric_values
from faith_dspy.text.features import CLASSIFIER_FEATURES

from .agreement import KEPT, REPLIES, families
from .default_classifier import Default
from .public_labels import DATA, HERE, read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import JudgedAnswer

    from .agreement import Family

SIZES, SEEDS = (10, 20, 40, 80), 5
CARD = HERE / "LABEL_ORDER.md"
First = Literal["random", "uncertain"]
ORDERS: tuple[First, ...] = ("random", "uncertain")


class Stream(NamedTuple):
    """Answers in the order in which they came, and the judge that one has before any label of them."""

    judge: Judge
    known: list[JudgedAnswer]


_NEAREST = 4
"""Of so many answers near the threshold, the one that looks least like those chosen already is next."""


def choose(answers: Sequence[JudgedAnswer], first: First, seed: int = 0) -> list[tuple[JudgedAnswer, First]]:
    """The answers in the order to label them, each with how it was drawn.

    ``random``: in random order. ``uncertain``: every second one still is, from half of the sources, so that there is a
    fair sample to measure on; the others are near the judge's threshold, spread over sources and over their features.
    """
    left = sorted(answers, key=lambda a: a.id)
    random.Random(seed).shuffle(left)
    if first == "random":
        return [(a, "random") for a in left]
    sources = [*dict.fromkeys(a.source for a in left)]
    fair = {*sources[::2]}
    drawn, rest = [a for a in left if a.source in fair], [a for a in left if a.source not in fair]
    looks = {a.id: _looks(a) for a in rest}
    scale = np.std([*looks.values()], axis=0) + 1e-9
    used: Counter[str] = Counter()
    near: list[JudgedAnswer] = []
    while rest:
        best = sorted(rest, key=lambda a: (used[a.source], _distance(a)))[:_NEAREST]
        if near:
            seen = np.array([looks[a.id] for a in near])
            best.sort(key=lambda a: -float(np.min(np.sum(((seen - looks[a.id]) / scale) ** 2, axis=1))))
        rest.remove(best[0])
        used[best[0].source] += 1
        near.append(best[0])
    turns = [(a, i, how) for how, side in (("random", drawn), ("uncertain", near)) for i, a in enumerate(side)]
    return [(a, cast("First", how)) for a, _, how in sorted(turns, key=lambda turn: turn[1:])]


def _distance(a: JudgedAnswer) -> float:
    """Of its probability from the threshold; an unscored answer is far from it."""
    p, threshold = a.judgment.probability, a.judgment.threshold
    return 1.0 if p is None or threshold is None else abs(p - threshold)


def _looks(a: JudgedAnswer) -> list[float]:
    """The mean of each lexical feature over the answer's statements."""
    rows = [f for f in a.features if f]
    return [float(np.mean([f.get(name, 0.0) for f in rows])) if rows else 0.0 for name in CLASSIFIER_FEATURES]


def replay(known: Sequence[JudgedAnswer], judge: Judge, names: Sequence[str]) -> dict[int, list[dict[str, float]]]:
    """By number of labels and seed, balanced accuracy of either order on the held-out contexts."""
    found: dict[int, list[dict[str, float]]] = {}
    contexts = sorted({a.source for a in known})
    for seed in range(SEEDS):
        held = set(random.Random(seed).sample(contexts, len(contexts) // 3))
        test = [a for a in known if a.source in held]
        pool = [a.by(judge) for a in known if a.source not in held]
        labels = np.array([a.label for a in test])
        orders = {order: [a for a, _ in choose(pool, order, seed)] for order in ORDERS}
        for n in (n for n in SIZES if n <= len(pool)):
            reached = {}
            for order in ORDERS:
                chosen = orders[order][:n]
                try:
                    classifier = fit_classifier(chosen, names, prior=judge.classifier, seed=0).classifier
                except InputError:  # one label only
                    classifier = judge.classifier
                p = np.array([classifier.probability(a.features) for a in test], dtype=np.float64)
                values = metric_values(np.ones((1, len(p))), labels, p >= classifier.threshold, p)
                reached[order] = float(values["balanced_accuracy"][0])
            if not any(map(math.isnan, reached.values())):
                found.setdefault(n, []).append(reached)
    return found


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval, t over sets."""
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values):.3f} [{mean(values) - half:.3f}, {mean(values) + half:.3f}]"


def mixed(asked: Mapping[str, Family], seed: int) -> list[Stream]:
    """Half of the sets as one stream of answers, for a default judge that the other half taught; and the reverse."""
    sets = sorted(asked)
    random.Random(seed).shuffle(sets)
    streams = []
    for mine in (sets[::2], sets[1::2]):
        taught = Default({f: asked[f].sentences for f in sets if f not in mine}, ["lm", *CLASSIFIER_FEATURES]).fit()
        streams.append(Stream(Judge(KEPT, classifier=taught), [a for f in mine for a in asked[f].sentences]))
    return streams


def main() -> None:
    """Replay, and write the table."""
    examples = read(sorted(DATA.glob("*.jsonl")))
    unasked = {f: usable(without_lm(rows)) for f, rows in examples.items()}
    lexical = Default(unasked, CLASSIFIER_FEATURES)
    asked = families(examples, REPLIES, {f: lexical.fit(f) for f in examples})
    with_lm = ["lm", *CLASSIFIER_FEATURES]
    replays = {
        "no LM": [
            replay(unasked[f], Judge(NO_LM).copy(classifier=family.priors["lexical"]), CLASSIFIER_FEATURES)
            for f, family in asked.items()
        ],
        "the embedded LM": [
            replay(family.sentences, Judge(KEPT, classifier=family.priors["both"]), with_lm)
            for family in asked.values()
        ],
        "the embedded LM, four sets mixed": [
            replay(known, judge, with_lm) for seed in range(SEEDS) for judge, known in mixed(asked, seed)
        ],
    }
    rows = []
    for title, found in replays.items():
        for n in SIZES:
            means = [{o: mean(r[o] for r in s[n]) for o in ORDERS} for s in found if len(s.get(n, ())) == SEEDS]
            if len(means) > 2:
                cells = [interval([m[o] for m in means]) for o in ORDERS]
                difference = interval([m["uncertain"] - m["random"] for m in means])
                rows.append(f"| {title} | {n} | {len(means)} | {cells[0]} | {cells[1]} | {difference} |")
    head = "| judge | labels | sets | random | uncertain first | difference |\n|---|--:|--:|---|---|---|\n"
    prose = CARD.read_text(encoding="utf-8").partition("\n| judge")[0].rstrip()
    CARD.write_text(f"{prose}\n\n{head}" + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
