"""Options that several commands share, and the judge they describe."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faith_dspy.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from faith_dspy.judge import Judge
    from faith_dspy.report.tables import Table

SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "default_map": {"help": False},  # without it typer imports pydantic to find out that no --help is no --help
}
"""Of every group of commands."""


def _labels_file(value: Path) -> Path:
    from faith_dspy.eval_sets.catalog import path_of

    return path_of(value)


Labels = Annotated[
    Path,
    typer.Argument(
        metavar="LABELS",
        help="Labels (JSON lines, CSV, TSV or Parquet), or a shipped set: quickstart, assistants.",
        callback=_labels_file,
    ),
]
LM = Annotated[
    str | None,
    typer.Option(
        "--lm",
        help="'local' (the embedded model), 'local:FILE.gguf', any LiteLLM model, e.g. openai/gpt-4o-mini, or 'none' "
        "to judge by lexical features alone.",
    ),
]
APIBase = Annotated[str | None, typer.Option("--api-base", help="Address of an OpenAI-compatible endpoint.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", help="Seconds a call of the LM may take, retries included. Default: 300.", min=0.1),
]
JudgeSource = Annotated[
    str | None, typer.Option("--judge", help="Folder of a tuned judge, or models:/name@alias from MLflow.")
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTION=VALUE",
        help="Any option of a judge that is not loaded, e.g. --set granularity=answer --set reasoning=after. "
        "Repeatable.",
    ),
]
Untuned = Annotated[bool, typer.Option("--untuned", help="What the LM says, without the default classifier.")]
Minimum = Annotated[
    float | None, typer.Option("--min", help="Exit 1 when what is measured is below this.", min=0, max=1)
]
MaxFlips = Annotated[
    float | None,
    typer.Option("--max-flips", help="Exit 1 when a kind of injection flips a larger share of verdicts.", min=0, max=1),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout instead of a table.")]
Details = Annotated[bool, typer.Option("--details", help="Everything else that was measured, below the three lines.")]
TrackingURI = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="MLflow store. Default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."),
]
Experiment = Annotated[str, typer.Option("--experiment", help="MLflow experiment.")]


def judge_of(
    folder: str | None,
    lm: str | None,
    api_base: str | None,
    settings: list[str] | None,
    untuned: bool = False,
    **times: Any,
) -> Judge:
    """The judge that the options describe: a tuned one; or one with these options and, unless ``untuned``, the default
    classifier.

    ``times``: ``timeout``.
    """
    from faith_dspy.config import JudgeConfig

    options = JudgeConfig.parse(settings or [])
    if folder is not None:
        from faith_dspy.export import load_judge

        if settings or untuned:
            given = f"--set {settings[0]}" if settings else "--untuned"
            raise InputError(
                f"{given} is for a judge that is not loaded; {folder} has its own options. Leave out one of the two."
            )
        return load_judge(folder, lm=lm, api_base=api_base, **times)
    from faith_dspy.judge import Judge

    config = JudgeConfig.make(**options)
    classifier: Any = None if untuned else "default"
    return Judge("local" if lm is None else lm, api_base=api_base, config=config, classifier=classifier, **times)


def drop_stdout() -> None:
    """Let nothing more be written to standard output: Python would try again, and fail, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def print_tables(tables: Iterable[Table]) -> None:
    """Tables on stdout."""
    from rich.console import Console

    from faith_dspy.report.tables import terminal

    Console().print(terminal(tables))


def print_json(value: Any) -> None:
    """A value as JSON on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def say(sentence: str) -> None:
    """A sentence on stderr; nothing where there is none."""
    if sentence:
        typer.echo(sentence, err=True)


def fail(sentences: Iterable[str]) -> None:
    """Exit 1 with these sentences on stderr, each a bar that the judge failed; nothing where there are none."""
    failed = list(sentences)
    for sentence in failed:
        typer.echo(f"failed: {sentence}", err=True)
    if failed:
        raise typer.Exit(1)
