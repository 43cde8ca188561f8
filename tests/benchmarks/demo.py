"""Replaces the judge and the three answers of `faith-dspy demo`, and runs it.

    python -m tests.benchmarks.demo judges/quickstart quickstart FAITHFUL INVENTED CONTRADICTING

The last three are ids of labelled answers: a faithful one, one with an invented fact, and one that contradicts its
context. The judge is asked about them, its LM through DSPy's cache, and has to agree with people on each of them,
by a margin and in every statement. The demo shows the chunks that the labels name.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from faith_dspy import load_judge
from faith_dspy.cli.judge import RECORDED, demo
from faith_dspy.eval_sets.catalog import path_of
from faith_dspy.export import save_judge
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.report.headline import of_judge
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.report.judgment import described

MARGIN = 0.1
"""Of the probability from its threshold."""


def clear(a: JudgedAnswer) -> bool:
    """Whether the judge is sure of it, and right about each statement that people have labelled."""
    p, threshold = a.judgment.probability, a.judgment.threshold
    pairs = zip(a.judgment.statements, a.labels, strict=True)
    right = all(label is None or label == s.is_supported for s, label in pairs)
    return right and (p is None or threshold is None or abs(p - threshold) >= MARGIN)


def main() -> None:
    """Ask, check, write, show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judge", help="folder of a tuned judge")
    parser.add_argument("labels", help="labels file, or a shipped set")
    parser.add_argument("ids", nargs=3, metavar="ID")
    given = parser.parse_args()
    known = {e.id: e for e in read_labels(path_of(Path(given.labels)))}
    if missing := [i for i in given.ids if i not in known]:
        sys.exit(f"{given.labels} has no answer {', '.join(missing)}")
    examples, judge = [known[i] for i in given.ids], load_judge(given.judge)
    judged = list(judge.verify_all(examples))
    for e, (raw, judgment), faithful in zip(examples, judged, (True, False, False), strict=True):
        if not e.label == judgment.faithful == faithful or not clear(JudgedAnswer.of(e, raw, judgment)):
            sys.exit(f"{judgment.pretty()}\n{e.id}: the judge is unsure or wrong about a statement. Choose another.")
    judge.manifest["demo"] = [
        sorted({i for s in e.statements for i in s.supporting_chunk_ids or ()}) or [c.id for c in e.context]
        for e in examples
    ]
    three = "\n".join(f"- {line}" for line in of_judge(judge, "DIR").notes[:2])
    answers = f"Its answers are {', '.join(given.ids)} of `{Path(given.labels).name}`."
    card = f"# The judge of `faith-dspy demo`\n\n{described(judge)}\n\n{three}\n\n{answers}\n"
    reference = [(e.question, e.context, e.answer, raw) for e, (raw, _) in zip(examples, judged, strict=True)]
    save_judge(judge, RECORDED, card=card, reference=reference)
    demo(Path("demo.html"))


if __name__ == "__main__":
    main()
