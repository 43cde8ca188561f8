import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mlflow.genai.datasets import get_dataset

from faith_dspy.errors import FaithDspyError
from faith_dspy.integrations.mlflow import record_of
from faith_dspy.optimize import tune as tune_labels
from faith_dspy.optimize.report.tables import worst_first
from faith_dspy.optimize.results import StudyResult
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

    def runs(self, query=""):
        return self.client.search_runs([self.store.experiment_id], query)

    def traces(self, run_id=None):
        where = [self.store.experiment_id]
        run_id = run_id or self.run.info.run_id
        return self.client.search_traces(locations=where, run_id=run_id)


@pytest.fixture(scope="module")
def logged(tmp_path_factory, recorded):
    result = recorded.result.model_copy(update={"flip_rate": 0.25})
    folder = tmp_path_factory.mktemp("logged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        tracker = log_study(f"sqlite:///{folder}/mlflow.db", result)
    run = tracker.client.get_run(tracker.run_id)
    return Logged(result, tracker.client, tracker._store, run, folder)


@pytest.fixture
def short_log(monkeypatch):
    log_little(monkeypatch)


def near(*values):
    """As MLflow shows figures."""
    return pytest.approx(values, abs=1e-4)


def test_every_candidate_is_a_run_under_the_studys(logged):
    """With the metrics to compare it by; what is not known is not logged at all. A variant that failed says why."""
    result = logged.result
    below = f"tags.`mlflow.parentRunId` = '{logged.run.info.run_id}'"
    found = logged.runs(f"{below} AND tags.`faith_dspy.candidate` != ''")
    runs = {run.data.tags["faith_dspy.candidate"]: run for run in reversed(found)}
    assert [*runs] == [one.name for one in (*result.candidates, *result.skipped)]
    chosen, metrics = result.chosen, runs[result.champion].data.metrics
    accuracy = chosen.agreement.balanced_accuracy.value
    tokens = chosen.usage.computed_tokens / chosen.judged
    names = "pool/balanced_accuracy", "cost/computed_tokens"
    assert tuple(metrics[name] for name in names) == near(accuracy, tokens)
    failed = runs["broken"]
    assert (failed.info.status, failed.data.metrics) == ("FAILED", {})
    assert "nothing came to its mind" in failed.data.tags["mlflow.note.content"]


def test_the_studys_run_holds_its_figures_and_the_judge(logged):
    """The three lines with links to what opens in place, the judge with its report, answers, all as JSON."""
    result, run = logged.result, logged.run
    metrics, tags = run.data.metrics, run.data.tags
    assert run.info.status == "FINISHED"
    for part, measured in (("cv", result.cv), ("test", result.test)):
        gain = measured.comparisons["untuned"]
        accuracy = measured.champion.agreement.balanced_accuracy.value
        names = f"{part}/balanced_accuracy", f"{part}/gain_over_untuned"
        figures = tuple(metrics[name] for name in names)
        assert figures == near(accuracy, gain.balanced_accuracy.value)
    assert metrics["pool/flip_rate"] == 0.25
    assert run.data.params["lm"] == "openai/tiny"
    assert (tags["champion"], tags["vs_untuned"]) == (result.champion, gain.verdict)
    here = f"/runs/{run.info.run_id}/artifacts"
    for name in ("judge/report.html", "predictions.csv", "details.md", "judge/CARD.md"):
        assert f"{here}/{name})" in tags["mlflow.note.content"]
        assert logged.read(name)
    study = json.loads(logged.read("study.json"))
    assert study["champion"] == result.champion
    assert not {"answer", "context"} & set(study["test"]["judges"][0]["rows"][0])


def test_the_labels_are_datasets(logged):
    """Pool and test, each answer with its label, as `mlflow.genai.evaluate` takes them."""
    used = logged.run.inputs.dataset_inputs
    datasets = {i.tags[0].value: i.dataset for i in used}
    hashes = {part: d.digest for part, d in datasets.items()}
    assert hashes == logged.result.split["hashes"]
    name = datasets["test"].name
    assert name == f"cities {hashes['test'][:8]}"
    with global_store(logged.store):
        rows = get_dataset(name=name).to_df()
    kept = map(record_of, rows["inputs"], rows["outputs"])
    examples = [a.example for a in logged.result.test.champion.answers]
    contexts = {e.answer: [c.text for c in e.context] for e in examples}
    assert {r["answer"]: r["context"] for r in kept} == contexts
    assert {e["faithful"] for e in rows["expectations"]} == {"yes", "no"}


def test_nothing_is_pickled(logged):
    """The registered judge is JSON and a module."""
    written = {f.suffix for f in logged.folder.rglob("*") if f.is_file()}
    assert ".json" in written
    assert not written & {".pkl", ".pickle", ".cloudpickle"}


def test_an_answer_is_a_trace(logged):
    """Question and context are what went in, the answer what came out; people and judge stand side by side.

    The first in MLflow, its newest, is the worst disagreement.
    """
    traces = logged.traces()
    answers = {r.id: r for r in logged.result.measured.champion.answers}
    assert {r.predicted == r.label for r in answers.values()} == {True, False}
    for trace in traces:
        row = answers[trace.info.client_request_id]
        (span,), e = trace.data.spans, row.example
        context = [c.text for c in e.context]
        assert span.inputs == {"question": e.question, "context": context}
        assert span.outputs == e.answer
        assessments = trace.info.assessments
        assert {(a.name, a.source.source_type): a.value for a in assessments} == {
            ("faithful", "HUMAN"): YES[row.label],
            ("faithful", "LLM_JUDGE"): YES[row.predicted],
            ("agrees", "CODE"): YES[row.predicted == row.label],
            ("probability", "LLM_JUDGE"): round(row.probability, 4),
        }
        (feedback,) = trace.search_assessments("faithful", type="feedback")
        for statement in row.judgment.statements:
            assert statement.text in feedback.rationale
        tokens = feedback.metadata["mlflow.assessment.judgeInputTokens"]
        assert int(tokens) == row.raw.usage.prompt_tokens
    worst = [r.id for r in worst_first(answers.values())]
    assert [t.info.client_request_id for t in traces] == worst


def test_judges_are_compared_answer_by_answer(logged):
    """The champion and what it was compared with show the same answers; an answer has the same request in each, by
    which MLflow puts it side by side."""
    tested = logged.runs("tags.`faith_dspy.kind` = 'baseline'")
    names = {run.info.run_name.partition(" ")[0] for run in tested}
    assert names == {"untuned", "lm-calibrated", "lexical-baseline"}
    requests = {t.info.request_preview for t in logged.traces()}
    assert len(requests) == logged.result.measured.champion.agreement.n
    for run in tested:
        traces = logged.traces(run.info.run_id)
        assert {t.info.request_preview for t in traces} == requests
        assert "test/balanced_accuracy" in run.data.metrics


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
    _, listed, _ = cli("study", "list")
    (study,) = (line.split()[0] for line in listed.splitlines() if "cities" in line)
    code, out, err = cli("study", "show", study)
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
    where = f"MLflow at sqlite:///{own_store}/mlflow.db"
    assert failed == f"{where} failed (connection refused); the study goes on."
    assert "record of this study is incomplete" in incomplete


def test_a_deleted_experiment_is_named(own_store):
    """MLflow neither uses nor makes an experiment of a deleted one's name: the error says how to get it back."""
    store = connect()
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(
        FaithDspyError, match=f"restore --experiment-id {store.experiment_id}"
    ):
        connect()
