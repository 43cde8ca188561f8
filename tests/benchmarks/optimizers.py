"""What optimizers make of LMs that can be taught, and what they pay: scripted LMs, people with two habits each.

    python -m tests.benchmarks.optimizers [--minutes 60]

The LM decides a habit's cases the other way round until its prompt says otherwise, by a rule or an example, and
misreads a twentieth of all statements; it is its own reflector (`tests/support/teachable.py`). An optimizer learns from
the labels as a study exports it: from all of them where it is cheap, else from half of the sources. Agreement is that
of the LM's own verdicts on 120 answers of other sources; where the optimizer fails, that of the prompt as it was. Rows
go to ``results/optimizers.jsonl`` as they come; run again, it goes on where it stopped, and prints the table of what is
there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import fmean
from typing import Any, NamedTuple

import typer

from faith_dspy import Judge
from faith_dspy.errors import FaithDspyError
from faith_dspy.io.labels import parse_example
from faith_dspy.lm.make import make_lm
from faith_dspy.lm.metered import metered
from faith_dspy.optimize.compile.judge import compile_judge
from faith_dspy.optimize.compile.optimizers import OPTIMIZERS, Effort, optimizer_of
from faith_dspy.optimize.data.pool import halves
from faith_dspy.schema import LabelledExample
from tests.support.teachable import (
    ARITHMETIC,
    CONDITION,
    HEDGE,
    PRAISED,
    ROUNDED,
    Habit,
    TeachableLM,
    annotated,
)

from . import HERE
from .log import Log

RESULTS = HERE / "results" / "optimizers.jsonl"
HABITS = {
    "rounded, condition": (ROUNDED, CONDITION),
    "rounded, arithmetic": (ROUNDED, ARITHMETIC),
    "condition, hedge": (CONDITION, HEDGE),
    "praise, arithmetic": (PRAISED, ARITHMETIC),
}
"""Words tell something of rounded figures, arithmetic and praise, nothing of conditions and hedges."""
SIZES = (40, 100, 200)
SLIPS = 0.05
OTHER_SOURCES = 10_000
SEED, TOLD = "seed", "told both rules"
STATEMENT_GEPA = "gepa, statements"
ROWS = (SEED, *OPTIMIZERS, STATEMENT_GEPA, TOLD)


class People(NamedTuple):
    """How labels come about."""

    share: float
    """Of the answers that each of two habits decides."""
    reasons: float
    """Share of these for which people say why."""


PEOPLE = {
    "reasons": People(0.25, 1.0),
    "no reasons": People(0.25, 0.0),
    "rare, some reasons": People(0.1, 0.3),
}


class Case(NamedTuple):
    """A cell of the tables."""

    habits: str
    people: str
    labels: int
    nonsense: bool
    """Whether what the reflector writes is nonsense."""


HEADLINE = Case("rounded, condition", "reasons", 96, False)


def cases() -> Iterator[Case]:
    """The issue's own first."""
    yield HEADLINE
    yield HEADLINE._replace(people="no reasons")
    for labels in SIZES:
        for habits in HABITS:
            for people in PEOPLE:
                yield Case(habits, people, labels, False)
            yield Case(habits, "reasons", labels, True)


def answers(
    habits: Sequence[Habit], people: People, sources: int, first: int
) -> list[LabelledExample]:
    """Three answers over each source."""
    rows = annotated(
        habits, sources, share=people.share, reasons=people.reasons, first=first
    )
    return [parse_example(row) for row in rows]


def agreement(judge: Judge, labelled: Sequence[LabelledExample]) -> float:
    """Balanced accuracy of the LM's own verdicts; an unscored answer is a wrong one."""
    right: dict[bool, list[bool]] = {True: [], False: []}
    for judgment, e in zip(judge.batch(labelled), labelled, strict=True):
        right[bool(e.label)].append(judgment.faithful is e.label)
    return fmean(fmean(share) for share in right.values())


def measure(case: Case, name: str) -> dict[str, Any]:
    """Compile, and ask about the other sources."""
    habits, people = HABITS[case.habits], PEOPLE[case.people]
    pool = answers(habits, people, round(case.labels / 3), 0)
    test = answers(habits, people, 40, OTHER_SOURCES)
    optimizer, _, statements = name.partition(", ")
    with closing(TeachableLM(nonsense=case.nonsense, slips=SLIPS)) as server:
        judge = Judge(
            make_lm("openai/taught", api_base=server.base, num_retries=0),
            classifier=None,
            granularity="statement" if statements else "sentence",
            criteria="\n".join(h.rule for h in habits) if name == TOLD else "",
        )
        row: dict[str, Any] = {}
        with metered() as meter:
            try:
                if name not in (SEED, TOLD):
                    if not optimizer_of(optimizer).cheap:
                        pool = halves(pool, 0)[0]
                    judge = compile_judge(judge, optimizer, pool, Effort(), 0).judge
            except FaithDspyError as exc:
                row["failed"] = str(exc)
        usage = meter.usage
        row |= {
            "calls": usage.calls - len(server.reflections),
            "reflections": len(server.reflections),
            "tokens": usage.prompt_tokens + usage.output_tokens,
        }
        row["agreement"] = agreement(judge, test)
    return row


def run(log: Log, minutes: float) -> None:
    """Fill in what is missing."""
    started = time.monotonic()
    for case in cases():
        for name in ROWS:
            key = {**case._asdict(), "optimizer": name}
            is_late = time.monotonic() - started > 60 * minutes
            if not is_late and is_asked(case, name) and not log.has(**key):
                log.add(**key, **measure(case, name))


def is_asked(case: Case, name: str) -> bool:
    """Whether a row of the table has this cell: nonsense is for those that reflect, statements cost most."""
    if name == STATEMENT_GEPA:
        return case.labels in (HEADLINE.labels, 100)
    return not case.nonsense or (name in OPTIMIZERS and OPTIMIZERS[name].proposes)


def tables(log: Log) -> str:
    """What was measured, in Markdown."""

    def rows(name: str, **where: Any) -> list[dict[str, Any]]:
        key = {"optimizer": name, **where}
        return [row for row in log.rows if key.items() <= row.items()]

    def shown(name: str, **where: Any) -> str:
        cell = rows(name, **where)
        return points(fmean(row["agreement"] for row in cell)) if cell else "–"

    def losses(name: str) -> str:
        lost = []
        for row in rows(name, nonsense=True):
            where = {key: row[key] for key in ("habits", "people", "labels")}
            (seed,) = rows(SEED, **where, nonsense=False)
            lost.append(100 * (seed["agreement"] - row["agreement"]))
        return f"{fmean(lost):.1f}, {max(lost):.1f}" if lost else "–"

    def spent(name: str) -> list[str]:
        cell = rows(name, labels=100, nonsense=False)
        means = (
            fmean(row[what] for row in cell) if cell else 0
            for what in ("reflections", "calls", "tokens")
        )
        return [f"{mean:,.0f}" for mean in means]

    reached = [["prompt", "96, reasons", "96, no reasons"]]
    reached[0] += [f"{size}, {people}" for people in PEOPLE for size in SIZES]
    costs = [["prompt", "nonsense costs in the mean, at most"]]
    costs[0] += ["reflections", "verdicts", "tokens"]
    for name in ROWS:
        line = [name]
        for people in ("reasons", "no reasons"):
            line.append(shown(name, labels=96, people=people))
        for people in PEOPLE:
            for size in SIZES:
                where = {"labels": size, "people": people, "nonsense": False}
                line.append(shown(name, **where))
        reached.append(line)
        costs.append([name, losses(name), *spent(name)])
    return f"{_table(reached)}\n\n{_table(costs)}"


def _table(lines: list[list[str]]) -> str:
    lines.insert(1, ["---"] + ["--:"] * (len(lines[0]) - 1))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def points(share: float) -> str:
    """As the pages write it."""
    return f"{share:.2f}".removeprefix("0")


def main(minutes: float = 60.0) -> None:
    """Run what is left to run, and print the tables."""
    log = Log(RESULTS)
    run(log, minutes)
    print(tables(log))


if __name__ == "__main__":
    typer.run(main)
