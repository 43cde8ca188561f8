"""A table of plain strings, and how it looks in the terminal, in Markdown and as CSV (in HTML: `page.html`).

Whoever has something to show makes tables; nobody formats a number twice.
"""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from itertools import chain
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import counted
from faith_dspy.schema import Judgment, LabelledExample, Usage
from faith_dspy.text.words import visible

if TYPE_CHECKING:  # numpy and rich
    from rich.console import RenderableType
    from rich.text import Text

    from faith_dspy.scoring.agreement import JudgeAgreement
    from faith_dspy.scoring.statistics import Estimate

WIDTH = 80
"""Columns of the terminal that every table fits."""
MARK = "★ "
"""Rows whose first cell begins with it stand out."""
FEW = 100
"""With fewer answers the interval of balanced accuracy is mostly wider than twenty points."""
WORST = 10
"""Disagreements that a table shows."""
_WORD = 36
"""Columns of the longest word that is not broken: a UUID."""
_FORMULA = re.compile(r"[=+@\t\r-](?![\d.,]+%?$)")
"""How a cell begins that a spreadsheet would run; a number with a sign is none."""
_NUMBER = re.compile(r"[-+.–]?(\d|$)|[-+–]?\.\d|–$")


@dataclass(frozen=True)
class Table:
    """Rows under columns, and what is to be said of them. One without rows is a list of sentences."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """As many cells as columns."""
    caption: str = ""
    """How to read the columns."""
    notes: tuple[str, ...] = ()
    """What the reader should take from it, a sentence each."""


def table_of(
    title: str,
    columns: Mapping[str, Callable[[Any], str]],
    rows: Iterable[Any],
    **texts: Any,
) -> Table:
    """Return a table from things: each column is a function from a thing to its cell."""
    cells = [tuple(cell(row) for cell in columns.values()) for row in rows]
    return Table(title, tuple(columns), tuple(cells), **texts)


def terminal(tables: Iterable[Table]) -> RenderableType:
    """Return for a terminal of 80 columns or more: numbers to the right, no word broken. What cannot be seen, a
    terminal's commands too, is left out."""
    from rich.console import Group
    from rich.table import Table as Grid

    parts: list[RenderableType] = []
    for table in tables:
        parts.append(shown(f"\n{table.title}" if parts else table.title, "bold"))
        if table.rows:
            parts.append(_grid(table))
        if table.caption:
            parts.append(shown(table.caption, "dim"))
        for note in table.notes:
            bullet = Grid.grid(padding=(0, 1, 0, 0))
            bullet.add_row("•", shown(note))
            parts.append(bullet)
    return Group(*parts)


def _grid(table: Table) -> RenderableType:
    from rich.console import Console
    from rich.measure import measure_renderables
    from rich.table import Table as Grid

    console = Console(width=WIDTH)
    columns, sizes = [], []
    for texts in zip(table.columns, *table.rows, strict=True):
        cells = [shown(text) for text in texts]
        columns.append(cells)
        sizes.append(measure_renderables(console, console.options, cells))
    wide = sum(size.maximum + 2 for size in sizes) - 2
    gap = 2 if wide <= WIDTH else 1
    grid = Grid(
        box=None,
        padding=(0, gap, 0, 0),
        pad_edge=False,
        header_style="dim",
        show_header=any(table.columns),
    )
    for i, (cells, size) in enumerate(zip(columns, sizes, strict=True)):
        how: dict[str, Any] = {"min_width": min(size.minimum, _WORD)}
        are_numbers = all(_NUMBER.match(cell.plain) for cell in cells[1:])
        if i and size.maximum <= _WORD and are_numbers:
            how = {"justify": "right", "no_wrap": True}
        grid.add_column(cells[0], overflow="fold", **how)
    _, *rows = zip(*columns, strict=True)
    for first, *others in rows:
        for cell in others:
            cell.highlight_regex(r"\[.*\]", "not bold dim")
        is_marked = first.plain.startswith(MARK)
        grid.add_row(first, *others, style="bold green" if is_marked else None)
    return grid


def shown(text: str, style: str = "") -> Text:
    """Return text for a terminal, without what would steer it: answers and contexts are data."""
    from rich.text import Text

    lines = map(visible, text.split("\n"))
    return Text("\n".join(lines), style)


def markdown(tables: Iterable[Table], level: int = 2) -> str:
    """Return sections of a Markdown page, with headings of this level."""
    sections = []
    for table in tables:
        parts = [f"{'#' * level} {table.title}"]
        if table.rows:
            rule = "|---" * len(table.columns) + "|"
            lines = [_row(table.columns), rule, *map(_row, table.rows)]
            parts.append("\n".join(lines))
        if table.caption:
            parts.append(table.caption)
        if table.notes:
            parts.append("\n".join(f"- {note}" for note in table.notes))
        sections.append("\n\n".join(parts))
    return "\n\n".join(sections) + "\n"


def _row(cells: Iterable[str]) -> str:
    texts = [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(texts)} |"


def csv_text(table: Table) -> str:
    """Return its columns and rows as CSV, which MLflow's pages show as a table."""
    return b"".join(map(csv_line, (table.columns, *table.rows))).decode()


def csv_line(cells: Iterable[Any]) -> bytes:
    """Return a row of CSV. Lists and objects are JSON; no cell is a formula to a spreadsheet."""
    out = io.StringIO()
    csv.writer(out).writerow(map(_cell, cells))
    return out.getvalue().encode(errors="replace")


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value


NONE = "–"


def number(value: float | None) -> str:
    """Return ``.80``, as statisticians write what lies between -1 and 1; a dash for None."""
    return NONE if value is None else f"{value:.2f}".replace("0.", ".", 1)


def with_interval(e: Estimate | None) -> str:
    """Return a value with its 95 % interval: ``.75 [.67, .82]``."""
    if e is None:
        return NONE
    if e.low is None:
        return number(e.value)
    return f"{number(e.value)} [{number(e.low)}, {number(e.high)}]"


def points(d: Estimate) -> str:
    """Return a difference in percentage points: ``+3.4 [-1.0, +8.0]``; a dash without an interval."""
    if d.value is None or d.low is None or d.high is None:
        return NONE
    return f"{100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"


def each(total: float, n: int) -> str:
    """Return a total for each of n answers, such as seconds: three digits at least; a dash where there are none."""
    if not n:
        return NONE
    share = total / n
    return f"{share:.0f}" if share >= 100 else f"{share:.1f}"


_METRICS = {
    "balanced accuracy": "balanced_accuracy",
    "AUROC": "auroc",
    "Cohen's κ": "cohen_kappa",
    "MCC": "mcc",
    "unfaithful ones failed (recall)": "recall_unfaithful",
    "faithful ones passed (recall)": "recall_faithful",
    "F1 of the unfaithful": "f1_unfaithful",
    "calibration error (ECE)": "ece",
}
_LEVELS = (
    (
        "Agreement on statements",
        "statements",
        {
            "balanced\naccuracy": "balanced_accuracy",
            "AUROC": "auroc",
            "Cohen's κ": "cohen_kappa",
        },
    ),
    (
        "Agreement on evidence: the chunk ids named",
        "evidence",
        {"precision": "precision", "recall": "recall", "F1": "f1"},
    ),
)
"""Of each level below answers: the table's title, the field of `JudgeAgreement`, and the fields of its columns."""
_INTERVALS = "In brackets 95 % intervals"


def agreement_tables(
    agreement: JudgeAgreement,
    usage: Usage,
    replayed: Usage,
    answers: int,
    judge: str | None,
) -> list[Table]:
    """Return agreement on all levels that the labels tell, what judging so many answers cost, and who judged."""
    rows = []
    a = agreement.answers
    if a is not None:
        for name, field in _METRICS.items():
            value = with_interval(getattr(a, field))
            if value != NONE:
                rows.append((name, value))
        rows.append(("scored", f"{a.scored} of {a.n} ({a.coverage:.0%})"))
    whole = usage + replayed
    cost = (
        f"{each(whole.computed_tokens, answers)} prompt tokens that were not cached, "
        f"{each(whole.output_tokens, answers)} completion tokens, {each(whole.seconds, answers)} seconds."
    )
    notes = [cost]
    if replayed.calls:
        notes.append(
            f"{replayed.calls:,} of {counted(whole.calls, 'call')} from the cache: no seconds, and not paid again."
        )
    return [
        Table(
            "Agreement on answers",
            ("", "the judge"),
            tuple(rows),
            caption=f"{_INTERVALS}, over sources.",
            notes=(agreement.measured,),
        ),
        *level_tables({"the judge": agreement}),
        Table(
            "Cost of an answer",
            notes=tuple(notes),
            caption=report_footer(judge),
        ),
    ]


def disagreements(
    examples: Sequence[LabelledExample], judgments: Sequence[Judgment]
) -> list[tuple[LabelledExample, Judgment]]:
    """Return the answers that people and judge call differently, worst first: the farther from its threshold the judge
    is."""
    wrong = []
    for example, judgment in zip(examples, judgments, strict=True):
        if {example.label, judgment.faithful} == {True, False}:
            wrong.append((example, judgment))
    return sorted(wrong, key=lambda pair: sureness(pair[1]), reverse=True)


def sureness(judgment: Judgment) -> float:
    """Return how far the judge is from undecided: its probability from its threshold."""
    threshold = 0.5 if judgment.threshold is None else judgment.threshold
    return abs((judgment.ranking or 0.0) - threshold)


def disagreements_table(
    pairs: Sequence[tuple[LabelledExample, Judgment]], column: str = ""
) -> Table:
    """Return the worst of them, in a line or two each; ``column``: where a recorded judge stands."""
    caption = "label: as it was labelled; judge: its probability that the answer is faithful, across its threshold."
    columns = {
        "label": lambda d: "faithful" if d[0].label else "unfaithful",
        "judge": lambda d: number(d[1].ranking),
        "answer": lambda d: textwrap.shorten(d[0].answer, 120, placeholder=" …"),
        "id": lambda d: d[0].id,
    }
    title = counted(len(pairs), "disagreement")
    if len(pairs) > WORST:
        title += f", the {WORST} worst"
    if column:
        columns["judge"] = lambda d: str(d[0].columns[column])
        caption = f"label: as it was labelled; judge: what stands in {column!r}."
    return table_of(title, columns, pairs[:WORST], caption=caption if pairs else "")


def level_tables(judges: Mapping[str, JudgeAgreement]) -> list[Table]:
    """Return each judge's agreement on statements, evidence and graded verdicts, as far as it was measured."""
    tables = []
    for title, level, fields in _LEVELS:
        rows = []
        for name, judge in judges.items():
            agreement = getattr(judge, level)
            if agreement is not None:
                cells = [with_interval(getattr(agreement, f)) for f in fields.values()]
                rows.append((name, f"{agreement.scored}/{agreement.n}", *cells))
        if rows:
            columns = ("judge", "scored", *fields)
            tables.append(Table(title, columns, tuple(rows), caption=f"{_INTERVALS}."))
    graded: dict[str, dict[str, Any]] = {}
    for name, judge in judges.items():
        statements = judge.statements
        if statements is not None and statements.recall_by_verdict:
            graded[name] = {"weighted κ": statements.weighted_kappa}
            for verdict, recall in statements.recall_by_verdict.items():
                graded[name][f"recall of {verdict}"] = recall
    if graded:
        lines = []
        for metric in dict.fromkeys(chain.from_iterable(graded.values())):
            values = [with_interval(metrics.get(metric)) for metrics in graded.values()]
            lines.append((metric.replace("_", " "), *values))
        caption = "Recall: of the statements labelled with that verdict, the share that the judge gave it, too."
        tables.append(
            Table(
                "Agreement on graded verdicts",
                ("", *graded),
                tuple(lines),
                caption=caption,
            )
        )
    return tables


def report_footer(judge: str | None) -> str:
    """Return the line under every report: judge, version and date."""
    who = f"Judge: {judge} · " if judge else ""
    return f"{who}faith_dspy {metadata.version('faith_dspy')} · {date.today():%Y-%m-%d}"
