"""Does it help to choose what to label? Agreement after 10, 20, 40 and 80 labels, in either order.

``python -m tests.benchmarks.label_order``

Replays the labels of the public sets: a third of the contexts is held out, the rest is the pool that a judge ranks with
the classifier it has before any label of the set; then so many labels of either order are given to it. Five seeds; the
intervals are t over sets. The table is in LABEL_ORDER.md.
"""

from __future__ import annotations

import math
import random
from statistics import mean, stdev
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.stats import t as student

from faith_dspy import Judge
from faith_dspy.errors import InputError
from faith_dspy.judge import NO_LM
from faith_dspy.optimize.classifier.fitting import fit_classifier
from faith_dspy.optimize.data.order import First, in_order
from faith_dspy.optimize.select.evaluate import usable, without_lm
from faith_dspy.scoring.statistics import metric_values
from faith_dspy.text.features import CLASSIFIER_FEATURES

from .agreement import KEPT, REPLIES, families
from .default_classifier import Default
from .public_labels import DATA, HERE, read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.optimize.results import JudgedAnswer
    from faith_dspy.schema import Judgment, LabelledExample

    from .agreement import Family

SIZES, SEEDS = (10, 20, 40, 80), 5
CARD = HERE / "LABEL_ORDER.md"
ORDERS: tuple[First, ...] = ("random", "uncertain")


class Stream(NamedTuple):
    """Answers in the order in which they came, and the judge that one has before any label of them."""

    judge: Judge
    known: list[JudgedAnswer]


def replay(known: Sequence[JudgedAnswer], judge: Judge, names: Sequence[str]) -> dict[int, list[dict[str, float]]]:
    """By number of labels and seed, balanced accuracy of either order on the held-out contexts."""
    found: dict[int, list[dict[str, float]]] = {}
    contexts = sorted({a.source for a in known})
    for seed in range(SEEDS):
        held = set(random.Random(seed).sample(contexts, len(contexts) // 3))
        test = [a for a in known if a.source in held]
        pool = [a.by(judge) for a in known if a.source not in held]
        labels = np.array([a.label for a in test])
        by_id = {a.id: a for a in pool}

        def judgments(rows: Sequence[LabelledExample], by_id: Mapping[str, JudgedAnswer] = by_id) -> list[Judgment]:
            return [by_id[e.id].judgment for e in rows]

        unlabelled = [a.example for a in pool]
        orders = {o: [by_id[e.id] for e in in_order(unlabelled, o, judgments, seed)] for o in ORDERS}
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
