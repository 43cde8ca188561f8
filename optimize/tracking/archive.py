"""Finished studies, kept as ``study.json`` beside the exported judge and in the study's MLflow run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError
from faith_dspy.optimize.results import StudyResult
from faith_dspy.optimize.tracking.store import (
    client_of,
    connect,
    mlflow_errors,
    redacted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

STUDY_FILE = "study.json"
_MOST = 200  # studies of a store that are searched, the newest first


def read_study(source: str, tracking_uri: str | None = None) -> StudyResult:
    """A finished study, without the texts that were judged.

    ``source``: folder of an exported judge; a ``study.json``; or a study id or run id in MLflow, or the first six or
    more characters of one. ``tracking_uri``: default the `nearest_store`. `InputError` names the studies there are.
    """
    path = Path(source, STUDY_FILE) if Path(source).is_dir() else Path(source)
    if path.is_file():
        return _parse(path, source)
    neither = f"{source}: neither a folder of an exported judge nor a {STUDY_FILE}"
    try:
        client = client_of(tracking_uri, create=False)
    except InputError as exc:
        raise InputError(f"{neither}; and {exc}") from exc
    with mlflow_errors(client.tracking_uri):
        runs = _study_runs(
            client, [e.experiment_id for e in client.search_experiments()]
        )
        found = _find(runs, source.removeprefix("runs:/"))
        if found:
            return read_result(client, found)
    names = [
        f"{r.info.run_id[:8]} ({r.data.params.get('labels_file', '?')})"
        for r in runs[:5]
    ]
    raise InputError(
        f"{neither}, nor a study in {redacted(client.tracking_uri)}. There: {', '.join(names) or 'no study at all'}."
    )


def read_result(client: Any, run_id: str) -> StudyResult:
    """The study of an MLflow run; `InputError` where it holds none."""
    where = f"MLflow run {run_id[:8]}"
    try:
        path = Path(client.download_artifacts(run_id, STUDY_FILE))
    except Exception as exc:
        raise InputError(
            f"{where}: has no {STUDY_FILE}; the study was not finished. Run it again to go on."
        ) from exc
    return _parse(path, where)


def last_studies(
    experiment: str, tracking_uri: str | None = None, n: int = 10
) -> list[StudyResult]:
    """The last ``n`` finished studies of an MLflow experiment, the newest first."""
    client, uri, experiment_id = connect(tracking_uri, experiment, create=False)
    with mlflow_errors(uri):
        runs = [
            r for r in _study_runs(client, [experiment_id]) if "champion" in r.data.tags
        ]
        return [read_result(client, r.info.run_id) for r in runs[:n]]


def _parse(path: Path, where: str) -> StudyResult:
    try:
        return StudyResult.model_validate_json(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise InputError(
            f"{where}: not a {STUDY_FILE} that this version reads ({str(exc).splitlines()[0]}). `faith-dspy tune` "
            "writes it anew without asking the LM again."
        ) from exc


def _study_runs(client: Any, experiment_ids: Sequence[str]) -> list[Any]:
    query = "tags.`faith_dspy.kind` = 'study'"
    return list(
        client.search_runs(
            experiment_ids,
            query,
            order_by=["attributes.start_time DESC"],
            max_results=_MOST,
        )
    )


def _find(runs: Sequence[Any], key: str) -> str | None:
    """The run with this run id or study id, or the only one with an id that begins with it."""
    ids = {
        str(r.info.run_id): (r.info.run_id, r.data.tags["faith_dspy.study_id"])
        for r in runs
    }
    if exact := [run_id for run_id, names in ids.items() if key in names]:
        return exact[0]
    begins = [
        run_id for run_id, names in ids.items() if any(n.startswith(key) for n in names)
    ]
    return begins[0] if len(begins) == 1 and len(key) >= 6 else None
