"""Progress bars and lines in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from tqdm import tqdm


class TerminalView:
    """Progress bars and lines on a console; no bars where the output is neither a terminal nor a notebook."""

    def __init__(self, console: Console | None = None) -> None:
        # Bound to the present stream: optimizers run with standard error redirected.
        self.console = console or Console(file=sys.stderr)

    def say(self, text: str, style: str | None = None) -> None:
        """Print one line that stays, as it is: it may hold words of an LM."""
        with tqdm.external_write_mode(file=self.console.file):
            self.console.print(text, style=style, highlight=False, markup=False)

    @contextmanager
    def bar(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show a bar with count, time taken and time left, removed at the end; without a total it only counts."""
        hidden = not (self.console.is_terminal or self.console.is_jupyter)
        with tqdm(
            total=total,
            desc=what,
            leave=False,
            mininterval=1,
            file=self.console.file,
            disable=hidden,
        ) as line:
            yield line.update

    @contextmanager
    def task(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show a `bar`, and at the end a line with the time it took."""
        started = time.monotonic()
        with self.bar(what, total) as advance:
            yield advance
        seconds = time.monotonic() - started
        self.say(f"  {what}: {seconds:.0f} s", style="dim")
