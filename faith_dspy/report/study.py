"""A study in the terminal: the table of variants, the test, and what it says in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from faith_dspy.agreement import Agreement
    from faith_dspy.rates import Estimate
    from faith_dspy.schema import Usage


def number(e: Estimate | None) -> str:
    """A value to two digits, or a dash."""
    return "–" if e is None or e.value is None else f"{e.value:.2f}"


def interval(e: Estimate | None) -> str:
    """A value with its 95 % interval."""
    if e is None or e.value is None:
        return "–"
    if e.low is None or e.high is None:
        return f"{e.value:.2f}"
    return f"{e.value:.2f} [dim][{e.low:.2f}–{e.high:.2f}][/dim]".replace("[" + f"{e.low:.2f}", r"\[" + f"{e.low:.2f}")


def study_view(result: Any) -> RenderableType:
    """`faith_dspy.optimize.results.StudyResult` → tables of dev and test, verdict in words, where to look next."""
    dev = Table(title="Variants, on dev (to choose by; not agreement with people)", title_justify="left")
    dev.add_column("variant")
    for title in ("balanced acc.", "AUROC", "κ", "LM alone: b.a.", "AUROC", "read", "written", "s"):
        dev.add_column(title, justify="right")
    for v in result.variants:
        style = "bold green" if v.name == result.champion else "dim" if v.kind == "floor" else ""
        if v.agreement is None:
            dev.add_row(Text(v.name, style), Text(f"{v.status}: {v.note}"[:60], "yellow"))
            continue
        n = max(1, v.judged)
        cost = (
            [f"{v.usage.computed_tokens / n:.0f}", f"{v.usage.output_tokens / n:.0f}", f"{v.usage.seconds / n:.1f}"]
            if v.judged
            else ["–", "–", "–"]
        )
        a, only = v.agreement, v.lm_only
        dev.add_row(
            Text(("★ " if v.name == result.champion else "  ") + v.name, style),
            number(a.balanced_accuracy),
            number(a.auroc),
            number(a.cohen_kappa),
            number(only.balanced_accuracy if only else None),
            number(only.auroc if only else None),
            *cost,
        )
    unseen = result.test[0].agreement.n
    test = Table(title=f"\nAgreement with people, on {unseen} answers never seen", title_justify="left")
    test.add_column("")
    for title in ("balanced accuracy", "AUROC", "Cohen's κ", "scored", "read", "written", "s"):
        test.add_column(title, justify="right")
    for t in result.test:
        n = max(1, t.agreement.n)
        label = f"champion ({result.champion})" if t.name == "champion" else t.name
        if t.name == "baseline":
            label = "baseline (whole answer, untuned)"
        cost = (
            ["–", "–", "–"]
            if t.kind == "floor"
            else [
                f"{t.usage.computed_tokens / n:.0f}",
                f"{t.usage.output_tokens / n:.0f}",
                f"{t.usage.seconds / n:.1f}",
            ]
        )
        test.add_row(
            Text(label, "bold green" if t.name == "champion" else ""),
            interval(t.agreement.balanced_accuracy),
            interval(t.agreement.auroc),
            interval(t.agreement.cohen_kappa),
            f"{t.agreement.coverage:.0%}",
            *cost,
        )
    notes = ["[dim]In brackets 95 % intervals; read and written: tokens an answer; s: seconds an answer.[/dim]", ""]
    notes += [f"• {c.sentence}" for c in result.comparisons.values()]
    if result.ceiling is not None:
        notes.append(f"• People among themselves: balanced accuracy {interval(result.ceiling.balanced_accuracy)}.")
    floor = result.comparisons.get("floor-overlap")
    if floor is not None and floor.verdict != "better":
        notes.append("• [yellow]Not shown better than counting words: not worth its LM on these labels.[/yellow]")
    u = result.usage
    notes += [
        "",
        f"[dim]The study took {result.seconds / 60:.1f} min: {u.calls} calls, {u.computed_tokens} tokens read, "
        f"{u.cached_tokens} from the prefix cache, {u.output_tokens} written.[/dim]",
        "",
        f"The champion is in [bold]{result.judge_dir}[/bold] (CARD.md says what it is worth).",
        f"  judge with it   faith-dspy judge ANSWERS.jsonl --judge {result.judge_dir} --html judged.html",
        f'  in code         load_judge("{result.judge_dir}")(question=…, context=[…], answer=…)',
        f"  measure again   faith-dspy agree LABELS.jsonl --judge {result.judge_dir}",
        "  see every run   make ui   (or: mlflow ui --backend-store-uri sqlite:///mlflow.db)",
    ]
    return Group(dev, test, *notes)


def agreement_view(a: Agreement, usage: Usage, share: Any = None, *, tuned_on_these: bool) -> RenderableType:
    """`faith-dspy agree` for people."""
    n = max(1, a.n)
    table = Table(show_header=False, box=None)
    rows = [
        ("balanced accuracy", interval(a.balanced_accuracy)),
        ("AUROC", interval(a.auroc)),
        ("Cohen's κ", interval(a.cohen_kappa)),
        ("MCC", interval(a.mcc)),
        ("unfaithful answers found", interval(a.recall_unfaithful)),
        ("faithful answers passed", interval(a.recall_faithful)),
        ("F1 of the unfaithful", interval(a.f1_unfaithful)),
        ("calibration error (ECE)", interval(a.ece)),
        ("answers scored", f"{a.scored} of {a.n} ({a.coverage:.0%})"),
        ("tokens an answer", f"{usage.computed_tokens / n:.0f} read, {usage.output_tokens / n:.0f} written"),
        ("seconds an answer", f"{usage.seconds / n:.1f}"),
    ]
    for row in rows:
        table.add_row(*row)
    parts: list[RenderableType] = [table, "[dim]In brackets 95 % intervals, from resampling contexts.[/dim]"]
    if share is not None:
        parts += [
            "",
            f"Faithful answers in the traffic: {interval(share.share.powered)} "
            f"(from the labels alone {interval(share.share.labels_only)}), "
            f"{share.share.labelled} labels and {share.share.unlabelled} unlabelled answers.",
        ]
        if not share.labels_fit:
            parts.append(f"[yellow]{share.sentence}[/yellow]")
    if tuned_on_these:
        parts.append("[yellow]The judge was tuned on these labels: this is not its agreement with people.[/yellow]")
    return Group(*parts)


def audit_view(found: dict[str, Any]) -> RenderableType:
    """`faith-dspy labels audit` for people."""
    table = Table(show_header=False, box=None)
    for key, value in found.items():
        words = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(key.replace("_", " "), words)
    return table
