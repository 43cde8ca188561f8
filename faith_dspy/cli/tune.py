"""``faith-dspy tune``: labels in, champion out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from faith_dspy.cli.options import (
    LM,
    APIBase,
    Details,
    Experiment,
    Json,
    MaxFlips,
    Timeout,
    TrackingURI,
    fail,
    print_json,
)
from faith_dspy.cli.study import print_study, study_json


def tune(
    labels: Annotated[
        str,
        typer.Argument(
            metavar="LABELS", help="Labels: JSON lines, CSV, TSV, Parquet; or a shipped set: quickstart, assistants."
        ),
    ],
    test: Annotated[Path | None, typer.Option("--test", help="Labels to test on. Default: a part of LABELS.")] = None,
    lm: LM = "local",
    api_base: APIBase = None,
    timeout: Timeout = None,
    reflection_lm: Annotated[
        str | None,
        typer.Option(
            "--reflection-lm",
            help="LM that proposes instructions to the optimizers mipro and gepa. Default: the judge's.",
        ),
    ] = None,
    operating_point: Annotated[
        str,
        typer.Option(
            "--operating-point",
            help="What the threshold is for: balanced, recall=0.9 (stop nine of ten unfaithful answers), or cost=5 "
            "(passing an unfaithful answer is five times as bad as stopping a faithful one).",
        ),
    ] = "balanced",
    budget: Annotated[
        Literal["quick", "standard", "thorough"],
        typer.Option("--budget", metavar="quick|standard|thorough", help="How much is tried, and on how many answers."),
    ] = "quick",
    variants: Annotated[
        str | None,
        typer.Option(
            "--variants", help="What is tried instead: names separated by commas, or NAME.toml that declares them."
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Limit for the whole study, in minutes.", min=0.01)
    ] = None,
    calls: Annotated[int | None, typer.Option("--calls", help="Limit for the whole study, in LM calls.", min=1)] = None,
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", help="Limit in prompt and completion tokens, cached ones not counted.", min=1),
    ] = None,
    dollars: Annotated[
        float | None, typer.Option("--dollars", help="Limit in dollars, by LiteLLM's price list.", min=0.0001)
    ] = None,
    prefer: Annotated[
        Literal["agreement", "cheapest"],
        typer.Option(
            "--prefer", help="Export the judge that agrees best, or the cheapest that is not shown to agree worse."
        ),
    ] = "agreement",
    seed: Annotated[int, typer.Option("--seed", help="Of the split, demos and bootstrap intervals.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the champion. Default: judges/NAME-OF-LABELS.")
    ] = None,
    tracking_uri: TrackingURI = None,
    experiment: Experiment = "faithfulness",
    require_better: Annotated[
        bool,
        typer.Option("--require-better", help="Exit 1 unless the champion is shown better than the untuned judge."),
    ] = False,
    max_flips: MaxFlips = None,
    details: Details = False,
    as_json: Json = False,
) -> None:
    """Tune a judge on human labels; track every variant in MLflow; export the champion.

    LABELS is split by context into train, dev and test (or keeps its own parts, when each line has split=train, dev or
    test). Prompts are compiled on train, thresholds and the champion chosen on dev, and the test part is opened once.

    quick judges up to 24 answers of dev, 120 of train and 120 of test; standard 100, 240 and 400; thorough judges all
    and tries every variant. Where dev is large enough, variants that agree worse on a part of it are dropped. On the
    embedded model quick takes ten minutes over short contexts and half an hour over three long passages; standard takes
    an hour or two.

    A limit (--minutes, --calls, --tokens, --dollars) ends the study with the best variant so far: what its test costs
    is kept back. Without one, quick starts no variant after 4 minutes, standard after 60.

    --variants plan.toml declares variants of any options, optimizers, LMs and seeds, sizes and limits;
    `python -m pydoc faith_dspy.optimize.select.plan` shows one.

    The champion is registered in MLflow and becomes models:/faithfulness@champion when it has earned it: it is shown
    better than its own untuned judge, and not shown worse than the present champion on the same answers; or there is no
    champion yet. The last lines say so. `faith-dspy study rollback` undoes it.

    With --max-flips, the stress run (`faith-dspy stress`) is made on up to 50 dev answers, up to 21 judgments each. A
    champion with a kind of injection that flips a larger share of its verdicts is exported, but held back.

    A study that was stopped, by Ctrl-C or worse, continues where it stopped when the same command is run again: every
    reply of the LM is kept.

    Example: faith-dspy tune labels.jsonl --budget quick --out judges/mine
    """
    from faith_dspy import optimize

    result = optimize.tune(
        labels,
        test=test,
        lm="local" if lm is None else lm,
        api_base=api_base,
        timeout=timeout,
        reflection_lm=reflection_lm,
        operating_point=operating_point,
        budget=budget,
        variants=() if variants is None else variants,
        minutes=minutes,
        calls=calls,
        tokens=tokens,
        dollars=dollars,
        prefer=prefer,
        max_flips=max_flips,
        seed=seed,
        out=out,
        tracking_uri=tracking_uri,
        experiment=experiment,
    )
    if as_json:
        print_json(study_json(result))
    else:
        print_study(result, details)
        stopped = "" if result.finished else "Stopped early: the champion is the best of what was finished.\n"
        typer.echo(
            f"\n{stopped}{result.registered}\nThe champion is in {result.judge_dir}. "
            f"Everything: faith-dspy study show {result.judge_dir} --details\n"
            f"On MLflow's pages: {pages(result.page, tracking_uri)}"
        )
    untuned = result.comparisons["untuned"]
    fail([*result.held_back, *([untuned.sentence] if require_better and untuned.verdict != "better" else [])])


def pages(page: str, tracking_uri: str | None) -> str:
    """Where a study is seen, and what serves that page unless the store is a server itself."""
    from faith_dspy.optimize.tracking.store import UI, redacted

    ui = f"faith-dspy ui --tracking-uri {redacted(tracking_uri)}" if tracking_uri else "faith-dspy ui"
    return f"{ui}, then {page}" if page.startswith(UI) else page
