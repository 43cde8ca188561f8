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
from typing import TYPE_CHECKING, Literal

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
    from collections.abc import Sequence

    from faith_dspy.optimize.results import JudgedAnswer

SIZES, SEEDS = (10, 20, 40, 80), 5
CARD = HERE / "LABEL_ORDER.md"
First = Literal["random", "uncertain"]
ORDERS: tuple[First, ...] = ("random", "uncertain")
_NEAREST = 4
"""Of so many answers near the threshold, the one that looks least like those chosen already is next."""


def choose(answers: Sequence[JudgedAnswer], n: int, first: First, seed: int = 0) -> list[tuple[JudgedAnswer, First]]:
    """At most ``n`` of the answers in the order to label them, each with how it was drawn.

    ``random``: in random order. ``uncertain``: every second one still is, so that there is a fair sample to measure on;
    the others are near the judge's threshold, spread over sources and over their features.
    """
    left = list(answers)
    random.Random(seed).shuffle(left)
    if first == "random":
        return [(a, "random") for a in left[:n]]
    looks = {a.id: _looks(a) for a in left}
    scale = np.std([*looks.values()], axis=0) + 1e-9
    used: Counter[str] = Counter()
    chosen: list[tuple[JudgedAnswer, First]] = []
    while left and len(chosen) < n:
        drawn: First = "uncertain" if len(chosen) % 2 else "random"
        if drawn == "random":
            best = left[0]
        else:
            near = sorted(left, key=lambda a: (used[a.source], _distance(a)))[:_NEAREST]
            seen = np.array([looks[a.id] for a, _ in chosen])
            best = max(near, key=lambda a: float(np.min(np.sum(((seen - looks[a.id]) / scale) ** 2, axis=1))))
        left.remove(best)
        used[best.source] += 1
        chosen.append((best, drawn))
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
    contexts = sorted({a.source for a in known})
    for seed in range(SEEDS):
        held = set(random.Random(seed).sample(contexts, len(contexts) // 3))
        test = [a for a in known if a.source in held]
        pool = [a.by(judge) for a in known if a.source not in held]
        labels = np.array([a.label for a in test])
        for n in (n for n in SIZES if n <= len(pool)):
            reached = {}
            for order in ORDERS:
                chosen = [a for a, _ in choose(pool, n, order, seed)]
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


def main() -> None:
    """Replay, and write the table."""
    examples = read(sorted(DATA.glob("*.jsonl")))
    unasked = {f: usable(without_lm(rows)) for f, rows in examples.items()}
    lexical = Default(unasked, CLASSIFIER_FEATURES)
    asked = families(examples, REPLIES, {f: lexical.fit(f) for f in examples})
    rows = []
    for title, names in (("no LM", CLASSIFIER_FEATURES), ("the embedded LM", ["lm", *CLASSIFIER_FEATURES])):
        by_set = []
        for f, family in asked.items():
            if title == "no LM":
                judge, known = Judge(NO_LM).copy(classifier=family.priors["lexical"]), unasked[f]
            else:
                judge, known = Judge(KEPT, classifier=family.priors["both"]), usable(family.sentences)
            by_set.append(replay(known, judge, names))
            print(title, f, flush=True)
        for n in SIZES:
            means = [{o: mean(r[o] for r in s[n]) for o in ORDERS} for s in by_set if len(s.get(n, ())) == SEEDS]
            if len(means) > 2:
                cells = [interval([m[o] for m in means]) for o in ORDERS]
                difference = interval([m["uncertain"] - m["random"] for m in means])
                rows.append(f"| {title} | {n} | {len(means)} | {cells[0]} | {cells[1]} | {difference} |")
    head = "| judge | labels | sets | random | uncertain first | difference |\n|---|--:|--:|---|---|---|\n"
    prose = CARD.read_text(encoding="utf-8").partition("\n| judge")[0].rstrip()
    CARD.write_text(f"{prose}\n\n{head}" + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
