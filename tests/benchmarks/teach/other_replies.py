"""Compare the taught model with the published one where replies are written: statements, joint verdicts, reasons.

``python -m tests.benchmarks.teach.other_replies ROWS.jsonl [--answers 60]``
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from faith_dspy import Judge
from faith_dspy.schema import Judgment

from .measure import Family, interval

FAMILIES = ("begin_tc", "dialfact", "q2")
"""Held out from the teaching; short contexts, one to four sentences an answer."""
TASKS: dict[str, dict[str, Any]] = {
    "a label": {"granularity": "sentence"},
    "taken apart": {"granularity": "statement"},
    "joint": {"granularity": "sentence", "verification": "joint"},
    "with a reason": {"granularity": "sentence", "reasoning": "after"},
}


def answers(path: Path, count: int) -> list[dict[str, Any]]:
    """Answers with at least two sentences first, as many of each family."""
    by_id: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["family"] in FAMILIES:
            by_id.setdefault((row["family"], row["answer_id"]), []).append(row)
    chosen = []
    for family in FAMILIES:
        rows = [rows for (name, _), rows in by_id.items() if name == family]
        random.Random(0).shuffle(rows)
        for label in (1, 0):
            same = [some for some in rows if some[0]["answer_label"] == label]
            chosen += sorted(same, key=len, reverse=True)[
                : count // (2 * len(FAMILIES))
            ]
    return [
        {
            "question": rows[0]["question"],
            "context": rows[0]["context"],
            "answer": " ".join(row["statement"] for row in rows),
            "faithful": bool(rows[0]["answer_label"]),
        }
        for rows in chosen
    ]


def score(judgment: Judgment) -> float:
    """The least confidence among the statements; 0 for an answer without a score."""
    if judgment.score is None:
        return 0.0
    return min((s.confidence or 0.0) for s in judgment.statements)


def figures(judgments: list[Judgment]) -> dict[str, float]:
    statements = [s for j in judgments for s in j.statements]
    return {
        "scored": np.mean([j.score is not None for j in judgments]),
        "statements an answer": len(statements) / len(judgments),
        "with a reason": np.mean([bool(s.reason) for s in statements]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path)
    parser.add_argument("--answers", type=int, default=60)
    options = parser.parse_args()
    records = answers(options.rows, options.answers)
    labels = [record.pop("faithful") for record in records]
    for task, settings in TASKS.items():
        judges = {
            name: Judge(name, classifier=None, **settings)
            for name in ("local:raw", "local")
        }
        judged = {name: judge.batch(records) for name, judge in judges.items()}
        raw, taught = (np.array([score(j) for j in some]) for some in judged.values())
        family = Family(task, "", np.array(labels), raw, taught)
        gains = interval(family.gains(np.random.default_rng(0)))
        print(task, f"{family.auroc('raw'):.3f} → {family.auroc('taught'):.3f}", gains)
        for name, judgments in judged.items():
            print("  ", name, figures(judgments), flush=True)


if __name__ == "__main__":
    main()
