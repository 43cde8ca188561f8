from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.optimize.tracking.store import (
    client_of,
    connect,
    nearest_store,
    read_study,
)
from tests.support.chat_server import JsonHandler
from tests.support.results import rows, study


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """An MLflow store with two finished studies, one of them begun again, and one that was broken off."""
    folder = tmp_path_factory.mktemp("store")
    uri = f"sqlite:///{folder}/mlflow.db"
    client = client_of(uri)
    experiment = client.create_experiment("some", artifact_location=str(folder / "x"))
    ids = "5ad1e0c7", "77aa10bc", "0b0b0b0b", "5ad1e0c7"
    for i, study_id in enumerate(ids):
        tags = {"faith_dspy.kind": "study", "faith_dspy.study_id": study_id}
        tags |= {"status": "killed"} if i >= 2 else {"champion": "sentence"}
        run = client.create_run(experiment, 1000 + i, tags).info.run_id
        client.log_param(run, "labels_file", "l.jsonl")
        if i < 2:
            result = study(rows([0.9, 0.1] * 3), study_id=study_id)
            client.log_text(run, result.model_dump_json(), "study.json")
    return uri


def test_a_study_is_found_by_its_id_its_run_or_its_beginning(store):
    with_id = "tags.`faith_dspy.study_id` = '77aa10bc'"
    run = client_of(store).search_runs(["1"], with_id)[0].info.run_id
    for name in ("77aa10bc", "77aa10", run, run[:8], f"runs:/{run}"):
        assert read_study(name, store).study_id == "77aa10bc"
    assert read_study("5ad1e0c7", store).study_id == "5ad1e0c7"


def test_studies_are_read_from_the_nearest_store(store, monkeypatch):
    """From a folder below the one where they were made, they need no address."""
    below = Path(store.removeprefix("sqlite:///")).parent / "notes" / "today"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert (nearest_store(), read_study("77aa10bc").study_id) == (store, "77aa10bc")
    assert list(below.iterdir()) == []


def test_what_is_not_there_is_answered_with_what_is(store):
    for study_id, said in (
        ("ffffffff", r"neither a folder.*There: .*l\.jsonl"),
        ("0b0b0b0b", "was not finished"),
    ):
        with pytest.raises(InputError, match=said):
            read_study(study_id, store)
    with pytest.raises(InputError, match="there are Default, some"):
        connect(store, "other", create=False)


def test_studies_are_listed(store, cli):
    """Each once, the newest first, the one that was broken off without a champion."""
    code, listed, _ = cli("study", "list", "--tracking-uri", store)
    lines = [line.split() for line in listed.splitlines() if "l.jsonl" in line]
    ids, champions = zip(*((line[0], line[-2]) for line in lines), strict=True)
    assert (code, ids) == (0, ("0b0b0b0b", "77aa10bc", "5ad1e0c7"))
    assert champions == ("killed", "sentence", "sentence")


def test_a_store_that_cannot_be_written_is_one_sentence(
    store, capfd, tmp_path, monkeypatch
):
    """MLflow logs the statement with its traceback; nothing of it is printed, and it is locked where it is."""
    monkeypatch.chdir(tmp_path)
    read_only = f"sqlite:///file:{store.removeprefix('sqlite:///')}?mode=ro&uri=true"
    with pytest.raises(FaithDspyError, match="attempt to write a readonly database"):
        connect(read_only, "other")
    assert "INSERT" not in capfd.readouterr().err
    assert not [*tmp_path.rglob("*.lock")]


def test_a_server_that_is_down_is_named(monkeypatch):
    """One message, no traceback, and no password in it."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said = r"at http://127\.0\.0\.1:9 cannot be used: .*--tracking-uri"
    with pytest.raises(FaithDspyError, match=said) as caught:
        read_study("5ad1e0c7", "http://me:hush@127.0.0.1:9")
    assert "hush" not in str(caught.value)


def test_a_server_that_refuses_says_so():
    """It is up: what it lacks is a name and a password."""
    does = dict.fromkeys(("do_GET", "do_POST"), lambda self: self.reply(401, "no"))
    handler = type("Handler", (JsonHandler,), does)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    with pytest.raises(FaithDspyError, match=r"401.* Check MLFLOW_TRACKING_USERNAME"):
        read_study("5ad1e0c7", f"http://127.0.0.1:{server.server_port}")
    server.shutdown()


def test_a_broken_study_is_named(tmp_path):
    """A broken `study.json` is refused."""
    path = tmp_path / "study.json"
    path.write_text('{"study_id": "x"}')
    with pytest.raises(InputError, match=r"not a study\.json that this version reads"):
        read_study(str(path))
