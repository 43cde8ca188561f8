"""Finished studies, kept as ``study.json`` beside the exported judge and in the study's MLflow run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faith_dspy.errors import InputError
from faith_dspy.optimize.results import StudyResult
from faith_dspy.optimize.tracking.store import connect, existing_client, mlflow_errors, redacted, resolve_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

STUDY_FILE = "study.json"
_MOST = 200  # studies of a store that are searched, the newest first


def study_json(result: StudyResult) -> str:
    """A study as JSON, without the texts that were judged."""
    texts = {"__all__": {"predictions": {"__all__": {"question", "answer", "statements", "context"}}}}
    slim = result.model_dump(mode="json", exclude={"variants": texts, "test": texts})
    return json.dumps(slim, indent=1, ensure_ascii=False)


def read_study(source: str, tracking_uri: str | None = None) -> StudyResult:
    """A finished study, as `study_json` keeps it.

    Args:
        source: folder of an exported judge; a ``study.json``; or a study id or run id in MLflow, or the first six or
            more characters of one.
        tracking_uri: default MLFLOW_TRACKING_URI, else ``mlflow.db`` in the working folder.

    Raises:
        InputError: there is no such study; the message names those there are. Or it is not finished.
        FaithDspyError: the store does not answer.
    """
    path = Path(source)
    if path.is_dir() and not (path / STUDY_FILE).is_file():
        raise InputError(
            f"{source}: this judge holds no study ({STUDY_FILE}); it was not made by `faith-dspy tune`, or by another "
            "version. Tune again, or name the study's run in MLflow."
        )
    if path.exists():
        return _parse(path / STUDY_FILE if path.is_dir() else path, source)
    uri = resolve_uri(tracking_uri)
    with mlflow_errors(uri):
        client = existing_client(uri)
        runs = _study_runs(client, [e.experiment_id for e in client.search_experiments()]) if client else []
        found = _find(runs, source.removeprefix("runs:/"))
        if found:
            return read_result(client, found)
    names = [f"{r.info.run_id[:8]} ({r.data.params.get('labels_file', '?')})" for r in runs[:5]]
    there = f"There: {', '.join(names) or 'no study at all'}." if client else "That store does not exist."
    raise InputError(
        f"{source}: neither a folder of an exported judge, a {STUDY_FILE}, nor a study in {redacted(uri)}. {there}"
    )


def read_result(client: Any, run_id: str) -> StudyResult:
    """The study of an MLflow run; `InputError` where it holds none."""
    where = f"MLflow run {run_id[:8]}"
    try:
        path = Path(client.download_artifacts(run_id, STUDY_FILE))
    except Exception as exc:
        raise InputError(f"{where}: has no {STUDY_FILE}; the study was not finished. Run it again to go on.") from exc
    return _parse(path, where)


def last_studies(experiment: str, tracking_uri: str | None = None, n: int = 10) -> list[StudyResult]:
    """The last ``n`` finished studies of an MLflow experiment, the newest first."""
    uri = resolve_uri(tracking_uri)
    with mlflow_errors(uri):
        if existing_client(uri) is None:
            raise InputError(f"there is no MLflow store at {redacted(uri)}; name it with --tracking-uri.")
        store = connect(uri, experiment, create=False)
        runs = [r for r in _study_runs(store.client, [store.experiment_id]) if "champion" in r.data.tags]
        return [read_result(store.client, r.info.run_id) for r in runs[:n]]


def _parse(path: Path, where: str) -> StudyResult:
    try:
        result = StudyResult.model_validate_json(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise InputError(
            f"{where}: not a {STUDY_FILE} that this version reads ({str(exc).splitlines()[0]}). `faith-dspy tune` "
            "writes it anew without asking the LM again."
        ) from exc
    if not result.test:
        raise InputError(f"{where}: this study has no test result; it was not finished. Run it again to go on.")
    return result


def _study_runs(client: Any, experiment_ids: Sequence[str]) -> list[Any]:
    query = "tags.`faith_dspy.kind` = 'study'"
    return list(client.search_runs(experiment_ids, query, order_by=["attributes.start_time DESC"], max_results=_MOST))


def _find(runs: Sequence[Any], key: str) -> str | None:
    """The run with this run id or study id, or the only one with an id that begins with it."""
    named = [(r.info.run_id, {r.info.run_id, r.data.tags.get("faith_dspy.study_id", "")}) for r in runs]
    exact: list[str] = [run_id for run_id, ids in named if key in ids]
    begins = [run_id for run_id, ids in named if any(i.startswith(key) for i in ids)]
    if exact or not re.fullmatch(r"[0-9a-f]{6,32}", key):
        return exact[0] if exact else None
    return begins[0] if len(begins) == 1 else None
