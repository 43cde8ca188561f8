"""Options that several commands take, and what is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faith_dspy.errors import InputError

if TYPE_CHECKING:
    from faith_dspy.judge import Judge

SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "default_map": {"help": False},  # without it typer imports pydantic to find out that no --help is no --help
}
"""Of every group of commands."""

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
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="DIAL=VALUE",
        help="Any option of an untuned judge, e.g. --set verdicts=graded --set reasoning=after. May be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout instead of a table.")]
TrackingURI = Annotated[
    str | None,
    typer.Option("--tracking-uri", help="MLflow store. Default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db."),
]


def judge_of(
    folder: str | None, lm: str | None, api_base: str | None, granularity: str | None, settings: list[str] | None
) -> Judge:
    """The judge that the options name: a tuned one, or an untuned one with these options."""
    from faith_dspy.config import JudgeConfig

    options = JudgeConfig.parse([*([f"granularity={granularity}"] if granularity else []), *(settings or [])])
    if folder is not None:
        from faith_dspy.artifact import load_judge

        if options:
            given = f"--set {settings[0]}" if settings else f"--granularity {granularity}"
            raise InputError(
                f"{given} is for an untuned judge; {folder} has its own options. Leave out one of the two."
            )
        return load_judge(folder, lm=lm, api_base=api_base)
    from faith_dspy.judge import Judge

    return Judge(lm or "local", api_base=api_base, config=JudgeConfig.make(**options))


def check_writable(path: Path | None, option: str) -> None:
    """`InputError` when the file could not be written there: better before the LM is paid than after."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        what = "is a folder" if path.is_dir() else f"lies in {path.parent}, which does not exist"
        raise InputError(f"{option} {path}: {what}; expected a file in a folder that is there.")


def stdout() -> Any:
    """A console for tables."""
    from rich.console import Console

    return Console()


def print_json(value: Any) -> None:
    """A value as JSON on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
