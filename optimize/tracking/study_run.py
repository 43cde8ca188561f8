"""A study in MLflow: one run, with a run for each variant below it; the champion goes into the registry."""

from __future__ import annotations

import json
import logging
import time
import weakref
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from faith_dspy.export import exported_files
from faith_dspy.optimize.report.pages import study_markdown, variant_markdown, write_learned
from faith_dspy.optimize.report.plots import judge_figures, study_figures
from faith_dspy.optimize.report.tables import predictions_table, study_tables
from faith_dspy.optimize.tracking.archive import STUDY_FILE, study_json
from faith_dspy.optimize.tracking.metrics import agreement_metrics, cost_metrics, study_metrics
from faith_dspy.optimize.tracking.registry import MODEL, register, register_prompts
from faith_dspy.optimize.tracking.store import (
    DESCRIPTION,
    MAX_TAG,
    Store,
    log_batch,
    mlflow_errors,
    page_of,
    quiet,
    reason,
    redacted,
)
from faith_dspy.optimize.tracking.traces import log_study_traces
from faith_dspy.report.tables import MARK, csv_text, markdown
from faith_dspy.scoring.agreement import JudgeAgreement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mlflow.entities import DatasetInput

    from faith_dspy.optimize.results import StudyResult, StudySetup, TestsetResult, VariantResult

_STUDY, _KIND, _VARIANT, _CHAMPION = "faith_dspy.study_id", "faith_dspy.kind", "faith_dspy.variant", "champion"
_PARENT = "mlflow.parentRunId"
_STATUS = {"done": "FINISHED", "dropped": "FINISHED", "skipped": "KILLED"}
log = logging.getLogger(__name__)


class MlflowTracker:
    """Records a study in MLflow as it goes.

    Variants are recorded as they finish, so that a study that is killed keeps what was done. Running the same study
    again continues its run and replaces its variants' runs.

    A failing store never ends a study: what could not be recorded is tried again with the next variant and at the end,
    after one warning.
    """

    def __init__(self, store: Store, setup: StudySetup, *, register: bool = True) -> None:
        self._store, self.client, self._model = store, store.client, MODEL if register else None
        self._waiting: list[tuple[VariantResult, int, int]] = []
        self._warned = False
        self._since = _now()
        lm = str(setup.lm["name"]).rpartition("/")[2].partition("@")[0]
        self._id = setup.study_id[:4]  # in the names of all its runs: what is cut from a long one is the end
        parts = [f"{PurePath(setup.labels_file).stem} {self._id}", lm, setup.budget]
        self._title = " · ".join([*parts, *([f"seed {setup.seed}"] if setup.seed else [])])
        with mlflow_errors(store.uri, "take a run"):
            self.run_id = self._open(setup)
        self._unfinished = weakref.finalize(self, _mark_as_killed, self.client, self.run_id)

    @property
    def page(self) -> str:
        """The address of the study's run on MLflow's pages."""
        return page_of(self._store, self.run_id)

    def variant(self, result: VariantResult) -> None:
        """Record a finished or skipped variant."""
        now = _now()
        self._waiting.append((result, self._since, now))
        self._since = now
        self._try(self._log_waiting)

    def finish(self, result: StudyResult) -> str:
        """Record the finished study and register its champion; returns what became of it in the registry, a sentence
        or nothing."""
        self._unfinished.detach()
        registered: list[str] = []
        steps: list[Callable[[], object]] = [
            self._log_waiting,
            lambda: self._log_study(result),
            lambda: log_study_traces(self._store, self.run_id, result),
        ]
        if name := self._model:
            steps += [
                lambda: registered.append(register(self._store, self.run_id, result, name)),
                lambda: register_prompts(self._store, self.run_id, result, name),
            ]
        steps.append(lambda: self.client.set_terminated(self.run_id, "FINISHED"))
        done = [self._try(step) for step in steps]
        if not all(done):
            log.warning(
                "MLflow's record of this study is incomplete. The judge in %s is complete. When MLflow is back, run "
                "the study again: the LM's replies are cached, so it costs no calls.",
                result.judge_dir,
            )
        return registered[0] if registered else ""

    def _try(self, step: Callable[[], object]) -> bool:
        try:
            with quiet():
                step()
        except Exception as exc:  # noqa: BLE001 - the study is worth more than its record
            if not self._warned:
                log.warning("MLflow at %s failed (%s); the study goes on.", redacted(self._store.uri), reason(exc))
            self._warned = True
            return False
        return True

    def _open(self, setup: StudySetup) -> str:
        """The run this study had before, or a new one."""
        query = f"tags.`{_STUDY}` = '{setup.study_id}' and tags.`{_KIND}` = 'study'"
        for run in self.client.search_runs([self._store.experiment_id], query, max_results=1):
            self.client.update_run(run.info.run_id, status="RUNNING")
            return str(run.info.run_id)
        text = "Not finished. Its variants appear below as they finish; run the study again to continue it."
        run_id = self._create({_STUDY: setup.study_id, _KIND: "study", "status": "running"}, self._title, text)
        params = {
            **setup.model_dump(include={"labels_file", "label_set_hash", "budget", "seed"}),
            **{f"answers_{part}": n for part, n in setup.split["used"].items()},
            **{"lm" if k == "name" else f"lm_{k}": v for k, v in setup.lm.items() if v is not None},
        }
        log_batch(self.client, run_id, params=params)
        self.client.log_inputs(run_id, datasets=_datasets(setup))
        return run_id

    def _create(self, tags: Mapping[str, str], name: str, text: str, start: int | None = None) -> str:
        source = {"mlflow.source.name": "faith-dspy tune", "mlflow.source.type": "LOCAL"}
        tags = {**tags, **source, DESCRIPTION: text[:MAX_TAG]}
        return str(self.client.create_run(self._store.experiment_id, start, tags, name).info.run_id)

    def _variant_runs(self) -> list[Any]:
        return list(self.client.search_runs([self._store.experiment_id], f"tags.`{_PARENT}` = '{self.run_id}'"))

    def _log_waiting(self) -> None:
        while self._waiting:
            self._log_variant(*self._waiting[0])
            self._waiting.pop(0)

    def _log_variant(self, v: VariantResult, start: int, end: int) -> None:
        for run in self._variant_runs():
            if run.data.tags[_VARIANT] == v.name:
                self.client.delete_run(run.info.run_id)
        tags = {_PARENT: self.run_id, _KIND: v.kind, _VARIANT: v.name, "study": self._title, "status": v.status}
        run_id = self._create(tags, f"{v.name} · {self._id}", variant_markdown(v), start)
        found = JudgeAgreement(answers=v.agreement, statements=v.statements, evidence=v.evidence)
        metrics = {
            **agreement_metrics("dev", found),
            "dev/selection_score": v.selection_score,
            **cost_metrics(v.usage, v.judged),
        }
        log_batch(self.client, run_id, metrics, v.params)
        self._log_result(run_id, v, "", f"{v.name}, on dev")
        self.client.set_terminated(run_id, _STATUS[v.status], end_time=end)

    def _log_study(self, result: StudyResult) -> None:
        for t in result.test:
            self._log_result(self.run_id, t, f"test/{t.name}/", f"{t.name}, on the testset")
        log_batch(self.client, self.run_id, study_metrics(result), tags=self._study_tags(result))
        for name, figure in study_figures(result).items():
            self.client.log_figure(self.run_id, figure, name)
        self.client.log_text(self.run_id, study_json(result), STUDY_FILE)
        self.client.log_text(self.run_id, write_learned(result), "learned.html")
        self.client.log_text(self.run_id, markdown(study_tables(result)), "details.md")
        folder = Path(result.judge_dir)
        for path in exported_files(folder):
            self.client.log_artifact(self.run_id, str(path), ("judge" / path.relative_to(folder)).parent.as_posix())
        for run in self._variant_runs():
            champion = (name := run.data.tags[_VARIANT]) == result.champion
            self.client.set_tag(run.info.run_id, _CHAMPION, "true" if champion else "")
            self.client.update_run(run.info.run_id, name=f"{MARK if champion else ''}{name} · {self._id}")

    def _study_tags(self, result: StudyResult) -> dict[str, str]:
        page = f"#/experiments/{self._store.experiment_id}/runs/{self.run_id}"
        tags = {
            _CHAMPION: result.champion,
            "status": "done" if result.finished else "stopped early",
            DESCRIPTION: study_markdown(result, self._model, page)[:MAX_TAG],
            "vs_untuned": result.comparisons["untuned"].verdict,
        }
        if cheapest := next((p.name for p in result.costs if p.cheapest), None):
            tags["cheapest"] = cheapest
        return tags

    def _log_result(self, run_id: str, found: VariantResult | TestsetResult, to: str, title: str) -> None:
        """Log all that was measured of a judge, its answers as a table with the worst mistakes on top, and figures."""
        if found.agreement is None:
            return
        rows = found.predictions
        everything = found.model_dump_json(indent=1, exclude={"predictions": {"__all__": {"context"}}})
        self.client.log_text(run_id, everything, f"{to}result.json")
        self.client.log_text(run_id, csv_text(predictions_table(rows)), f"{to}predictions.csv")
        figures = {} if found.kind == "baseline" else judge_figures(rows, found.agreement, title)
        for name, figure in figures.items():
            self.client.log_figure(run_id, figure, f"{to}plots/{name}")


def _datasets(setup: StudySetup) -> list[DatasetInput]:
    """The answers of each part that are used, by name, hash and number, without their texts."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    out = []
    for part, digest in setup.split["hashes"].items():
        file = setup.test_file if part == "test" and setup.test_file else setup.labels_file
        profile = json.dumps({"num_rows": setup.split["used"][part]})
        dataset = Dataset(PurePath(file).stem, digest, "local", json.dumps({"uri": file}), profile=profile)
        out.append(DatasetInput(dataset, [InputTag("mlflow.data.context", part)]))
    return out


def _now() -> int:
    return int(time.time() * 1000)


def _mark_as_killed(client: Any, run_id: str) -> None:
    try:
        with quiet():
            client.set_tag(run_id, "status", "broken off")
            client.set_terminated(run_id, "KILLED")
    except Exception:  # noqa: BLE001 - at exit there is nobody left to tell
        return
