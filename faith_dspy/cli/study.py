"""``faith-dspy study …``: finished studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faith_dspy.cli.options import SETTINGS, Json, TrackingURI, print_json, stdout

app = typer.Typer(no_args_is_help=True, context_settings=SETTINGS, help="Look at finished studies.")

Sources = "Folder of an exported judge, a study.json, or the id of a study or of its run in MLflow."


@app.command("show")
def show(
    source: Annotated[str, typer.Argument(metavar="STUDY", help=Sources)],
    tracking_uri: TrackingURI = None,
    as_json: Json = False,
) -> None:
    """What a study found: its tables and verdicts, or, of an exported judge, the card.

    Example: faith-dspy study show judges/mine
    """
    if Path(source).is_dir():
        from faith_dspy.artifact import load_judge

        found = load_judge(source)
        if as_json:
            print_json({k: v for k, v in found.manifest.items() if k != "reference"})
            return
        from rich.markdown import Markdown

        stdout().print(Markdown((Path(source) / "CARD.md").read_text(encoding="utf-8")))
        return
    from faith_dspy.optimize.tracking.archive import read_study
    from faith_dspy.report.study import study_view

    result = read_study(source, tracking_uri)
    if as_json:
        rows = {"__all__": {"predictions"}}
        print_json(result.model_dump(mode="json", exclude={"variants": rows, "test": rows}))
    else:
        stdout().print(study_view(result))


@app.command("compare")
def compare(
    sources: Annotated[list[str] | None, typer.Argument(metavar="STUDY…", help=Sources)] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="The last finished studies of this MLflow experiment.")
    ] = None,
    last: Annotated[int, typer.Option("--last", help="How many of them, at most.", min=2)] = 10,
    tracking_uri: TrackingURI = None,
    as_json: Json = False,
) -> None:
    """Studies side by side; paired where they were tested on the same answers; the spread where only seeds differ.

    An exported folder's test predictions are taken from MLflow, where its study is found there.

    Example: faith-dspy study compare judges/mine judges/mine-seed-1 judges/mine-seed-2
    """
    from faith_dspy.optimize.tracking.archive import last_studies, read_record
    from faith_dspy.optimize.tracking.studies import compare_studies
    from faith_dspy.report.studies import studies_view

    found = [read_record(s, tracking_uri) for s in sources or ()]
    if experiment is not None:
        known = {s.study_id for s in found}
        found += [s for s in last_studies(experiment, tracking_uri, last) if s.study_id not in known]
    compared = compare_studies(found)
    if as_json:
        print_json(compared.model_dump(mode="json", exclude={"studies": {"__all__": {"rows"}}}))
    else:
        stdout().print(studies_view(compared))


@app.command("rollback")
def rollback(
    model: Annotated[str, typer.Option("--model", help="Registered model.")] = "faithfulness",
    tracking_uri: TrackingURI = None,
) -> None:
    """Make the judge that was champion before the champion again, in MLflow's registry.

    Moves the alias: `models:/faithfulness@champion` is what `@previous` was, and the other way round. Folders stay as
    they are. Done twice, nothing has changed. `faith-dspy tune --rollback` is the same.
    """
    from faith_dspy.optimize.tracking.registry import rollback

    typer.echo(rollback(model, tracking_uri))
