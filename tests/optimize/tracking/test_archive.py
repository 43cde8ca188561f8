from __future__ import annotations

import json

import pytest

from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.optimize import results
from faith_dspy.optimize.results import PredictionRow, StudyResult, VariantResult
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.optimize.tracking.archive import last_studies, read_study
from faith_dspy.optimize.tracking.store import client_of
from faith_dspy.scoring.agreement import measure

LABELS = [True, True, True, False, False, False]


def result(study_id: str = "5ad1e0c7", **more: object) -> StudyResult:
    """A small finished study: the champion right on all six answers, the untuned judge on none."""
    test = []
    for name, kind, right in (("champion", "lm", True), ("untuned", "untuned", False)):
        rows = [
            PredictionRow(id=f"a{i}", group=f"g{i}", part="test", label=y, predicted=y is right, probability=0.5)
            for i, y in enumerate(LABELS)
        ]
        agreement = measure(LABELS, [r.predicted for r in rows], [0.5] * 6, n_resamples=20)
        test.append(results.TestResult(name=name, kind=kind, agreement=agreement, predictions=rows))
    sides = [Side([r.predicted for r in t.predictions], [0.5] * 6) for t in test]
    fields = {
        "labels_file": "l.jsonl", "label_set_hash": "81f2", "lm": {"name": "openai/tiny"}, "budget": "quick",
        "seed": 3, "split": {}, "champion": "sentence", "test": test, "seconds": 90.0,
        "variants": [VariantResult(name="sentence", kind="lm", description="", params={})],
        "comparisons": {"untuned": compare(LABELS, *sides, n_resamples=20)},
    }  # fmt: skip
    return StudyResult(study_id=study_id, **(fields | more))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An MLflow store with two finished studies and one that was broken off."""
    folder = tmp_path_factory.mktemp("store")
    uri = f"sqlite:///{folder}/mlflow.db"
    client = client_of(uri)
    experiment = client.create_experiment("some", artifact_location=str(folder / "files"))
    for i, found in enumerate((result("5ad1e0c7"), result("77aa10bc"), None)):
        tags = {"faith_dspy.kind": "study", "faith_dspy.study_id": found.study_id if found else "0b0b0b0b"}
        run = client.create_run(
            experiment, start_time=1000 + i, tags=tags | ({"champion": "sentence"} if found else {})
        )
        client.log_param(run.info.run_id, "labels_file", "l.jsonl")
        if found:
            client.log_text(run.info.run_id, found.model_dump_json(), "study.json")
    return uri


def test_a_study_is_found_by_its_id_its_run_or_its_beginning(store):
    """All three name the same study, with its test predictions."""
    run = client_of(store).search_runs(["1"], "tags.`faith_dspy.study_id` = '77aa10bc'")[0].info.run_id
    for name in ("77aa10bc", "77aa10", run, run[:8], f"runs:/{run}"):
        found = read_study(name, store)
        assert found.study_id == "77aa10bc"
        assert len(found.test[0].predictions) == 6


def test_the_last_studies_of_an_experiment(store):
    """The newest first; one that was not finished is left out; an unknown experiment is named with those there are."""
    found = last_studies("some", store)
    assert [s.study_id for s in found] == ["77aa10bc", "5ad1e0c7"]
    with pytest.raises(InputError, match="there are Default, some"):
        last_studies("other", store)


def test_what_is_not_there_is_answered_with_what_is(store, tmp_path):
    """A wrong id lists the studies; a store that does not exist is not made; an unfinished study says so."""
    with pytest.raises(InputError, match=r"neither a folder.*There: .*l\.jsonl"):
        read_study("ffffffff", store)
    with pytest.raises(InputError, match="That store does not exist"):
        read_study("ffffffff", f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(InputError, match="was not finished"):
        read_study("0b0b0b0b", store)


def test_a_server_that_is_down_is_named(monkeypatch):
    """One message, no traceback."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(FaithDspyError, match=r"http://127\.0\.0\.1:9 cannot be used"):
        read_study("5ad1e0c7", "http://127.0.0.1:9")


def test_a_folder_or_a_file_holds_its_study(tmp_path):
    """`study.json` in an exported judge, or as it was downloaded; a folder without one and a broken one are refused."""
    path = tmp_path / "study.json"
    with pytest.raises(InputError, match="holds no study"):
        read_study(str(tmp_path))
    path.write_text(result().model_dump_json())
    assert read_study(str(path)) == read_study(str(tmp_path)) == result()
    path.write_text(json.dumps({"study_id": "x"}))
    with pytest.raises(InputError, match=r"not a study\.json that this version reads"):
        read_study(str(path))
    path.write_text(result(test=[]).model_dump_json())
    with pytest.raises(InputError, match="no test result"):
        read_study(str(path))
