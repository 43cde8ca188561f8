"""``faith-dspy study …``: finished studies."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from faith_dspy.cli.options import SETTINGS, Json, TrackingURI, print_json, print_tables
from faith_dspy.errors import InputError

app = typer.Typer(no_args_is_help=True, context_settings=SETTINGS, help="Finished studies: show, compare, roll back.")

SOURCES = "Folder of an exported judge, a study.json, or the id of a study or of its run in MLflow."


@app.command("show")
def show(
    source: Annotated[str, typer.Argument(metavar="STUDY", help=SOURCES)],
    tracking_uri: TrackingURI = None,
    as_json: Json = False,
) -> None:
    """Show what a study found: its tables and verdicts, or the card of an exported judge.

    Example: faith-dspy study show judges/mine
    """
    if Path(source).is_dir():
        from faith_dspy.artifact import load_judge

        found = load_judge(source)
        if as_json:
            print_json({k: v for k, v in found.manifest.items() if k not in ("reference", "answer_keys")})
            return
        from faith_dspy.optimize.tracking.archive import read_study

        with suppress(InputError):  # made by hand, or by another version: it has its card
            print_study(read_study(source))
            return
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown((Path(source) / "CARD.md").read_text(encoding="utf-8")))
        return
    from faith_dspy.optimize.tracking.archive import read_study

    result = read_study(source, tracking_uri)
    if as_json:
        print_json(study_json(result))
    else:
        print_study(result)


@app.command("compare")
def compare(
    sources: Annotated[list[str] | None, typer.Argument(metavar="STUDY…", help=SOURCES)] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="The last ten finished studies of this MLflow experiment.")
    ] = None,
    tracking_uri: TrackingURI = None,
    as_json: Json = False,
) -> None:
    """Compare studies: paired where they were tested on the same answers, and the spread where only seeds differ.

    Example: faith-dspy study compare judges/mine judges/mine-seed-1 judges/mine-seed-2
    """
    from faith_dspy.optimize.reporting.studies import compare_studies, studies_tables
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

    Exchanges two aliases: `models:/faithfulness@champion` becomes what `@previous` was, and the other way round.
    Folders stay as they are. Done twice, nothing has changed.
    """
    from faith_dspy.optimize.tracking.registry import rollback

    typer.echo(rollback(tracking_uri=tracking_uri))


def print_study(result: Any) -> None:
    """A study's tables on stdout."""
    from faith_dspy.optimize.reporting.tables import study_tables

    print_tables(study_tables(result))


def study_json(result: Any) -> Any:
    """A study without the predictions of its judges."""
    predictions = {"__all__": {"predictions"}}
    return result.model_dump(mode="json", exclude={"variants": predictions, "test": predictions})
