"""Where studies are recorded: an MLflow tracking store that answers, an experiment in it, and its finished studies."""

from __future__ import annotations

import logging
import os
import re
import time
import warnings
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import (
    FaithDspyError,
    InputError,
    import_optional,
    redact_secrets,
)
from faith_dspy.io.files import owned
from faith_dspy.load import is_missing
from faith_dspy.optimize.results import StudyResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

DEFAULT = "sqlite:///mlflow.db"
EXPERIMENT = "faithfulness"
STUDY_FILE = "study.json"
"""A finished study, beside the exported judge and in the study's MLflow run."""
_MOST = 200
"""Studies of a store that are searched, the newest first."""
STUDY_ID, KIND = "faith_dspy.study_id", "faith_dspy.kind"
"""Tags of runs: the hash of all that a study's outcome depends on, and what the run is of."""
PORT = 5000
UI = f"http://127.0.0.1:{PORT}"
"""Where `faith-dspy ui` shows a store."""
DESCRIPTION = "mlflow.note.content"
"""Tag that MLflow's pages show as the description of a run."""
MAX_TAG, MAX_DESCRIPTION = 8000, 5000
"""Characters that MLflow keeps of a tag, and of a model version's description; parameters it cuts itself."""
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # or litellm, which MLflow imports, downloads a price list
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",  # ten threads that write to one SQLite file lock each other out
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # MLflow's default of 7 takes minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
"""Set before MLflow is imported, unless it is set already."""
_LOGGERS = ("mlflow", "alembic", "opentelemetry")
_DAMAGED = re.compile(
    r"\(sqlite3\..*(already exists|duplicate column|no such (table|column)|not a database|malformed)"
)
"""What SQLite says of a store whose tables were made by half, or that is none."""


class Store(NamedTuple):
    """A tracking store that answered, and an experiment in it."""

    client: Any
    uri: str
    experiment_id: str


def connect(
    uri: str | None = None, experiment: str = EXPERIMENT, *, create: bool = True
) -> Store:
    """Connect to a tracking store, before anything costs LM calls.

    ``uri``: default MLFLOW_TRACKING_URI, else ``mlflow.db`` in the working folder, or to read (``create=False``) the
    `nearest_store`. `FaithDspyError` where the store does not answer, or the experiment was deleted; `InputError` where
    there is none to read.
    """
    client = client_of(uri, create=create)
    uri = str(client.tracking_uri)
    with mlflow_errors(uri), _alone(uri):
        present = client.get_experiment_by_name(experiment)
        if present is None and create:
            return Store(client, uri, client.create_experiment(experiment))
        if present is None:
            names = ", ".join(sorted(e.name for e in client.search_experiments()))
            raise InputError(
                f"there is no experiment {experiment!r} in {redacted(uri)}; there are {names}."
            )
        if present.lifecycle_stage == "deleted":
            raise FaithDspyError(
                f"the MLflow experiment {experiment!r} was deleted. Name another, or restore it: "
                f"mlflow experiments restore --experiment-id {present.experiment_id}"
            )
        return Store(client, uri, present.experiment_id)


def client_of(uri: str | None = None, *, create: bool = True) -> Any:
    """Return an `mlflow.MlflowClient` of a tracking store, as `connect` finds it."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not create:
        uri = nearest_store(uri)
    uri = uri or DEFAULT
    for name, value in ENVIRONMENT.items():  # some are read when MLflow is imported
        os.environ.setdefault(name, value)
    mlflow = import_optional("mlflow", "A tracking store")
    with mlflow_errors(uri), _alone(uri):
        return mlflow.MlflowClient(tracking_uri=uri)


def _alone(uri: str) -> AbstractContextManager[None]:
    """Own the file of a SQLite store: two processes that make its tables or an experiment at once would both fail."""
    path = uri.removeprefix("sqlite:///").removeprefix("file:")
    file = Path(path.partition("?")[0])
    is_ours = uri.startswith("sqlite:") and os.access(file.absolute().parent, os.W_OK)
    return owned(file, seconds=120) if is_ours else nullcontext()


def nearest_store(uri: str | None = None) -> str:
    """Return the store that studies are read from: ``uri``, else MLFLOW_TRACKING_URI, else the ``mlflow.db`` of this
    folder or of the nearest one above. `InputError` where there is none."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri:
        if is_missing(uri):
            raise InputError(
                f"there is no MLflow store at {redacted(uri)}; name another with --tracking-uri."
            )
        return uri
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "mlflow.db").is_file():
            return f"sqlite:///{folder / 'mlflow.db'}"
    raise InputError(
        f"there is no mlflow.db in {here} or above it: go to a folder where `faith-dspy tune` ran, or name the store "
        "with --tracking-uri."
    )


def page_of(store: Store, part: str) -> str:
    """Return the address of a part of the experiment, such as ``runs/RUN_ID``, on MLflow's pages: on its server, else
    where `faith-dspy ui` shows them."""
    on_server = store.uri.startswith(("http://", "https://"))
    server = redacted(store.uri).rstrip("/") if on_server else UI
    return f"{server}/#/experiments/{store.experiment_id}/{part}"


def redacted(uri: str) -> str:
    """Return a store's address without user and password."""
    return re.sub(r"//[^/@\s]*@", "//", uri)


def reason(exc: Exception) -> str:
    """Return the first line of an exception's message."""
    line = redact_secrets(redacted(str(exc).strip().partition("\n")[0]))
    return line[:300].rstrip(".") or type(exc).__name__


def log_batch(
    client: Any,
    run_id: str,
    metrics: Mapping[str, float | None] | None = None,
    params: Mapping[str, object] | None = None,
    tags: Mapping[str, str] | None = None,
    step: int = 0,
) -> None:
    """Log to a run that need not be active; metrics that are None are left out."""
    from mlflow.entities import Metric, Param, RunTag

    now = int(time.time() * 1000)
    values = []
    for key, value in (metrics or {}).items():
        if value is not None:
            # Four digits keep the columns of MLflow's page readable; study.json has them all.
            values.append(Metric(key, round(value, 4), now, step))
    client.log_batch(
        run_id,
        values,
        [Param(key, str(value)) for key, value in (params or {}).items()],
        [RunTag(key, text) for key, text in (tags or {}).items()],
    )


@contextmanager
def mlflow_errors(uri: str, what: str = "be used") -> Iterator[None]:
    """Raise whatever MLflow raises as a `FaithDspyError` that names the store and says what it cannot do."""
    try:
        with quiet():
            yield
    except FaithDspyError:
        raise
    except Exception as exc:
        if _DAMAGED.search(str(exc)):
            file = uri.removeprefix("sqlite:///")
            raise FaithDspyError(
                f"{file} is a damaged MLflow store ({reason(exc)}); perhaps its making was interrupted. Move it away, "
                f"and a new one is made: mv {file} {file}.damaged"
            ) from exc
        advice = "Start its server"
        if getattr(exc, "error_code", "") in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            advice = "Check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        raise FaithDspyError(
            f"MLflow at {redacted(uri)} cannot {what}: {reason(exc)}. {advice}, or name another store with "
            f"--tracking-uri; {DEFAULT} needs no server."
        ) from exc


@contextmanager
def quiet() -> Iterator[None]:
    """Silence MLflow's log messages and warnings, on which a user of a study cannot act."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def global_store(store: Store) -> Iterator[None]:
    """Make a store and its experiment the process's own for a while.

    MLflow 3.17 writes traces to the process's store, looks up the model of a new version there, and registers prompts
    for its experiment, whichever client is asked.
    """
    import mlflow

    before = mlflow.get_tracking_uri()
    names = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID")
    environment = {name: os.environ.get(name) for name in names}
    is_from_environment = before == environment["MLFLOW_TRACKING_URI"]
    was_set = mlflow.is_tracking_uri_set() and not is_from_environment  # type: ignore[no-untyped-call]
    mlflow.set_tracking_uri(store.uri)
    os.environ["MLFLOW_EXPERIMENT_ID"] = store.experiment_id
    try:
        yield
    finally:
        # None is how MLflow goes back to the environment variable, which `set_tracking_uri` changes.
        restored: Any = before if was_set else None
        mlflow.set_tracking_uri(restored)
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def read_study(source: str, tracking_uri: str | None = None) -> StudyResult:
    """Read a finished study, without the texts that were judged.

    ``source``: folder of an exported judge; a ``study.json``; or a study id or run id in MLflow, or the first
    characters of one, as long as no other study's begins so. ``tracking_uri``: default the `nearest_store`.
    `InputError` names the studies there are.
    """
    path = Path(source)
    if path.is_dir():
        path = path / STUDY_FILE
    if path.is_file():
        return _parse(path, source)
    neither = f"{source}: neither a folder of an exported judge nor a {STUDY_FILE}"
    try:
        client = client_of(tracking_uri, create=False)
    except InputError as exc:
        raise InputError(f"{neither}; and {exc}") from exc
    key = source.removeprefix("runs:/")
    with mlflow_errors(client.tracking_uri):
        runs = _study_runs(client)
    matching: dict[str, str] = {}
    names = []
    for run in runs:
        study_id = run.data.tags[STUDY_ID]
        file = run.data.params.get("labels_file", "?")
        names.append(f"{study_id[:8]} ({file})")
        if study_id.startswith(key) or run.info.run_id.startswith(key):
            matching.setdefault(study_id, run.info.run_id)
    if len(matching) == 1:
        (run_id,) = matching.values()
        return read_result(client, run_id)
    present = ", ".join(names[:5]) or "no study at all"
    where = redacted(client.tracking_uri)
    raise InputError(f"{neither}, nor a study in {where}. There: {present}.")


def read_result(client: Any, run_id: str) -> StudyResult:
    """Read the study of an MLflow run; `InputError` where it holds none."""
    where = f"MLflow run {run_id[:8]}"
    try:
        path = Path(client.download_artifacts(run_id, STUDY_FILE))
    except Exception as exc:
        raise InputError(
            f"{where}: has no {STUDY_FILE}; the study was not finished. Run it again to go on."
        ) from exc
    return _parse(path, where)


def study_runs(tracking_uri: str | None = None) -> Sequence[Any]:
    """Return the MLflow runs of all studies of a store, the newest first: the last finished of each, else the last.

    ``tracking_uri``: default the `nearest_store`.
    """
    client = client_of(tracking_uri, create=False)
    with mlflow_errors(client.tracking_uri):
        runs = _study_runs(client)
    shown = {run.data.tags[STUDY_ID]: run for run in reversed(runs)}
    return sorted(shown.values(), key=lambda run: -run.info.start_time)


def _parse(path: Path, where: str) -> StudyResult:
    try:
        return StudyResult.model_validate_json(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise InputError(
            f"{where}: not a {STUDY_FILE} that this version reads ({str(exc).splitlines()[0]}). `faith-dspy tune` "
            "writes it anew without asking the LM again."
        ) from exc


def _study_runs(client: Any) -> Sequence[Any]:
    """Return the runs of studies, the finished ones before the others, each the newest first."""
    runs = client.search_runs(
        [e.experiment_id for e in client.search_experiments()],
        f"tags.`{KIND}` = 'study'",
        order_by=["attributes.start_time DESC"],
        max_results=_MOST,
    )
    return sorted(runs, key=lambda run: "champion" not in run.data.tags)
