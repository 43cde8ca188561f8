"""``faith-dspy stress``: what a judge makes of changes whose right verdict is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faith_dspy.cli.options import LM, APIBase, Granularities, Json, JudgeSource, Options, judge_of, print_json, stdout


def stress(
    labels: Annotated[Path, typer.Argument(help="Labels file.")],
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    granularity: Granularities = None,
    options: Options = None,
    answers: Annotated[
        int, typer.Option("--answers", help="Labelled answers that are changed, half of them faithful.", min=2)
    ] = 50,
    seed: Annotated[int, typer.Option("--seed", help="Of the answers chosen and of the changes.")] = 0,
    minimum: Annotated[
        float | None, typer.Option("--min", help="Exit 1 when a share is below this.", min=0, max=1)
    ] = None,
    as_json: Json = False,
) -> None:
    """Change answers and contexts so that the right verdict is known, and see what the judge says.

    Faithful answers with a number changed, a name swapped, a negation put in or a sentence of another answer added must
    be caught. Other orders of the chunks, an irrelevant chunk, another layout, and orders to the judge in the answer or
    in the context must not change the verdict. Each answer costs up to ten judgments.

    Example: faith-dspy stress labels.jsonl --judge judges/mine --min 0.7
    """
    from faith_dspy.io.labels import read_labels
    from faith_dspy.lm import metered
    from faith_dspy.report.stress import stress_view
    from faith_dspy.report.terminal import TerminalView

    examples = read_labels(labels)
    the_judge = judge_of(judge, lm, api_base, granularity, options)
    the_judge.preflight()
    from faith_dspy.optimize.diagnostics.stress import stress as run

    with TerminalView().bar("judging", None) as advance, metered():
        report = run(the_judge, examples, answers=answers, seed=seed, advance=advance)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        stdout().print(stress_view(report))
    failed = report.below(minimum)
    for sentence in failed:
        typer.echo(f"below the bar: {sentence}", err=True)
    if failed:
        raise typer.Exit(1)
