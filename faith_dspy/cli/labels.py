"""``faith-dspy labels …``: see labels, check them, import them, exchange them with MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from faith_dspy.schema import LabelledExample

app = typer.Typer(
    no_args_is_help=True,
    context_settings=SETTINGS,
    help="Labels: see them, check them, import them, exchange them with MLflow.",
)


@app.command("list")
def list_(as_json: Json = False) -> None:
    """List the labelled sets that are shipped, and what each is for.

    Example: faith-dspy labels list
    """
    from faith_dspy.eval_sets.catalog import SETS, folder_of
    from faith_dspy.io.labels import read_labels
    from faith_dspy.report.tables import Table

    found: list[dict[str, Any]] = []
    for name in SETS:
        examples = read_labels(folder_of(name) / f"{name}.jsonl")
        faithful, contexts = sum(e.label is True for e in examples), len({e.context_key for e in examples})
        card = (folder_of(name) / "CARD.md").read_text(encoding="utf-8")
        purpose = card.partition("**What it is for:** ")[2].partition("\n")[0]
        counts = {"answers": len(examples), "faithful": faithful, "contexts": contexts}
        found.append({"name": name, **counts, "purpose": purpose})
    if as_json:
        print_json(found)
    else:
        notes = ("Look at one: faith-dspy labels show quickstart", "Tune a judge on one: faith-dspy tune NAME")
        rows = tuple(tuple(map(str, row.values())) for row in found)
        print_tables([Table("Shipped sets", tuple(found[0]), rows, notes=notes)])


@app.command()
def show(
    labels: Labels, n: Annotated[int, typer.Option("-n", help="How many answers.", min=1)] = 3, as_json: Json = False
) -> None:
    """Show the first answers of labels: question, chunks of the context with their ids, answer, label, statements.

    Below a statement stand its verdict, the ids of its chunks and the reason. With --json the answers are lines of a
    labels file.

    Example: faith-dspy labels show quickstart -n 1
    """
    from faith_dspy.io.labels import read_labels, unused_in_labels
    from faith_dspy.report.tables import Table

    say(unused_in_labels(labels))
    examples = read_labels(labels, require_label=False)
    if as_json:
        for e in examples[:n]:
            row = e.tags | e.model_dump(mode="json", exclude={"tags"}, exclude_defaults=True)
            row["context"] = [c.text if c.source is None else {"text": c.text, "source": c.source} for c in e.context]
            typer.echo(json.dumps(row))  # ASCII: no character in it is a terminal's command
    else:
        shown = enumerate(examples[:n], 1)
        print_tables(Table(f"{i} of {len(examples):,}: {e.id}", ("", ""), _rows(e)) for i, e in shown)


def _rows(e: LabelledExample) -> tuple[tuple[str, str], ...]:
    """What is shown of an answer, each part with its name, chunk id or verdict's mark."""
    from faith_dspy.report.judgment import UNJUDGED, WORDING

    label = {True: "faithful", False: "not faithful", None: "no label"}[e.label]
    score = "" if e.score is None else f", score {e.score:g}"
    each = "" if e.annotators is None else f"; each: {json.dumps(e.annotators, ensure_ascii=False)}"
    rows = [("question", e.question)] if e.question else []
    rows += [*((f"[{c.id}]", c.text) for c in e.context), ("answer", e.answer), ("label", label + score + each)]
    for s in e.statements:
        mark, words, _ = WORDING[s.verdict or UNJUDGED]
        evidence = " ".join(["", "←", *(f"[{i}]" for i in s.supporting_chunk_ids)]) if s.supporting_chunk_ids else ""
        rows.append((mark, f"{s.text}\n{words}{evidence}{f': {s.reason}' if s.reason else ''}"))
    return tuple(rows)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped set: quickstart, assistants.")],
    out: Annotated[Path | None, typer.Option("--out", help="Labels file to write. Default: NAME.jsonl.")] = None,
) -> None:
    """Write a shipped set as a labels file, to see how one is written or to change it.

    Example: faith-dspy labels get quickstart --out labels.jsonl
    """
    from faith_dspy.eval_sets.catalog import folder_of
    from faith_dspy.io.files import check_writable, write_file

    content = (folder_of(name) / f"{name}.jsonl").read_bytes()
    out = out or Path(f"{name}.jsonl")
    check_writable(out)
    if out.is_file():
        raise InputError(f"{out}: is there already. Give another --out, or remove the file.")
    write_file(out, content)
    typer.echo(f"{out}: {counted(len(content.splitlines()), 'labelled answer')}. Next: faith-dspy tune {out}", err=True)


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
    from faith_dspy.optimize.data.imports import import_labels, parse_columns, parse_words, write_labels

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
    from faith_dspy.optimize.data.imports import parse_words, write_labels
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
