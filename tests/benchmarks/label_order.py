"""Does it help to choose what to label? Agreement after 10 and 20 labels, in either order.

``python -m tests.benchmarks.label_order``

Replays the labels of the public sets: a third of the contexts is held out, the rest is the pool that a judge ranks with
the classifier it has before any label of the set; then so many labels of either order are given to it. Five seeds; the
intervals are t over sets. The table is in LABEL_ORDER.md.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from statistics import mean, stdev

import numpy as np
from scipy.stats import t as student

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.optimize.select.evaluate import usable, without_lm
from faith_dspy.text.features import CLASSIFIER_FEATURES

from .agreement import KEPT, REPLIES, families
from .default_classifier import Default
from .public_labels import DATA, HERE, held_out, learned, read, table, write

SIZES, SEEDS = (10, 20), 5
CARD = HERE / "LABEL_ORDER.md"
ORDERS = ("random", "uncertain")
_NEAREST = 4
"""Of so many answers near the threshold, the one that looks least like those chosen already is next."""


def choose(answers: Sequence[JudgedAnswer], n: int, order: str, seed: int = 0) -> list[JudgedAnswer]:
    """At most ``n`` of the answers in the order to label them.

    ``random``: in random order. ``uncertain``: every second one still is, so that there is a fair sample to measure on;
    the others are near the judge's threshold, spread over sources and over their features.
    """
    left = list(answers)
    random.Random(seed).shuffle(left)
    if order == "random":
        return left[:n]
    looks = {a.id: _looks(a) for a in left}
    scale = np.std([*looks.values()], axis=0) + 1e-9
    used: Counter[str] = Counter()
    chosen: list[JudgedAnswer] = []
    while left and len(chosen) < n:
        best = left[0]
        if len(chosen) % 2:
            near = sorted(left, key=lambda a: (used[a.source], _distance(a)))[:_NEAREST]
            seen = np.array([looks[a.id] for a in chosen])
            best = max(near, key=lambda a: float(np.min(np.sum(((seen - looks[a.id]) / scale) ** 2, axis=1))))
        left.remove(best)
        used[best.source] += 1
        chosen.append(best)
    return chosen


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
    for seed in range(SEEDS):
        test, pool = held_out(known, random.Random(seed))
        pool = [a.by(judge) for a in pool]
        for n in (n for n in SIZES if n <= len(pool)):
            reached = {}
            for order in ORDERS:
                chosen = choose(pool, n, order, seed)
                try:
                    values = learned(chosen, names, judge.classifier, test)
                except InputError:  # one label only
                    values = learned([], names, judge.classifier, test)
                reached[order] = values["balanced_accuracy"]
            if not any(map(math.isnan, reached.values())):
                found.setdefault(n, []).append(reached)
    return found


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval, t over sets."""
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values):.3f} [{mean(values) - half:.3f}, {mean(values) + half:.3f}]"


def main() -> None:
    """Replay, and write the table."""
    examples = read(sorted(DATA.glob("*.jsonl")))
    lexical = Default({f: usable(without_lm(rows)) for f, rows in examples.items()}, CLASSIFIER_FEATURES)
    by_set = []
    for f, family in families(examples, REPLIES, {f: lexical.fit(f) for f in examples}).items():
        judge = Judge(KEPT, classifier=family.priors["both"])
        by_set.append(replay(usable(family.sentences), judge, ["lm", *CLASSIFIER_FEATURES]))
        print(f, flush=True)
    rows = []
    for n in SIZES:
        means = [{o: mean(r[o] for r in s[n]) for o in ORDERS} for s in by_set if len(s.get(n, ())) == SEEDS]
        if len(means) > 2:
            cells = [interval([m[o] for m in means]) for o in ORDERS]
            rows.append((str(n), str(len(means)), *cells, interval([m["uncertain"] - m["random"] for m in means])))
    write(CARD, [table("The embedded LM", ("labels", "sets", "random", "uncertain first", "difference"), rows)])


if __name__ == "__main__":
    main()
