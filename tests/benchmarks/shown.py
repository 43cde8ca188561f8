"""How often a study of labels without an effect says "shown better", and how often its interval holds 0.

python -m tests.benchmarks.shown DRAWS [OUT.md]   # the tables of SHOWN.md
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from faith_dspy.errors import InputError
from faith_dspy.optimize.data.splits import split
from faith_dspy.optimize.results import Row
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.schema import Chunk, LabelledExample

DESIGNS = ((6, 4), (10, 4), (20, 4), (50, 3))
"""Sources, and answers over each."""
JUDGES = ("champion", "untuned", "default-judge", "lexical-baseline", "length-baseline")
SHOWN = ("untuned", "lexical-baseline")
"""Those that the three lines call shown, or not."""
COLUMNS = ("better", "worse", "covers", "in the three lines", "any")


def shares(sources: int, answers: int, draws: int, through_split: bool = False) -> tuple[float, Counter[str]]:
    """Sources in the test part on average, and shares of the draws (of ``covers``: of those with an interval).

    ``through_split``: these sources are those of the labels file, and `split` makes the test part; else all are tested.
    """
    rng = np.random.default_rng(0)
    found, tested, intervals = Counter[str](), 0, 0
    for _ in range(draws):
        labels = (rng.random(sources * answers) < 0.5).tolist()
        source = [str(i // answers) for i in range(len(labels))]
        if through_split:
            at = _tested(labels, source)
            labels, source = [labels[i] for i in at], [source[i] for i in at]
        tested += len({*source})
        if not labels:
            continue
        champion, *others = (_judge(rng, labels, source) for _ in JUDGES)
        by_name = {n: compare(champion, o) for n, o in zip(JUDGES[1:], others, strict=True)}
        better = {name for name, c in by_name.items() if c.verdict == "better"}
        d = by_name["untuned"].balanced_accuracy
        found["better"] += "untuned" in better
        found["worse"] += by_name["untuned"].verdict == "worse"
        found["in the three lines"] += bool(better & {*SHOWN})
        found["any"] += bool(better)
        if d.low is not None and d.high is not None:
            intervals += 1
            found["covers"] += d.low <= 1e-12 and d.high >= -1e-12
    return tested / draws, Counter({k: n / (intervals if k == "covers" else draws) for k, n in found.items()})


def _tested(labels: list[bool], source: list[str]) -> list[int]:
    """Positions of the test part; none where the labels are too few for one."""
    words = [np.random.default_rng(int(s)).integers(0, 500, size=30) for s in source]
    contexts = [(Chunk(id=0, text=" ".join(f"w{w}" for w in found)),) for found in words]
    examples = [
        LabelledExample(id=str(i), context=context, answer="A.", faithful=label)
        for i, (context, label) in enumerate(zip(contexts, labels, strict=True))
    ]
    try:
        return [int(e.id) for e in split(examples).test]
    except InputError:
        return []


def _judge(rng: np.random.Generator, labels: list[bool], source: list[str]) -> list[Row]:
    """Passes an answer with a chance that its source has for this judge (beta, intraclass correlation .2)."""
    chance = rng.beta(2, 2, size=int(max(map(int, source))) + 1)
    scores = [float(chance[int(s)] - rng.random()) for s in source]
    rows = enumerate(zip(source, labels, scores, strict=True))
    return [Row(id=str(i), source=s, label=y, predicted=p > 0, probability=p) for i, (s, y, p) in rows]


def main() -> None:
    """Print or write the tables."""
    draws, lines = int(sys.argv[1]), []
    for title, through_split in (("Sources of the test part", False), ("Sources of the labels file", True)):
        lines += [f"| {title} × answers | in the test part | {' | '.join(COLUMNS)} |", "|---" * 7 + "|"]
        for sources, answers in DESIGNS:
            tested, found = shares(sources, answers, draws, through_split)
            cells = " | ".join(f"{found[c]:.1%}" if c in found else "–" for c in COLUMNS)
            lines.append(f"| {sources} × {answers} | {tested:.1f} | {cells} |")
        lines.append("")
    table = "\n".join(lines)
    Path(sys.argv[2]).write_text(table) if len(sys.argv) > 2 else print(table)


if __name__ == "__main__":
    main()
