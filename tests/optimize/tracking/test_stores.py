import os
import pwd
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from faith_dspy import load_judge
from faith_dspy.errors import FaithDspyError
from faith_dspy.optimize.tracking.store import connect, read_study
from tests.support.needs import POSTGRESQL
from tests.support.studies import free_port, log_study, serving


@contextmanager
def server(folder):
    """`mlflow server` on loopback; runs, registry, artifacts and traces all go over HTTP."""
    port = free_port()
    where = [
        "--backend-store-uri",
        f"sqlite:///{folder}/served.db",
        "--artifacts-destination",
        str(folder / "served"),
    ]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        *where,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with serving([*command, "--workers", "1"], folder, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def postgresql(folder):
    """A PostgreSQL of this test's own, on a socket in a folder; it does not run as root."""
    if POSTGRESQL is None:
        pytest.skip(
            "PostgreSQL was not tried: it is not installed (apt-get install postgresql)"
        )
    with unprivileged_folder() as (home, user):

        def run(program, *words):
            command = [
                str(Path(POSTGRESQL) / program),
                "-D",
                str(home / "data"),
                *words,
            ]
            subprocess.run(
                command, cwd=home, check=True, stdout=subprocess.DEVNULL, **user
            )

        run("initdb", "-U", "mlflow", "--auth=trust", "--no-sync")
        only_socket = f"-k {home} -c listen_addresses= -c fsync=off"
        run("pg_ctl", "-w", "-l", str(home / "log"), "-o", only_socket, "start")
        try:
            yield f"postgresql+psycopg2://mlflow@/postgres?host={home}"
        finally:
            run("pg_ctl", "-m", "fast", "stop")  # whoever is still connected


@contextmanager
def unprivileged_folder():
    """A folder, and as whom to run what works there: ourselves, or in root's place somebody who may do less."""
    home = Path(tempfile.mkdtemp(prefix="faith-dspy-"))
    user = {}
    if os.getuid() == 0:
        known = {u.pw_name: u for u in pwd.getpwall()}
        one = known.get("postgres") or known["nobody"]
        os.chown(home, one.pw_uid, one.pw_gid)
        user = {"user": one.pw_uid, "group": one.pw_gid, "extra_groups": []}
    try:
        yield home, user
    finally:
        shutil.rmtree(home)


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
    run = store.client.get_run(run_id)
    champion = result.measured.champion
    accuracy = champion.agreement.balanced_accuracy.value
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test/balanced_accuracy"] == pytest.approx(
        accuracy, abs=1e-4
    )
    below = store.client.search_runs(
        [store.experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'"
    )
    variants = {r.data.tags.get("faith_dspy.candidate") for r in below}
    assert variants - {None} == {v.name for v in (*result.candidates, *result.skipped)}
    assert {"predictions.csv", "study.json", "judge"} <= {
        f.path for f in store.client.list_artifacts(run_id)
    }
    assert read_study(run_id).champion == result.champion
    assert store.client.get_model_version("faithfulness", "1").run_id == run_id
    assert (
        load_judge("models:/faithfulness/1").config
        == load_judge(result.judge_dir).config
    )
    traces = store.client.search_traces(locations=[store.experiment_id], run_id=run_id)
    assert sorted(t.info.client_request_id for t in traces) == sorted(
        r.id for r in champion.rows
    )
    judges = {("CODE", "faith_dspy"), ("HUMAN", "labels"), ("LLM_JUDGE", "champion")}
    for trace in traces:
        sources = [a.source for a in trace.info.assessments]
        assert {(s.source_type, s.source_id) for s in sources} == judges


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
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
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
    with pytest.raises(
        FaithDspyError,
        match=rf"{path} is a damaged MLflow store .*: mv {path} {path}\.damaged",
    ):
        connect(f"sqlite:///{path}")
