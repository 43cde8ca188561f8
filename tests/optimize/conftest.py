import shutil

import mlflow
import pytest

from faith_dspy.optimize.tracking.store import connect
from tests.support.chat_server import ChatServer
from tests.support.studies import knowing, recorded_study


@pytest.fixture(scope="session")
def migrated_store(tmp_path_factory):
    """A database whose migrations have run: they take seconds, once is enough."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        connect(f"sqlite:///{folder}/mlflow.db", "other")
    return folder / "mlflow.db"


@pytest.fixture
def own_store(tmp_path, migrated_store, monkeypatch):
    """A working folder with a tracking store of its own, named by the environment: it is gone with the test."""
    shutil.copy(migrated_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
    mlflow.tracing.reset()  # spans go to the store that was there when the first one was made
    yield tmp_path
    mlflow.tracing.reset()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A finished study of labels that no words tell apart, which all tests of studies look at."""
    server = ChatServer(says=knowing)
    yield recorded_study(server, tmp_path_factory.mktemp("recorded"))
    server.close()
