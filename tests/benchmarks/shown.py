"""How often a study of labels without an effect says "shown better", and how often its interval holds 0.

python -m tests.benchmarks.shown DRAWS [OUT.md]   # the table of SHOWN.md
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from faith_dspy.optimize.select.comparison import Side, compare

DESIGNS = ((3, 4), (6, 4), (10, 4), (20, 4), (50, 3))
"""Sources in the test part, and answers over each."""
JUDGES = ("champion", "untuned", "default-judge", "lexical-baseline", "length-baseline")


def share_shown(sources: int, answers: int, draws: int, seed: int = 0) -> Counter[str]:
    """Shares of the draws in which the champion is called better or worse than the untuned judge, than any other judge,
    and than those of the three lines, and in which the interval covers 0.

    Labels are coin flips. A judge passes an answer with a chance that its source has (beta, intraclass correlation .2),
    drawn for each judge by itself.
    """
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    source = np.repeat(np.arange(sources), answers)
    for _ in range(draws):
        labels = [bool(y) for y in rng.random(len(source)) < 0.5]
        judges = {name: _judge(rng, source) for name in JUDGES}
        champion = judges.pop("champion")
        by_name = {
            name: compare(labels, champion, judge, [str(s) for s in source], names=("the champion", name))
            for name, judge in judges.items()
        }
        d = by_name["untuned"].balanced_accuracy
        verdicts = {name: c.verdict == "better" for name, c in by_name.items()}
        found["better"] += verdicts["untuned"]
        found["worse"] += by_name["untuned"].verdict == "worse"
        found["in the three lines"] += verdicts["untuned"] or verdicts["lexical-baseline"]
        found["any better"] += any(verdicts.values())
        found["interval"] += d.low is not None
        found["covers"] += d.low is not None and d.high is not None and d.low <= 1e-12 and d.high >= -1e-12
    return Counter({name: n / (found["interval"] if name == "covers" else draws) for name, n in found.items()})


def _judge(rng: np.random.Generator, source: np.ndarray) -> Side:
    """Verdicts by chance, with the scores they follow from."""
    chance = rng.beta(2, 2, size=source.max() + 1)[source]
    scores = chance - rng.random(len(source))
    return Side([bool(s > 0) for s in scores], [float(s) for s in scores])


def main() -> None:
    """Print or write the table."""
    draws = int(sys.argv[1])
    columns = ("better", "worse", "covers", "in the three lines", "any better")
    lines = [f"| sources × answers | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for sources, answers in DESIGNS:
        found = share_shown(sources, answers, draws)
        lines.append(f"| {sources} × {answers} | " + " | ".join(f"{found[c]:.1%}" for c in columns) + " |")
    table = "\n".join(lines) + "\n"
    Path(sys.argv[2]).write_text(table) if len(sys.argv) > 2 else print(table)


if __name__ == "__main__":
    main()
