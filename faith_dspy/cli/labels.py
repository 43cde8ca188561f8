"""``faith-dspy labels …``: see, get, check and import labels, and have answers labelled in MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faith_dspy.cli import options as cli
from faith_dspy.cli.tune import pages
from faith_dspy.errors import InputError, counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faith_dspy.optimize.data.labels import ImportedLabels
    from faith_dspy.schema import LabelledExample

app = cli.group(
    "Labels: see, get, check and import them, and have answers labelled in MLflow."
)

Out = Annotated[Path, cli.option("--out", "Labels file to write.", "FILE")]
Name = Annotated[str, cli.option("--name", "Name of the human assessments.", "NAME")]
Values = Annotated[
    list[str] | None,
    cli.option(
        "--value",
        "What a label means that does not tell, e.g. neutral=false, 1=unfaithful; none leaves it out. Repeatable.",
        "WORD=true|false|none",
    ),
]


@app.command("list")
def list_(as_json: cli.Json = False) -> None:
    """List the labelled sets: those that are shipped, and public ones that `labels get` fetches."""
    from faith_dspy.eval_sets.catalog import SETS
    from faith_dspy.eval_sets.public import PUBLIC, card_of
    from faith_dspy.report.tables import Table

    def of_card(name: str, field: str) -> str:
        return " ".join(
            card_of(name).partition(f"**{field}:** ")[2].partition("\n\n")[0].split()
        ).removesuffix(".")

    fields = {"size": "Size", "licence": "Licence", "purpose": "What it is for"}
    look = (
        "Look at one: faith-dspy labels show quickstart",
        "Tune a judge on one: faith-dspy tune NAME",
    )
    get = (
        "Get one: faith-dspy labels get NAME, or --from FOLDER with a copy of its files. None of them is ours.",
    )
    sets, tables = [], []
    for title, names, notes in (
        ("Shipped sets", SETS, look),
        ("Public sets", PUBLIC, get),
    ):
        rows = [
            {"name": name} | {k: of_card(name, f) for k, f in fields.items()}
            for name in names
        ]
        sets += rows
        cells = tuple(tuple(row.values()) for row in rows)
        tables.append(Table(title, ("name", *fields), cells, notes=notes))
    cli.print_result(as_json, sets, tables)


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
    from faith_dspy.optimize.data.labels import row_of

    examples = read_labels(labels, require_label=False)
    if as_json:
        for e in examples[:n]:
            # ASCII: no character in it is a terminal's command.
            typer.echo(json.dumps(row_of(e)))
    else:
        _show(examples, n)


def _show(examples: Sequence[LabelledExample], n: int) -> None:
    """Print the first ``n``, each as a table."""
    from faith_dspy.report.tables import Table

    shown = enumerate(examples[:n], 1)
    cli.print_tables(
        Table(f"{i} of {len(examples):,}: {e.id}", ("", ""), _rows(e)) for i, e in shown
    )


def _rows(e: LabelledExample) -> tuple[tuple[str, str], ...]:
    """Return an answer part by part: the part's name, chunk id or verdict mark, and its text."""
    from faith_dspy.report.judgment import UNJUDGED, WORDING

    label = {True: "faithful", False: "not faithful", None: "no label"}[e.label]
    rows = [("question", e.question)] if e.question else []
    rows += [(f"[{c.id}]", c.text) for c in e.context]
    rows += [("answer", e.answer), ("label", label)]
    for s in e.statements:
        mark, words, _ = WORDING[s.verdict or UNJUDGED]
        if s.supporting_chunk_ids:
            words += " ← " + " ".join(f"[{i}]" for i in s.supporting_chunk_ids)
        if s.reason:
            words += f": {s.reason}"
        rows.append((mark, f"{s.text}\n{words}"))
    return tuple(rows)


@app.command()
def get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A shipped or a public set, as `labels list` names them.",
        ),
    ],
    out: Annotated[
        Path | None,
        cli.option("--out", "Labels file to write. Default: NAME.jsonl.", "FILE"),
    ] = None,
    folder: Annotated[
        Path | None,
        cli.option(
            "--from",
            "Copy of a public set's published files. Default: download them.",
            "FOLDER",
        ),
    ] = None,
) -> None:
    """Write a shipped set as a labels file, or read a public one into one: its published files become labels with
    sources and, where it has them, parts.

    Example: faith-dspy labels get ragtruth --from RAGTruth/dataset
    """
    from faith_dspy.eval_sets.catalog import folder_of
    from faith_dspy.eval_sets.public import PUBLIC, load_public
    from faith_dspy.io.files import check_writable
    from faith_dspy.optimize.data.labels import write_labels

    out = out or Path(f"{name}.jsonl")
    check_writable(out)
    if out.is_file():
        raise InputError(
            f"{out}: exists already. Give another --out, or remove the file."
        )
    if name in PUBLIC:
        rows = load_public(name, folder)
    else:
        text = (folder_of(name) / f"{name}.jsonl").read_text(encoding="utf-8")
        rows = [json.loads(line) for line in text.splitlines()]
    write_labels(rows, out)
    n = counted(len(rows), "labelled answer")
    cli.say(f"{out}: {n}. Next: faith-dspy labels audit {out}, faith-dspy tune {out}")


@app.command()
def audit(labels: cli.Labels, as_json: cli.Json = False) -> None:
    """Check a labels file: are there enough, of which kind, who gave them, how far do annotators agree."""
    from faith_dspy.io.labels import read_labels
    from faith_dspy.optimize.data.annotators import annotators_table, between_annotators
    from faith_dspy.optimize.data.labels import audit_labels
    from faith_dspy.report.tables import Table

    def in_words(value: Any) -> str:
        return (
            ", ".join(f"{k} {n}" for k, n in value.items())
            if isinstance(value, dict)
            else str(value)
        )

    report = audit_labels(labels)
    notes = tuple(
        f"Enough {what}? {answer[:1].upper()}{answer[1:]}"
        for what, answer in report["enough"].items()
    )
    rows = tuple(
        (name.replace("_", " "), in_words(value))
        for name, value in report.items()
        if name != "enough" and in_words(value)
    )
    tables = [
        Table("In three lines", notes=notes),
        Table(f"Labels in {labels.name}", ("", ""), rows),
    ]
    between = between_annotators(read_labels(labels, require_label=False))
    if between is not None:
        report["between_annotators"] = between
        tables.append(annotators_table(between))
    cli.print_result(as_json, report, tables)


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="CSV, TSV, Excel, JSON, JSON lines or Parquet."
        ),
    ],
    out: Out = Path("labels.jsonl"),
    columns: Annotated[
        list[str] | None,
        cli.option(
            "--map",
            "A column, e.g. answer=response; dots reach into objects, ! negates. Repeatable.",
            "FIELD=COLUMN",
        ),
    ] = None,
    values: Values = None,
    dry_run: Annotated[
        bool,
        cli.option(
            "--dry-run",
            "Show the first three rows as they would be, and write nothing.",
        ),
    ] = False,
) -> None:
    """Import labels from a table into a labels file.

    Columns with the usual names (context, passage, retrieved_contexts …; answer, response …; label) are found; name
    others with --map. A label may be a word, a number, or a list of spans that are not supported; what does not tell
    whether it means faithful is refused until --value says it. Rows that cannot be read are named, rows without a label
    counted.

    Example: faith-dspy labels import ratings.csv --map faithful=stars --value 5=true --value 4=false
    """
    from faith_dspy.io.files import check_writable
    from faith_dspy.optimize.data.labels import (
        import_labels,
        parse_columns,
        parse_values,
    )

    check_writable(out)
    if out.resolve() == file.resolve():
        raise InputError(f"--out {out} is the file that is imported; name another.")
    labels = import_labels(
        file, parse_columns(columns or ()), parse_values(values or ())
    )
    for problem in labels.unreadable:
        cli.say(problem)
    if dry_run:
        _show(labels.examples, 3)
        cli.say(f"{labels.sentence} Nothing was written.")
        return
    none = (
        f"{file}: %s Name the label's column with --map faithful=COLUMN, or each person's with "
        "--map annotators.NAME=COLUMN."
    )
    _write(labels, out, none)


@app.command()
def pull(
    out: Out = Path("labels.jsonl"),
    queue: Annotated[
        str | None,
        cli.option("--queue", "Review queue that `labels push` made.", "NAME"),
    ] = None,
    reviewer: Annotated[
        str | None,
        cli.option(
            "--reviewer",
            "Who labelled it, where nobody logs in. Default: the queue's name.",
            "NAME",
        ),
    ] = None,
    experiment: cli.Experiment = "faithfulness",
    name: Name = "faithful",
    values: Values = None,
    tracking_uri: cli.TrackingURI = None,
) -> None:
    """Write what the reviewers of a queue said into a labels file, or, without --queue, people's assessments of traces.

    The label is the majority's; each person's own is kept in 'annotators', and a tie has no label. Unfinished reviews
    are counted.

    Without --queue the label of a trace is the majority of the assessments called --name.
    """
    from faith_dspy.io.files import check_writable
    from faith_dspy.optimize.data.labels import parse_values
    from faith_dspy.optimize.tracking.review import read_feedback, read_reviews
    from faith_dspy.optimize.tracking.store import connect

    check_writable(out)
    store = connect(tracking_uri, experiment, create=False)
    if queue:
        none = f"nobody has finished a review of the queue {queue!r}: %s"
        _write(read_reviews(store, queue, reviewer), out, none)
        return
    labels = read_feedback(store, name, parse_values(values or ()))
    none = f"no trace of the experiment {experiment!r} has a usable human assessment called {name!r}"
    _write(labels, out, f"{none}: %s Name them with --name and --experiment.")


def _write(labels: ImportedLabels, out: Path, none: str) -> None:
    from faith_dspy.optimize.data.labels import write_labels

    if not labels.rows:
        raise InputError(none % labels.sentence)
    write_labels(labels.rows, out)
    cli.say(f"{out}: {labels.sentence}")


@app.command()
def push(
    queue: Annotated[
        str,
        cli.option("--queue", "Review queue; it is made if it is not there.", "NAME"),
    ],
    answers: Annotated[
        Path | None,
        typer.Argument(
            metavar="[ANSWERS]", help="Answers (JSON lines, CSV, TSV or Parquet)."
        ),
    ] = None,
    traces: Annotated[
        str | None,
        cli.option(
            "--traces",
            "Instead of a file: traces in MLflow, by a filter of its search, e.g. \"attributes.status = 'OK'\"; '' "
            "takes all.",
            "FILTER",
        ),
    ] = None,
    verdicts: Annotated[
        str | None,
        cli.option(
            "--verdicts",
            "Show what this judge says: its folder, models:/name@alias, or 'none'.",
            "JUDGE",
        ),
    ] = None,
    experiment: cli.Experiment = "faithfulness",
    tracking_uri: cli.TrackingURI = None,
) -> None:
    """Put answers into a review queue on MLflow's pages, for people to label; `labels pull` brings their labels back.

    Labels in the file are hidden from reviewers, and so are a judge's verdicts, which bias them, unless --verdicts
    asks for them. Pushing again adds only what is new. The order is random, so that the first labels are a random
    sample.

    Example: faith-dspy labels push answers.csv --queue november
    """
    from faith_dspy.load import open_judge
    from faith_dspy.optimize.tracking.review import queue_answers

    judge = open_judge(verdicts) if verdicts else None
    queued = queue_answers(
        answers,
        queue,
        traces=traces,
        experiment=experiment,
        tracking_uri=tracking_uri,
        verdicts=judge,
    )
    added = f"{counted(queued.items, 'review')} added ({counted(queued.traces, 'new trace')})"
    cli.say(f"{queue}: {added}. Its page: {pages(queued.page, tracking_uri)}")
