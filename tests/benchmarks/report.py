"""The comparison as people read it: a table on the terminal, README.md, a plot; and ``compare.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .summary import REFERENCE, Results, SetResult, summarise

if TYPE_CHECKING:
    from rich.console import Console

    from faith_dspy.scoring.statistics import Estimate

    from .rows import Book

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- compare: generated -->", "<!-- /compare -->"
COLOURS = {
    "champion": "#2563a8",
    "words": "#7f8c8d",
    "sentence": "#6fa3dc",
    "answer": "#a9c8ec",
    "ragas": "#c0392b",
    "deepeval": "#8e44ad",
    "make_judge": "#d68910",
}
AGREEMENT = ("", "balanced accuracy", "failures as wrong", "best cut", "AUROC", "κ", "unscored")
COST = ("", "calls", "computed", "cached", "output", "seconds", "computed ÷ ours", "+ output ÷ ours", "seconds ÷ ours")


def write(book: Book, out: Path, console: Console) -> int:
    """Everything from the rows that are there; 1 when there is nothing yet."""
    results = summarise(book) if book.run.get("model") else None
    if results is None or not results.sets:
        console.print("Nothing to report yet: no answer on which every system had its turn.")
        return 1
    (out / "compare.json").write_text(results.model_dump_json(indent=1) + "\n", encoding="utf-8")
    plot(results).savefig(out / "compare.png", metadata={"Software": None})
    for one in results.sets:
        show(one, console)
    if out.absolute() == README.with_name("results"):
        text = README.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        README.write_text(f"{before}{BEGIN}\n{markdown(results)}\n{END}{after}", encoding="utf-8")
    return 0


def show(one: SetResult, console: Console) -> None:
    """Both tables of a set on the terminal."""
    from rich.table import Table

    for header, rows in ((AGREEMENT, agreement_rows(one)), (COST, cost_rows(one))):
        table = Table(title=f"{title(one)}", title_justify="left")
        for i, name in enumerate(header):
            table.add_column(name, justify="left" if i == 0 else "right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in sentences(one):
        console.print(f"· {line}", markup=False)


def markdown(results: Results) -> str:
    """The generated part of README.md."""
    versions = ", ".join(f"{name} {v}" for name, v in results.versions.items())
    lines = [
        "",
        f"{results.date} · {results.model}, window {results.window:,} tokens · {results.machine}",
        "",
        f"Versions: {versions}.",
        "",
        "![agreement against tokens and seconds](results/compare.png)",
    ]
    for one in results.sets:
        lines += ["", f"### {title(one)}", ""]
        for header, rows in ((AGREEMENT, agreement_rows(one)), (COST, cost_rows(one))):
            lines += [_line(header), _line(["---", *["--:"] * (len(header) - 1)]), *map(_line, rows), ""]
        lines += [f"* {s}" for s in sentences(one)]
    return "\n".join(lines)


def title(one: SetResult) -> str:
    """What the set's tables are about."""
    return (
        f"{one.name}: {one.answers} answers over {one.contexts} contexts, {one.faithful} of them faithful; "
        "per answer, with 95 % intervals"
    )


def agreement_rows(one: SetResult) -> list[list[str]]:
    """Cells of the table of agreement."""
    out = []
    for s in one.systems:
        cells = ["–"] * (len(AGREEMENT) - 2) + ["took no part"]
        if a := s.agreement:
            figures = map(_figure, (a.balanced_accuracy, s.all_answers))
            more = map(_figure, (a.auroc, a.cohen_kappa))
            cells = [*figures, "–" if s.best_cut is None else f"{s.best_cut:.3f}", *more, f"{1 - a.coverage:.0%}"]
        out.append([s.title, *cells])
    return out


def cost_rows(one: SetResult) -> list[list[str]]:
    """Cells of the table of costs, the least possible last."""
    rows = []
    for s in one.systems:
        cells = ["–"] * (len(COST) - 1)
        if c := s.cost:
            cells = [f"{c.calls:,.1f}", *(f"{t:,.0f}" for t in (c.computed_tokens, c.cached_tokens, c.output_tokens))]
            b = s.beside
            beside = [_figure(e, 1) for e in (b.computed_tokens, b.all_tokens, b.seconds)] if b else ["–"] * 3
            cells += [f"{c.seconds:,.1f}", *(["1"] * 3 if s.system == REFERENCE else beside)]
        rows.append([s.title, *cells])
    ours = next((s.cost.computed_tokens for s in one.systems if s.cost and s.system == REFERENCE), 0)
    ratio = f"{one.baseline / ours:.2f}" if ours else "–"
    return [
        *rows,
        ["least: read once, 3 tokens a statement", "–", f"{one.baseline:.0f}", "–", "–", "–", ratio, "–", "–"],
    ]


ENOUGH_CONTEXTS = 6
"""With fewer even the clearest difference comes by chance more often than once in twenty times: 2 / 2^contexts."""


def sentences(one: SetResult) -> list[str]:
    """What the tables do not say: what differs beyond chance, what failed and why."""
    out = []
    if one.contexts < ENOUGH_CONTEXTS:
        chance = 2 ** (one.contexts - 1)
        out.append(
            f"{one.contexts} contexts are too few to tell systems apart, whatever the intervals: of two that are "
            f"equal, one is ahead on all of them once in {chance} times."
        )
    else:
        out += [s.beside.difference.sentence for s in one.systems if s.beside]
    for s in one.systems:
        if s.absent:
            out.append(f"{s.title} took no part: {s.absent}.")
        elif s.unscored:
            out.append(f"{s.title} gave no verdict on {s.unscored} answers, mostly: {s.most_common_fault}.")
    return out


def plot(results: Results) -> Any:
    """Balanced accuracy (failures as wrong) against computed tokens and against seconds, a row per set."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(10, 4.2 * len(results.sets)), dpi=120, layout="constrained")
    axes = figure.subplots(len(results.sets), 2, squeeze=False, sharey="row")
    for one, pair in zip(results.sets, axes, strict=True):
        for ax, what, name in zip(pair, ("computed_tokens", "seconds"), ("computed tokens", "seconds"), strict=True):
            for s in one.systems:
                if s.cost is None or s.all_answers is None or s.all_answers.value is None:
                    continue
                x, e = getattr(s.cost, what), s.all_answers
                colour = COLOURS[s.system]
                if s.cost.calls == 0:  # a logarithmic axis has no place for it
                    ax.axhline(e.value, color=colour, linestyle="-.", linewidth=1, label=s.title)
                    continue
                if e.low is not None and e.high is not None:
                    ax.plot([x, x], [e.low, e.high], color=colour, alpha=0.35, linewidth=2)
                marker, size = ("*", 13) if s.system == REFERENCE else ("o", 7)
                ax.plot(x, e.value, marker, color=colour, markersize=size, label=s.title)
            if what == "computed_tokens":
                ax.axvline(one.baseline, color="#9aa5b1", linestyle=":", linewidth=1)
                ax.annotate(
                    "baseline", (one.baseline, 0.02), xycoords=("data", "axes fraction"), fontsize=8, color="#9aa5b1"
                )
            ax.axhline(0.5, color="#9aa5b1", linestyle="--", linewidth=1)
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_xlabel(f"{name} per answer (log)")
            ax.spines[["top", "right"]].set_visible(False)
        pair[0].set_ylabel("balanced accuracy, failures as wrong")
        pair[0].set_title(f"{one.name} ({one.answers} answers)", loc="left", fontsize=10)
    named = {label: line for ax in axes.flat for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def _figure(e: Estimate | None, digits: int = 3) -> str:
    if e is None or e.value is None:
        return "–"
    if e.low is None or e.high is None:
        return f"{e.value:.{digits}f}"
    return f"{e.value:.{digits}f} [{e.low:.{digits}f}, {e.high:.{digits}f}]"
