"""Options that several commands share, the judge they describe, and how a command prints and fails."""

from __future__ import annotations

import inspect
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faith_dspy.errors import InputError
from faith_dspy.io.terminal import PLAIN_SIGNS

if TYPE_CHECKING:
    from faith_dspy.judge import Judge
    from faith_dspy.report.tables import Table

_FLAGS = ("help", "install_completion", "show_completion")
_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    # Without it typer imports pydantic to find out that no --help is no --help.
    "default_map": dict.fromkeys(_FLAGS, False),
}


def group(help: str, **how: Any) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(
        help=help, no_args_is_help=True, context_settings=_SETTINGS, **how
    )


def _labels_file(value: Path) -> Path:
    from faith_dspy.eval_sets.catalog import path_of

    return path_of(value)


def option(name: str, help: str, metavar: str = "", **how: Any) -> Any:
    """`typer.Option` with its help and its kind of value in a line; a flag has none."""
    return typer.Option(name, help=help, metavar=metavar, **how)


_judge_option = partial(option, rich_help_panel="The judge")
LABELS = "Labels (JSON lines, CSV, TSV or Parquet), or a shipped set: quickstart, assistants, hard_cases."
Labels = Annotated[
    Path, typer.Argument(metavar="LABELS", help=LABELS, callback=_labels_file)
]
_MODELS = (
    "'local' (the embedded model), 'local:FILE.gguf', any LiteLLM model, e.g. openai/gpt-4o-mini, a function "
    "'python:module:name', or 'none' to judge by lexical features alone."
)
LM = Annotated[str | None, _judge_option("--lm", _MODELS, "MODEL")]
APIBase = Annotated[
    str | None,
    _judge_option("--api-base", "Address of an OpenAI-compatible endpoint.", "URL"),
]
Timeout = Annotated[
    float | None,
    _judge_option(
        "--timeout",
        "Wait for an LM's reply, at each retry. Default: 600.",
        "SECONDS",
        min=0.1,
    ),
]
MaxFlips = Annotated[
    float | None,
    option(
        "--max-flips",
        "Exit 1 when a kind of injection flips a larger share of verdicts.",
        "SHARE",
        min=0,
        max=1,
    ),
]
Json = Annotated[bool, option("--json", "Print JSON instead of a table.")]
Scores = Annotated[
    list[str] | None,
    option(
        "--scores",
        "Columns of LABELS with what other judges said, with commas between: verdicts, or numbers. Repeatable.",
        "COLUMNS",
    ),
]
Details = Annotated[
    bool,
    option("--details", "Also print everything else that was measured."),
]
By = Annotated[
    str | None,
    option("--by", "Also compare groups: a column such as a topic.", "COLUMN"),
]
TrackingURI = Annotated[
    str | None,
    option(
        "--tracking-uri",
        "MLflow store. Default: MLFLOW_TRACKING_URI, else sqlite:///mlflow.db.",
        "URI",
    ),
]
Experiment = Annotated[str, option("--experiment", "MLflow experiment.", "NAME")]


@dataclass(frozen=True)
class ChosenJudge:
    """The judge that a command's options describe; each field is an option."""

    sources: Annotated[
        list[str] | None,
        _judge_option(
            "--judge",
            "Folder of a tuned judge, models:/name@alias from MLflow, none, local, default, or a model.",
            "JUDGE",
        ),
    ] = None
    lm: LM = None
    api_base: APIBase = None
    timeout: Timeout = None
    context_window: Annotated[
        int | None,
        _judge_option(
            "--context-window",
            "Tokens that the LM takes; longer contexts are read window by window.",
            "TOKENS",
            min=1,
        ),
    ] = None
    thinking_tokens: Annotated[
        int | None,
        _judge_option(
            "--thinking-tokens",
            "Room for a model's thoughts before its reply. Default: 2000.",
            "TOKENS",
            min=1,
        ),
    ] = None
    function: Annotated[
        str | None,
        _judge_option(
            "--function",
            "What a loaded judge asks that was tuned on a function: package.module:function.",
            "MODULE:NAME",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        _judge_option(
            "--set",
            "Option of a judge that is not loaded, e.g. granularity=answer. Repeatable.",
            "OPTION=VALUE",
        ),
    ] = None
    untuned: Annotated[
        bool,
        _judge_option(
            "--untuned", "Report the LM's own verdicts; skip the default classifier."
        ),
    ] = False

    @property
    def source(self) -> str | None:
        """The judge that a command takes; `InputError` where there are several."""
        if self.sources and len(self.sources) > 1:
            raise InputError(
                f"got --judge {len(self.sources)} times, expected it once: only faith-dspy agree takes several judges."
            )
        return self.sources[0] if self.sources else None

    @property
    def each(self) -> list[ChosenJudge]:
        """Return several judges one by one; the other options are each one's."""
        return [replace(self, sources=[source]) for source in self.sources or ()]

    def load(self) -> Judge:
        """Return a tuned judge, or one with these options and, unless it is to be untuned, the default classifier."""
        from faith_dspy.config import JudgeConfig
        from faith_dspy.judge import Judge
        from faith_dspy.load import names_lm, open_judge

        options: dict[str, Any] = {
            "api_base": self.api_base,
            "timeout": self.timeout,
            "context_window": self.context_window,
            "thinking_tokens": self.thinking_tokens,
        }
        if self.function is not None:
            options["function"] = self.function
        source, settings = self.source, self.settings or []
        if source is None or names_lm(source):
            options["config"] = JudgeConfig.make(**JudgeConfig.parse(settings))
            if self.untuned:
                options["classifier"] = None
        elif settings or self.untuned:
            flag = f"--set {settings[0]}" if settings else "--untuned"
            raise InputError(
                f"{flag} is for a judge that is not loaded; {source} has its own options. Leave out one of the two."
            )
        if source is None:
            return Judge("local" if self.lm is None else self.lm, **options)
        return open_judge(source, lm=self.lm, **options)


def load_judges(chosen: Sequence[ChosenJudge]) -> list[Judge]:
    """Return several judges; --function is for those that were tuned on one, and refused where none was."""
    judges = [replace(one, function=None).load() for one in chosen]
    lacking = [
        any(one.function and not one.function.function for one in judge.cascade)
        for judge in judges
    ]
    for i, one in enumerate(chosen):
        if one.function and (lacking[i] or not any(lacking)):
            judges[i] = one.load()
    return judges


_batch_option = partial(option, rich_help_panel="In batch")


@dataclass(frozen=True)
class InBatch:
    """Whether and how a command asks through the provider's batch interface; each field is an option."""

    batch: Annotated[
        bool,
        _batch_option(
            "--batch", "Ask through the provider's batch interface: half price."
        ),
    ] = False
    wait: Annotated[bool, _batch_option("--wait", "Wait for the provider.")] = False
    tokens: Annotated[
        int | None, _batch_option("--tokens", "Submit at most so many tokens.", "N")
    ] = None
    dollars: Annotated[
        float | None,
        _batch_option("--dollars", "Submit for at most so many dollars.", "USD"),
    ] = None

    @contextmanager
    def asked(
        self, judge: Judge, records: Any, path: Path | None, judged: int = 0
    ) -> Iterator[Judge]:
        """Give the judge on these replies of the provider once it has answered; without --batch the judge as it is."""
        if not self.batch:
            if self.wait or self.tokens or self.dollars:
                raise InputError("--wait, --tokens and --dollars go with --batch.")
            yield judge
            return
        if path is None:
            raise InputError("--batch needs --out, beside which it notes what waits.")
        from faith_dspy.batch import Batch
        from faith_dspy.lm.metered import Limits

        limits = Limits(tokens=self.tokens, dollars=self.dollars)
        place = path.with_name(f"{path.name}.batch.json")
        batch = Batch(judge, records, place, limits=limits, judged=judged)
        batch.ready(wait=self.wait, progress=say)
        yield batch.judge
        batch.close()


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its dataclass parameters as options; it is called with the dataclasses."""
    ours = inspect.signature(command, eval_str=True).parameters
    kinds: dict[str, Any] = {
        name: p.annotation for name, p in ours.items() if is_dataclass(p.annotation)
    }
    fields = {
        name: inspect.signature(kind, eval_str=True).parameters
        for name, kind in kinds.items()
    }

    def run(**values: Any) -> None:
        groups = {
            name: kind(**{field: values.pop(field) for field in fields[name]})
            for name, kind in kinds.items()
        }
        command(**groups, **values)

    parameters = []
    for name, parameter in ours.items():
        shown = fields[name].values() if name in fields else [parameter]
        parameters += [p.replace(kind=p.KEYWORD_ONLY) for p in shown]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def check_outputs(
    source: str | Path | None, html: Path | None, *others: Path | None
) -> None:
    """Refuse files that cannot be written, the input itself, and a page that is none of ours, before anything is
    asked."""
    from faith_dspy.io.files import check_page, check_writable

    for path in filter(None, (html, *others)):
        check_writable(path, Path(source) if source else None)
    if html is not None:
        check_page(html)


def drop_stdout() -> None:
    """Discard what is still to be written to standard output: Python would try again, and fail, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def print_on_any_terminal() -> None:
    """Let standard output and error take any text: a sign that their encoding lacks is a plain one, else ``\\u….``, as
    JSON has it."""
    if logging.lastResort:
        logging.lastResort.setFormatter(_LogFormatter())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=PLAIN_SIGNS)


def print_result(as_json: bool, document: Any, tables: Iterable[Table]) -> None:
    """Print a result on standard output, as JSON or as tables."""
    if as_json:
        print_json(document)
    else:
        print_tables(tables)


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables on standard output."""
    from rich.console import Console

    from faith_dspy.report.tables import WIDTH, terminal

    console = Console()
    console.width = max(console.width, WIDTH)  # a narrower terminal breaks the lines
    console.print(terminal(tables))


def print_json(value: Any) -> None:
    """Print a value, models in it too, as JSON on standard output."""
    from pydantic_core import to_jsonable_python

    plain = to_jsonable_python(value)
    typer.echo(json.dumps(plain, indent=2, ensure_ascii=False))


def say(sentence: str) -> None:
    """Print a sentence on standard error, without what would steer the terminal, such as the name of a file may hold;
    an empty one prints nothing."""
    if sentence:
        typer.echo(_harmless(sentence), err=True)


def _harmless(text: str) -> str:
    from faith_dspy.text.words import visible

    return "\n".join(map(visible, text.split("\n")))


class _LogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _harmless(super().format(record))


def write_junit(path: Path, suite: str, checks: Mapping[str, str | None]) -> None:
    """Write checks as JUnit's XML, a test case each; its value is the sentence it fails with, or None."""
    from xml.etree import ElementTree

    from faith_dspy.io.files import write_file
    from faith_dspy.text.words import visible  # XML has no control characters

    failed = sum(sentence is not None for sentence in checks.values())
    counts = {"tests": str(len(checks)), "failures": str(failed)}
    root = ElementTree.Element("testsuites", counts)
    suite = visible(suite)
    cases = ElementTree.SubElement(root, "testsuite", {"name": suite, **counts})
    for name, sentence in checks.items():
        case = ElementTree.SubElement(cases, "testcase", classname=suite, name=name)
        if sentence is not None:
            shown = visible(sentence)
            ElementTree.SubElement(case, "failure", message=shown).text = shown
    page = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    write_file(path, page.decode())


def fail(sentences: Iterable[str]) -> None:
    """Exit 1 with these sentences on standard error, each a bar the judge failed; without any, go on."""
    failed = list(sentences)
    for sentence in failed:
        say(f"failed: {sentence}")
    if failed:
        raise typer.Exit(1)
