"""Studies side by side in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from faith_dspy.report.study import interval, number

if TYPE_CHECKING:
    from rich.console import RenderableType


def studies_view(compared: Any) -> RenderableType:
    """`faith_dspy.optimize.tracking.studies.Studies` → what was tuned on what, what it reached, and what can be told apart."""
    what = _table("Studies", ("#", "study", "labels", "set", "LM", "budget", "seed", "read", "min"))
    reached = _table(
        "Champions, each on its own testset",
        ("#", "balanced acc.", "AUROC", "Cohen's κ", "base", "baseline", "people"),
    )
    for i, s in enumerate(compared.studies, 1):
        seed = "–" if s.seed is None else str(s.seed)
        labels, short = escape(s.labels_file), s.label_set_hash[:6]
        what.add_row(
            str(i),
            escape(_end(s.source)),
            labels,
            short,
            escape(_end(s.lm)),
            s.budget or "–",
            seed,
            "–" if s.tokens is None else f"{s.tokens:.0f}",
            "–" if s.minutes is None else f"{s.minutes:.1f}",
        )
        a = s.agreement
        reached.add_row(
            str(i),
            interval(a.balanced_accuracy),
            interval(a.auroc),
            interval(a.cohen_kappa),
            *(number(x.balanced_accuracy if x else None) for x in (s.untuned, s.baseline, s.ceiling)),
        )
    lines = [
        "[dim]base, baseline, people: balanced accuracy of the untuned whole-answer judge, of lexical features alone, and of one "
        "annotator against the others. In brackets 95 % intervals. set: begin of the label set's hash; read: tokens an "
        "answer, by the champion; min: minutes of the study.[/dim]",
        "",
    ]
    for i, s in enumerate(compared.studies, 1):
        verdict = f"{s.verdict} than its untuned" if s.verdict else "not compared with a untuned"
        early = "" if s.finished else "; stopped early"
        lines.append(f"• {i}: {s.champion}, {verdict}, {s.agreement.n} test answers{early}.")
    lines += [f"• {escape(p.comparison.sentence[:1].upper() + p.comparison.sentence[1:])}" for p in compared.pairs]
    lines += [f"• {escape(s.sentence)}" for s in compared.seeds]
    lines += [f"[yellow]{escape(note)}[/yellow]" for note in compared.notes]
    return Group(what, reached, *lines)


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for c in columns:
        words = c in ("study", "labels", "LM")
        table.add_column(c, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return table


def _end(text: str) -> str:
    """The last part of a path or model name, which tells them apart."""
    parts = [p for p in text.split("/") if p]
    return "/".join(parts[-2:]) if len(parts) > 1 else text
