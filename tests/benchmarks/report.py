"""The comparison as people read it: a table on the terminal, README.md, a plot; and ``compare.json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .summary import REFERENCE, Results, SetResult, SystemResult, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    "aligned": "#7d5a0b",
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
    return [
        [
            s.title,
            _figure(s.agreement.balanced_accuracy),
            _figure(s.all_answers),
            _number(s.best_cut, 3),
            _figure(s.agreement.auroc),
            _figure(s.agreement.cohen_kappa),
            f"{1 - s.agreement.coverage:.0%}",
        ]
        if s.agreement
        else [s.title, *["–"] * (len(AGREEMENT) - 2), "took no part"]
        for s in one.systems
    ]


def cost_rows(one: SetResult) -> list[list[str]]:
    """Cells of the table of costs, the baseline last."""
    rows = [_cost_row(s) for s in one.systems]
    ours = next((s.cost for s in one.systems if s.system == REFERENCE), None)
    ratio = f"{one.baseline / ours.computed_tokens:.2f}" if ours and ours.computed_tokens else "–"
    return [
        *rows,
        ["baseline: read once, 3 tokens a statement", "–", f"{one.baseline:.0f}", "–", "–", "–", ratio, "–", "–"],
    ]


def _cost_row(s: SystemResult) -> list[str]:
    c = s.cost
    if c is None:
        return [s.title, *["–"] * (len(COST) - 1)]
    figures = [c.calls, c.computed_tokens, c.cached_tokens, c.output_tokens, c.seconds]
    told = [f"{f:,.{d}f}" for f, d in zip(figures, (1, 0, 0, 0, 1), strict=True)]
    if s.system == REFERENCE:
        return [s.title, *told, "1", "1", "1"]
    beside = (s.beside.computed_tokens, s.beside.all_tokens, s.beside.seconds) if s.beside else (None, None, None)
    return [s.title, *told, *(_figure(e, 1) for e in beside)]


ENOUGH_CONTEXTS = 6
"""With fewer even the clearest difference comes by chance more often than once in twenty times: 2 / 2^contexts."""


def sentences(one: SetResult) -> list[str]:
    """What the tables do not say: what the aims come to, what differs beyond chance, what failed and why."""
    out = [*_aims(one)]
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


def _aims(one: SetResult) -> Iterator[str]:
    """At equal or better agreement a quarter of RAGAS's computed tokens, and half of `make_judge`'s seconds."""
    for s in one.systems:
        if s.beside is None or s.system not in ("ragas", "make_judge"):
            continue
        ratio, aim, what = (
            (s.beside.computed_tokens.value, 4, "computed tokens")
            if s.system == "ragas"
            else (s.beside.seconds.value, 2, "seconds")
        )
        if ratio:
            reached = "reached" if ratio >= aim else "not reached"
            both = s.beside.all_tokens.value if s.system == "ragas" else None
            written = f" With the tokens written, which take the LM's time as well: {1 / both:.2f}." if both else ""
            yield f"Aim: at most 1/{aim} of {s.title}'s {what}; ours are {1 / ratio:.2f} of them: {reached}.{written}"


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


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _figure(e: Estimate | None, digits: int = 3) -> str:
    if e is None or e.value is None:
        return "–"
    if e.low is None or e.high is None:
        return f"{e.value:.{digits}f}"
    return f"{e.value:.{digits}f} [{e.low:.{digits}f}, {e.high:.{digits}f}]"
