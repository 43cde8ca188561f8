"""``faith-dspy labels …``: people's labels, before tuning on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faith_dspy.cli.options import SETTINGS, Json, print_json, stdout

app = typer.Typer(no_args_is_help=True, context_settings=SETTINGS, help="Look at labels before tuning on them.")


@app.command("audit")
def audit(labels: Annotated[Path, typer.Argument(help="Labels file.")], as_json: Json = False) -> None:
    """Check a labels file: how many labels of which kind, how they would be split, how far people agree."""
    from faith_dspy.optimize.audit import audit as look
    from faith_dspy.report.study import audit_view

    found = look(labels)
    if as_json:
        print_json(found)
    else:
        stdout().print(audit_view(found))
