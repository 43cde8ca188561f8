"""A study in the terminal: the table of variants, the test, and what it says in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from faith_dspy.schema import Usage
    from faith_dspy.scoring.agreement import Agreement
    from faith_dspy.scoring.statistics import Estimate


def number(e: Estimate | None) -> str:
    """A value to two digits, or a dash."""
    return "–" if e is None or e.value is None else _short(e.value)


def interval(e: Estimate | None) -> str:
    """A value with its 95 % interval."""
    if e is None or e.value is None:
        return "–"
    if e.low is None or e.high is None:
        return _short(e.value)
    return rf"{_short(e.value)} [dim]\[{_short(e.low)}, {_short(e.high)}][/dim]"


def _short(value: float) -> str:
    """.80, as statisticians write what lies between -1 and 1; a table of eighty columns has no room for more."""
    return f"{value:.2f}".replace("0.", ".", 1)


def study_view(result: Any) -> RenderableType:
    """`faith_dspy.optimize.results.StudyResult` → tables of dev and test, verdict in words, where to look next."""
    title = "Variants, on dev: to choose by, not agreement with people"
    dev = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    dev.add_column("variant", no_wrap=True)
    for title in ("b. acc.", "AUROC", "κ", "LM alone", "AUROC", "read", "s"):
        dev.add_column(title, justify="right", no_wrap=True)
    left_out = []
    for v in result.variants:
        style = "bold green" if v.name == result.champion else "dim" if v.kind == "baseline" else ""
        if v.agreement is None:
            left_out.append(f"[yellow]{v.name}: {v.status}, {v.note}.[/yellow]")
            continue
        a, only = v.agreement, v.lm_only
        dev.add_row(
            Text(("★ " if v.name == result.champion else "  ") + v.name, style),
            number(a.balanced_accuracy),
            number(a.auroc),
            number(a.cohen_kappa),
            number(only.balanced_accuracy if only else None),
            number(only.auroc if only else None),
            *_cost(v.usage, v.judged)[::2],
        )
    unseen = result.test[0].agreement.n
    title = f"Agreement with people, on {unseen} answers never seen"
    test = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    test.add_column("judge", no_wrap=True)
    for title in ("balanced acc.", "AUROC", "Cohen's κ", "read", "s"):
        test.add_column(title, justify="right", no_wrap=True)
    for t in result.test:
        read, _, seconds = _cost(t.usage, 0 if t.kind == "baseline" else t.agreement.n)
        test.add_row(
            Text(t.name, "bold green" if t.name == "champion" else "dim" if t.kind == "baseline" else ""),
            interval(t.agreement.balanced_accuracy),
            interval(t.agreement.auroc),
            interval(t.agreement.cohen_kappa),
            read,
            seconds,
        )
    if result.ceiling is not None:
        c = result.ceiling
        cells = (interval(c.balanced_accuracy), "–", interval(c.cohen_kappa), "–", "–")
        test.add_row(Text("people", "dim"), *cells)
    coverage = ", ".join(f"{t.name} {t.agreement.coverage:.0%}" for t in result.test if t.agreement.coverage < 1)
    notes = [
        f"[dim]champion: {result.champion}, tuned; untuned: the whole answer asked about, untuned; lexical-baseline: "
        "lexical features alone, no LM, fitted on the same labels; length-baseline: length; "
        f"{'people: one annotator against the others; ' if result.ceiling else ''}in brackets 95 % intervals. "
        "LM alone: with its threshold fitted, without lexical features. "
        "read: tokens an answer, prefix cache not counted; s: seconds an answer.[/dim]",
        *([f"[dim]Answers scored, where not all: {coverage}.[/dim]"] if coverage else []),
        "",
    ]
    notes += [f"• {c.sentence}" for c in result.comparisons.values()]
    if result.diagnosis is not None:
        calibration, review_range = (getattr(result.diagnosis, k).get("test") for k in ("calibration", "review_range"))
        if calibration is not None:
            notes.append(
                f"• Calibration error on test: {interval(calibration.before)} as the LM says it, "
                f"{interval(calibration.after)} after."
            )
        if review_range is not None:
            notes.append(f"• For a person, of test (too close to call): {escape(review_range.sentence)}")
    if not result.finished:
        notes.append("• [yellow]Stopped early: the champion is the best of the variants that were finished.[/yellow]")
    notes += [f"• [yellow]{escape(note)}[/yellow]" for note in result.notes]
    if result.optimism is not None:
        notes.append(f"• {escape(result.optimism.sentence)}")
    if result.groups is not None:
        notes.append(f"• {escape(result.groups.sentence)}")
    baseline = result.comparisons.get("lexical-baseline")
    if baseline is not None and baseline.verdict != "better":
        notes.append("• [yellow]Not shown better than counting words: not worth its LM on these labels.[/yellow]")
    if result.registered:
        notes.append(f"• {escape(result.registered)}")
    u = result.usage
    kept = f" ({result.replayed} of them kept from before, not paid again)" if result.replayed else ""
    notes += [
        "",
        f"[dim]The study took {result.seconds / 60:.1f} min: {u.calls} calls{kept}, {u.computed_tokens} tokens read, "
        f"{u.cached_tokens} from the prefix cache, {u.output_tokens} written.[/dim]",
        "",
        f"The champion is in [bold]{result.judge_dir}[/bold] (CARD.md says what it is worth).",
        f"  judge with it   faith-dspy judge ANSWERS.jsonl --judge {result.judge_dir}",
        f'  in code         load_judge("{result.judge_dir}")(question=…, context=[…], answer=…)',
        f"  measure again   faith-dspy agree LABELS.jsonl --judge {result.judge_dir}",
        "  see every run   make ui",
    ]
    return Group(dev, *left_out, test, *_groups(result.groups), *_frontier(result), *notes)


def _groups(groups: Any) -> list[RenderableType]:
    """The champion by group, with what people reach there; nothing when all answers are alike."""
    if groups is None or not groups.groups:
        return []
    people = any(g.ceiling is not None for g in groups.groups)
    table = Table(title="The champion by kind of answer, on the testset", title_justify="left", box=SIMPLE,
                  pad_edge=False, padding=(0, 1, 0, 0))  # fmt: skip
    table.add_column("group", max_width=26, overflow="ellipsis", no_wrap=True)
    for title in ("n", "balanced acc.", "AUROC", *(["people"] if people else [])):
        table.add_column(title, justify="right", no_wrap=True)
    for i, g in enumerate(groups.groups):
        a = g.agreement
        cells = [interval(a.balanced_accuracy), interval(a.auroc)] if a else ["[dim]too few[/dim]", "–"]
        ceiling = [number(g.ceiling.balanced_accuracy if g.ceiling else None)] if people else []
        name = Text(f"{g.facet}: {g.name}", "yellow" if i == groups.worst else "")
        table.add_row(name, str(g.n), *cells, *ceiling)
    return [table]


def _frontier(result: Any) -> list[RenderableType]:
    """What agreement costs, the cheapest first, and what that says; nothing where there is no choice."""
    if len(result.costs) < 2:
        return []
    table = Table(title="What agreement costs: to choose by, not agreement with people", title_justify="left",
                  box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))  # fmt: skip
    table.add_column("", max_width=34, overflow="ellipsis", no_wrap=True)
    for title in ("n", "asked", "b. acc.", "AUROC", "calls", "read", "s"):
        table.add_column(title, justify="right", no_wrap=True)
    for p in result.costs:
        style = "bold green" if p.exported else ""
        table.add_row(
            Text(("★ " if p.exported else "→ " if p.cheapest else "  ") + p.name, style),
            str(p.n),
            f"{p.lm_share:.0%}",
            number(p.balanced_accuracy),
            number(p.auroc),
            f"{p.calls:.1f}",
            f"{p.computed_tokens:.0f}",
            f"{p.seconds:.1f}",
        )
    return [table, *(f"• {sentence}" for sentence in result.costs_in_words), ""]


def _cost(usage: Usage, answers: int) -> tuple[str, str, str]:
    """Tokens read, tokens written and seconds an answer; dashes where no LM was asked."""
    if not answers:
        return "–", "–", "–"
    return (
        f"{usage.computed_tokens / answers:.0f}",
        f"{usage.output_tokens / answers:.0f}",
        f"{usage.seconds / answers:.1f}",
    )


def agreement_view(
    a: Agreement, usage: Usage, share: Any = None, *, evidence: Estimate | None = None, tuned_on_these: bool
) -> RenderableType:
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
        *([("F1 of the chunks named", interval(evidence))] if evidence else []),
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
