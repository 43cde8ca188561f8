"""The comparison as people read it: tables on the terminal and in README.md, a plot; and ``compare.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.report.tables import NONE, Table, each, estimate, number, table_of, terminal
from faith_dspy.report.tables import markdown as sections

from .answers import STATEMENT_TOKENS
from .summary import REFERENCE, Results, SetResult, SystemResult, summarise
from .systems import SYSTEMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from .rows import Book

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- compare: generated -->", "<!-- /compare -->"
ENOUGH_CONTEXTS = 6
"""With fewer even the clearest difference comes by chance more often than once in twenty times: 2 / 2^contexts."""


def write(book: Book, out: Path, console: Console) -> int:
    """Everything from the rows that are there; 1 when there is nothing yet."""
    results = summarise(book) if book.run.get("model") else None
    if results is None or not results.sets:
        console.print("Nothing to report yet: no answer on which every system had its turn.")
        return 1
    (out / "compare.json").write_text(results.model_dump_json(indent=1) + "\n", encoding="utf-8")
    plot(results).savefig(out / "compare.png", metadata={"Software": None})
    for one in results.sets:
        console.print(terminal(tables(one)))
    if out.absolute() == README.with_name("results"):
        text = README.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        README.write_text(f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}", encoding="utf-8")
    return 0


def markdown(results: Results) -> str:
    """The generated part of README.md."""
    versions = ", ".join(f"{name} {v}" for name, v in results.versions.items())
    return "\n\n".join(
        [
            f"{results.date} · {results.model}, window {results.window:,} tokens · {results.machine}",
            f"Versions: {versions}.",
            "![agreement against tokens and seconds](results/compare.png)",
            *(sections(tables(one), level=3) for one in results.sets),
        ]
    )


def tables(one: SetResult) -> list[Table]:
    """Agreement and cost of every system on a set."""
    agreement = {
        "": _title,
        "balanced accuracy": lambda s: estimate(s.agreement and s.agreement.balanced_accuracy),
        "failures as wrong": lambda s: estimate(s.all_answers),
        "best cut": lambda s: number(s.best_cut),
        "AUROC": lambda s: estimate(s.agreement and s.agreement.auroc),
        "κ": lambda s: estimate(s.agreement and s.agreement.cohen_kappa),
        "unscored": lambda s: f"{1 - s.agreement.coverage:.0%}" if s.agreement else NONE,
    }
    ours = next((s for s in one.systems if s.system == REFERENCE and s.agreement), None)

    def ratio(*fields: str) -> Callable[[SystemResult], str]:
        def cell(s: SystemResult) -> str:
            mine, theirs = (sum(getattr(r, f) for f in fields) for r in (ours or s, s))
            return f"{theirs / mine:.1f}" if ours and mine else NONE

        return cell

    cost = {
        "": _title,
        "calls": lambda s: each(s.calls, 1),
        "computed": lambda s: each(s.computed_tokens, 1),
        "cached": lambda s: each(s.cached_tokens, 1),
        "output": lambda s: each(s.output_tokens, 1),
        "seconds": lambda s: each(s.seconds, 1),
        "computed ÷ ours": ratio("computed_tokens"),
        "+ output ÷ ours": ratio("computed_tokens", "output_tokens"),
        "seconds ÷ ours": ratio("seconds"),
    }
    least = (
        f"No judge computes fewer than {one.least:.0f} prompt tokens an answer: each context and answer read once, "
        f"{STATEMENT_TOKENS} tokens a statement."
    )
    return [
        table_of(
            f"{one.name}: {one.answers} answers over {one.contexts} contexts, {one.faithful} of them faithful",
            agreement,
            one.systems,
            caption="In brackets 95 % intervals, over contexts.",
            notes=tuple(_sentences(one)),
        ),
        table_of(f"{one.name}: cost of an answer", cost, [s for s in one.systems if s.agreement], notes=(least,)),
    ]


def _title(s: SystemResult) -> str:
    return SYSTEMS[s.system].title


def _sentences(one: SetResult) -> list[str]:
    """What the tables do not say: what differs beyond chance, what failed and why."""
    if one.contexts < ENOUGH_CONTEXTS:
        out = [
            f"{one.contexts} contexts are too few to tell systems apart, whatever the intervals: of two that are "
            f"equal, one is ahead on all of them once in {2 ** (one.contexts - 1)} times."
        ]
    else:
        out = [s.difference for s in one.systems if s.difference]
    for s in one.systems:
        if s.absent:
            out.append(f"{_title(s)} took no part: {s.absent}.")
        elif s.faults:
            fault = next(iter(s.faults))
            out.append(f"{_title(s)} gave no verdict on {sum(s.faults.values())} answers, mostly: {fault}.")
    return out


def plot(results: Results) -> Any:
    """Balanced accuracy (failures as wrong) against computed tokens and against seconds, a row per set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2 * len(results.sets)), dpi=120, layout="constrained")
    axes = figure.subplots(len(results.sets), 2, squeeze=False, sharey="row")
    for one, row in zip(results.sets, axes, strict=True):
        for ax, what in zip(row, ("computed_tokens", "seconds"), strict=True):
            for s in one.systems:
                e = s.all_answers
                if e is None or e.value is None:
                    continue
                colour = f"C{list(SYSTEMS).index(s.system)}"
                x, marker = getattr(s, what), "*" if s.system == REFERENCE else "o"
                ax.plot(x, e.value, marker, color=colour, markersize=10, label=_title(s))
                if e.low is not None and e.high is not None:
                    ax.vlines(x, e.low, e.high, color=colour, alpha=0.35, linewidth=2)
            ax.axhline(0.5, color="grey", linestyle="--", linewidth=1)
            ax.set_xlabel(f"{what.replace('_', ' ')} per answer")
        row[0].axvline(one.least, color="grey", linestyle=":", linewidth=1)
        row[0].set_ylabel("balanced accuracy, failures as wrong")
        row[0].set_title(f"{one.name} ({one.answers} answers)", loc="left", fontsize=10)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure
