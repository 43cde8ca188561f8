import csv
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mlflow.genai.datasets import get_dataset

from faith_dspy import load_judge
from faith_dspy.errors import FaithDspyError
from faith_dspy.integrations.mlflow import record_of
from faith_dspy.optimize import tune as tune_labels
from faith_dspy.optimize.report.tables import worst_first
from faith_dspy.optimize.results import JudgedAnswer, StudyResult
from faith_dspy.optimize.tracking.store import connect, global_store
from faith_dspy.optimize.tracking.tracker import MlflowTracker, log_traces
from faith_dspy.schema import Judgment, Unscored
from tests.support.studies import CITIES, Quiet, knowing, labels, log_little, log_study

YES = {True: "yes", False: "no"}


class Logged(NamedTuple):
    """The recorded study in a store of its own."""

    result: StudyResult
    client: Any
    store: Any
    run: Any
    folder: Path

    def read(self, path):
        local = self.client.download_artifacts(self.run.info.run_id, path)
        return Path(local).read_text(encoding="utf-8")

    def traces(self, run_id=None):
        run_id = run_id or self.run.info.run_id
        return self.client.search_traces(
            locations=[self.store.experiment_id], run_id=run_id
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
    run = tracker.client.get_run(tracker.run_id)
    return Logged(result, tracker.client, tracker._store, run, folder)


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
    measured, metrics = result.chosen, runs[result.champion].data.metrics
    accuracy = pytest.approx(measured.agreement.balanced_accuracy.value, abs=1e-4)
    assert metrics["pool/balanced_accuracy"] == accuracy
    tokens = pytest.approx(measured.usage.computed_tokens / measured.judged, abs=1e-4)
    assert metrics["cost/computed_tokens"] == tokens
    failed = runs["broken"]
    assert (failed.info.status, failed.data.metrics) == ("FAILED", {})
    assert "nothing came to its mind" in failed.data.tags["mlflow.note.content"]


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
    opened = "judge/report.html", "predictions.csv", "details.md", "judge/CARD.md"
    for name in opened:
        assert (
            f"/runs/{run.info.run_id}/artifacts/{name})" in tags["mlflow.note.content"]
        )
        assert logged.read(name)
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
    """It is what the study exported."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", logged.store.uri)
    monkeypatch.setenv("OPENAI_API_BASE", recorded.server.base)
    exported = load_judge(logged.result.judge_dir)
    assert load_judge("models:/faithfulness/1").config == exported.config
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
    baselines = "tags.`faith_dspy.kind` = 'baseline'"
    tested = logged.client.search_runs(experiment, baselines)
    names = {run.info.run_name.partition(" ")[0] for run in tested}
    assert names == {"untuned", "lm-calibrated", "lexical-baseline"}
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
    runs = logged.client.search_runs(experiment)
    (run,) = (r for r in runs if r.outputs and r.outputs.model_outputs)
    assert run.data.tags["mlflow.parentRunId"] == logged.run.info.run_id
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
    (feedback,) = trace.search_assessments("faithful", type="feedback")
    assert feedback.feedback.value is None
    assert feedback.error.error_message == "lm_failed"
    assert "agrees" not in {a.name for a in trace.info.assessments}
    assert {str(a.source.source_type) for a in trace.info.assessments} == {"LLM_JUDGE"}


def test_a_study_that_is_run_again_replaces_what_it_left(own_store, chat_server, cli):
    """Its run, the runs below it and their traces are there once; the registered version stays; the id that the list
    prints is found, in a second experiment, too."""
    server = chat_server(says=knowing)
    labels(own_store / "cities.jsonl", swapped=True, cities=CITIES[:6])

    def tune(experiment="faithfulness"):
        asks = {"lm": "openai/tiny", "api_base": server.base, "variants": "answer"}
        where = {"experiment": experiment, "out": "judge"}
        tune_labels("cities.jsonl", **asks, **where, view=Quiet())
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
    assert connect().client.get_run(version.run_id).info.lifecycle_stage == "active"
    tune("elsewhere")
    code, listed, _ = cli("study", "list")
    ids = {line.split()[0] for line in listed.splitlines() if "cities" in line}
    (prefix,) = ids
    code, out, err = cli("study", "show", prefix)
    assert (code, "Agreement with people: " in out, err) == (0, True, "")


def test_without_registration_there_is_no_model(own_store, recorded, short_log):
    client = log_study(connect().uri, recorded.result, register=False).client
    assert [*client.search_registered_models(), *client.search_prompts()] == []


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
    is_registered = registered.startswith("Registered as faithfulness version 1")
    assert is_registered is (away == ["register_prompt"])
    assert tracker.client.get_run(tracker.run_id).info.status == "FINISHED"
    failed, incomplete = (r.getMessage() for r in caplog.records)
    assert (
        failed
        == f"MLflow at sqlite:///{own_store}/mlflow.db failed (connection refused); the study goes on."
    )
    assert "record of this study is incomplete" in incomplete


def test_a_deleted_experiment_is_named(own_store):
    """MLflow neither uses nor makes an experiment of a deleted one's name: the error says how to get it back."""
    store = connect()
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(
        FaithDspyError, match=f"restore --experiment-id {store.experiment_id}"
    ):
        connect()
