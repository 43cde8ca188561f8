"""``faith-dspy labels …``: see labels, check them, import them, exchange them with MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faith_dspy.cli import options as cli
from faith_dspy.errors import InputError, counted

if TYPE_CHECKING:
    from faith_dspy.optimize.data.imports import ImportedLabels
    from faith_dspy.schema import LabelledExample

app = typer.Typer(
    no_args_is_help=True,
    context_settings=cli.SETTINGS,
    help="Labels: see them, check them, import them, exchange them with MLflow.",
)

Out = Annotated[Path, cli.option("--out", "Labels file to write.", "FILE")]
Name = Annotated[str, cli.option("--name", "Name of the human assessments.", "NAME")]
Values = Annotated[
    list[str] | None,
    cli.option(
        "--value",
        "What a label means that is not yes/no, true/false, PASS/FAIL, a verdict or a rating, e.g. neutral=false. "
        "Repeatable.",
        "WORD=true|false",
    ),
]


@app.command("list")
def list_(as_json: cli.Json = False) -> None:
    """List the labelled sets that are shipped, and what each is for."""
    from faith_dspy.eval_sets.catalog import SETS, folder_of, load
    from faith_dspy.report.tables import Table

    def described(name: str) -> dict[str, Any]:
        examples, card = load(name), (folder_of(name) / "CARD.md").read_text(encoding="utf-8")
        return {
            "name": name,
            "answers": len(examples),
            "faithful": sum(e.label is True for e in examples),
            "contexts": len({e.context_key for e in examples}),
            "purpose": card.partition("**What it is for:** ")[2].partition("\n")[0],
        }

    found = [described(name) for name in SETS]
    notes = ("Look at one: faith-dspy labels show quickstart", "Tune a judge on one: faith-dspy tune NAME")
    rows = tuple(tuple(map(str, row.values())) for row in found)
    cli.print_result(as_json, found, [Table("Shipped sets", tuple(found[0]), rows, notes=notes)])


@app.command()
def show(
    labels: cli.Labels,
    n: Annotated[int, cli.option("-n", "How many answers.", "N", min=1)] = 3,
    as_json: cli.Json = False,
) -> None:
    """Show the first answers of labels: question, chunks of the context with their ids, answer, label, statements.

    With --json the answers are lines of a labels file.
    """
    from faith_dspy.io.labels import read_labels
    from faith_dspy.report.tables import Table

    examples = read_labels(labels, require_label=False)
    if as_json:
        for e in examples[:n]:
            row = e.tags | e.model_dump(mode="json", exclude={"tags"}, exclude_defaults=True)
            row["context"] = [c.text if c.source is None else {"text": c.text, "source": c.source} for c in e.context]
            typer.echo(json.dumps(row))  # ASCII: no character in it is a terminal's command
    else:
        shown = enumerate(examples[:n], 1)
        cli.print_tables(Table(f"{i} of {len(examples):,}: {e.id}", ("", ""), _rows(e)) for i, e in shown)


def _rows(e: LabelledExample) -> tuple[tuple[str, str], ...]:
    """An answer part by part: the part's name, chunk id or verdict mark, and its text."""
    from faith_dspy.report.judgment import UNJUDGED, WORDING

    label = {True: "faithful", False: "not faithful", None: "no label"}[e.label]
    rows = [("question", e.question)] if e.question else []
    rows += [*((f"[{c.id}]", c.text) for c in e.context), ("answer", e.answer), ("label", label)]
    for s in e.statements:
        mark, words, _ = WORDING[s.verdict or UNJUDGED]
        evidence = " ".join(["", "←", *(f"[{i}]" for i in s.supporting_chunk_ids)]) if s.supporting_chunk_ids else ""
        rows.append((mark, f"{s.text}\n{words}{evidence}{f': {s.reason}' if s.reason else ''}"))
    return tuple(rows)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped set: quickstart, assistants, hard_cases.")],
    out: Annotated[Path | None, cli.option("--out", "Labels file to write. Default: NAME.jsonl.", "FILE")] = None,
) -> None:
    """Write a shipped set as a labels file, to see how one is written or to change it."""
    from faith_dspy.eval_sets.catalog import folder_of
    from faith_dspy.io.files import check_writable, write_file

    content, out = (folder_of(name) / f"{name}.jsonl").read_bytes(), out or Path(f"{name}.jsonl")
    check_writable(out)
    if out.is_file():
        raise InputError(f"{out}: exists already. Give another --out, or remove the file.")
    write_file(out, content)
    cli.say(f"{out}: {counted(len(content.splitlines()), 'labelled answer')}. Next: faith-dspy tune {out}")


@app.command()
def audit(labels: cli.Labels, as_json: cli.Json = False) -> None:
    """Check a labels file: are there enough, of which kind, how would they be split, how far do annotators agree."""
    from faith_dspy.optimize.data.audit import audit
    from faith_dspy.report.tables import Table

    def in_words(value: Any) -> str:
        return ", ".join(f"{k} {n}" for k, n in value.items()) if isinstance(value, dict) else str(value)

    found = audit(labels)
    notes = tuple(f"Enough {what}: {said}" for what, said in found["enough"].items())
    shown = {name.replace("_", " "): value for name, value in found.items() if name != "enough" and value != ""}
    rows = tuple((name, in_words(value)) for name, value in shown.items())
    tables = [Table("In three lines", notes=notes), Table(f"Labels in {labels.name}", ("", ""), rows)]
    cli.print_result(as_json, found, tables)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, TSV, JSON, JSON lines or Parquet.")],
    out: Out = Path("labels.jsonl"),
    kind: Annotated[str, cli.option("--format", "table, label-studio or argilla.", "FORMAT")] = "table",
    columns: Annotated[
        list[str] | None,
        cli.option("--map", "A column, e.g. answer=response. Dots reach into objects. Repeatable.", "FIELD=COLUMN"),
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
    from faith_dspy.optimize.data.imports import import_labels, parse_columns, parse_words

    check_writable(out)
    if out.resolve() == file.resolve():
        raise InputError(f"--out {out} is the file that is imported; name another.")
    found = import_labels(file, kind, parse_columns(columns or ()), parse_words(values or ()))
    _write(found, out, f"{file}: %s Name the label's column with --map faithful=COLUMN.")


@app.command()
def pull(
    out: Out = Path("labels.jsonl"),
    experiment: cli.Experiment = "faithfulness",
    name: Name = "faithful",
    values: Values = None,
    tracking_uri: cli.TrackingURI = None,
) -> None:
    """Write people's assessments of traces in MLflow into a labels file.

    The label of a trace is the majority of the assessments called --name; each person's own is kept in 'annotators'.
    Traces on which people are evenly split are left out, and counted.
    """
    from faith_dspy.io.files import check_writable
    from faith_dspy.optimize.data.imports import parse_words
    from faith_dspy.optimize.tracking.feedback import pull
    from faith_dspy.optimize.tracking.store import connect

    check_writable(out)
    found = pull(connect(tracking_uri, experiment, create=False), name, parse_words(values or ()))
    none = f"no trace of the experiment {experiment!r} has a usable human assessment called {name!r}"
    _write(found, out, f"{none}: %s Name them with --name and --experiment.")


def _write(found: ImportedLabels, out: Path, none: str) -> None:
    from faith_dspy.optimize.data.imports import write_labels

    if not found.rows:
        raise InputError(none % found.sentence)
    write_labels(found.rows, out)
    cli.say(f"{out}: {found.sentence}")


@app.command()
def push(
    labels: cli.Labels,
    experiment: cli.Experiment = "faithfulness-labels",
    name: Name = "faithful",
    tracking_uri: cli.TrackingURI = None,
) -> None:
    """Send a labels file to MLflow, as traces with human assessments, for people to review there.

    Pushing it again adds only what is missing; what people changed in MLflow stays. `labels pull` brings it back.
    """
    from faith_dspy.io.labels import read_labels
    from faith_dspy.optimize.tracking.feedback import push
    from faith_dspy.optimize.tracking.store import connect

    examples = read_labels(labels, require_label=False)
    made, added = push(connect(tracking_uri, experiment), examples, name)
    of = f"{counted(made, 'new trace')} of {counted(len(examples), 'answer')}"
    cli.say(f"{of}; {counted(added, 'assessment')} added.")
