"""How far a download is: a callback the caller owns, and a bar for terminals."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Progress(Protocol):
    """Told now and then how far a download is, from one thread at a time.

    `done` and `total` are bytes, `done` starts at what an earlier attempt left; `what` says in a few words what is
    happening. `done` may fall back to 0 when one source gives up and the next begins, and when verifying starts.
    """

    def __call__(self, done: int, total: int, what: str) -> None:
        """Take note."""


def no_progress(done: int, total: int, what: str) -> None:
    """Show nothing."""


@contextmanager
def rich_progress() -> Iterator[Progress]:
    """A bar on standard error with megabytes, speed and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Embedded model", total=None, visible=False)

        def show(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what, visible=True)

        yield show


@contextmanager
def terminal_progress(given: Progress | None) -> Iterator[Progress]:
    """The progress given, else a bar when standard error is a terminal, else none."""
    if given is not None:
        yield given
    elif sys.stderr.isatty():
        with rich_progress() as shown:
            yield shown
    else:
        yield no_progress
