"""A study in MLflow: one run, with a run for each candidate and each baseline below it, and traces of answers; the
champion goes into the registry.

A study that is run again goes on in its run, and replaces what is below it. Metrics are the few by which runs are
compared: ``cv/…`` and ``test/…`` of the champion, ``pool/…`` of a candidate.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from faith_dspy.export import exported_files
from faith_dspy.integrations.adapters import explain
from faith_dspy.io.labels import is_model
from faith_dspy.optimize.report.pages import description, prompt_markdown
from faith_dspy.optimize.report.tables import (
    predictions_table,
    study_tables,
    worst_first,
)
from faith_dspy.optimize.results import (
    CHEAPER,
    UNTUNED,
    CandidateResult,
    JudgedAnswer,
    JudgeResult,
    Measured,
    SkippedVariant,
    StudyResult,
    StudySetup,
)
from faith_dspy.optimize.tracking.metrics import (
    Metrics,
    agreement_metrics,
    cost_metrics,
    with_ends,
)
from faith_dspy.optimize.tracking.registry import register, register_prompts
from faith_dspy.optimize.tracking.store import (
    DESCRIPTION,
    KIND,
    MAX_TAG,
    STUDY_FILE,
    STUDY_ID,
    Store,
    global_store,
    log_batch,
    mlflow_errors,
    page_of,
    quiet,
    reason,
    redacted,
)
from faith_dspy.report.tables import MARK, csv_text, markdown
from faith_dspy.schema import LabelledExample

if TYPE_CHECKING:
    from mlflow.entities import Assessment, DatasetInput

MOST = 50
"""Answers of a run that become traces: each takes MLflow 30 ms. All are in ``predictions.csv``."""
_CANDIDATE = "faith_dspy.candidate"
_CHAMPION = "champion"
_PARENT = "mlflow.parentRunId"
_YES = {True: "yes", False: "no"}
"""As MLflow's own judges write it; its table of traces shows nothing for an expectation that is False."""
_STATUS = {"done": "FINISHED", "skipped": "KILLED", "failed": "FAILED"}
log = logging.getLogger(__name__)


class MlflowTracker(AbstractContextManager["MlflowTracker"]):
    """Records a study in MLflow: a run from its beginning on, and at its end all that was measured.

    A failing store never ends a study: there is one warning, and what could not be recorded is missing.
    """

    def __init__(
        self,
        store: Store,
        setup: StudySetup,
        *,
        register: bool = True,
    ) -> None:
        self._store, self.client = store, store.client
        self._registers = register
        self._complete = True
        # In the names of all its runs: what is cut from a long one is the end.
        self._id = setup.study_id[:8]
        lm = PurePath(str(setup.lm["model"])).name.partition("@")[0]
        seed = f" · seed {setup.seed}" if setup.seed else ""
        file = PurePath(setup.labels_file).stem
        self._title = f"{file} {self._id} · {lm} · {setup.budget}{seed}"
        fields = {"labels_file", "label_set_hash", "budget", "seed"}
        params = setup.model_dump(include=fields)
        for part, n in setup.split["used"].items():
            params[f"answers_{part}"] = n
        for name, value in setup.lm.items():
            if value is not None:
                params["lm" if name == "model" else f"lm_{name}"] = value
        self._datasets: dict[str, DatasetInput] = {}
        tags = {STUDY_ID: setup.study_id, KIND: "study"}
        text = "Not finished. Its candidates appear below when it is."
        with mlflow_errors(store.uri, "take a run"):
            runs = self._search(f"tags.`{STUDY_ID}` = '{setup.study_id}'")
            if runs:
                self.run_id = str(runs[0].info.run_id)
                self.client.update_run(self.run_id, status="RUNNING")
            else:
                self.run_id = self._create(tags, self._title, text)
                log_batch(self.client, self.run_id, params=params)
            self.client.set_tag(self.run_id, "status", "running")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the run of a study that ended before it was finished."""
        if kind is not None:
            status = "FAILED" if issubclass(kind, Exception) else "KILLED"
            with self._surviving():
                self.client.set_tag(self.run_id, "status", status.lower())
                self.client.set_terminated(self.run_id, status)

    @property
    def page(self) -> str:
        """Return the address of the study's run on MLflow's pages."""
        return page_of(self._store, f"runs/{self.run_id}")

    def finish(self, result: StudyResult) -> str:
        """Record the finished study, a run for each candidate, and register its champion; returns what became of it in
        the registry, a sentence, or nothing where it is not to be registered."""
        with self._surviving():
            self._clear()
            self._log_datasets(result)
        tried: list[CandidateResult | SkippedVariant] = [
            *result.candidates,
            *result.skipped,
        ]
        for one in tried:
            with self._surviving():
                self._log_below(one, one.name == result.champion)
        registered, address = "", None
        if self._registers:
            where = redacted(self._store.uri)
            registered = f"Not registered: MLflow at {where} failed. Run the study again when it is back."
            with self._surviving():
                registered, address = register(self._store, self.run_id, result)
            with self._surviving():
                register_prompts(self._store, self.run_id, result)
        with self._surviving():
            self._log_study(result, address)
        with self._surviving():
            self._log_evaluations(result)
        with self._surviving():
            self.client.set_terminated(self.run_id, "FINISHED")
        if not self._complete:
            log.warning(
                "MLflow's record of this study is incomplete. The judge in %s is complete. When MLflow is back, run "
                "the study again: the LM's replies are cached, so it costs no calls.",
                result.judge_dir,
            )
        return registered

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            with quiet():
                yield
        except Exception as exc:  # noqa: BLE001 - whatever MLflow raises
            if self._complete:
                where = redacted(self._store.uri)
                log.warning(
                    "MLflow at %s failed (%s); the study goes on.", where, reason(exc)
                )
            self._complete = False

    def _search(self, condition: str) -> list[Any]:
        """Return runs of the experiment."""
        return list(self.client.search_runs([self._store.experiment_id], condition))

    def _clear(self) -> None:
        """Delete what an earlier run of this study left: runs below its run, but those of registered models, and
        traces."""
        experiment = self._store.experiment_id
        below = self._search(f"tags.`{_PARENT}` = '{self.run_id}'")
        old = [r.info.run_id for r in below if r.data.tags.get(KIND) != "model"]
        for run_id in (self.run_id, *old):
            traces = self.client.search_traces(
                locations=[experiment], run_id=run_id, include_spans=False
            )
            ids = [trace.info.trace_id for trace in traces]
            if ids:
                self.client.delete_traces(experiment, trace_ids=ids)
        for run_id in old:
            self.client.delete_run(run_id)

    def _create(self, tags: Mapping[str, str], name: str, text: str) -> str:
        """Return a run with a description; returns its id."""
        about = {
            "mlflow.source.name": "faith-dspy tune",
            DESCRIPTION: text[:MAX_TAG],
        }
        run = self.client.create_run(
            self._store.experiment_id, tags={**tags, **about}, run_name=name
        )
        return str(run.info.run_id)

    def _create_below(self, tags: Mapping[str, str], name: str, text: str) -> str:
        """Return a run below the study's."""
        own = {_PARENT: self.run_id, "study": self._title}
        return self._create({**tags, **own}, f"{name} · {self._id}", text)

    def _log_datasets(self, result: StudyResult) -> None:
        """Keep the labels as datasets for `mlflow.genai.evaluate`, where the store takes any, and log them as the
        study's."""
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.exceptions import MlflowException
        from mlflow.genai.datasets import create_dataset, search_datasets

        experiment = self._store.experiment_id
        with suppress(MlflowException), global_store(self._store):
            present = {kept.name: kept for kept in search_datasets(experiment)}
            for part, measured in (("pool", result.cv), ("test", result.test)):
                if measured is None:
                    continue
                file = result.labels_file
                if part == "test":
                    file = result.test_file or file
                digest = result.split["hashes"][part]
                name = f"{PurePath(file).stem} {digest[:8]}"
                answers = present.get(name) or create_dataset(name, experiment)
                rows = measured.champion.answers
                answers.merge_records([_record(row, file) for row in rows])
                kind, source = str(answers.source_type), answers.source.to_json()
                dataset = Dataset(name, digest, kind, source)
                tag = InputTag("mlflow.data.context", part)
                self._datasets[part] = DatasetInput(dataset, [tag])
        self._log_inputs(self.run_id, *self._datasets)

    def _log_inputs(self, run_id: str, *parts: str) -> None:
        datasets = [self._datasets[part] for part in parts if part in self._datasets]
        self.client.log_inputs(run_id, datasets=datasets)

    def _log_below(self, one: CandidateResult | SkippedVariant, wins: bool) -> None:
        """Log a candidate, or a variant that became none, as a run below the study's."""
        status, text = "done", f"{one.description}."
        metrics: Metrics = {}
        prompts = None
        if isinstance(one, CandidateResult):
            metrics = agreement_metrics("pool", one.levels)
            metrics |= cost_metrics(one.usage, one.judged)
            metrics["pool/score"] = one.score
            prompts = one.prompts
        else:
            status = one.status
            text += f" **{status}**: {one.note}."
        tags = {KIND: "candidate", _CANDIDATE: one.name, "status": status}
        if wins:
            tags[_CHAMPION] = "true"
        run_id = self._create_below(tags, MARK * wins + one.name, text)
        self._log_inputs(run_id, "pool")
        if prompts is not None and prompts.gain is not None:
            gain = prompts.gain.comparison.balanced_accuracy
            metrics |= with_ends("pool/gain_over_seed", gain)
        if prompts is not None and prompts.seed:  # they were compiled
            for predictor, prompt in prompts.now.items():
                text = prompt_markdown(prompt)
                self.client.log_text(run_id, text, f"prompts/{predictor}.md")
        log_batch(self.client, run_id, metrics, one.params)
        self.client.set_terminated(run_id, _STATUS[status])

    def _log_study(self, result: StudyResult, address: str | None) -> None:
        client, run_id = self.client, self.run_id
        metrics: Metrics = {"pool/flip_rate": result.flip_rate}
        for part, measured in (("cv", result.cv), ("test", result.test)):
            if measured is not None:
                metrics |= _measured_metrics(part, measured)
        champion = result.measured.champion
        metrics |= cost_metrics(champion.usage, champion.judged)
        here = f"#/experiments/{self._store.experiment_id}/runs/{run_id}"
        text = description(result, address, here)
        tags = {
            _CHAMPION: result.champion,
            "status": "done" if result.finished else "stopped early",
            DESCRIPTION: text[:MAX_TAG],
        }
        if untuned := result.measured.comparisons.get(UNTUNED):
            tags["vs_untuned"] = untuned.verdict
        log_batch(client, run_id, metrics, tags=tags)
        client.log_text(run_id, result.model_dump_json(indent=1), STUDY_FILE)
        client.log_text(run_id, markdown(study_tables(result)), "details.md")
        predictions = csv_text(predictions_table(champion.answers))
        client.log_text(run_id, predictions, "predictions.csv")
        folder = Path(result.judge_dir)
        for path in exported_files(folder):
            place = "judge" / path.relative_to(folder)
            client.log_artifact(run_id, str(path), place.parent.as_posix())

    def _log_evaluations(self, result: StudyResult) -> None:
        """Make answers traces of evaluation runs: of the champion, and of the judges that it is compared with, which
        get runs of their own."""
        part = "cv" if result.test is None else "test"
        champion = result.measured.champion
        ids = _sample(champion)
        log_traces(self._store, self.run_id, champion, ids)
        for judge in result.measured.judges:
            if judge.name in CHEAPER:
                log_traces(self._store, self._log_baseline(judge, part), judge, ids)

    def _log_baseline(self, judge: JudgeResult, part: str) -> str:
        about = "What the champion is compared with."
        run_id = self._create_below({KIND: "baseline"}, judge.name, about)
        log_batch(self.client, run_id, agreement_metrics(part, judge.levels))
        self._log_inputs(run_id, "pool" if part == "cv" else part)
        self.client.set_terminated(run_id, "FINISHED")
        return run_id


def _measured_metrics(part: str, measured: Measured) -> Metrics:
    """Return the champion's agreement, and its gain over each baseline that is a judge."""
    metrics = agreement_metrics(part, measured.champion.levels)
    for name, comparison in measured.comparisons.items():
        if name in CHEAPER:
            gain = comparison.balanced_accuracy
            metrics |= with_ends(f"{part}/gain_over_{name.replace('-', '_')}", gain)
    return metrics


def _inputs(e: LabelledExample) -> dict[str, Any]:
    """Return what a program is given that answers."""
    context = [chunk.text for chunk in e.context]
    question = {"question": e.question} if e.question else {}
    return {**question, "context": context}


def _record(row: JudgedAnswer, file: str) -> dict[str, Any]:
    """Return an answer with its label as a record of MLflow's, which tells records apart by their inputs."""
    e = row.example
    return {
        "inputs": {**_inputs(e), "answer": e.answer},
        "outputs": e.answer,
        "expectations": {"faithful": _YES[row.label]},
        "tags": dict(e.tags),
        "source": {"source_type": "DOCUMENT", "source_data": {"doc_uri": file}},
    }


def _sample(judge: JudgeResult) -> list[str]:
    """Ids of answers drawn at random, as MLflow's pages sum up what they show; the worst disagreements come first."""
    rows = judge.answers
    if len(rows) > MOST:
        rows = tuple(random.Random(0).sample(rows, MOST))
    return [row.id for row in worst_first(rows)]


def log_traces(
    store: Store,
    run_id: str,
    judge: JudgeResult,
    ids: Sequence[str],
) -> None:
    """Make answers traces of a run, with what its judge says of them beside their labels; the first are the newest.

    Each has these assessments: ``faithful``, as the label's expectation and as the judge's feedback; the judge's
    ``probability``; and ``agrees``, whether judge and label agree. No LM is called.
    """
    import mlflow

    rows = {row.id: row for row in judge.answers}
    with global_store(store):
        for name in reversed(ids):
            if name in rows:
                _log_trace(store, run_id, rows[name], judge.name)
        mlflow.flush_trace_async_logging()


def _log_trace(
    store: Store,
    run_id: str,
    row: JudgedAnswer,
    judge: str,
) -> None:
    import mlflow
    from mlflow.entities.trace_location import MlflowExperimentLocation

    e = row.example
    place = MlflowExperimentLocation(store.experiment_id)
    with mlflow.start_span("answer", trace_destination=place, run_id=run_id) as span:
        mlflow.update_current_trace(
            tags={k[:250]: v[:250] for k, v in e.tags.items()},
            metadata={"mlflow.source.name": "faith-dspy tune"},
            client_request_id=e.id,
            # By which MLflow finds the same answer in two runs.
            request_preview=f"{e.id}: {e.question or e.context[0].text}",
            response_preview=e.answer,
        )
        span.set_inputs(_inputs(e))
        span.set_outputs(e.answer)
        # Of a trace that is not finished they are written together with it.
        for assessment in _assessments(row, judge):
            mlflow.log_assessment(span.trace_id, assessment)


def _assessments(row: JudgedAnswer, judge: str) -> Iterator[Assessment]:
    from mlflow.entities import AssessmentError, AssessmentSource, Expectation, Feedback
    from mlflow.tracing.constant import AssessmentMetadataKey

    who = row.example.labelled_by or "labels"
    kind = "LLM_JUDGE" if is_model(who) else "HUMAN"
    yield Expectation("faithful", _YES[row.label], AssessmentSource(kind, who))
    by_judge = AssessmentSource("LLM_JUDGE", judge)
    usage = row.raw.usage
    metadata = {
        AssessmentMetadataKey.JUDGE_INPUT_TOKENS: str(usage.prompt_tokens),
        AssessmentMetadataKey.JUDGE_OUTPUT_TOKENS: str(usage.output_tokens),
    }
    feedback = partial(Feedback, source=by_judge, metadata=metadata)
    if row.predicted is None:
        unscored = row.judgment.unscored
        error = AssessmentError("UNSCORED", unscored and unscored.value)
        yield feedback("faithful", error=error)
        return
    yield feedback("faithful", _YES[row.predicted], rationale=explain(row.judgment))
    by_code = AssessmentSource("CODE", "faith_dspy")
    agrees = _YES[row.predicted == row.label]
    yield Feedback("agrees", agrees, source=by_code)
    if row.probability is not None:
        yield feedback("probability", round(row.probability, 4))
