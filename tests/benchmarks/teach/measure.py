"""Print the families' table from log-odds of a course, kept in ``results/taught.jsonl``: an answer a line, no text.

``python -m tests.benchmarks.teach.measure [--keep log_odds.npz DEV.jsonl STUDIES.jsonl]``
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

KEPT = Path(__file__).parents[1] / "results" / "taught.jsonl"
DRAWS = 1000


class Family(NamedTuple):
    """Answers of a family: people's labels, and the log-odds of each one's weakest sentence."""

    name: str
    group: str
    labels: np.ndarray
    raw: np.ndarray
    taught: np.ndarray

    def auroc(self, which: str, at: Any = slice(None)) -> float:
        return float(roc_auc_score(self.labels[at], getattr(self, which)[at]))

    def balanced_accuracy(self, which: str) -> float:
        return float(balanced_accuracy_score(self.labels, getattr(self, which) > 0))

    def gains(self, random: np.random.Generator) -> np.ndarray:
        """Differences of AUROC over draws of the answers with replacement, within each label."""
        places = [np.flatnonzero(self.labels == label) for label in (True, False)]
        draws = [
            np.concatenate([random.choice(p, len(p)) for p in places])
            for _ in range(DRAWS)
        ]
        return np.array(
            [self.auroc("taught", at) - self.auroc("raw", at) for at in draws]
        )


def keep(log_odds: Path, files: list[Path]) -> None:
    """Write each answer's weakest log-odds to the kept file."""
    measured = np.load(log_odds)
    answers: dict[tuple[str, str], dict[str, Any]] = {}
    for path in files:
        rows = [
            json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
        ]
        here = measured["parts"] == path.stem
        for number, raw, taught in zip(
            *(measured[name][here] for name in ("rows", "raw", "taught")), strict=True
        ):
            row = rows[number]
            about = {
                "family": row["family"],
                "group": row["group"],
                "label": bool(row["answer_label"]),
            }
            answer = answers.setdefault(
                (row["family"], row["answer_id"]),
                {**about, "raw": 99.0, "taught": 99.0},
            )
            answer["raw"] = min(answer["raw"], round(float(raw), 3))
            answer["taught"] = min(answer["taught"], round(float(taught), 3))
    KEPT.write_text(
        "".join(f"{json.dumps(answer)}\n" for answer in answers.values()),
        encoding="utf-8",
    )


def families() -> list[Family]:
    rows = defaultdict(list)
    for line in KEPT.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rows[row["group"], row["family"]].append(
            (row["label"], row["raw"], row["taught"])
        )
    return [
        Family(name, group, *map(np.array, zip(*some, strict=True)))
        for (group, name), some in rows.items()
    ]


def interval(gains: np.ndarray) -> str:
    low, high = np.quantile(gains, [0.025, 0.975])
    return f"[{100 * low:+.1f}, {100 * high:+.1f}]"


def table() -> str:
    """Markdown: a line a family, and one for the mean of each group."""
    random = np.random.default_rng(0)
    lines = [
        "| family | answers | AUROC raw | taught | points | balanced accuracy at .5 raw | taught |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    all_families = families()
    for group in ("rag", "swapped", "study"):
        some = [family for family in all_families if family.group == group]
        gains = [family.gains(random) for family in some]
        for family, gain in zip(some, gains, strict=True):
            lines.append(line(family.name, [family], gain))
        if group != "study":
            lines.append(
                line(f"**mean of {len(some)}, {group}**", some, np.mean(gains, axis=0))
            )
    return "\n".join(lines)


def line(name: str, some: list[Family], gains: np.ndarray) -> str:
    """The figures of one family, or the means of several."""
    auroc = [
        np.mean([family.auroc(which) for family in some]) for which in ("raw", "taught")
    ]
    balanced = [
        np.mean([family.balanced_accuracy(which) for family in some])
        for which in ("raw", "taught")
    ]
    answers = sum(len(family.labels) for family in some)
    points = f"{100 * (auroc[1] - auroc[0]):+.1f} {interval(gains)}"
    figures = [f"{value:.3f}".removeprefix("0") for value in (*auroc, *balanced)]
    return f"| {name} | {answers:,} | {figures[0]} | {figures[1]} | {points} | {figures[2]} | {figures[3]} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--keep",
        type=Path,
        nargs="+",
        help="log-odds of a course, and the files measured on",
    )
    options = parser.parse_args()
    if options.keep:
        keep(options.keep[0], options.keep[1:])
    print(table())


if __name__ == "__main__":
    main()
