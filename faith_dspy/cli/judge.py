"""``faith-dspy judge``: answers in, a judgment a line out; ``faith-dspy demo``: the same from a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from faith_dspy.cli.options import (
    ChosenJudge,
    InBatch,
    check_outputs,
    drop_stdout,
    fail,
    option,
    print_json,
    print_tables,
    say,
    with_options,
)
from faith_dspy.errors import InputError, LMUnavailableError, counted

if TYPE_CHECKING:
    from faith_dspy.judge import Judge

RECORDED = Path(__file__).parent / "recorded"
"""An exported judge, with what its LM said about the three answers."""
KINDS = ("Faithful", "An invented fact", "A contradiction")
"""Of the three answers, in their order."""


@with_options
def judge(
    records: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="JSON lines, CSV, TSV or Parquet with question (optional), context and answer; - for stdin.",
            show_default=False,
        ),
    ] = None,
    answer: Annotated[
        str | None, option("--answer", "One answer, instead of INPUT.", "TEXT")
    ] = None,
    context: Annotated[
        list[str] | None,
        option("--context", "A chunk of its context. Repeatable.", "TEXT"),
    ] = None,
    question: Annotated[
        str | None, option("--question", "The question that it answers.", "TEXT")
    ] = None,
    *,
    chosen: ChosenJudge,
    in_batch: InBatch,
    out: Annotated[
        str | None,
        option(
            "--out",
            "File to write: a judgment a line; .csv: the input's table with columns judge_faithful …. Default: stdout.",
            "FILE",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        option("--html", "Also write an HTML page of the first 2,000.", "FILE"),
    ] = None,
    reasons: Annotated[
        bool | None,
        option(
            "--reasons/--no-reasons",
            "Ask the LM why it calls a statement unsupported: a sentence each. Default: for --answer and --html.",
        ),
    ] = None,
    threads: Annotated[
        int | None, option("--threads", "Answers judged at the same time.", "N", min=1)
    ] = None,
    fail_on: Annotated[
        Literal["unfaithful"] | None,
        option("--fail-on", "Exit 1 when an answer is not faithful.", "unfaithful"),
    ] = None,
    turns: Annotated[
        Literal["last", "all"],
        option(
            "--turns",
            "Of a conversation: the last answer, or a row for each.",
            "last|all",
        ),
    ] = "last",
    as_json: Annotated[
        bool, option("--json", "With --answer: print the judgment as JSON.")
    ] = False,
) -> None:
    """Judge answers. Write a judgment a line, in the order of the input, with the record's id where it has one.

    Columns may have the names that RAGAS, DeepEval and others use; which were taken, and which were not, is printed.

    INPUT may have any number of records: they are read as they are needed. A record that cannot be judged, or a line
    that is not JSON, comes out unscored, with the reason. With --out, a run that was stopped continues where it stopped
    when judge and options are the same. The last line on stderr counts verdicts, what could not be scored and why,
    tokens and seconds.

    Exit codes: 0 judged, whatever the verdicts; 1 nothing could be scored, or, with --fail-on unfaithful, an answer is
    not faithful; 2 wrong input, or the LM does not answer; 3 with --batch, the provider is at work: run the same
    command again to collect.

    Example: faith-dspy judge answers.jsonl --judge judges/mine --out judged.jsonl --html judged.html
    """
    file = None if out in (None, "-") else Path(out or "")
    check_outputs(records, html, file)
    if (answer is None) == (records is None):
        raise typer.BadParameter(
            "give either INPUT, a file of answers, or --answer with --context"
        )
    if reasons is None:  # where somebody reads them
        reasons = html is not None or (answer is not None and not as_json)
    if answer is not None:
        if out is not None or threads is not None or in_batch.batch or turns == "all":
            raise InputError(
                "--answer is one answer, shown here: give no --out, --threads, --batch or --turns with it."
            )
    elif context or question is not None:
        raise InputError(
            "--context and --question go with --answer; those of INPUT stand in its columns."
        )
    elif as_json:
        raise InputError(
            "--json goes with --answer; the judgments of INPUT are JSON as they are."
        )
    loaded = chosen.load()
    if reasons:
        loaded = loaded.with_reasons()
    if answer is not None:
        record = {"question": question, "context": context, "answer": answer}
        unfaithful = _judge_one(loaded, record, html, as_json)
    else:
        all_turns = turns == "all"
        source = Path(str(records))
        unfaithful = _judge_file(
            loaded, in_batch, source, file, html, threads, all_turns
        )
    if fail_on and unfaithful:
        verb = "is" if unfaithful == 1 else "are"
        fail([f"{counted(unfaithful, 'answer')} {verb} not faithful."])


def _judge_one(
    judge: Judge, record: dict[str, Any], html: Path | None, as_json: bool
) -> int:
    from faith_dspy.report.judgment import judge_summary, print_judgment, write_html

    judge.preflight()
    judgment = judge(**record)
    if as_json:
        print_json(judgment)
    else:
        print_judgment(judgment)
    if html is not None:
        write_html([(record, judgment)], html, judge=judge_summary(judge))
    if judgment.unscored is not None:
        why = judgment.detail or judgment.unscored.value
        fail([f"the answer could not be scored: {why}"])
    return int(not judgment.faithful)


def _judge_file(
    judge: Judge,
    in_batch: InBatch,
    source: Path,
    file: Path | None,
    html: Path | None,
    threads: int | None,
    all_turns: bool,
) -> int:
    from faith_dspy.io.readers import check_records, count_lines
    from faith_dspy.report.judgment import judge_summary, write_html
    from faith_dspy.report.progress import TerminalView
    from faith_dspy.runner import judged_before, limit_replies_in_memory, run

    for one in judge.cascade:
        if one.function is not None:
            one.function.require()  # without it nothing will be judged
    check_records(source, read=[*judge.columns, *(["faithful"] if html else [])])
    limit_replies_in_memory()
    if in_batch.batch and all_turns:
        raise InputError(
            "--batch judges the last turn of conversations: leave --turns out."
        )
    if in_batch.batch and str(source) == "-":
        raise InputError("--batch reads its input at each look: give a file, not -.")
    judged = judged_before(judge, source, file) if in_batch.batch and file else 0
    try:
        with (
            in_batch.asked(judge, source, file, judged) as judge,
            TerminalView().bar("judging", count_lines(source)) as advance,
        ):
            tally = run(
                judge,
                source,
                file,
                threads=threads,
                show=html is not None,
                all_turns=all_turns,
                kept=judged,
                advance=advance,
            )
    except BrokenPipeError:
        drop_stdout()  # whoever reads has enough
        return 0
    except LMUnavailableError as exc:
        raise LMUnavailableError(
            f"{exc} What was judged is kept: run the same command again to continue."
        ) from None
    say(str(tally))
    if html is not None:
        write_html(tally.shown, html, total=tally.rows, judge=judge_summary(judge))
        if len(tally.shown) < tally.rows:
            say(
                f"{html} shows the first {len(tally.shown):,} answers: more would not open in a browser."
            )
    if tally.unreadable == tally.rows:
        raise InputError(
            f"No line of {source} is a JSON object: is it a JSON lines file?"
        )
    if not tally.scored:
        fail([f"no answer could be scored; the first: {tally.why}"])
    return tally.unfaithful


def demo(
    html: Annotated[
        Path,
        option(
            "--html", "Page to write; the answers go beside it, as JSON lines.", "FILE"
        ),
    ] = Path("demo.html"),
) -> None:
    """See a judge at work on three clear answers, with recorded replies of its LM: no model, no key, no network."""
    from faith_dspy.io.files import write_file
    from faith_dspy.io.inputs import as_chunks
    from faith_dspy.load import load_judge
    from faith_dspy.report.judgment import judge_summary, print_judgment, write_html
    from faith_dspy.report.tables import Table
    from faith_dspy.schema import RawJudgment
    from faith_dspy.scoring.measure import measure_features

    answers = html.with_suffix(".jsonl")
    check_outputs(None, html, answers)
    judge, items = load_judge(RECORDED), []
    texts = ("question", "context", "answer")
    reference = judge.manifest["reference"]
    records = [{name: stored[name] for name in texts} for stored in reference]
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    text = "".join(lines)
    if answers.is_file() and answers.read_bytes() != text.encode():
        raise InputError(
            f"{answers}: is there already, with other answers. Give another --html."
        )
    typer.echo(
        "Three answers, chosen for being clear, and judged now from a recording."
    )
    shown = judge.manifest["demo"]
    for kind, ids, stored, record in zip(KINDS, shown, reference, records, strict=True):
        raw = RawJudgment.model_validate(stored["raw_judgment"])
        question, context = record["question"], record["context"]
        features = measure_features(raw, as_chunks(context), question)
        judgment = judge.score_answer(raw, features)
        items.append((record, judgment))
        chunks = tuple((f"[{i}]", context[i]) for i in ids)
        print_tables([Table(f"\n{kind}. {question}", ("", ""), chunks)])
        print_judgment(judgment)
    write_file(answers, text)
    write_html(items, html, title="faith-dspy demo", judge=judge_summary(judge))
    typer.echo(
        f"\nThe same as a page: {html}\nJudged anew by the model, perhaps otherwise (1.1 GB, fetched once):"
    )
    typer.echo(f"  faith-dspy judge {answers} --judge {RECORDED}")
