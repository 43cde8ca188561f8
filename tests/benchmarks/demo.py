"""Replaces the judge and the three answers of `faith-dspy demo`, and runs it.

    python -c 'from faith_dspy import Judge; Judge("local", verdicts="graded", reasons="unsupported",
        classifier=None).save("judges/demo")'
    python -m tests.benchmarks.demo judges/demo quickstart                 # lists answers to choose from
    python -m tests.benchmarks.demo judges/demo quickstart FAITHFUL INVENTED CONTRADICTING

The last three are ids of labelled answers: a faithful one, one with an invented fact, and one that contradicts its
context. The judge is asked, its LM through DSPy's cache. It has to agree with the label of each, by a margin, and on
the statements that decide; those are the answers that are listed. The demo shows the chunks that the labels name.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from faith_dspy import load_judge
from faith_dspy.cli.judge import RECORDED, demo
from faith_dspy.eval_sets.catalog import path_of
from faith_dspy.export import save_judge
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.results import JudgedAnswer
from faith_dspy.report.judgment import judge_summary

MARGIN = 0.1
"""Of the probability from its threshold."""


def clear(a: JudgedAnswer) -> bool:
    """Whether the judge is sure of it, accepts each statement that is labelled supported, and rejects another."""
    p, threshold = a.judgment.probability, a.judgment.threshold
    pairs = [*zip(a.judgment.statements, a.labels, strict=True)]
    accepts = all(s.is_supported for s, label in pairs if label)
    rejected = [s.is_supported is False for s, label in pairs if label is False]
    is_sure = p is None or threshold is None or abs(p - threshold) >= MARGIN
    return is_sure and accepts and (any(rejected) or not rejected)


def listed(a: JudgedAnswer) -> str:
    """An answer to choose: id, probability, verdicts of people, and the answer."""
    said = ", ".join(
        sorted({s.verdict.value for s in a.example.statements if s.verdict})
    )
    return f"{a.id}  {a.probability:.2f}  {said}\n    {a.example.question}\n    {a.example.answer}"


def main(
    folder: Path,
    labels: Path,
    ids: Annotated[list[str] | None, typer.Argument()] = None,
) -> None:
    """Ask, check, write, show.

    ``folder``: of a tuned judge. ``labels``: a file, or a shipped set. ``ids``: three, or none.
    """
    judge, examples = load_judge(folder), read_labels(path_of(labels))
    asked = [e for e in examples if not ids or e.id in ids]
    answers = {
        e.id: JudgedAnswer.judged(e, *judged)
        for e, judged in zip(asked, judge.stream_raw(asked), strict=True)
    }
    if not ids:
        print(
            "\n".join(
                listed(a)
                for a in answers.values()
                if a.predicted == a.label and clear(a)
            )
        )
        return
    chosen = [answers[i] for i in ids]
    for a, faithful in zip(chosen, (True, False, False), strict=True):
        if not a.label == a.predicted == faithful or not clear(a):
            sys.exit(
                f"{a.judgment.pretty()}\n{a.id}: the judge is unsure or wrong about a statement. Choose another."
            )
    judge.manifest["demo"] = [
        sorted({i for s in a.example.statements for i in s.supporting_chunk_ids or ()})
        or [c.id for c in a.example.context]
        for a in chosen
    ]
    lines = (folder / "CARD.md").read_text(encoding="utf-8").splitlines()
    three = "\n".join([line for line in lines if line.startswith("- ")][:2])
    answers_of = f"Its answers are {', '.join(ids)} of `{labels.name}`."
    card = f"# The judge of `faith-dspy demo`\n\n{judge_summary(judge)}\n\n{three}\n\n{answers_of}\n"
    reference = [
        (a.example.question, a.example.context, a.example.answer, a.raw) for a in chosen
    ]
    save_judge(judge, RECORDED, card=card, reference=reference)
    demo(Path("demo.html"))


if __name__ == "__main__":
    typer.run(main)
