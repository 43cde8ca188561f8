from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from faith_dspy import Judge
from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.optimize import results
from faith_dspy.optimize.results import PredictionRow, StudyResult, VariantResult
from faith_dspy.optimize.select.comparison import Side, compare
from faith_dspy.optimize.tracking.archive import last_studies, read_record, read_study
from faith_dspy.optimize.tracking.store import client_of
from faith_dspy.scoring.agreement import measure

if TYPE_CHECKING:
    from pathlib import Path

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


def exported(folder: Path, study: StudyResult) -> Path:
    """A judge exported with what a study writes into its manifest."""
    judge = Judge("openai/tiny", granularity="sentence")
    judge.manifest = {
        "study_id": study.study_id, "variant": study.champion, "label_set_hash": study.label_set_hash,
        "labels_file": study.labels_file, "agreement": study.tested("champion").agreement.model_dump(mode="json"),
        "untuned_agreement": study.tested("untuned").agreement.model_dump(mode="json"),
        "comparison": {k: c.model_dump(mode="json") for k, c in study.comparisons.items()}, "seed": study.seed,
    }  # fmt: skip
    judge.save(folder)
    return folder


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
    assert (found[0].seed, found[0].budget, found[0].minutes, found[0].verdict) == (3, "quick", 1.5, "better")
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


def test_an_exported_folder_finds_its_predictions_in_mlflow(store, tmp_path):
    """Without the store it has its manifest's figures; with it, the test predictions too."""
    folder = exported(tmp_path / "judge", result())
    alone = read_record(str(folder), f"sqlite:///{tmp_path}/none.db")
    assert (alone.study_id, alone.seed, alone.verdict, alone.rows) == ("5ad1e0c7", 3, "better", ())
    assert alone.untuned.balanced_accuracy.value == 0.0
    found = read_record(str(folder), store)
    assert found.source == str(folder)
    assert len(found.rows) == 6


def test_a_judge_without_a_study_says_so(tmp_path):
    """An untuned judge was saved, not exported by a study."""
    Judge("openai/tiny", granularity="sentence").save(tmp_path / "judge")
    with pytest.raises(InputError, match="holds no study"):
        read_record(str(tmp_path / "judge"))


def test_a_study_json_is_read_or_refused(tmp_path):
    """The artifact as it was downloaded; a file that is none, or of an unfinished study, is refused."""
    path = tmp_path / "study.json"
    path.write_text(result().model_dump_json())
    assert read_record(str(path)).study_id == "5ad1e0c7"
    path.write_text(json.dumps({"study_id": "x"}))
    with pytest.raises(InputError, match=r"not a study\.json that this version reads"):
        read_study(str(path))
    path.write_text(result(test=[]).model_dump_json())
    with pytest.raises(InputError, match="no test result"):
        read_study(str(path))
