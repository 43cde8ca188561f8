"""Replaces the judge and the three answers of `faith-dspy demo`, and runs it.

    python -c 'from faith_dspy import Judge; Judge("local", verdicts="graded", reasons="unsupported",
        classifier=None).save("judges/demo")'
    python -m tests.benchmarks.demo judges/demo quickstart FAITHFUL INVENTED CONTRADICTING

The last three are ids of labelled answers: a faithful one, one with an invented fact, and one that contradicts its
context. The judge is asked, and has to agree with their labels. The demo shows the chunks that the labels name.
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from faith_dspy import load_judge
from faith_dspy.cli.judge import RECORDED, demo
from faith_dspy.eval_sets.catalog import path_of
from faith_dspy.export import save_judge
from faith_dspy.io.labels import read_labels
from faith_dspy.report.judgment import judge_summary


def main(folder: Path, labels: Path, ids: list[str]) -> None:
    """Ask, check, write, show.

    ``folder``: of an exported judge. ``labels``: a file, or a shipped set.
    """
    judge = load_judge(folder)
    by_id = {e.id: e for e in read_labels(path_of(labels))}
    examples = [by_id[answer_id] for answer_id in ids]
    shown, reference = [], []
    for e, (raw, judgment) in zip(examples, judge.stream_raw(examples), strict=True):
        if judgment.faithful is not e.label:
            sys.exit(
                f"{judgment.pretty()}\n{e.id}: labelled {e.label}. Choose another."
            )
        named = {i for s in e.statements for i in s.supporting_chunk_ids or ()}
        shown.append(sorted(named) or [chunk.id for chunk in e.context])
        reference.append((e.question, e.context, e.answer, raw))
    judge.manifest["demo"] = shown
    title = "# The judge of `faith-dspy demo`"
    answers = f"Its answers are {', '.join(ids)} of `{labels.name}`."
    card = f"{title}\n\n{judge_summary(judge)}\n\n{answers}\n"
    save_judge(judge, RECORDED, card=card, reference=reference)
    demo(Path("demo.html"))


if __name__ == "__main__":
    typer.run(main)
