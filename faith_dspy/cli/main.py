"""``faith-dspy …``: JSON lines in, JSON lines or a table out.

Exit codes: 0 done · 1 the judge failed its bar · 2 wrong input, or something needed is not there · 130 stopped.
Everything heavy is imported inside the commands, so that ``--help`` is instant.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from faith_dspy.cli import labels as labels_commands
from faith_dspy.cli import model, study
from faith_dspy.cli.agree import agree
from faith_dspy.cli.options import (
    LM,
    SETTINGS,
    APIBase,
    Granularities,
    Json,
    JudgeSource,
    Options,
    TrackingURI,
    check_writable,
    judge_of,
    print_json,
    stdout,
)
from faith_dspy.cli.stress import stress
from faith_dspy.errors import FaithDspyError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faith_dspy.judge import Judge

app = typer.Typer(
    name="faith-dspy",
    help="Faithfulness judges that are tuned on human labels instead of trusted blindly.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings=SETTINGS,
)
app.add_typer(model.app, name="model")
app.add_typer(study.app, name="study")
app.add_typer(labels_commands.app, name="labels")


class Engine(StrEnum):
    """Where answers are judged."""

    HERE = "here"
    SPARK = "spark"


class BudgetName(StrEnum):
    """How much a study tries."""

    QUICK = "quick"
    STANDARD = "standard"
    THOROUGH = "thorough"


class Preference(StrEnum):
    """Which champion a study exports."""

    AGREEMENT = "agreement"
    CHEAPEST = "cheapest"


@app.command()
def tune(
    labels: Annotated[
        str | None,
        typer.Argument(
            metavar="LABELS", help="Labels file, one JSON object a line; or 'quickstart', the set that is shipped."
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Labels to test on; else a part of LABELS is kept aside.")
    ] = None,
    lm: LM = "local",
    api_base: APIBase = None,
    operating_point: Annotated[
        str,
        typer.Option(
            "--operating_point",
            help="What the threshold is for: balanced, recall=0.9 (unfaithful answers to stop), or cost=5 (how much "
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
            "variant, words first, or lexical features alone.",
        ),
    ] = Preference.AGREEMENT,
    seed: Annotated[int, typer.Option("--seed", help="Of the split, demos and bootstrap intervals.")] = 0,
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants", help="Instead of the budget's: names with commas between, or NAME.toml that declares them."
        ),
    ] = None,
    tracking_uri: TrackingURI = None,
    experiment: Annotated[str, typer.Option("--experiment", help="MLflow experiment.")] = "faithfulness",
    require_better: Annotated[
        bool,
        typer.Option("--require-better", help="Exit 1 unless the champion is shown better than the untuned judge."),
    ] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Tune nothing; as `faith-dspy study rollback`: undo the last promotion.")
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

    --variants plan.toml declares what is tried: variants of any options, optimizers, LMs and seeds, sizes and limits;
    `python -m pydoc faith_dspy.optimize.select.plan` shows one.

    The champion is registered in MLflow, and becomes models:/faithfulness@champion when it has earned it: shown better
    than its own untuned judge, and not shown worse than the present champion where both were tested on the same
    answers; or when there is none yet. The last lines say so. --rollback undoes it.

    A study that is stopped – Ctrl-C, or worse – goes on where it was when the same command is run again: every reply of
    the LM is kept.

    Example: faith-dspy tune labels.jsonl --budget quick --out judges/mine
    """
    if rollback:
        study.rollback(tracking_uri=tracking_uri)
        return
    if labels is None:
        raise typer.BadParameter("Missing argument 'LABELS'.")
    from faith_dspy.optimize import tune as run
    from faith_dspy.report.study import study_view

    result = run(
        labels,
        test=test,
        lm=lm or "local",
        api_base=api_base,
        operating_point=operating_point,
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
        print_json(result.model_dump(mode="json", exclude={"variants": rows, "test": rows}))
    else:
        stdout().print(study_view(result))
    if require_better and result.comparisons["untuned"].verdict != "better":
        raise typer.Exit(1)


@app.command()
def judge(
    records: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help='{"question"?, "context": […], "answer"} a line; - for stdin. With Spark also Parquet.',
        ),
    ],
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            help="File for the judgments, a JSON object a line. Default, and with -: stdout. On Spark: a "
            "folder of Parquet, by default INPUT.judged.parquet.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write one self-contained HTML page, of the first 2,000 answers.")
    ] = None,
    granularity: Granularities = None,
    options: Options = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Answers judged at the same time; on Spark, by each worker.", min=1)
    ] = None,
    calls_per_second: Annotated[
        float | None,
        typer.Option("--calls-per-second", help="Most LM calls a second; on Spark, of each worker.", min=0.001),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="here: this process. spark: Spark, on the machine or cluster it is set to."),
    ] = Engine.HERE,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            "--spark-conf", metavar="KEY=VALUE", help="A setting of Spark, e.g. spark.master=local[4]. May be repeated."
        ),
    ] = None,
) -> None:
    """Judge answers. A judgment a line, in the order of the input, with the record's id where it has one.

    Any number of records is read as it is needed. One that cannot be judged, or a line that is not JSON, comes out
    unscored, with the reason. With --out, a run that was stopped or killed goes on where it was, if judge and options
    are the same. The last line on stderr counts what was scored, what was not and why, tokens and seconds.

    --engine spark takes Parquet (or JSON lines), local or s3a://…, and writes Parquet: every column that was there, and
    a struct `judgment` with score, verdict counts, unscored reason, usage. This process reads the judge and plans; the
    workers, one a core of the executors, call the LM: its address must be reached from them, and its key be in their
    environment. Rows come in any order, and a run that was stopped starts anew.

    Example: faith-dspy judge answers.jsonl --judge judges/mine --out judged.jsonl --html judged.html

    Example: faith-dspy judge answers.parquet --judge judges/mine --engine spark
    """
    made = partial(judge_of, judge, lm, api_base, granularity, options)
    if engine is Engine.SPARK:
        _judge_on_spark(made, records, out, html, threads, calls_per_second, spark_conf or ())
        return
    if spark_conf:
        raise InputError(f"--spark-conf {spark_conf[0]} is for --engine spark.")
    from faith_dspy.io.records import count_lines
    from faith_dspy.io.runner import limit_replies_in_memory, run
    from faith_dspy.lm import Limits, metered
    from faith_dspy.report.terminal import TerminalView

    source, file = Path(records), None if out in (None, "-") else Path(out)
    check_writable(file, "--out")
    check_writable(html, "--html")
    the_judge = made()
    limit_replies_in_memory()
    limits = Limits(calls_per_second=calls_per_second)
    with TerminalView().bar("judging", count_lines(source)) as advance, metered(limits):
        tally = run(the_judge, source, file, threads=threads, show=html is not None, advance=advance)
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


app.command()(agree)
app.command()(stress)


def _judge_on_spark(
    made: Callable[[], Judge],
    source: str,
    out: str | None,
    html: Path | None,
    threads: int | None,
    calls_per_second: float | None,
    conf: Sequence[str],
) -> None:
    from faith_dspy.integrations.spark import beside, judge_file

    if html is not None or "-" in (source, out):
        raise InputError("--engine spark reads and writes tables: no --html, and no - for standard input or output.")
    if unset := [c for c in conf if "=" not in c]:
        raise InputError(f"--spark-conf {unset[0]}: expected KEY=VALUE, e.g. spark.master=local[4].")
    settings = dict(c.split("=", 1) for c in conf)
    out = out or beside(source)
    tally = judge_file(source, made(), out, threads=threads, calls_per_second=calls_per_second, settings=settings)
    typer.echo(f"{tally} · in {out}", err=True)


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
