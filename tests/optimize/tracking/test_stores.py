import os
import pwd
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import pytest

from faith_dspy import load_judge
from faith_dspy.errors import FaithDspyError
from faith_dspy.optimize.tracking.store import connect, read_study
from tests.support.needs import POSTGRESQL
from tests.support.studies import log_study, mlflow_server


def server(folder):
    """Runs, registry, artifacts and traces all go over HTTP."""
    artifacts = "--artifacts-destination", str(folder / "served")
    return mlflow_server(folder, f"sqlite:///{folder}/served.db", *artifacts)


@contextmanager
def postgresql(folder):
    """A PostgreSQL of this test's own, on a socket in a folder; it does not run as root."""
    if POSTGRESQL is None:
        pytest.skip(
            "PostgreSQL was not tried: it is not installed (apt-get install postgresql)"
        )
    with tempfile.TemporaryDirectory(prefix="faith-dspy-") as home:
        user = {}
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(home, nobody.pw_uid, nobody.pw_gid)
            user = {"user": "nobody", "group": nobody.pw_gid, "extra_groups": []}

        def run(program, *words):
            command = [f"{POSTGRESQL}/{program}", "-D", f"{home}/data", *words]
            quiet = {"check": True, "stdout": subprocess.DEVNULL}
            subprocess.run(command, cwd=home, **quiet, **user)

        run("initdb", "-U", "mlflow", "--auth=trust", "--no-sync")
        only_socket = f"-k {home} -c listen_addresses= -c fsync=off"
        run("pg_ctl", "-w", "-l", f"{home}/log", "-o", only_socket, "start")
        try:
            yield f"postgresql+psycopg2://mlflow@/postgres?host={home}"
        finally:
            run("pg_ctl", "-m", "fast", "stop")  # whoever is still connected


STORES = {"server": server, "postgresql": postgresql}


@pytest.fixture(params=STORES)
def uri(request, tmp_path, monkeypatch):
    """A tracking store of each kind, empty."""
    monkeypatch.chdir(tmp_path)
    with STORES[request.param](tmp_path) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        yield address


@pytest.mark.all
def test_a_study_is_kept_by_every_store(uri, recorded):
    """Runs, figures, files, the registered champion and traces come back as they were logged; traces come once."""
    result, store = recorded.result, connect(uri)
    run_id = log_study(uri, result).run_id
    metrics = store.client.get_run(run_id).data.metrics
    champion = result.measured.champion
    accuracy = champion.agreement.balanced_accuracy.value
    assert metrics["test/balanced_accuracy"] == pytest.approx(accuracy, abs=1e-4)
    assert read_study(run_id).champion == result.champion
    exported = load_judge(result.judge_dir)
    assert load_judge("models:/faithfulness/1").config == exported.config
    traces = store.client.search_traces(locations=[store.experiment_id], run_id=run_id)
    traced = sorted(t.info.client_request_id for t in traces)
    assert traced == sorted(r.id for r in champion.rows)
    for trace in traces:
        sources = {a.source.source_id for a in trace.info.assessments}
        assert sources == {"faith_dspy", "labels", "champion"}


CONNECTING = """
import sys, mlflow
from faith_dspy.optimize.tracking.store import connect
print("ready", flush=True)
sys.stdin.readline()
store = connect(sys.argv[1])
print(store.client.create_run(store.experiment_id).info.run_id)
"""


@pytest.mark.all
def test_a_new_store_by_three_processes_at_once(tmp_path):
    """One of them makes tables and experiment, the others find them."""
    command = [sys.executable, "-c", CONNECTING, f"sqlite:///{tmp_path}/mlflow.db"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    pipes |= {"text": True}
    started = [subprocess.Popen(command, cwd=tmp_path, **pipes) for _ in range(3)]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    told = [process.communicate(timeout=300) for process in started]
    assert [p.returncode for p in started] == [0, 0, 0], told
    found = connect(f"sqlite:///{tmp_path}/mlflow.db", create=False)
    assert len(found.client.search_runs([found.experiment_id])) == 3


@pytest.mark.parametrize("tables", ["CREATE TABLE datasets (id INTEGER)", None])
def test_a_damaged_store_is_named(tmp_path, tables):
    """Tables that an interrupted MLflow left, or another kind of file: which file to move away, and how."""
    path = tmp_path / "mlflow.db"
    if tables is None:
        path.write_text("no database " * 100)
    else:
        with sqlite3.connect(path) as database:
            database.execute(tables)
    said = rf"{path} is a damaged MLflow store .*: mv {path} {path}\.damaged"
    with pytest.raises(FaithDspyError, match=said):
        connect(f"sqlite:///{path}")
