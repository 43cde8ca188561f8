"""``faith-dspy …``: JSON lines in, JSON lines or a table out.

Exit codes: 0 done · 1 the judge failed its bar · 2 wrong input, or something needed is missing · 130 stopped.
Everything heavy is imported inside the commands, so that ``--help`` is instant.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from faith_dspy.cli import labels, model, study
from faith_dspy.cli.agree import agree
from faith_dspy.cli.demo import demo
from faith_dspy.cli.judge import judge
from faith_dspy.cli.options import SETTINGS, drop_stdout
from faith_dspy.cli.stress import stress
from faith_dspy.cli.tune import tune
from faith_dspy.cli.ui import ui
from faith_dspy.errors import FaithDspyError

_STOPPED = 130

app = typer.Typer(
    name="faith-dspy",
    help="Faithfulness judges that are tuned on human labels instead of trusted blindly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)


def _version(asked: bool) -> None:
    if asked:
        from faith_dspy import __version__

        typer.echo(f"faith-dspy {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """What is asked of no command."""


for command in (demo, tune, judge, agree, stress, ui):
    app.command()(command)
app.add_typer(labels.app, name="labels")
app.add_typer(study.app, name="study")
app.add_typer(model.app, name="model")


def main() -> None:
    """Run the command line. Errors raised on purpose, and a full disk, end in one message and exit code 2."""
    try:
        try:
            app(prog_name="faith-dspy")
        finally:
            sys.stdout.flush()
    except FaithDspyError as exc:
        _refused(str(exc))
    except BrokenPipeError:
        drop_stdout()  # whoever reads has enough
    except OSError as exc:
        what = str(exc) if exc.filename else f"standard output: cannot be written ({exc.strerror or exc})"
        if not exc.filename:
            drop_stdout()
        _refused(f"{what}. The LM's replies are kept: run the same command again, and nothing is paid for twice.")
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as exc:  # typer turns Ctrl-C inside a command into this
        if exc.code == _STOPPED:
            _stopped()
        raise


def _refused(message: str) -> None:
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(message, err=True)
    sys.exit(2)


def _stopped() -> None:
    typer.echo("\nStopped. What was paid for is kept: run the same command again to continue.", err=True)
    sys.exit(_STOPPED)
