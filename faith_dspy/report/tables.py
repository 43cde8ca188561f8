"""A table of plain strings, and how it looks in the terminal, in Markdown and as CSV.

Whoever has something to show makes tables; nobody formats a number twice.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faith_dspy.text.words import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from rich.console import RenderableType
    from rich.text import Text

WIDTH = 80
"""Columns of the terminal that every table fits."""
MARK = "★ "
"""Rows whose first cell begins with it stand out."""
_LEAST = 16
"""Columns that text needs to be read."""
_WORD = 36
"""Columns of the longest word that is not broken: a UUID."""
_NUMBER = re.compile(r"[-+.–]?(\d|$)|[-+–]?\.\d|–$")


@dataclass(frozen=True)
class Table:
    """Rows under columns, and what is to be said of them. One without columns is a list of sentences."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """As many cells as columns."""
    caption: str = ""
    """How to read the columns."""
    notes: tuple[str, ...] = ()
    """What the reader should take from it, a sentence each."""


def table_of(title: str, columns: Mapping[str, Callable[[Any], str]], rows: Iterable[Any], **texts: Any) -> Table:
    """A table from things: each column is a function from a thing to its cell."""
    return Table(title, tuple(columns), tuple(tuple(cell(row) for cell in columns.values()) for row in rows), **texts)


def terminal(tables: Iterable[Table]) -> RenderableType:
    """For a terminal of 80 columns or more: numbers to the right, no word broken; the first column has what room is
    left, in two lines if that does, and is cut if not. What cannot be seen, a terminal's commands too, is left out."""
    from rich.console import Group

    parts: list[RenderableType] = []
    for table in tables:
        parts.append(shown(f"\n{table.title}" if parts else table.title, "bold"))
        if table.columns:
            parts.append(_grid(table))
        if table.caption:
            parts.append(shown(table.caption, "dim"))
        parts += [_bullet(note) for note in table.notes]
    return Group(*parts)


def _grid(table: Table) -> RenderableType:
    from rich.cells import cell_len
    from rich.table import Table as Grid

    columns = list(zip(table.columns, *table.rows, strict=True))
    widths = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in columns]
    of_numbers = [i > 0 and all(_NUMBER.match(cell) for cell in column[1:]) for i, column in enumerate(columns)]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else 1
    words = [max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    least = [
        w if n else min(w, max(_LEAST, min(word, _WORD))) for w, n, word in zip(widths, of_numbers, words, strict=True)
    ]
    room = max(WIDTH - sum(least[1:]) - gap * (len(least) - 1), _LEAST)
    grid = Grid(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim", show_header=any(table.columns))
    for i, title in enumerate(table.columns):
        grid.add_column(
            shown(title),
            justify="right" if of_numbers[i] else "left",
            no_wrap=of_numbers[i] or (not i and widths[0] > 2 * room),
            overflow="fold" if i else "ellipsis",
            min_width=least[i] if i else None,
            max_width=None if i else room,
        )
    for row in table.rows:
        style = "bold green" if row[0].startswith(MARK) else ""
        cells = [shown(cell, style) for cell in row]
        for cell in cells[1:]:
            cell.highlight_regex(r"\[.*\]", "not bold dim")
        grid.add_row(*cells)
    return grid


def _bullet(note: str) -> RenderableType:
    from rich.table import Table as Grid

    grid = Grid.grid(padding=(0, 1, 0, 0))
    grid.add_row("•", shown(note))
    return grid


def shown(text: str, style: str = "") -> Text:
    """Text for a terminal, without what would steer it: answers and contexts are data."""
    from rich.text import Text

    return Text("\n".join(map(visible, text.split("\n"))), style)


def markdown(tables: Iterable[Table], level: int = 2) -> str:
    """As sections of a Markdown page, with headings of this level."""
    sections = []
    for table in tables:
        parts = [f"{'#' * level} {table.title}"]
        if table.columns:
            rule = "|---" * len(table.columns) + "|"
            parts.append("\n".join([_row(table.columns), rule, *(_row(row) for row in table.rows)]))
        parts += [table.caption] if table.caption else []
        parts += ["\n".join(f"- {note}" for note in table.notes)] if table.notes else []
        sections.append("\n\n".join(parts))
    return "\n\n".join(sections) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def csv_text(table: Table) -> str:
    """Its columns and rows as CSV, which MLflow's pages show as a table."""
    out = io.StringIO()
    csv.writer(out).writerows([table.columns, *table.rows])
    return out.getvalue()
