from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import mlflow
import pytest

from faith_dspy.optimize.tracking.store import connect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from faith_dspy.optimize.results import StudyResult


@pytest.fixture(scope="session")
def migrated_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose migrations have run: they take seconds, once is enough."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        connect(f"sqlite:///{folder}/mlflow.db", "other")
    return folder / "mlflow.db"


@pytest.fixture
def own_store(tmp_path: Path, migrated_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with a tracking store of its own, named by the environment: it is gone with the test."""
    shutil.copy(migrated_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
    mlflow.tracing.reset()  # spans go to the store that was there when the first one was made
    yield tmp_path
    mlflow.tracing.reset()


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory, endpoint: Any) -> StudyResult:
    """A finished study with recorded replies, logged nowhere yet; it takes a while, once is enough."""
    from recorded import recorded_study

    return recorded_study(endpoint, tmp_path_factory.mktemp("studied"))
