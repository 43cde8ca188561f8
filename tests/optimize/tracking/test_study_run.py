from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from made import judge as made
from made import rows, study

from faith_dspy import Judge, load_judge
from faith_dspy.errors import FaithDspyError, InputError, MissingExtraError
from faith_dspy.optimize.results import JudgeResult, StudyResult, StudySetup
from faith_dspy.optimize.tracking import study_run
from faith_dspy.optimize.tracking.store import connect
from faith_dspy.optimize.tracking.study_run import MlflowTracker
from faith_dspy.schema import StatementVerdict, Usage, Verdict

KEY = "sk-test-4f1d9c7a2b"
LABELS = [True] * 4 + [False] * 4
STATEMENT = StatementVerdict(text="A statement.", verdict=Verdict.FULLY_SUPPORTED)
# One faithful answer failed, one unfaithful unscored.
GOOD = rows([0.9, 0.8, 0.7, 0.2, 0.1, 0.3, 0.4, None], LABELS, question="Why?", statements=(STATEMENT,))
FLAT = rows([0.4] * 8, LABELS)
VARIANTS = (
    made("lexical-baseline", FLAT, description="no LM"),
    made("answer", GOOD, params={"granularity": "answer"}),
    made(
        "sentence",
        GOOD,
        params={"granularity": "sentence", "lm": "openai/gpt-4o-mini"},
        score=0.9,
        lm_share=1.0,
        usage=Usage(calls=16, prompt_tokens=1600, cached_tokens=1200, output_tokens=16, seconds=8.0, dollars=None),
        compile_usage=Usage(calls=3, prompt_tokens=300, cached_tokens=100, output_tokens=30, seconds=2.0),
        prompts={"verify": {"instructions": "Is it supported?", "demos": [{"statement": "Ice is cold."}]}},
    ),
    JudgeResult(name="statement", kind="lm", status="skipped", note="needs 8 labelled statements, got 2"),
)
SETUP = {
    "study_id": "51d1", "labels_file": "labels.jsonl", "label_set_hash": "81f2", "budget": "quick", "seed": 0,
    "lm": {"name": "openai/gpt-4o-mini", "sha256": None}, "test_file": "other.csv",
    "split": {"used": {"train": 10, "dev": 8, "test": 8}, "hashes": {"train": "a1", "dev": "b2", "test": "c3"}},
}  # fmt: skip


@pytest.fixture(autouse=True)
def pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of the time, and are drawn only for the tests that look for them."""
    if "files" not in request.node.name:
        monkeypatch.setattr(study_run, "judge_figures", lambda *_: {})
        monkeypatch.setattr(study_run, "study_figures", lambda *_: {})


def _track(*names: str, register: bool = True) -> MlflowTracker:
    """A tracker that has recorded the variants of these names (none: all)."""
    tracker = MlflowTracker(connect(), StudySetup.model_validate(SETUP), register=register)
    for v in VARIANTS:
        if not names or v.name in names:
            tracker.variant(v)
    return tracker


def _finished(**more: Any) -> StudyResult:
    """The finished study, and its judge in a folder."""
    usage = Usage(calls=8, prompt_tokens=80, output_tokens=8, dollars=0.008)
    test = (made("champion", GOOD, usage=usage), made("untuned", FLAT), made("lexical-baseline", FLAT))
    judge = Judge("openai/gpt-4o-mini", granularity="sentence", api_key=KEY)
    judge.manifest = {"study_id": "51d1"}
    judge.save("judges/labels")
    return study(GOOD, **SETUP | {"variants": VARIANTS, "test": test, "judge_dir": "judges/labels"} | more)


def _children(tracker: MlflowTracker) -> dict[str, Any]:
    below = f"tags.`mlflow.parentRunId` = '{tracker.run_id}'"
    found = tracker.client.search_runs([connect().experiment_id], below)
    return {r.data.tags["faith_dspy.variant"]: r for r in found}


def _files(tracker: MlflowTracker, run_id: str, folder: str = "") -> set[str]:
    found = set()
    for f in tracker.client.list_artifacts(run_id, folder):
        found |= _files(tracker, run_id, f.path) if f.is_dir else {f.path}
    return found


def _read(tracker: MlflowTracker, run_id: str, path: str) -> str:
    return Path(tracker.client.download_artifacts(run_id, path)).read_text(encoding="utf-8")


def test_variants_are_recorded_as_they_finish(own_store: Path) -> None:
    """Every variant is a run under the study's, there before the study ends, with the metrics to compare it by."""
    runs = _children(_track())
    assert list(reversed(runs)) == ["lexical-baseline", "answer", "sentence", "statement"]
    assert runs["sentence"].info.run_name == "sentence · 51d1"
    metrics = runs["sentence"].data.metrics
    assert set(metrics) == {
        *("dev/balanced_accuracy", "dev/balanced_accuracy_low", "dev/balanced_accuracy_high"),
        *("dev/auroc", "dev/auroc_low", "dev/auroc_high", "dev/cohen_kappa", "dev/coverage", "dev/score"),
        *("cost/computed_tokens", "cost/seconds"),
    }
    # 3 of 4 faithful passed, 3 of 3 scored unfaithful failed. Of 4 × 3 pairs two are lost: 0.2 with 0.3 and 0.4.
    assert metrics["dev/balanced_accuracy"] == 0.875
    assert metrics["dev/auroc"] == round(10 / 12, 4)
    assert metrics["dev/coverage"] == 0.875
    assert metrics["dev/balanced_accuracy_low"] <= 0.875 <= metrics["dev/balanced_accuracy_high"]
    assert metrics["cost/computed_tokens"] == 50
    assert runs["sentence"].data.params["granularity"] == "sentence"
    assert runs["statement"].info.status == "KILLED"
    assert "needs 8 labelled statements" in runs["statement"].data.tags["mlflow.note.content"]


def test_what_is_not_known_is_not_logged(own_store: Path) -> None:
    """None is no metric at all, neither NaN nor 0, and a baseline has no cost."""
    tracker = _track("no variant")
    found = rows([0.9, 0.8, 0.7, 0.2, 0.1, 0.3, 0.4, None], [True] * 8)
    tracker.variant(made("baseline", found, judged=0))
    metrics = _children(tracker)["baseline"].data.metrics
    assert not {"dev/auroc", "dev/score", "cost/computed_tokens"} & set(metrics)
    assert all(v == v for v in metrics.values())
    assert metrics["dev/coverage"] == 0.875


def test_a_variants_files(own_store: Path) -> None:
    """Everything that was measured as JSON, figures, and the predictions as a table with mistakes on top."""
    tracker = _track("sentence")
    run_id = _children(tracker)["sentence"].info.run_id
    assert _files(tracker, run_id) == {
        "predictions.csv",
        "result.json",
        "plots/calibration.png",
        "plots/confusion.png",
    }
    table = list(csv.DictReader(io.StringIO(_read(tracker, run_id, "predictions.csv"))))
    assert [row["right"] for row in table] == ["NO", "–", *["yes"] * 6]
    assert [row["id"] for row in table[:2]] == ["a3", "a7"]
    assert table[1]["judge"] == "unscored: parse_failed"
    found = json.loads(_read(tracker, run_id, "result.json"))
    assert len(found["rows"]) == 8
    assert (found["levels"]["answers"]["coverage"], found["compile_usage"]["calls"]) == (0.875, 3)
    assert found["prompts"]["verify"]["instructions"] == "Is it supported?"


def test_the_finished_studys_files(own_store: Path) -> None:
    """The study's run holds the test, the three lines, the judge, and everything as JSON; its champion a star."""
    tracker, result = _track(), _finished()
    result = result.model_copy(update={"flip_rate": 0.25})
    tracker.finish(result)
    run = tracker.client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test/balanced_accuracy"] == 0.875
    assert run.data.metrics["test/gain_over_untuned"] == 0.25
    assert len(run.data.metrics) == 15
    assert run.data.metrics["dev/flip_rate"] == 0.25
    assert run.data.metrics["cost/dollars_per_1000_answers"] == 1.0  # 0.008 for 8 answers
    assert run.data.tags["champion"] == "sentence"
    assert run.data.tags["vs_untuned"] == result.comparisons["untuned"].verdict
    note = run.data.tags["mlflow.note.content"]
    assert "\n- Gain: +25.0 [" in note
    assert result.comparisons["untuned"].sentence[1:] in _read(tracker, tracker.run_id, "details.md")
    assert _files(tracker, tracker.run_id, "judge") == {"judge/judge.json", "judge/program.json", "judge/CARD.md"}
    opened = {"details.md", "roc.png", "test/champion/predictions.csv", "learned.html"}
    assert opened <= _files(tracker, tracker.run_id)
    for name in ("learned.html", "test/champion/predictions.csv"):
        assert f"/runs/{tracker.run_id}/artifacts/{name})" in note
    document = json.loads(_read(tracker, tracker.run_id, "study.json"))
    assert document["champion"] == "sentence"
    assert not {"answer", "context"} & set(document["test"][0]["rows"][0])
    assert "Remaining mistakes" in _read(tracker, tracker.run_id, "learned.html")
    crowned = [(n, r.info.run_name) for n, r in _children(tracker).items() if r.data.tags.get("champion") == "true"]
    assert crowned == [("sentence", "★ sentence · 51d1")]
    datasets = {i.tags[0].value: i.dataset for i in run.inputs.dataset_inputs}
    assert {part: (d.name, d.digest, json.loads(d.profile)["num_rows"]) for part, d in datasets.items()} == {
        "train": ("labels", "a1", 10),
        "dev": ("labels", "b2", 8),
        "test": ("other", "c3", 8),
    }


def test_the_champions_prompts_are_in_the_prompt_registry(own_store: Path) -> None:
    """Instructions and demos as one reads them, with study and variant, linked from the study's run."""
    (tracker := _track("sentence")).finish(_finished())
    prompt = tracker.client.load_prompt("faithfulness.verify")
    assert prompt.template == "Is it supported?\n\n## Example 1\n\n- statement: Ice is cold.\n"
    assert {k: prompt.tags[k] for k in ("study_id", "variant")} == {"study_id": "51d1", "variant": "sentence"}
    linked = json.loads(tracker.client.get_run(tracker.run_id).data.tags["mlflow.linkedPrompts"])
    assert linked == [{"name": "faithfulness.verify", "version": "1"}]


def test_a_registry_that_takes_no_prompts_ends_nothing(own_store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The study is recorded and its judge registered; a warning says what failed."""
    tracker = _track("sentence")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(tracker.client), "register_prompt", _down)
        assert tracker.finish(_finished()).startswith("Registered as faithfulness version 1")
    assert tracker.client.get_run(tracker.run_id).info.status == "FINISHED"
    assert "failed (connection refused)" in caplog.text


def test_the_registered_judge_loads_without_pickle_key_or_lm(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registering asks no LM; `load_judge` and MLflow load it; its key is in no file and not in the store."""
    import mlflow

    asked: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(Judge, "ask", lambda *args: asked.append(args))
        before = mlflow.get_tracking_uri()
        _track("sentence").finish(result := _finished())
    assert asked == []
    assert (mlflow.get_tracking_uri(), mlflow.active_run()) == (before, None)
    assert load_judge("models:/faithfulness/1").config == load_judge(result.judge_dir).config
    model = mlflow.pyfunc.load_model("models:/faithfulness/1")
    signature = model.metadata.signature
    assert [p.name for p in signature.inputs.inputs[0].type.properties] == ["answer", "context", "question"]
    assert "unscored" in [p.name for p in signature.outputs.inputs[0].type.properties]
    (row,) = model.predict([{"context": [], "answer": "It opened in 1932."}])
    assert (row["unscored"], row["score"]) == ("no_context", None)
    written = [f for f in own_store.rglob("*") if f.is_file()]
    assert any(f.name == "mlflow_model.py" for f in written)
    assert [f for f in written if f.suffix in {".pkl", ".pickle", ".cloudpickle"}] == []
    assert [f for f in written if KEY.encode() in f.read_bytes()] == []


def test_without_registration_there_is_no_model(own_store: Path) -> None:
    """`register=False` records the study and leaves the registry alone."""
    tracker = _track("sentence", register=False)
    tracker.finish(_finished())
    assert tracker.client.search_registered_models() == list(tracker.client.search_prompts()) == []
    assert "models:/" not in tracker.client.get_run(tracker.run_id).data.tags["mlflow.note.content"]


def test_a_store_that_stays_away_does_not_end_the_study(own_store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning when it begins to fail; `finish` says that the judge is complete and the record is not."""
    tracker = _track("no variant")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(tracker.client), "log_batch", _down)
        patch.setattr(type(tracker.client), "search_registered_models", _down)
        for v in VARIANTS[:2]:
            tracker.variant(v)
        tracker.finish(_finished())
    assert [r.getMessage() for r in caplog.records[:-1]] == [
        f"MLflow at sqlite:///{own_store}/mlflow.db failed (connection refused); the study goes on."
    ]
    assert "record of this study is incomplete" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(("fault", "status"), [(InputError("no"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_study_that_is_not_finished_does_not_stay_running(own_store: Path, fault: BaseException, status: str) -> None:
    """Its run ends with the process that made it; the variants that were finished stay."""
    with pytest.raises(type(fault)), _track("sentence") as tracker:
        raise fault
    run = tracker.client.get_run(tracker.run_id)
    assert (run.info.status, run.data.tags["status"]) == (status, status.lower())
    assert list(_children(tracker)) == ["sentence"]


def _down(*_: object, **__: object) -> None:
    raise ConnectionError("connection refused\nand more lines")


def test_a_deleted_experiment_is_named(own_store: Path) -> None:
    """MLflow neither uses nor makes an experiment of a deleted one's name: the error says how to get it back."""
    store = connect()
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(FaithDspyError, match=f"restore --experiment-id {store.experiment_id}"):
        connect()


def test_without_mlflow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracking a study needs faith_dspy[tune]."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"faith_dspy\[tune\]"):
        connect()
