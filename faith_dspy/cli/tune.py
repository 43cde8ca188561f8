"""``faith-dspy tune``: labels in, champion out; ``study …`` and ``ui``: finished studies, here and in MLflow."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from faith_dspy.cli import options as cli
from faith_dspy.errors import InputError, import_optional

study = cli.group("Finished studies.")

_STUDY = "Folder of an exported judge, a study.json, or the id of a study or of its run in MLflow."
_limit = partial(cli.option, metavar="N", rich_help_panel="Limits")


@dataclass(frozen=True)
class TuneOptions:
    """The options of `faith_dspy.optimize.tune`."""

    test: Annotated[
        Path | None,
        cli.option(
            "--test",
            "Labels of your own to test on. Default: LABELS are cross-validated.",
            "FILE",
        ),
    ] = None
    lm: cli.LM = "local"
    api_base: cli.APIBase = None
    timeout: cli.Timeout = None
    reflection_lm: Annotated[
        str | None,
        cli.option(
            "--reflection-lm",
            "LM that writes instructions. Default: the judge's.",
            "MODEL",
        ),
    ] = None
    reflection_api_base: Annotated[
        str | None,
        cli.option(
            "--reflection-api-base",
            "Address of its endpoint; --api-base is the judge's alone.",
            "URL",
        ),
    ] = None
    scores: cli.Scores = None
    operating_point: Annotated[
        str,
        cli.option(
            "--operating-point",
            "What the threshold is for: balanced, recall=0.9 (catch nine of ten unfaithful answers), or cost=5 "
            "(passing an unfaithful answer is five times as bad as failing a faithful one).",
            "POINT",
        ),
    ] = "balanced"
    budget: Annotated[
        Literal["quick", "standard", "thorough"],
        cli.option(
            "--budget",
            "How much is tried, and on how many answers.",
            "quick|standard|thorough",
        ),
    ] = "quick"
    variants: Annotated[
        str | None,
        cli.option(
            "--variants",
            "What to try instead: names with commas between (lexical: no LM), or a NAME.toml.",
            "NAMES",
        ),
    ] = None
    minutes: Annotated[
        float | None, _limit("--minutes", "Minutes for the whole study.", min=0.01)
    ] = None
    calls: Annotated[
        int | None, _limit("--calls", "LM calls for the whole study.", min=1)
    ] = None
    tokens: Annotated[
        int | None,
        _limit("--tokens", "Prompt and completion tokens, without cached.", min=1),
    ] = None
    dollars: Annotated[
        float | None,
        _limit("--dollars", "Dollars, by LiteLLM's price list.", min=0.0001),
    ] = None
    seed: Annotated[
        int, cli.option("--seed", "Seed of the folds and optimizers.", "N")
    ] = 0
    out: Annotated[
        Path | None,
        cli.option(
            "--out", "Folder for the champion. Default: judges/NAME-OF-LABELS.", "DIR"
        ),
    ] = None
    tracking_uri: cli.TrackingURI = None
    experiment: cli.Experiment = "faithfulness"
    max_flips: cli.MaxFlips = None


@cli.with_options
def tune(
    labels: Annotated[str, typer.Argument(metavar="LABELS", help=cli.LABELS)],
    *,
    options: TuneOptions,
    require_better: Annotated[
        bool,
        cli.option(
            "--require-better",
            "Exit 1 unless the champion is better than chance, than its untuned judge and than word overlap.",
        ),
    ] = False,
    details: cli.Details = False,
    as_json: cli.Json = False,
) -> None:
    """Tune a judge on labels; track every candidate in MLflow; export the champion.

    Prompts are compiled by DSPy's optimizers. Every label teaches and tests: candidates are fitted on all of LABELS
    (lexical features, the LM calibrated, both, the shipped default recalibrated, a cascade), and the figures come from
    repeating all of it without each fold of the sources. The best candidate is exported, or a cheaper one that is shown
    not to be worse. With --test, or rows with split=test, the champion is also judged on a test of your own.

    quick uses up to 100 answers: by sentence as it is, with examples, and with rules written from disagreements, and by
    whole answer. standard uses up to 300 and adds joint verdicts, reasoning, statements that the LM extracts, and GEPA.
    thorough uses all and tries every variant. The embedded LM, which writes slowly, compiles examples under quick, and
    rules under standard. An estimate of calls, tokens and dollars comes first.

    A limit (--minutes, --calls, --tokens, --dollars) stops the study. Every reply is kept: run it again with a higher
    limit, and it goes on where it stopped. Without one, quick starts no third variant after 10 minutes, standard after
    60.

    --scores makes candidates of what other judges said, alone and beside the LM.

    --variants plan.toml declares variants of any options, optimizers and LMs; `python -m pydoc
    faith_dspy.optimize.plan` shows one.

    The champion is registered in MLflow and becomes models:/faithfulness@champion when it has earned it: it is better
    than chance and not worse than a judge that costs less; and there is no @champion yet, or it is better than its own
    untuned judge and not worse than the present one.

    With --max-flips, the stress run (`faith-dspy stress`) is made on up to 50 answers of the pool, up to 16 judgments
    each. A champion with a kind of injection that flips a larger share of its verdicts is exported, but held back.

    A study that was stopped, by Ctrl-C or worse, continues where it stopped when the same command is run again: every
    reply of the LM is kept.

    Example: faith-dspy tune labels.jsonl --budget quick --out judges/mine
    """
    from faith_dspy import optimize

    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # ends the run in MLflow, too
    settings = {
        name: value for name, value in vars(options).items() if value is not None
    }
    if options.scores:
        settings["scores"] = ",".join(options.scores)
    result = optimize.tune(labels, **settings)
    from faith_dspy.optimize.report import headline  # needs the extra `tune`

    print_study(result, details, as_json)
    if not as_json:
        stopped = (
            ""
            if result.finished
            else "Stopped early: the champion is the best of what was asked.\n"
        )
        typer.echo(
            f"\n{stopped}{result.registered}\nThe champion, {result.champion}, is in {result.judge_dir}. "
            f"Everything: faith-dspy study show {result.judge_dir} --details\n"
            f"On MLflow's pages: {pages(result.page, options.tracking_uri)}"
        )
    shortfalls = headline.shortfalls(result) if require_better else []
    cli.fail([*result.held_back, *shortfalls])


def pages(page: str, tracking_uri: str | None) -> str:
    """Return where a page of MLflow's is seen, and what serves it unless the store is a server itself."""
    from faith_dspy.optimize.tracking.store import PORT, UI, redacted

    if not page.startswith(UI):
        return page
    command = "faith-dspy ui"
    if tracking_uri:
        command += f" --tracking-uri {redacted(tracking_uri)}"
    port = next(filter(_is_free, range(PORT, PORT + 100)), PORT)
    if port != PORT:
        command += f" --port {port}"
    return f"{command}, then {page.replace(f':{PORT}', f':{port}', 1)}"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@study.command("list")
def list_studies(
    tracking_uri: cli.TrackingURI = None, as_json: cli.Json = False
) -> None:
    """List the studies of an MLflow store, the newest first, finished or not. The ids are what `study show` takes."""
    from faith_dspy.optimize.tracking.store import study_runs
    from faith_dspy.report.tables import number, table_of

    entries = [_study_entry(run) for run in study_runs(tracking_uri)]
    columns: dict[str, Callable[[Any], str]] = {
        "study": lambda entry: entry["study_id"][:8],
        "begun (UTC)": lambda entry: entry["begun"][:16].replace("T", " "),
        "labels": itemgetter("labels"),
        "status": itemgetter("status"),
        "champion": lambda entry: entry["champion"] or "",
        "balanced\naccuracy": lambda entry: number(entry["balanced_accuracy"]),
    }
    cli.print_result(as_json, entries, [table_of("Studies", columns, entries)])


def _study_entry(run: Any) -> dict[str, Any]:
    """Return what the list shows of a study's run; its champion is None if it was not finished."""
    begun = datetime.fromtimestamp(run.info.start_time / 1000, tz=UTC)
    return {
        "study_id": run.data.tags["faith_dspy.study_id"],
        "begun": begun.isoformat(timespec="seconds"),
        "labels": run.data.params.get("labels_file", ""),
        "lm": run.data.params.get("lm", ""),
        "status": run.data.tags.get("status", ""),
        "champion": run.data.tags.get("champion"),
        "balanced_accuracy": run.data.metrics.get(
            "test/balanced_accuracy", run.data.metrics.get("cv/balanced_accuracy")
        ),
    }


@study.command("show")
def show(
    source: Annotated[str, typer.Argument(metavar="STUDY", help=_STUDY)],
    tracking_uri: cli.TrackingURI = None,
    by: cli.By = None,
    details: cli.Details = False,
    as_json: cli.Json = False,
) -> None:
    """Show what a study found, in three lines, and its mistakes; with --details, all its tables. Of a judge without a
    study, its card.

    --by shows the champion's agreement per group: any column of the labels with 2 to 50 values.
    """
    from faith_dspy.load import load_judge
    from faith_dspy.optimize.tracking.store import STUDY_FILE, read_study

    folder = Path(source)
    if not folder.is_dir() or ((folder / STUDY_FILE).is_file() and not as_json):
        result = read_study(source, tracking_uri)
        print_study(result, details, as_json, by, mistakes=True)
        return
    exported = load_judge(folder).manifest
    if as_json:
        apart = {"reference", "answer_keys"}
        cli.print_json({k: v for k, v in exported.items() if k not in apart})
    else:
        typer.echo((folder / "CARD.md").read_text(encoding="utf-8"))


@study.command("compare")
def compare(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="STUDY", help=_STUDY)
    ] = None,
    tracking_uri: cli.TrackingURI = None,
    as_json: cli.Json = False,
) -> None:
    """Compare studies, the first with each of the others: paired where they were tested on the same answers, side by
    side where not."""
    from faith_dspy.optimize.report.tables import compare_studies, studies_table
    from faith_dspy.optimize.tracking.store import read_study

    studies = [read_study(source, tracking_uri) for source in sources or ()]
    pairs = compare_studies(studies)
    document = {"studies": list(map(study_json, studies)), "pairs": pairs}
    cli.print_result(as_json, document, [studies_table(studies, pairs)])


def print_study(
    result: Any,
    details: bool,
    as_json: bool,
    by: str | None = None,
    *,
    mistakes: bool = False,
) -> None:
    """Print a study as JSON, or in three lines, below them its worst ``mistakes``, and with ``details`` its tables;
    ``by``: a column of groups to show."""
    from faith_dspy.optimize.groups import agreement_by_group, groups_of, groups_table
    from faith_dspy.optimize.report.headline import of_study
    from faith_dspy.optimize.report.tables import mistakes_table, study_tables

    document = study_json(result)
    tables = [of_study(result), *(study_tables(result) if details else ())]
    if mistakes:
        tables.append(mistakes_table(result))
    if by is not None:
        rows = result.measured.champion.rows
        groups = agreement_by_group(rows, groups_of(result.columns, by), by)
        document["by"] = groups
        tables.append(groups_table(groups))
    cli.print_result(as_json, document, tables)


def study_json(result: Any) -> Any:
    """Return a study without the rows of its judges."""
    rows = {"__all__": {"rows"}}
    judges = {"judges": rows}
    exclude = {"candidates": rows, "cv": judges, "test": judges}
    return result.model_dump(exclude=exclude)


def ui(
    port: Annotated[
        int, cli.option("--port", "On 127.0.0.1.", "PORT", min=1, max=65535)
    ] = 5000,
    tracking_uri: cli.TrackingURI = None,
) -> None:
    """Show the studies on MLflow's pages, on 127.0.0.1, until Ctrl-C. Nothing is fetched from a network.

    Without --tracking-uri and MLFLOW_TRACKING_URI it opens the mlflow.db of this folder, or of the nearest one above.
    """
    from faith_dspy.optimize.tracking.store import ENVIRONMENT, nearest_store, redacted

    uri = nearest_store(tracking_uri)
    if uri.startswith(("http://", "https://")):
        cli.say(f"This store is a server, with pages of its own: {redacted(uri)}")
        return
    import_optional("mlflow", "faith-dspy ui")
    if not _is_free(port):
        raise InputError(
            f"port {port} is taken by another program. Name another: faith-dspy ui --port {port + 1}"
        )
    cli.say(f"Studies in {redacted(uri)}: http://127.0.0.1:{port} (Ctrl-C ends it)")
    command = [
        "-m",
        "mlflow",
        "ui",
        "--backend-store-uri",
        uri,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        # Nothing of ours waits for its end; with it, Ctrl-C ends in a traceback.
        "--uvicorn-opts",
        "--lifespan off",
    ]
    settings = {
        **ENVIRONMENT,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **os.environ,
    }
    # In place of this process, so that signals reach the server.
    os.execve(sys.executable, [sys.executable, *command], settings)
