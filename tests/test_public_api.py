from importlib import metadata
from inspect import signature

import pytest
import typer

import faith_dspy
from faith_dspy.cli import app
from tests.support.files import run_python

HEAVY = (
    "dspy",
    "litellm",
    "mlflow",
    "sklearn",
    "numpy",
    "pandas",
    "scipy",
    "datasets",
    "matplotlib",
    "openvino",
)


def test_public_names():
    """What users can build on: sorted, and this list; a name more or less is a decision."""
    assert faith_dspy.__all__ == [
        "Chunk",
        "Judge",
        "JudgeConfig",
        "Judgment",
        "LabelledExample",
        "StatementVerdict",
        "Unscored",
        "Verdict",
        "load_judge",
        "open_judge",
        "tune",
    ]


def test_every_public_name_is_there_and_explained():
    """Each name resolves, shows up in dir(), and has a docstring; another one is answered with those there are."""
    names = faith_dspy.__all__
    assert all(getattr(faith_dspy, name).__doc__ for name in names)
    assert {*names} <= {*dir(faith_dspy)}
    assert faith_dspy.__version__ == metadata.version("faith_dspy")
    with pytest.raises(AttributeError, match="'judge_all'; it has Chunk, Judge, Jud"):
        _ = faith_dspy.judge_all


def test_import_is_light():
    """`import faith_dspy`, its data types and its labels reader load none of the heavy libraries."""
    code = f"""
import sys, faith_dspy, faith_dspy.io.labels
faith_dspy.Judgment.pretty, faith_dspy.JudgeConfig
print([m for m in {HEAVY!r} if m in sys.modules])"""
    assert run_python(code) == "[]"


@pytest.mark.parametrize(
    "args",
    [["--help"], ["judge", "--help"], ["tune", "-h"], ["model", "info", "--help"]],
)
def test_help_is_light(args):
    """Help loads none of the heavy libraries, nor pydantic, which typer would without our settings."""
    code = f"""
import sys
from faith_dspy.cli import main
sys.argv = ["faith-dspy", *{args!r}]
try:
    main()
except SystemExit as exc:
    assert not exc.code, exc.code
print([m for m in {(*HEAVY, "pydantic")!r} if m in sys.modules])"""
    shown = run_python(code)
    assert shown.endswith("[]")
    assert "Usage: faith-dspy" in shown


def test_options_of_tune_are_on_the_command_line():
    command = typer.main.get_command(app).commands["tune"]
    shown = {p.name for p in command.params} - {
        "as_json",
        "details",
        "require_better",
        "help",
    }
    assert shown == signature(faith_dspy.tune).parameters.keys() - {
        "api_key",
        "register",
        "view",
    }
