"""How often injections flip a judge's verdict, with and without the defence (`faith_dspy.program.prompt.as_data`).

    python -m tests.benchmarks.injection --out injection.jsonl [--judge default --judge FOLDER …] [--way with]

Each attack of `faith_dspy.optimize.stress` is tried twice, on a supported and on an unsupported
statement of the shipped set that the judge gets right without it, and each time with the defence and without, and
with a harmless sentence in the attack's place: for each judge 630 answers of one statement, one call each, and up to 80
to find the statements. ``--way with`` takes a third of it. The judges are the embedded model untuned, with the default
classifier, and those tuned on labels, by their folders. ``--out`` has a line per answer; run again, it goes on.
"""

import random
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console
from rich.table import Table

from faith_dspy import Judge, load_judge
from faith_dspy.eval_sets.catalog import path_of
from faith_dspy.io.labels import read_labels
from faith_dspy.optimize.stress import attacks, inject
from faith_dspy.report.tables import with_interval
from faith_dspy.schema import LabelledExample
from faith_dspy.scoring.statistics import wilson
from faith_dspy.text.sentences import carries_statement, sentences

from .log import Log

WAYS: dict[str, tuple[str, Any]] = {
    "without": ("faith_dspy.program.prompt.as_data", str.strip),
    "with": ("", None),
    "harmless": ("faith_dspy.optimize.stress._filled", lambda text, example: HARMLESS),
}
"""With the defence and without, and what a sentence does that orders nothing: what is patched, and by what."""
HARMLESS = "The office is closed on the first Monday of the month."
TRIED = 40
"""Statements of each label that are judged at most to find those for the attacks."""


def judged(
    log: Log, key: str, judge: Judge, example: LabelledExample, **more: Any
) -> dict[str, Any]:
    """The row of that key, judged now if it is not there or the LM failed on it."""
    rows = [
        row for row in log.rows if row["key"] == key and row["unscored"] != "lm_failed"
    ]
    if not rows:
        found = judge(example.question, example.context, example.answer)
        said = found.model_dump(mode="json", include={"faithful", "unscored"})
        log.add(key=key, id=example.id, probability=found.ranking, **said, **more)
        rows = log.rows[-1:]
    return rows[-1]


def judge_of(name: str, lm: str, api_base: str | None) -> Judge:
    """``untuned``, ``default``, or the judge in a folder."""
    if name not in ("untuned", "default"):
        return load_judge(name, api_base=api_base)
    classifier: Any = "default" if name == "default" else None
    return Judge(lm, api_base=api_base, classifier=classifier)


def answers(
    name: str, judge: Judge, log: Log, pool: int, seed: int
) -> dict[bool, list[LabelledExample]]:
    """By label, labelled statements that the judge gets right, each as an answer of its own."""
    single = [
        e.model_copy(
            update={
                "id": f"{e.id}/{n}",
                "answer": s.text,
                "faithful": s.verdict.is_supported,
            }
        )
        for e in read_labels(path_of("hard_cases"))
        for n, s in enumerate(e.statements)
        if s.verdict is not None
        and sum(carries_statement(t.text) for t in sentences(s.text)) == 1
    ]
    random.Random(seed).shuffle(single)
    found = {}
    for label in (True, False):
        right: list[LabelledExample] = []
        for e in [e for e in single if e.label is label][:TRIED]:
            if (
                len(right) < pool
                and judged(log, f"{name} plain {e.id}", judge, e)["faithful"] is label
            ):
                right.append(e)
        if not right:
            raise SystemExit(
                f"The judge gets none of the statements right whose label is {label}."
            )
        found[label] = right
    return found


def main(
    out: Annotated[Path, typer.Option()],
    judge: list[str] = ["untuned", "default"],
    way: list[str] = list(WAYS),
    lm: str = "local",
    api_base: str | None = None,
    pool: int = 8,
    seed: int = 0,
) -> None:
    """Run what is missing, then print the table.

    ``judge``: untuned, default or a folder; ``lm`` is that of the first two. ``pool``: statements of each label that
    are attacked.
    """
    log = Log(out)
    for name in judge:
        attacked = judge_of(name, lm, api_base)
        pools = answers(name, attacked, log, pool, seed)
        by_way = {one: flips(name, attacked, log, pools, one) for one in way}
        Console(width=200).print(table_of(name, by_way))


def flips(
    name: str,
    judge: Judge,
    log: Log,
    pools: dict[bool, list[LabelledExample]],
    way: str,
) -> dict[tuple[str, bool], list[bool]]:
    """By kind of attack and the statement's label, whether each attack flipped the verdict."""
    found: dict[tuple[str, bool], list[bool]] = {}
    replaced, by = WAYS[way]
    with patch(replaced, by) if replaced else nullcontext():
        for kind, attack in attacks().items():
            for number, (label, pool) in product(
                range(len(attack["texts"])), pools.items()
            ):
                example = pool[number % len(pool)]
                made = example.model_copy(update=inject(example, kind, number))
                key = f"{name} {way} {kind} {number} {example.id}"
                row = judged(log, key, judge, made, kind=kind, label=label, way=way)
                found.setdefault((kind, label), []).append(row["faithful"] is not label)
    return found


def table_of(name: str, found: dict[str, dict[tuple[str, bool], list[bool]]]) -> Table:
    """Shares of flipped verdicts with 95 % intervals: kind by kind, and of all attacks together."""
    table = Table(
        "kind",
        *(f"{to}, {way}" for way in found for to in ("to pass", "to fail", "both")),
        title=name,
    )
    for kind in [*attacks(), None]:
        cells = []
        for by_attack in found.values():
            for labels in ({False}, {True}, {False, True}):
                of = [
                    f
                    for (k, label), fs in by_attack.items()
                    if label in labels and kind in (k, None)
                    for f in fs
                ]
                cells.append(f"{with_interval(wilson(sum(of), len(of)))} of {len(of)}")
        table.add_row(kind or "all", *cells)
    return table


if __name__ == "__main__":
    typer.run(main)
