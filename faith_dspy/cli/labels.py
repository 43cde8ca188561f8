"""``faith-dspy labels …``: people's labels, checked, and brought here from where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faith_dspy.cli.options import SETTINGS, Json, TrackingURI, check_writable, print_json, stdout
from faith_dspy.errors import InputError

app = typer.Typer(
    no_args_is_help=True,
    context_settings=SETTINGS,
    help="Labels: check them, import them, and bring them to and from MLflow.",
)


@app.command("audit")
def audit(labels: Annotated[Path, typer.Argument(help="Labels file.")], as_json: Json = False) -> None:
    """Check a labels file: how many labels of which kind, how they would be split, how far people agree."""
    from faith_dspy.optimize.data.audit import audit as look
    from faith_dspy.report.study import audit_view

    found = look(labels)
    if as_json:
        print_json(found)
    else:
        stdout().print(audit_view(found))


Out = Annotated[Path, typer.Option("--out", help="Labels file to write.")]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="WORD=true|false",
        help="What a label means that is not yes/no, true/false, a verdict or a rating, e.g. FAIL=false. Repeatable.",
    ),
]
Experiment = Annotated[str, typer.Option("--experiment", help="MLflow experiment with the traces.")]
Name = Annotated[str, typer.Option("--name", help="Name of the human assessments.")]


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSON, JSON lines or Parquet.")],
    out: Out = Path("labels.jsonl"),
    kind: Annotated[str, typer.Option("--format", help="table, label-studio or argilla.")] = "table",
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="A column, e.g. answer=response. Dots reach into objects."),
    ] = None,
    values: Values = None,
) -> None:
    """Other people's labels as a labels file.

    Columns with the usual names (context, passage, retrieved_contexts …; answer, response …; label) are found; others
    are named with --map. A label may be a word, a rating, or a list of spans that are not supported.

    Example: faith-dspy labels import halubench.parquet --value PASS=true --value FAIL=false --out labels.jsonl
    """
    from faith_dspy.optimize.data.tables import parse_columns, read_foreign
    from faith_dspy.optimize.data.votes import parse_words
    from faith_dspy.optimize.tracking.feedback import write_labels

    check_writable(out, "--out")
    found = read_foreign(file, kind, parse_columns(columns or ()), parse_words(values or ()))
    write_labels(found.rows, out)
    typer.echo(f"{out}: {found.sentence}", err=True)


@app.command()
def pull(
    out: Out = Path("labels.jsonl"),
    experiment: Experiment = "faithfulness",
    name: Name = "faithful",
    values: Values = None,
    tracking_uri: TrackingURI = None,
) -> None:
    """What people said of traces in MLflow, as a labels file.

    The label of a trace is what the majority says in the assessments called --name; every person's own is kept in
    'annotators'. Traces on which people are split are left out, and counted.

    Example: faith-dspy labels pull --experiment my-agent --out labels.jsonl
    """
    from faith_dspy.optimize.data.votes import parse_words
    from faith_dspy.optimize.tracking.feedback import pull as run
    from faith_dspy.optimize.tracking.feedback import traces_in, write_labels

    check_writable(out, "--out")
    found = run(traces_in(tracking_uri, experiment), name, parse_words(values or ()))
    if not found.rows:
        raise InputError(
            f"no trace of the experiment {experiment!r} has a usable human assessment called {name!r}: "
            f"{found.sentence} Name them with --name and --experiment."
        )
    write_labels(found.rows, out)
    typer.echo(f"{out}: {found.sentence}", err=True)


@app.command()
def push(
    labels: Annotated[Path, typer.Argument(help="Labels file.")],
    experiment: Experiment = "faithfulness-labels",
    name: Name = "faithful",
    tracking_uri: TrackingURI = None,
) -> None:
    """A labels file as traces in MLflow, with the labels as human assessments, for people to review there.

    Pushing it again adds only what is missing; what people changed in MLflow stays. `labels pull` brings it back.

    Example: faith-dspy labels push labels.jsonl --experiment review
    """
    from faith_dspy.io.labels import read_labels
    from faith_dspy.optimize.tracking.feedback import traces_in
    from faith_dspy.optimize.tracking.review import push as run

    examples = read_labels(labels, require_label=False)
    made, added = run(traces_in(tracking_uri, experiment, make=True), examples, name)
    typer.echo(f"{made} of {len(examples)} answers are new traces; {added} assessments added.", err=True)
