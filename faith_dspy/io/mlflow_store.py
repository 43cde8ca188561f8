"""A judge brought from MLflow. Reading makes no store."""

from __future__ import annotations

import re
from pathlib import Path

from faith_dspy.errors import ArtifactError, need, without_secrets


def is_missing(uri: str) -> bool:
    """Whether a store is a SQLite file that is not there, and that MLflow would make to read it."""
    file = re.fullmatch(r"sqlite:///([^?]+).*", uri)
    return file is not None and not Path(file[1]).is_file()


def download_judge(uri: str) -> Path:
    """The folder of the judge in ``models:/…`` or ``runs:/…``. `ArtifactError` where there is none."""
    mlflow = need("mlflow", f"Loading {uri}")
    store = str(mlflow.get_tracking_uri())
    try:
        if is_missing(store):
            raise FileNotFoundError("there is no such file")
        folder = Path(mlflow.artifacts.download_artifacts(uri))
    except Exception as exc:
        raise ArtifactError(
            without_secrets(f"{uri}: cannot be downloaded from the MLflow store {store!r} ({exc}). ")
            + "If the judge is in another store, set MLFLOW_TRACKING_URI."
        ) from exc
    found = min(folder.rglob("judge.json"), key=lambda path: len(path.parts), default=None)
    if found is None:
        raise ArtifactError(f"{uri}: holds no judge.json; it was not exported by faith_dspy.")
    return found.parent
