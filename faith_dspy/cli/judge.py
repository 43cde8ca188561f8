"""``faith-dspy judge``: answers in, a judgment a line out."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from faith_dspy.cli.options import (
    LM,
    APIBase,
    JudgeSource,
    Options,
    Timeout,
    Untuned,
    drop_stdout,
    fail,
    judge_of,
    print_json,
    say,
)
from faith_dspy.errors import InputError, LMUnavailableError

if TYPE_CHECKING:
    from faith_dspy.judge import Judge


def judge(
    records: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="JSON lines, CSV, TSV or Parquet with question (optional), context and answer; - for JSON lines on "
            "stdin.",
            show_default=False,
        ),
    ] = None,
    answer: Annotated[str | None, typer.Option("--answer", help="One answer, instead of INPUT.")] = None,
    context: Annotated[
        list[str] | None, typer.Option("--context", help="A chunk of its context. Repeatable.", metavar="TEXT")
    ] = None,
    question: Annotated[str | None, typer.Option("--question", help="The question that it answers.")] = None,
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    timeout: Timeout = None,
    options: Options = None,
    untuned: Untuned = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            help="File for the judgments, a JSON object a line. Default, and with -: stdout. On Spark: a "
            "folder of Parquet, by default INPUT.judged.parquet.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write one self-contained HTML page of the first 2,000 answers.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Answers judged at the same time; on Spark, by each worker.", min=1)
    ] = None,
    engine: Annotated[
        Literal["here", "spark"],
        typer.Option("--engine", help="Judge in this process, or on Spark, on the machine or cluster it is set to."),
    ] = "here",
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            "--spark-conf", metavar="KEY=VALUE", help="A setting of Spark, e.g. spark.master=local[4]. Repeatable."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --answer: the judgment as JSON.")] = False,
) -> None:
    """Judge answers. Writes a judgment a line, in the order of the input, with the record's id where it has one.

    Columns may have the names that RAGAS, DeepEval and others use; what they are taken for is said, and so is what is
    not used. A file without a column for the answer is refused before an LM is started.

    Records are read as they are needed, any number of them. One that cannot be judged, or a line that is not JSON,
    comes out unscored, with the reason. With --out, a run that was stopped or killed continues where it stopped, if
    judge and options are the same. The last line on stderr counts what was scored, what was not and why, tokens and
    seconds.

    --engine spark takes Parquet (or JSON lines), local or s3a://…, and writes Parquet: every column that was there, and
    a struct `judgment` with score, verdict counts, unscored reason, usage. This process reads the judge and plans; the
    workers, one a core of the executors, call the LM: they must reach its address, and find its key in their
    environment. Rows come in any order, and a run that was stopped starts again.

    Example: faith-dspy judge answers.jsonl --judge judges/mine --out judged.jsonl --html judged.html

    Example: faith-dspy judge answers.parquet --judge judges/mine --engine spark

    Example: faith-dspy judge --answer "Returns are free." --context "Returns cost 5 euros."
    """
    from faith_dspy.io.files import check_writable

    if answer is not None:
        if records is not None or out is not None:
            raise InputError("--answer is one answer, shown here: give no INPUT and no --out with it.")
        if html is not None:
            check_writable(html)
        the_judge = judge_of(judge, lm, api_base, options, untuned, timeout=timeout)
        _judge_one({"question": question, "context": context, "answer": answer}, the_judge, html, as_json)
        return
    if records is None:
        raise typer.BadParameter("there is nothing to judge; give INPUT, a file of answers, or --answer with --context")
    if context or question is not None:
        raise InputError("--context and --question go with --answer; those of INPUT stand in its columns.")
    if engine == "spark":
        if html is not None or "-" in (records, out):
            raise InputError(
                "--engine spark reads and writes tables: no --html, and no - for standard input or output."
            )
        if unset := [c for c in spark_conf or () if "=" not in c]:
            raise InputError(f"--spark-conf {unset[0]}: expected KEY=VALUE, e.g. spark.master=local[4].")
        from faith_dspy.integrations.spark import beside, judge_file

        out = out or beside(records)
        with TemporaryDirectory() as folder:
            judge_of(judge, lm, api_base, options, untuned).save(folder)  # the workers make the LM
            tally = judge_file(
                records,
                folder,
                out,
                settings=dict(c.split("=", 1) for c in spark_conf or ()),
                api_base=api_base,
                timeout=timeout,
                threads=threads,
            )
        typer.echo(f"{tally} · in {out}", err=True)
        return
    if spark_conf:
        raise InputError(f"--spark-conf {spark_conf[0]} is for --engine spark.")
    from faith_dspy.io.records import check_records, count_lines
    from faith_dspy.report.judgment import described, write_html
    from faith_dspy.report.progress import TerminalView
    from faith_dspy.runner import limit_replies_in_memory, run

    source, file = Path(records), None if out in (None, "-") else Path(out)
    for path in filter(None, (file, html)):
        check_writable(path)
    say(check_records(source))
    the_judge = judge_of(judge, lm, api_base, options, untuned, timeout=timeout)
    limit_replies_in_memory()
    try:
        with TerminalView().bar("judging", count_lines(source)) as advance:
            tally = run(the_judge, source, file, threads=threads, show=html is not None, advance=advance)
    except BrokenPipeError:
        drop_stdout()  # whoever reads has enough
        return
    except LMUnavailableError as exc:
        raise LMUnavailableError(f"{exc} What was judged is kept: run the same command again to continue.") from None
    try:
        if html:
            write_html(tally.shown.values(), html, total=tally.rows, judge=described(the_judge))
            if len(tally.shown) < tally.rows:
                typer.echo(
                    f"{html} shows the first {len(tally.shown):,} answers: more would not open in a browser.", err=True
                )
    except InputError as exc:
        raise InputError(f"{exc} All judgments are in {file or 'standard output'}.") from exc
    finally:
        typer.echo(tally, err=True)
    if tally.unreadable == tally.rows:
        raise InputError(f"No line of {records} is a JSON object: is it a JSON lines file?")
    if not tally.scored:
        fail([f"no answer could be scored; the first: {tally.why}"])


def _judge_one(record: dict[str, Any], judge: Judge, html: Path | None, as_json: bool) -> None:
    from faith_dspy.report.judgment import described, write_html

    judge.preflight()
    judgment = judge(**record)
    if as_json:
        print_json(judgment.model_dump(mode="json"))
    else:
        typer.echo(judgment.pretty().rstrip())
    if html is not None:
        write_html([(record, judgment)], html, judge=described(judge))
    if judgment.unscored is not None:
        fail([f"the answer could not be scored: {judgment.detail or judgment.unscored.value}"])
