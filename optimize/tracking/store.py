"""MLflow's tracking store: reached before anything is paid for, and quiet."""

from __future__ import annotations

import logging
import os
import re
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from faith_dspy.errors import FaithDspyError, MissingExtraError
from faith_dspy.optimize.tracking.columns import furnish
from faith_dspy.scoring.statistics import need

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT = "sqlite:///mlflow.db"
EXPERIMENT = "faithfulness"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else litellm, which MLflow imports, asks the network for prices
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # by default 7, with longer and longer pauses: minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


class Store(NamedTuple):
    """A tracking store that answered, and an experiment in it."""

    client: Any
    uri: str
    experiment_id: str


def connect(uri: str | None = None, experiment: str = EXPERIMENT) -> Store:
    """Reach the store and make the experiment if need be: to be called before anything costs LM calls.

    ``uri``: default MLFLOW_TRACKING_URI, else ``mlflow.db`` in the working folder, with files under ``mlruns``.

    Raises `FaithDspyError` when the store cannot be used, `MissingExtraError` without mlflow.
    """
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT
    try:
        with quiet():
            client = client_of(uri)
            found = client.get_experiment_by_name(experiment)
            if found is None or found.lifecycle_stage != "deleted":
                experiment_id = found.experiment_id if found else client.create_experiment(experiment)
                furnish(client, experiment_id, found.tags if found else {})
                return Store(client, uri, experiment_id)
    except MissingExtraError:
        raise
    except Exception as exc:
        raise unusable(uri, exc) from exc
    raise FaithDspyError(
        f"the MLflow experiment {experiment!r} was deleted. Name another, or restore it: "
        f"mlflow experiments restore --experiment-id {found.experiment_id}"
    )


def client_of(uri: str) -> Any:
    """An `mlflow.MlflowClient`; `MissingExtraError` without mlflow. A database that is not there is made."""
    for name, value in _ENVIRONMENT.items():  # read by MLflow when it is imported, or at each call
        os.environ.setdefault(name, value)
    mlflow = need("mlflow", "Tracking a study")
    with quiet():
        return mlflow.MlflowClient(tracking_uri=uri)


def existing(uri: str | None = None) -> tuple[Any | None, str]:
    """A client of a store that is there, or None, and the store's address. Nothing is made."""
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT
    file = re.fullmatch(r"sqlite:///(.*)", uri)
    return None if file and not Path(file[1]).is_file() else client_of(uri), uri


def unusable(uri: str, exc: Exception) -> FaithDspyError:
    """The error for a store that does not answer."""
    return FaithDspyError(
        f"MLflow cannot be used at {shown(uri)}: {reason(exc)}. Start its server, or give another store with "
        f"--tracking-uri; {DEFAULT} needs no server."
    )


def shown(uri: str) -> str:
    """A store's address without user and password."""
    return re.sub(r"//[^/@\s]*@", "//", uri)


def reason(exc: Exception) -> str:
    """First line of what went wrong."""
    return shown(str(exc).strip().partition("\n")[0])[:300].rstrip(".") or type(exc).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what MLflow says of itself and its database: it is nothing a user of a study can act on."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def broken_off(client: Any, run_id: str) -> None:
    """Close the run of a study that ends unfinished: it is not to be shown as running for ever."""
    try:
        with quiet():
            client.set_tag(run_id, "status", "broken off")
            client.set_terminated(run_id, "KILLED")
    except Exception:  # noqa: BLE001 - at exit there is nobody left to tell
        return
