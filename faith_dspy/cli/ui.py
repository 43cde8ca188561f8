"""``faith-dspy ui``: the studies on MLflow's pages."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Annotated

import typer

from faith_dspy.cli.options import TrackingURI, say


def ui(
    port: Annotated[int, typer.Option("--port", help="On 127.0.0.1.", min=1, max=65535)] = 5000,
    tracking_uri: TrackingURI = None,
) -> None:
    """Show the studies on MLflow's pages, on 127.0.0.1, until Ctrl-C. Nothing is fetched from a network.

    Without --tracking-uri and MLFLOW_TRACKING_URI it opens the mlflow.db of this folder, or of the nearest one above.

    Example: faith-dspy ui --port 5001
    """
    from faith_dspy.errors import MissingExtraError
    from faith_dspy.optimize.tracking.store import ENVIRONMENT, nearest_store, redacted

    uri = nearest_store(tracking_uri)
    if uri.startswith(("http://", "https://")):
        say(f"This store is a server, with pages of its own: {redacted(uri)}")
        return
    if find_spec("mlflow") is None:  # it takes seconds to import
        raise MissingExtraError("mlflow", "tune", "faith-dspy ui")
    say(f"Studies in {redacted(uri)}: http://127.0.0.1:{port} (Ctrl-C ends it)")
    command = ["-m", "mlflow", "ui", "--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(port)]
    settings = {**ENVIRONMENT, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    code = 0
    with suppress(KeyboardInterrupt):
        code = subprocess.call([sys.executable, *command, "--workers", "1"], env=settings | dict(os.environ))
    raise typer.Exit(code)
