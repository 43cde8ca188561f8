import csv
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import mlflow
import pandas as pd
import pytest
from mlflow.genai.datasets import get_dataset

from faith_dspy import load_judge
from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.integrations.mlflow import record_of
from faith_dspy.optimize import tune as tune_labels
from faith_dspy.optimize.report.tables import worst_first
from faith_dspy.optimize.results import JudgedAnswer, StudyResult
from faith_dspy.optimize.tracking.metrics import cost_metrics
from faith_dspy.optimize.tracking.store import connect, global_store
from faith_dspy.optimize.tracking.tracker import MlflowTracker, log_traces
from faith_dspy.schema import Judgment, Unscored, Usage
from tests.support.studies import Quiet, knowing, labels, log_little, log_study

YES = {True: "yes", False: "no"}


class Logged(NamedTuple):
    """The recorded study in a store of its own."""

    result: StudyResult
    client: Any
    store: Any
    run: Any
    folder: Path

    def read(self, path, run_id=None):
        return Path(
            self.client.download_artifacts(run_id or self.run.info.run_id, path)
        ).read_text(encoding="utf-8")

    def traces(self, run_id=None):
        run_id = run_id or self.run.info.run_id
        return self.client.search_traces(
            locations=[self.store.experiment_id], run_id=run_id
        )

    def files(self, folder=""):
        found = self.client.list_artifacts(self.run.info.run_id, folder)
        return {f.path for f in found if not f.is_dir}.union(
            *(self.files(f.path) for f in found if f.is_dir)
        )


@pytest.fixture(scope="module")
def logged(tmp_path_factory, recorded):
    """It, with people finding otherwise than the champion on the last answer."""
    champion, *others = recorded.result.test.judges
    *answers, last = champion.answers
    example = last.example.model_copy(update={"faithful": not last.predicted})
    answers.append(JudgedAnswer.judged(example, last.raw, last.judgment))
    champion = champion.model_copy(update={"rows": tuple(answers)})
    test = recorded.result.test.model_copy(update={"judges": (champion, *others)})
    result = recorded.result.model_copy(update={"test": test, "flip_rate": 0.25})
    folder = tmp_path_factory.mktemp("logged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        tracker = log_study(f"sqlite:///{folder}/mlflow.db", result)
    return Logged(
        result,
        tracker.client,
        tracker._store,
        tracker.client.get_run(tracker.run_id),
        folder,
    )


@pytest.fixture
def short_log(monkeypatch):
    log_little(monkeypatch)


def children(client, run_id):
    """The runs of a study's candidates and of the variants that became none, by name."""
    found = client.search_runs(
        [client.get_run(run_id).info.experiment_id],
        f"tags.`mlflow.parentRunId` = '{run_id}' AND tags.`faith_dspy.candidate` != ''",
    )
    return {r.data.tags["faith_dspy.candidate"]: r for r in found}


def test_every_candidate_is_a_run_under_the_studys(logged):
    """With the metrics to compare it by; what is not known is not logged at all. A variant that failed says why."""
    result, runs = logged.result, children(logged.client, logged.run.info.run_id)
    skipped = [v.name for v in result.skipped]
    assert list(reversed(runs)) == [c.name for c in result.candidates] + skipped
    measured, run = result.chosen, runs[result.champion]
    accuracy, metrics = measured.agreement.balanced_accuracy, run.data.metrics
    expected = pytest.approx([accuracy.value, accuracy.low], abs=1e-4)
    names = "pool/balanced_accuracy", "pool/balanced_accuracy_low"
    assert [metrics[name] for name in names] == expected
    tokens = pytest.approx(measured.usage.computed_tokens / measured.judged, abs=1e-4)
    assert metrics["cost/computed_tokens"] == tokens
    stars = [name for name, run in runs.items() if run.info.run_name.startswith("★ ")]
    assert stars == [result.champion]
    failed = runs["broken"]
    assert (failed.info.status, failed.data.metrics) == ("FAILED", {})
    assert "nothing came to its mind" in failed.data.tags["mlflow.note.content"]


def test_compiled_prompts_are_in_the_candidates_run(logged):
    """As one reads them; their gain is a metric, of the candidates that were compiled alone."""
    candidates = logged.result.candidates
    compiled = next(c for c in candidates if c.variant == "sentence-few-shot")
    run = children(logged.client, logged.run.info.run_id)[compiled.name]
    demo = compiled.prompts.now["verify.predict"]["demos"][0]["statement"]
    assert demo in logged.read("prompts/verify.predict.md", run.info.run_id)
    gain = compiled.prompts.gain.comparison.balanced_accuracy.value
    assert run.data.metrics["pool/gain_over_seed"] == pytest.approx(gain, abs=1e-4)


def test_the_studys_run_holds_its_figures_and_the_judge(logged):
    """The three lines with links to what opens in place, the judge with its report, answers with mistakes on top, all
    as JSON."""
    result, run = logged.result, logged.run
    metrics, tags = run.data.metrics, run.data.tags
    assert run.info.status == "FINISHED"
    for part, measured in (("cv", result.cv), ("test", result.test)):
        gain = measured.comparisons["untuned"]
        accuracy = measured.champion.agreement.balanced_accuracy.value
        expected = pytest.approx([accuracy, gain.balanced_accuracy.value], abs=1e-4)
        names = f"{part}/balanced_accuracy", f"{part}/gain_over_untuned"
        assert [metrics[name] for name in names] == expected
    assert metrics["pool/flip_rate"] == 0.25
    assert run.data.params["lm"] == "openai/tiny"
    assert (tags["champion"], tags["vs_untuned"]) == (result.champion, gain.verdict)
    opened = {"judge/report.html", "predictions.csv", "details.md", "judge/CARD.md"}
    assert opened | {"judge/judge.json"} <= logged.files()
    report = Path(result.judge_dir, "report.html").read_text(encoding="utf-8")
    assert logged.read("judge/report.html") == report
    note = tags["mlflow.note.content"]
    assert "\n- Gain: " in note
    for name in opened:
        assert f"/runs/{run.info.run_id}/artifacts/{name})" in note
    study = json.loads(logged.read("study.json"))
    assert study["champion"] == result.champion
    assert not {"answer", "context"} & set(study["test"]["judges"][0]["rows"][0])
    predictions = logged.read("predictions.csv")
    right = [row["right"] for row in csv.DictReader(io.StringIO(predictions))]
    assert right == sorted(right, key=["NO", "–", "yes"].index)
    datasets = {i.tags[0].value: i.dataset for i in run.inputs.dataset_inputs}
    assert {part: d.digest for part, d in datasets.items()} == result.split["hashes"]
    assert datasets["test"].name == f"cities {datasets['test'].digest[:8]}"
    with global_store(logged.store):
        rows = get_dataset(name=datasets["test"].name).to_df()
    kept = [
        record_of(*row) for row in zip(rows["inputs"], rows["outputs"], strict=True)
    ]
    read = {r["answer"]: r["context"] for r in kept}
    answers = [a.example for a in result.test.champion.answers]
    assert read == {e.answer: [c.text for c in e.context] for e in answers}
    assert {e["faithful"] for e in rows["expectations"]} == {"yes", "no"}


def test_the_champions_prompts_are_in_the_prompt_registry(logged):
    """Instructions and demos as one reads them, with study and variant, linked from the study's run."""
    prompt = logged.client.load_prompt("faithfulness.verify.predict")
    told = logged.result.chosen.prompts.now["verify.predict"]
    assert prompt.template.startswith(told["instructions"])
    assert prompt.tags["variant"] == logged.result.champion
    of_experiment = f"experiment_id='{logged.store.experiment_id}'"
    (registered,) = logged.client.search_prompts(of_experiment)
    assert registered.name == prompt.name
    linked = json.loads(logged.run.data.tags["mlflow.linkedPrompts"])
    assert linked == [{"name": "faithfulness.verify.predict", "version": "1"}]


def test_the_registered_judge_loads_without_pickle_or_lm(logged, recorded, monkeypatch):
    """`load_judge` and MLflow load it, and it is what the study exported."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", logged.store.uri)
    monkeypatch.setenv("OPENAI_API_BASE", recorded.server.base)
    exported = load_judge(logged.result.judge_dir)
    assert load_judge("models:/faithfulness/1").config == exported.config
    model = mlflow.pyfunc.load_model("models:/faithfulness/1")
    table = pd.DataFrame({"context": [[]], "answer": ["It opened in 1932."]})
    (row,) = model.predict(table)
    assert (row["unscored"], row["score"]) == ("no_context", None)
    written = {f.suffix for f in logged.folder.rglob("*") if f.is_file()}
    assert ".json" in written
    assert not written & {".pkl", ".pickle", ".cloudpickle"}


def test_an_answer_is_a_trace(logged):
    """Question and context are what went in, the answer what came out; people and judge stand side by side.

    The first in MLflow, its newest, is the worst disagreement.
    """
    traces = logged.traces()
    answers = {r.id: r for r in logged.result.measured.champion.answers}
    for trace in traces:
        row = answers[trace.info.client_request_id]
        (span,), e = trace.data.spans, row.example
        context = [c.text for c in e.context]
        assert span.inputs == {"question": e.question, "context": context}
        assert span.outputs == e.answer
        assert said(trace) == expected(row)
        (feedback,) = trace.search_assessments("faithful", type="feedback")
        for statement in row.judgment.statements:
            assert statement.text in feedback.rationale
        tokens = feedback.metadata["mlflow.assessment.judgeInputTokens"]
        assert int(tokens) == row.raw.usage.prompt_tokens
    worst = [r.id for r in worst_first(logged.result.measured.champion.answers)]
    assert [t.info.client_request_id for t in traces] == worst


def test_judges_are_compared_answer_by_answer(logged):
    """The champion and what it was compared with show the same answers; an answer has the same request in each, by
    which MLflow puts it side by side."""
    experiment = [logged.store.experiment_id]
    tested = logged.client.search_runs(
        experiment, "tags.`faith_dspy.kind` = 'baseline'"
    )
    assert {run.info.run_name.partition(" ")[0] for run in tested} == {
        "untuned",
        "lm-calibrated",
        "lexical-baseline",
    }
    requests = {t.info.request_preview for t in logged.traces()}
    assert len(requests) == logged.result.measured.champion.agreement.n
    for run in tested:
        traces = logged.traces(run.info.run_id)
        assert {t.info.request_preview for t in traces} == requests
        assert "test/balanced_accuracy" in run.data.metrics


def said(trace):
    """A trace's assessments, by name and kind of source."""
    return {(a.name, a.source.source_type): a.value for a in trace.info.assessments}


def expected(row):
    """What a judge and people are shown to say of an answer."""
    return {
        ("faithful", "HUMAN"): YES[row.label],
        ("faithful", "LLM_JUDGE"): YES[row.predicted],
        ("agrees", "CODE"): YES[row.predicted == row.label],
        ("probability", "LLM_JUDGE"): round(row.probability, 4),
    }


def test_the_model_is_in_a_run_of_its_own(logged):
    """MLflow leaves out runs that hold a model where it lists evaluation runs."""
    experiment = [logged.store.experiment_id]
    with_model = [
        run
        for run in logged.client.search_runs(experiment)
        if run.outputs and run.outputs.model_outputs
    ]
    (run,) = with_model
    assert run.data.tags["mlflow.parentRunId"] == logged.run.info.run_id
    assert run.data.tags["faith_dspy.kind"] == "model"
    version = logged.client.get_model_version("faithfulness", "1")
    assert version.run_id == logged.run.info.run_id


def test_an_unscored_answer_has_a_reason_and_no_value(logged):
    """MLflow's page shows the feedback as failed, and why; nothing says whether judge and label agree. A
    model's label is no human's."""
    judge = logged.result.measured.champion
    judgment = Judgment(unscored=Unscored.LM_FAILED)
    row = judge.answers[0].with_judgment(judgment)
    example = row.example.model_copy(update={"tags": {"labelled_by": "gpt-4o"}})
    row = row.model_copy(update={"example": example})
    run_id = logged.client.create_run(logged.store.experiment_id).info.run_id
    unscored = judge.model_copy(update={"rows": (row,)})
    log_traces(logged.store, run_id, unscored, [row.id])
    (trace,) = logged.traces(run_id)
    (feedback,) = [
        a
        for a in trace.info.assessments
        if a.name == "faithful" and a.feedback is not None
    ]
    assert feedback.feedback.value is None
    assert feedback.error.error_message == "lm_failed"
    assert "agrees" not in {a.name for a in trace.info.assessments}
    assert {str(a.source.source_type) for a in trace.info.assessments} == {"LLM_JUDGE"}


def test_a_study_that_is_run_again_replaces_what_it_left(own_store, chat_server, cli):
    """Its run, the runs below it and their traces are there once; the registered version stays; the id that the list
    prints is found, in a second experiment, too."""
    server = chat_server(says=knowing)
    labels(own_store / "cities.jsonl", swapped=True)

    def tune(experiment="faithfulness"):
        tune_labels(
            "cities.jsonl",
            lm="openai/tiny",
            api_base=server.base,
            variants="answer",
            experiment=experiment,
            out="judge",
            view=Quiet(),
        )
        runs = connect().client.search_runs(["2"])
        traces = connect().client.search_traces(locations=["2"], max_results=500)
        kinds = sorted(run.data.tags["faith_dspy.kind"] for run in runs)
        return kinds, len(traces)

    first = tune()
    asked = len(server.requests)
    assert tune() == first
    assert len(server.requests) == asked
    assert first[0].count("study") == first[0].count("model") == 1
    (version,) = connect().client.search_model_versions("name = 'faithfulness'")
    run = connect().client.get_run(version.run_id)
    assert (run.info.status, run.info.lifecycle_stage) == ("FINISHED", "active")
    tune("elsewhere")
    code, listed, _ = cli("study", "list")
    ids = {line.split()[0] for line in listed.splitlines() if "cities" in line}
    (prefix,) = ids
    code, out, err = cli("study", "show", prefix)
    assert (code, "Agreement with people: " in out, err) == (0, True, "")


def test_costs_are_of_an_answer():
    """Dollars of a thousand of them; what nobody knows is no number."""
    assert cost_metrics(
        Usage(prompt_tokens=80, cached_tokens=40, dollars=0.008), 8
    ) == {
        "cost/computed_tokens": 5.0,
        "cost/seconds": 0.0,
        "cost/dollars_per_1000_answers": 1.0,
    }
    assert cost_metrics(Usage(dollars=None), 8)["cost/dollars_per_1000_answers"] is None


def test_without_registration_there_is_no_model(own_store, recorded, short_log):
    tracker = log_study(
        f"sqlite:///{own_store}/mlflow.db", recorded.result, register=False
    )
    assert (
        tracker.client.search_registered_models()
        == list(tracker.client.search_prompts())
        == []
    )
    assert (
        "models:/"
        not in tracker.client.get_run(tracker.run_id).data.tags["mlflow.note.content"]
    )


def down(*_, **__):
    raise ConnectionError("connection refused\nand more lines")


@pytest.mark.parametrize(
    "away", [["register_prompt"], ["log_batch", "search_registered_models"]]
)
def test_a_store_that_stays_away_does_not_end_the_study(
    own_store, recorded, short_log, caplog, away
):
    """One warning when it begins to fail; `finish` says that the judge is complete and the record is not."""
    tracker = MlflowTracker(connect(), recorded.result)
    with pytest.MonkeyPatch.context() as patch:
        for name in away:
            patch.setattr(type(tracker.client), name, down)
        registered = tracker.finish(recorded.result)
    done = away == ["register_prompt"]
    assert registered.startswith(
        "Registered as faithfulness version 1"
        if done
        else "Not registered: MLflow at sqlite"
    )
    assert tracker.client.get_run(tracker.run_id).info.status == "FINISHED"
    failed, incomplete = (r.getMessage() for r in caplog.records)
    assert (
        failed
        == f"MLflow at sqlite:///{own_store}/mlflow.db failed (connection refused); the study goes on."
    )
    assert "record of this study is incomplete" in incomplete


@pytest.mark.parametrize(
    ("fault", "status"), [(InputError("no"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_a_study_that_is_not_finished_does_not_stay_running(
    own_store, recorded, short_log, fault, status
):
    """Its run ends with the process that made it."""
    tracker = MlflowTracker(connect(), recorded.result)
    tracker.__exit__(type(fault), fault, None)
    run = tracker.client.get_run(tracker.run_id)
    assert (run.info.status, run.data.tags["status"]) == (status, status.lower())


def test_a_deleted_experiment_is_named(own_store):
    """MLflow neither uses nor makes an experiment of a deleted one's name: the error says how to get it back."""
    store = connect()
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(
        FaithDspyError, match=f"restore --experiment-id {store.experiment_id}"
    ):
        connect()
