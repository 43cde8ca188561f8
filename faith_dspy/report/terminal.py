"""A judgment in the terminal, and progress bars."""

from __future__ import annotations

import io
import shutil
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from faith_dspy.errors import counted
from faith_dspy.report.tables import shown
from faith_dspy.report.wording import UNJUDGED, WORDING, grounds, notes_on, supported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from faith_dspy.schema import Judgment

_PLAIN = ("fully_supported", "not_supported")
"""Their marks need no words."""
_IDS = 3
"""Chunk ids shown for a statement; more would leave its text no room."""


def judgment_view(judgment: Judgment) -> RenderableType:
    """One judgment: the result on top, a line per statement below."""
    if judgment.unscored is not None:
        head = Text(f"unscored: {judgment.unscored.value}", style="yellow")
    else:
        head = Text()
        head.append("faithful" if judgment.faithful else "not faithful", style="green" if judgment.faithful else "red")
        if judgment.probability is not None:
            head.append(f"   probability {_against(judgment.probability, judgment.threshold)}", style="bold")
        if judgment.level is not None:
            head.append(f"   {judgment.level}", style="dim")
        by_score = judgment.threshold if judgment.probability is None else None
        head.append(
            f"\n{supported(judgment)}{_threshold(judgment.statement_threshold)}   " if judgment.statements else "   "
        )
        head.append(f"score {_against(judgment.score, by_score)}")
    if judgment.detail:
        head.append_text(shown(f" – {judgment.detail}", "dim"))
    if judgment.fitted_to == "default":
        head.append("\nnot fitted to your labels", style="dim")
    table = Table(box=None, show_header=False, padding=(0, 1), expand=False)
    table.add_column(width=1)
    table.add_column(justify="right", style="dim")
    table.add_column(overflow="fold")
    table.add_column(style="dim", no_wrap=True)
    for s in judgment.statements:
        verdict = s.verdict.value if s.verdict else UNJUDGED
        mark, words, style = WORDING[verdict]
        words = "" if verdict in _PLAIN else words
        ids, more = s.supporting_chunk_ids[:_IDS], len(s.supporting_chunk_ids) - _IDS
        evidence = f"← {', '.join(f'[{i}]' for i in ids)}" + (f" +{more}" if more > 0 else "") if ids else ""
        digits = _digits(s.confidence, judgment.statement_threshold)
        confidence = "" if s.confidence is None else f"{s.confidence:.{digits}f}"
        table.add_row(Text(mark, style), confidence, shown(s.text), Text(f"{words} {evidence}".strip()))
        if said := grounds(s):
            table.add_row("", "", shown(said, "italic dim"), "")
    last = shown("\n".join([*notes_on(judgment), _cost(judgment)]), "dim")
    parts: list[RenderableType] = [head, table] if judgment.statements else [head]
    return Panel(Group(*parts, last), expand=False)


def _against(value: float | None, threshold: float | None) -> str:
    """A number and its threshold."""
    digits = _digits(value, threshold)
    return f"{value:.{digits}f}{_threshold(threshold, digits)}"


def _digits(value: float | None, threshold: float | None) -> int:
    """As many as tell a number from its threshold."""
    if value is None or threshold is None or value == threshold:
        return 2
    return next((d for d in (2, 3) if f"{value:.{d}f}" != f"{threshold:.{d}f}"), 4)


def _threshold(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f" (threshold {value:.{digits}f})"


def _cost(judgment: Judgment) -> str:
    u, again = judgment.usage, judgment.replayed.calls
    replayed = [f"{counted(again, 'reply')} from the cache"] if again else []
    if not u.calls:
        return " · ".join(["no LM calls", *replayed])
    read, written = counted(u.prompt_tokens, "prompt token"), counted(u.output_tokens, "completion token")
    tokens = f"{read} ({u.cached_tokens:,} cached), {written}"
    return " · ".join([counted(u.calls, "call"), tokens, f"{u.seconds:.1f} s", *replayed])


def render(judgment: Judgment) -> str:
    """`judgment_view` as plain text, as wide as the terminal, 60 to 100 columns."""
    width = max(60, min(100, shutil.get_terminal_size((100, 24)).columns))
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(judgment_view(judgment))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def render_html(judgment: Judgment) -> str:
    """`judgment_view` as HTML for a notebook, in the same colours."""
    console = Console(file=io.StringIO(), width=100, record=True, force_jupyter=False)
    console.print(judgment_view(judgment))
    return console.export_html(inline_styles=True, code_format="<pre style='line-height:1.2'>{code}</pre>")


class TerminalView:
    """Progress bars and lines on a console; plain lines where the output is not a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        # Bound to the present stream: optimizers run with standard error redirected.
        self.console = console or Console(file=sys.stderr)

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(text, highlight=False)

    @contextmanager
    def bar(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A bar with count, time taken and time left, removed at the end; without a total it only counts."""
        if self.console.is_jupyter:  # rich needs ipywidgets for a bar there
            from tqdm import tqdm

            with tqdm(total=total, desc=what, leave=False, mininterval=1, file=self.console.file) as line:
                yield line.update
            return
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with progress:
            bar = progress.add_task(what, total=total)
            yield lambda n: progress.advance(bar, n)

    @contextmanager
    def task(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A `bar`, and at the end a line with the time it took."""
        started = time.monotonic()
        with self.bar(what, total) as advance:
            yield advance
        self.console.print(f"  [dim]{what}: {time.monotonic() - started:.0f} s[/dim]", highlight=False)
