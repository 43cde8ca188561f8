"""``faith-dspy study …``: finished studies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from faith_dspy.cli.options import SETTINGS, Details, Json, TrackingURI, print_json, print_tables

app = typer.Typer(no_args_is_help=True, context_settings=SETTINGS, help="Finished studies: show, compare, roll back.")

SOURCES = "Folder of an exported judge, a study.json, or the id of a study or of its run in MLflow."


@app.command("show")
def show(
    source: Annotated[str, typer.Argument(metavar="STUDY", help=SOURCES)],
    tracking_uri: TrackingURI = None,
    details: Details = False,
    as_json: Json = False,
) -> None:
    """Show what a study found, in three lines; with --details all its tables.

    Example: faith-dspy study show judges/mine
    """
    from faith_dspy.optimize.tracking.archive import STUDY_FILE, read_study

    if (folder := Path(source)).is_dir() and (as_json or not (folder / STUDY_FILE).is_file()):
        _show_judge(folder, as_json)
        return
    result = read_study(source, tracking_uri)
    if as_json:
        print_json(study_json(result))
    else:
        print_study(result, details)


def _show_judge(folder: Path, as_json: bool) -> None:
    """What an exported judge says of itself: the card, or as JSON all but the answers that loading it reproduces."""
    from faith_dspy.export import load_judge

    found = load_judge(folder)
    if as_json:
        print_json({k: v for k, v in found.manifest.items() if k not in ("reference", "answer_keys")})
    else:
        typer.echo((folder / "CARD.md").read_text(encoding="utf-8"))


@app.command("compare")
def compare(
    sources: Annotated[list[str] | None, typer.Argument(metavar="STUDY", help=SOURCES)] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="The last ten finished studies of this MLflow experiment.")
    ] = None,
    tracking_uri: TrackingURI = None,
    as_json: Json = False,
) -> None:
    """Compare studies: paired where they were tested on the same answers, and the spread where only seeds differ.

    Example: faith-dspy study compare judges/mine judges/mine-seed-1 judges/mine-seed-2
    """
    from faith_dspy.optimize.report.studies import compare_studies, studies_tables
    from faith_dspy.optimize.tracking.archive import last_studies, read_study

    found = [read_study(s, tracking_uri) for s in sources or ()]
    if experiment is not None:
        known = {s.study_id for s in found}
        found += [s for s in last_studies(experiment, tracking_uri) if s.study_id not in known]
    compared = compare_studies(found)
    if as_json:
        pairs = [c.model_dump(mode="json") for c in compared.pairs]
        print_json({"studies": [study_json(s) for s in found], "pairs": pairs, "sentences": compared.sentences})
    else:
        print_tables(studies_tables(found, compared))


@app.command("rollback")
def rollback(tracking_uri: TrackingURI = None) -> None:
    """Make the previous champion the champion again, in MLflow's registry.

    Exchanges two aliases: `models:/faithfulness@champion` becomes what `@previous` was, and the other way round; after
    a first champion there is none. Folders stay as they are. Done twice, nothing has changed.
    """
    from faith_dspy.optimize.tracking.registry import rollback

    typer.echo(rollback(tracking_uri=tracking_uri))


def print_study(result: Any, details: bool) -> None:
    """A study in three lines on stdout, and its tables below them."""
    from faith_dspy.optimize.report.headline import of_study
    from faith_dspy.optimize.report.tables import study_tables

    print_tables([of_study(result), *(study_tables(result) if details else ())])


def study_json(result: Any) -> Any:
    """A study without the predictions of its judges."""
    predictions = {"__all__": {"predictions"}}
    return result.model_dump(mode="json", exclude={"variants": predictions, "test": predictions})
