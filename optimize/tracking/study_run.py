"""A study in MLflow: one run, a run per variant under it, the champion in the registry.

With `store`, `columns`, `registry`, `traces`, `notes` and `plots` beside it the only code that logs to MLflow.
"""

from __future__ import annotations

import json
import logging
import time
import weakref
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from faith_dspy.optimize.reporting import notes, plots
from faith_dspy.optimize.reporting.learned import write_learned
from faith_dspy.optimize.reporting.markdown import prompts_diff, prompts_markdown, study_markdown, variant_markdown
from faith_dspy.optimize.reporting.plots import judge_figures, study_figures
from faith_dspy.optimize.reporting.tables import predictions_table
from faith_dspy.optimize.tracking import columns
from faith_dspy.optimize.tracking.columns import MAIN, MORE
from faith_dspy.optimize.tracking.registry import MODEL, register
from faith_dspy.optimize.tracking.store import DESCRIPTION as NOTE
from faith_dspy.optimize.tracking.store import Store, mlflow_errors, quiet, reason, redacted
from faith_dspy.optimize.tracking.traces import log_study_traces
from faith_dspy.schema import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faith_dspy.optimize.results import PredictionRow, StudyResult, StudySetup, VariantResult
    from faith_dspy.scoring.agreement import Agreement

_STUDY, _KIND, _VARIANT, _CHAMPION = "faith_dspy.study_id", "faith_dspy.kind", "faith_dspy.variant", "champion"
_NAME, _PARENT, _TABLES = "mlflow.runName", "mlflow.parentRunId", "mlflow.loggedArtifacts"
_MAX_PARAM, _MAX_TAG = 6000, 8000  # characters MLflow keeps
_OPENED = {"mlflow.runType": "evaluation"}
"""MLflow's page of runs unfolds what stands above such runs."""
_STATUS = {"done": "FINISHED", "failed": "FAILED", "skipped": "KILLED"}
log = logging.getLogger(__name__)


class MlflowTracker:
    """`faith_dspy.optimize.study.Tracker` on MLflow.

    Variants are recorded as they finish, so that a study that is killed leaves what was done. The same study run again
    goes on in the same run and replaces its variants' runs.

    MLflow never ends a study: what could not be recorded is warned of once, kept, and tried again with the next variant
    and at the end.
    """

    def __init__(self, store: Store, result: StudySetup, *, register: bool = True, model: str = MODEL) -> None:
        self._store, self._client, self._model = store, store.client, model if register else None
        self._waiting: list[tuple[VariantResult, int, int]] = []
        self._warned = False
        self._since = _now()
        self._title = f"{PurePath(result.labels_file).stem} · {result.budget}"
        with mlflow_errors(store.uri, "take a run"):
            self.run_id = self._open(result)
        self._unfinished = weakref.finalize(self, _mark_as_killed, self._client, self.run_id)

    def variant(self, result: VariantResult) -> None:
        """Record a variant."""
        now = _now()
        self._waiting.append((result, self._since, now))
        self._since = now
        self._try(self._catch_up)

    def finish(self, result: StudyResult) -> str:
        """Record the test, describe the study, crown the champion and register it; say what became of it there."""
        registered: list[str] = []
        steps: list[Callable[[], object]] = [self._catch_up, lambda: self._conclude(result)]
        steps.append(lambda: log_study_traces(self._store, self.run_id, result))
        if self._model:
            name = self._model
            steps.append(lambda: registered.append(self._register(result, name)))
        steps.append(lambda: self._client.set_terminated(self.run_id, "FINISHED"))
        self._unfinished.detach()
        done = [self._try(step) for step in steps]
        if not all(done):
            log.warning(
                "MLflow has not got all of this study. The judge in %s is complete. When MLflow is there, run the "
                "study again: the LM's replies are kept, so it costs no calls.",
                result.judge_dir,
            )
        return registered[0] if registered else ""

    def _register(self, result: StudyResult, name: str) -> None:
        result.registered = register(self._store, self.run_id, result, name)

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

    def _open(self, result: StudySetup) -> str:
        """The run this study had before, or a new one."""
        query = f"tags.`{_STUDY}` = '{result.study_id}' and tags.`{_KIND}` = 'study'"
        for run in self._client.search_runs([self._store.experiment_id], query, max_results=1):
            self._client.update_run(run.info.run_id, status="RUNNING")
            return str(run.info.run_id)
        note = "Not finished. Variants appear below as they are; run the study again to go on."
        run_id = self._create({_STUDY: result.study_id, _KIND: "study", "status": "running"}, self._title, note)
        params = {
            "labels_file": result.labels_file,
            "label_set_hash": result.label_set_hash,
            "budget": result.budget,
            "seed": result.seed,
            **{f"answers_{part}": n for part, n in result.split.get("used", {}).items()},
            **{"lm" if k == "name" else f"lm_{k}": v for k, v in result.lm.items() if v is not None},
        }
        self._log(run_id, params=params)
        return run_id

    def _catch_up(self) -> None:
        while self._waiting:
            self._variant(*self._waiting[0])
            self._waiting.pop(0)

    def _variant(self, v: VariantResult, start: int, end: int) -> None:
        for old in self._children():
            if old.data.tags.get(_VARIANT) == v.name:
                self._client.delete_run(old.info.run_id)
        tags = {_PARENT: self.run_id, _KIND: v.kind, _VARIANT: v.name, "study": self._title, "status": v.status}
        tags |= _OPENED
        if v.prompts:
            tags["prompts_digest"] = digest(v.prompts)
        run_id = self._create(tags, v.name, variant_markdown(v), start)
        if v.prompts:
            self._client.log_dict(run_id, v.prompts, "prompts/prompts.json")
            self._client.log_text(run_id, prompts_markdown(v.prompts), "prompts/prompts.md")
        if changed := prompts_diff(v.seed_prompts, v.prompts):
            self._client.log_text(run_id, changed, "prompts/diff.txt")
        metrics = {
            **columns.agreement("dev", v.agreement, (*MAIN, *MORE)),
            "dev_selection": v.selection_score,
            **columns.agreement("dev_lm_only", v.lm_only),
            **columns.agreement("dev_untuned", v.untuned),
            **columns.usage(v.usage, "{}_per_answer", v.judged),
            **columns.dollars(v.usage, v.judged),
            **columns.usage(v.compile_usage, "compile_{}", 1 if v.compile_usage.calls else 0),
        }
        self._log(run_id, metrics, v.params)
        if v.agreement is not None:
            self._judged(run_id, v.predictions, v.agreement, f"{v.name}, on dev", "", v.weights)
        self._client.set_terminated(run_id, _STATUS[v.status], end_time=end)

    def _conclude(self, result: StudyResult) -> None:
        metrics: dict[str, float | None] = {}
        for t in result.test:
            prefix = f"test_{t.name.replace('-', '_')}"
            baseline = t.kind == "baseline"
            metrics |= columns.agreement(prefix, t.agreement, MAIN[:2] if baseline else (*MAIN, *MORE))
            if not baseline:
                metrics |= columns.usage(t.usage, f"{prefix}_{{}}_per_answer", t.agreement.n)
                self._judged(self.run_id, t.predictions, t.agreement, f"{t.name}, on the testset", f"test/{t.name}/")
        tags = {_CHAMPION: result.champion, "status": "done" if result.finished else "stopped early"}
        for name, c in result.comparisons.items():
            gain, d = f"test_gain_over_{name.replace('-', '_')}", c.balanced_accuracy
            metrics |= {gain: d.value, f"{gain}_low": d.low, f"{gain}_high": d.high}
            tags[f"vs_{name.replace('-', '_')}"] = c.verdict
        if result.optimism is not None:
            metrics |= {"dev_corrected": result.optimism.corrected.value, "dev_optimism": result.optimism.value}
        if result.groups is not None and (worst := result.groups.lowest) is not None:
            metrics |= columns.agreement("test_worst_group", worst.agreement, MAIN[:2])
            tags["worst_group"] = f"{worst.facet}: {worst.name}"
        metrics |= columns.agreement("people", result.ceiling) | columns.usage(result.usage, "study_{}", 1)
        metrics["study_seconds"] = result.seconds
        # The champion's figures again under the names its variants have, so that a column holds both.
        best, tested = result.variant(result.champion), result.tested("champion")
        metrics |= columns.agreement("dev", best.agreement, MAIN[:2])
        metrics |= columns.usage(tested.usage, "{}_per_answer", tested.agreement.n)
        metrics |= columns.dollars(tested.usage, tested.agreement.n)
        if result.costs:
            tags["cheapest"] = next(p.name for p in result.costs if p.cheapest)
        here = f"#/experiments/{self._store.experiment_id}/runs/{self.run_id}"
        tags[NOTE] = study_markdown(result, self._model, here)[:_MAX_TAG]
        self._log(self.run_id, metrics, tags=tags)
        for name, figure in study_figures(result).items():
            self._client.log_figure(self.run_id, figure, name)
        texts = {"__all__": {"predictions": {"__all__": {"question", "answer", "statements", "context"}}}}
        slim = result.model_dump(mode="json", exclude={"variants": texts, "test": texts})
        self._client.log_text(self.run_id, json.dumps(slim, indent=1, ensure_ascii=False), "study.json")
        self._client.log_text(self.run_id, write_learned(result), "learned.html")
        self._client.log_artifacts(self.run_id, result.judge_dir, "judge")
        self._crown(result.champion)

    def _crown(self, champion: str) -> None:
        for run in self._children():
            run_id, name = run.info.run_id, run.data.tags.get(_VARIANT, "")
            if name == champion:
                self._log(run_id, tags={_CHAMPION: "true", _NAME: f"★ {name}"})
            elif _CHAMPION in run.data.tags:
                self._client.delete_tag(run_id, _CHAMPION)
                self._log(run_id, tags={_NAME: name})

    def _children(self) -> list[Any]:
        query = f"tags.`{_PARENT}` = '{self.run_id}'"
        return list(self._client.search_runs([self._store.experiment_id], query))

    def _judged(
        self,
        run_id: str,
        rows: Sequence[PredictionRow],
        a: Agreement,
        title: str,
        folder: str,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Every answer as JSON lines and as a table that MLflow's page opens, and two pictures of them."""
        lines = "".join(r.model_dump_json(exclude={"context"}) + "\n" for r in rows)
        self._client.log_text(run_id, lines, f"{folder}predictions.jsonl")
        path = f"{folder}predictions.json"
        # Not `log_table`: it appends to the table of the study's last run.
        self._client.log_text(run_id, json.dumps(predictions_table(rows), ensure_ascii=False), path)
        tables = json.loads(self._client.get_run(run_id).data.tags.get(_TABLES, "[]"))
        if all(t["path"] != path for t in tables):
            self._log(run_id, tags={_TABLES: json.dumps([*tables, {"path": path, "type": "table"}])})
        for name, figure in judge_figures(rows, a, title, weights).items():
            self._client.log_figure(run_id, figure, f"{folder}plots/{name}")

    def _create(self, tags: Mapping[str, str], name: str, note: str, start: int | None = None) -> str:
        source = {"mlflow.source.name": "faith-dspy tune", "mlflow.source.type": "LOCAL", NOTE: note[:_MAX_TAG]}
        run = self._client.create_run(self._store.experiment_id, start, {**tags, **source}, name)
        return str(run.info.run_id)

    def _log(
        self,
        run_id: str,
        metrics: Mapping[str, float | None] | None = None,
        params: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        from mlflow.entities import Metric, Param, RunTag

        now = _now()
        self._client.log_batch(
            run_id,
            # Four digits, so that the columns of MLflow's page can be read; study.json has them all.
            [Metric(k, round(float(v), 4), now, 0) for k, v in (metrics or {}).items() if v is not None],
            [Param(k, str(v)[:_MAX_PARAM]) for k, v in (params or {}).items()],
            [RunTag(k, v) for k, v in (tags or {}).items()],
        )


def _now() -> int:
    return int(time.time() * 1000)


def _mark_as_killed(client: Any, run_id: str) -> None:
    """Close the run of a study that ends unfinished."""
    try:
        with quiet():
            client.set_tag(run_id, "status", "broken off")
            client.set_terminated(run_id, "KILLED")
    except Exception:  # noqa: BLE001 - at exit there is nobody left to tell
        return
