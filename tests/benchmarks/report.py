"""The comparison as people read it: tables on the terminal and in README.md; and ``compare.json``."""

import json
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from rich.console import Console

from faith_dspy.lm.model_file import EMBEDDED
from faith_dspy.optimize.results import Row as Judged
from faith_dspy.optimize.select.comparison import compare
from faith_dspy.report.tables import (
    NONE,
    Table,
    each,
    table_of,
    terminal,
    with_interval,
)
from faith_dspy.report.tables import markdown as sections
from faith_dspy.scoring.agreement import Agreement, measure
from faith_dspy.scoring.statistics import Estimate

from .systems import SYSTEMS

Row = dict[str, Any]

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- compare: generated -->", "<!-- /compare -->"
REFERENCE = "champion"
COSTS = ("calls", "computed", "cached", "output", "seconds")
"""Prompt tokens are computed or were cached; seconds are those from giving a system the answer to its verdict."""
PACKAGES = ("faith_dspy", "dspy", "ragas", "deepeval", "mlflow", "openai", "xllamacpp")
ENOUGH_CONTEXTS = 6
"""With fewer even the clearest difference comes by chance more often than once in twenty times: 2 / 2^contexts."""


@dataclass
class SystemResult:
    """One row of the tables. Costs are means per answer."""

    system: str
    agreement: Agreement
    """Over the answers it scored."""
    all_answers: Estimate
    """Balanced accuracy over all answers, those without a verdict counted as wrong."""
    faults: dict[str, int]
    """Reasons for the answers without a verdict, the most common first."""
    costs: dict[str, float]
    """By name (`COSTS`)."""
    difference: str | None
    """Whether the reference is better, in words. Unscored answers count as wrong."""


@dataclass
class SetResult:
    """One set's tables."""

    name: str
    answers: int
    faithful: int
    contexts: int
    systems: list[SystemResult]


def summarise(rows: Sequence[Row]) -> list[SetResult]:
    """Figures of each set, of the answers on which every one of its systems had its turn."""
    sets: dict[str, dict[str, dict[str, Row]]] = {}
    for row in rows:  # a later row for the same place replaces the one before
        sets.setdefault(row["set"], {}).setdefault(row["system"], {})[row["answer"]] = (
            row
        )
    found = []
    for name, systems in sets.items():
        all_had = [
            a
            for a in next(iter(systems.values()))
            if all(a in answers for answers in systems.values())
        ]
        by_system = {
            s: [systems[s][a] for a in all_had] for s in SYSTEMS if s in systems
        }
        counted = next(iter(by_system.values()))
        found.append(
            SetResult(
                name=name,
                answers=len(counted),
                faithful=sum(r["label"] for r in counted),
                contexts=len({r["group"] for r in counted}),
                systems=[
                    _system(s, found, by_system.get(REFERENCE, []))
                    for s, found in by_system.items()
                ],
            )
        )
    return found


def _system(name: str, rows: Sequence[Row], reference: Sequence[Row]) -> SystemResult:
    side, ours = (
        [Judged(id=r["answer"], source=r["group"], label=r["label"], predicted=r["passes"], probability=r["score"])
         for r in found]
        for found in (rows, reference)
    )  # fmt: skip
    labels, groups = [r.label for r in side], [r.source for r in side]
    strict = [(not r.label) if r.predicted is None else r.predicted for r in side]
    # Addresses and counts would make every fault look different.
    faults = Counter(
        re.sub(r"0x[0-9a-f]+|\b\d{4,}\b", "…", r["why"] or "none given")
        for r in rows
        if r["passes"] is None
    )
    titles = (SYSTEMS[REFERENCE].title, SYSTEMS[name].title)
    return SystemResult(
        system=name,
        agreement=measure(
            labels,
            [r.predicted for r in side],
            [r.probability for r in side],
            groups=groups,
        ),
        all_answers=measure(
            labels, strict, [None] * len(side), groups=groups
        ).balanced_accuracy,
        faults=dict(faults.most_common()),
        costs={cost: sum(r[cost] for r in rows) / len(rows) for cost in COSTS},
        difference=compare(ours, side, titles).sentence
        if ours and name != REFERENCE
        else None,
    )


def write(rows: Sequence[Row], out: Path, console: Console) -> None:
    """Everything from the rows that are there; README.md's part of it where ``out`` is its folder."""
    sets = summarise(rows)
    plain = json.dumps(
        [asdict(one) for one in sets],
        indent=1,
        default=lambda model: model.model_dump(mode="json"),
    )
    (out / "compare.json").write_text(plain + "\n", encoding="utf-8")
    for one in sets:
        console.print(terminal(tables(one)))
    if out.absolute() == README.with_name("results"):
        before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        README.write_text(
            f"{before}{BEGIN}\n{markdown(sets)}\n{END}{after}", encoding="utf-8"
        )


def markdown(sets: Sequence[SetResult]) -> str:
    """The generated part of README.md."""
    installed = {d.name for d in distributions()}
    versions = ", ".join(
        f"{name} {version(name)}" for name in PACKAGES if name in installed
    )
    machine = f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}"
    head = f"{date.today()} · {EMBEDDED.filename} · {machine}\n\nVersions: {versions}."
    return "\n\n".join([head, *(sections(tables(one), level=3) for one in sets)])


def tables(one: SetResult) -> list[Table]:
    """Agreement and cost of every system on a set."""
    agreement = {
        "": lambda s: SYSTEMS[s.system].title,
        "balanced accuracy": lambda s: with_interval(s.agreement.balanced_accuracy),
        "failures as wrong": lambda s: with_interval(s.all_answers),
        "AUROC": lambda s: with_interval(s.agreement.auroc),
        "κ": lambda s: with_interval(s.agreement.cohen_kappa),
        "unscored": lambda s: f"{1 - s.agreement.coverage:.0%}",
    }
    ours = next((s.costs for s in one.systems if s.system == REFERENCE), None)

    def ratio(*names: str) -> Callable[[SystemResult], str]:
        def cell(s: SystemResult) -> str:
            mine, theirs = (
                sum(costs[name] for name in names)
                for costs in (ours or s.costs, s.costs)
            )
            return f"{theirs / mine:.1f}" if ours and mine else NONE

        return cell

    cost: dict[str, Callable[[SystemResult], str]] = {
        "": lambda s: SYSTEMS[s.system].title
    }
    cost |= {name: lambda s, name=name: each(s.costs[name], 1) for name in COSTS}  # type: ignore[misc]
    cost |= {
        "computed ÷ ours": ratio("computed"),
        "+ output ÷ ours": ratio("computed", "output"),
    }
    cost |= {"seconds ÷ ours": ratio("seconds")}
    return [
        table_of(
            f"{one.name}: {one.answers} answers over {one.contexts} contexts, {one.faithful} of them faithful",
            agreement,
            one.systems,
            caption="In brackets 95 % intervals, over contexts.",
            notes=tuple(_sentences(one)),
        ),
        table_of(f"{one.name}: cost of an answer", cost, one.systems),
    ]


def _sentences(one: SetResult) -> list[str]:
    """What the tables do not say: what differs beyond chance, what failed and why."""
    out = [s.difference for s in one.systems if s.difference]
    if one.contexts < ENOUGH_CONTEXTS:
        out = [
            f"{one.contexts} contexts are too few to tell systems apart, whatever the intervals: of two that are "
            f"equal, one is ahead on all of them once in {2 ** (one.contexts - 1)} times."
        ]
    for s in one.systems:
        if s.faults:
            fault = next(iter(s.faults))
            out.append(
                f"{SYSTEMS[s.system].title} gave no verdict on {sum(s.faults.values())} answers, mostly: {fault}."
            )
    return out
