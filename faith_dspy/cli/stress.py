"""``faith-dspy stress``: how a judge handles perturbations whose right verdict is known."""

from __future__ import annotations

from typing import Annotated

import typer

from faith_dspy.cli.options import (
    LM,
    APIBase,
    Json,
    JudgeSource,
    Labels,
    MaxFlips,
    Minimum,
    Options,
    Timeout,
    Untuned,
    fail,
    judge_of,
    print_json,
    print_tables,
)


def stress(
    labels: Labels,
    judge: JudgeSource = None,
    lm: LM = None,
    api_base: APIBase = None,
    timeout: Timeout = None,
    options: Options = None,
    untuned: Untuned = False,
    answers: Annotated[
        int, typer.Option("--answers", help="Labelled answers to perturb, half of them faithful.", min=2)
    ] = 50,
    seed: Annotated[int, typer.Option("--seed", help="Of the answers chosen and of their perturbations.")] = 0,
    minimum: Minimum = None,
    max_flips: MaxFlips = None,
    as_json: Json = False,
) -> None:
    """Perturb answers and contexts so that the right verdict is known, and count how often the judge gives it.

    A faithful answer must be caught when a number is changed, a name swapped, a negation inserted, or a sentence of
    another answer added. The verdict must not change with the order of the chunks, or with orders to the judge inside
    the answer, the context, the question or a tool's result: 105 injections of 15 kinds. Each answer costs up to 22
    judgments.

    Example: faith-dspy stress labels.jsonl --judge judges/mine --min 0.7 --max-flips 0.05
    """
    from faith_dspy.io.labels import read_labels
    from faith_dspy.lm.metered import metered
    from faith_dspy.optimize.report.tables import stress_tables
    from faith_dspy.optimize.stress import stress as run
    from faith_dspy.report.progress import TerminalView

    examples = read_labels(labels)
    the_judge = judge_of(judge, lm, api_base, options, untuned, timeout=timeout)
    the_judge.preflight()
    with TerminalView().bar("judging", None) as advance, metered():
        report = run(the_judge, examples, answers=answers, seed=seed, advance=advance)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        print_tables(stress_tables(report))
    fail([*report.below(minimum), *report.flipped(max_flips)])
