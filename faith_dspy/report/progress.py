"""Progress bars and lines in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


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
