"""``faith-dspy labels …``: check labels, import them, exchange them with MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from faith_dspy.cli.options import (
    SETTINGS,
    Experiment,
    Json,
    Labels,
    TrackingURI,
    print_json,
    print_tables,
    say,
)
from faith_dspy.errors import InputError, counted

app = typer.Typer(
    no_args_is_help=True,
    context_settings=SETTINGS,
    help="Labels: check them, import them, exchange them with MLflow.",
)


@app.command("audit")
def audit(labels: Labels, as_json: Json = False) -> None:
    """Check a labels file: are there enough, of which kind, how would they be split, how far do annotators agree."""
    from faith_dspy.io.labels import unused_in_labels
    from faith_dspy.optimize.data.audit import audit as check
    from faith_dspy.report.tables import Table

    say(unused_in_labels(labels))
    found = check(labels)
    if as_json:
        print_json(found)
    else:
        enough = found.pop("enough")
        rows = [(name.replace("_", " "), _in_words(value)) for name, value in found.items() if value != ""]
        notes = tuple(f"Enough {what}: {told}" for what, told in enough.items())
        print_tables([Table("In three lines", notes=notes), Table(f"Labels in {labels.name}", ("", ""), tuple(rows))])


def _in_words(value: Any) -> str:
    return ", ".join(f"{k} {n}" for k, n in value.items()) if isinstance(value, dict) else str(value)


Out = Annotated[Path, typer.Option("--out", help="Labels file to write.")]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="WORD=true|false",
        help="What a label means that is not yes/no, true/false, PASS/FAIL, a verdict or a rating, e.g. neutral=false. "
        "Repeatable.",
    ),
]
Name = Annotated[str, typer.Option("--name", help="Name of the human assessments.")]


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, TSV, JSON, JSON lines or Parquet.")],
    out: Out = Path("labels.jsonl"),
    kind: Annotated[str, typer.Option("--format", help="table, label-studio or argilla.")] = "table",
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="A column, e.g. answer=response. Dots reach into objects."),
    ] = None,
    values: Values = None,
) -> None:
    """Import labels from a table, Label Studio or Argilla into a labels file.

    Columns with the usual names (context, passage, retrieved_contexts …; answer, response …; label) are found; name
    others with --map. A label may be a word, a rating (only the highest means faithful), or a list of spans that are
    not supported; numbers beside words are refused until --value says what they mean. Rows without answer, context or
    label are left out, and counted.

    Example: faith-dspy labels import halubench.parquet --value PASS=true --value FAIL=false --out labels.jsonl
    """
    from faith_dspy.io.files import check_writable
    from faith_dspy.optimize.data.imported import parse_words, write_labels
    from faith_dspy.optimize.data.tables import import_labels, parse_columns

    check_writable(out)
    if out.resolve() == file.resolve():
        raise InputError(f"--out {out}: is the file that is imported; name another.")
    found = import_labels(file, kind, parse_columns(columns or ()), parse_words(values or ()))
    say(found.unused)
    if not found.rows:
        raise InputError(f"{file}: {found.sentence} Name the label's column with --map faithful=COLUMN.")
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
    """Write people's assessments of traces in MLflow into a labels file.

    The label of a trace is the majority of the assessments called --name; each person's own is kept in 'annotators'.
    Traces on which people are evenly split are left out, and counted.

    Example: faith-dspy labels pull --experiment my-agent --out labels.jsonl
    """
    from faith_dspy.io.files import check_writable
    from faith_dspy.optimize.data.imported import parse_words, write_labels
    from faith_dspy.optimize.tracking.feedback import pull as run
    from faith_dspy.optimize.tracking.store import connect

    check_writable(out)
    found = run(connect(tracking_uri, experiment, create=False), name, parse_words(values or ()))
    if not found.rows:
        raise InputError(
            f"no trace of the experiment {experiment!r} has a usable human assessment called {name!r}: "
            f"{found.sentence} Name them with --name and --experiment."
        )
    write_labels(found.rows, out)
    typer.echo(f"{out}: {found.sentence}", err=True)


@app.command()
def push(
    labels: Labels,
    experiment: Experiment = "faithfulness-labels",
    name: Name = "faithful",
    tracking_uri: TrackingURI = None,
) -> None:
    """Send a labels file to MLflow, as traces with human assessments, for people to review there.

    Pushing it again adds only what is missing; what people changed in MLflow stays. `labels pull` brings it back.

    Example: faith-dspy labels push labels.jsonl --experiment review
    """
    from faith_dspy.io.labels import read_labels
    from faith_dspy.optimize.tracking.feedback import push as run
    from faith_dspy.optimize.tracking.store import connect

    examples = read_labels(labels, require_label=False)
    made, added = run(connect(tracking_uri, experiment), examples, name)
    found = f"{counted(made, 'new trace')} of {counted(len(examples), 'answer')}"
    typer.echo(f"{found}; {counted(added, 'assessment')} added.", err=True)
