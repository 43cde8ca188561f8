"""Drift reports in MLflow: one run for each judge and label set.

Each report is a step of the run's metrics, which MLflow's page draws as lines, and a file ``history/000012.json`` among
its artifacts, which the next report is compared with.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from faith_dspy.errors import FaithDspyError, counted
from faith_dspy.optimize.monitoring.drift import DriftReport
from faith_dspy.optimize.monitoring.tables import drift_tables, flips_table
from faith_dspy.optimize.tracking.metrics import agreement_metrics, cost_metrics
from faith_dspy.optimize.tracking.store import DESCRIPTION, log_batch, mlflow_errors
from faith_dspy.report.numbers import estimate
from faith_dspy.report.tables import Table, csv_text, markdown
from faith_dspy.schema import digest

if TYPE_CHECKING:
    from faith_dspy.optimize.tracking.store import Store

_KEY = "faith_dspy.drift"
_MAX_TAG = 5000  # characters MLflow keeps


class DriftRun:
    """The MLflow run that holds the drift reports on one judge and one set of labels.

    ``judge``: its name – a folder, an address in the registry, an LM – which stays when a new version takes its place.
    Other labels, or another name, are another run. Raises `FaithDspyError` when the run cannot be read.
    """

    def __init__(self, store: Store, judge: str, labels_file: str, label_set_hash: str) -> None:
        self._store, self._client = store, store.client
        key = digest([judge, label_set_hash])
        with mlflow_errors(store.uri, "give the run"):
            found = self._client.search_runs([store.experiment_id], f"tags.`{_KEY}` = '{key}'", max_results=1)
            if not found:
                tags = {
                    _KEY: key,
                    "faith_dspy.kind": "drift",
                    "judge": judge,
                    "labels_file": labels_file,
                    "label_set_hash": label_set_hash,
                    "mlflow.source.name": "faith-dspy agree --track",
                    "mlflow.source.type": "LOCAL",
                }
                name = f"drift · {judge} · {labels_file}"
                found = [self._client.create_run(store.experiment_id, None, tags, name)]
            self.run_id = str(found[0].info.run_id)
            files = sorted(f.path for f in self._client.list_artifacts(self.run_id, "history"))
            self.steps = len(files)
            self.earlier = tuple(self._read(f) for f in dict.fromkeys([*files[:1], *files[-1:]]))
            """The first report and the last; one, or none, where there are no more."""

    def log(self, report: DriftReport) -> None:
        """Record a report; `FaithDspyError` when the store does not take it."""
        tags = {
            DESCRIPTION: self._description(report)[:_MAX_TAG],
            "alarms": "; ".join(report.alarms)[:_MAX_TAG] or "none",
        }
        with mlflow_errors(self._store.uri, "take this report"):
            self._client.log_text(self.run_id, csv_text(flips_table(report.flips)), "flips.csv")
            log_batch(self._client, self.run_id, _metrics(report), tags=tags, step=self.steps)
            # Last: a report that is recorded by half is no step.
            self._client.log_text(self.run_id, report.model_dump_json(), f"history/{self.steps:06d}.json")
            self._client.set_terminated(self.run_id, "FINISHED")

    def _read(self, path: str) -> DriftReport:
        text = Path(self._client.download_artifacts(self.run_id, path)).read_text(encoding="utf-8")
        try:
            return DriftReport.model_validate_json(text)
        except ValidationError as exc:
            raise FaithDspyError(
                f"{path} in MLflow run {self.run_id} is not a drift report that this version reads "
                f"({str(exc).splitlines()[0]}). Delete the run to begin anew."
            ) from exc

    def _description(self, report: DriftReport) -> str:
        """The report in Markdown, alarms first."""
        a = report.agreement.answers
        assert a is not None  # else there is no report
        found = (
            f"Balanced accuracy {estimate(a.balanced_accuracy)} on {counted(a.n, 'answer')}, {a.coverage:.0%} scored."
        )
        alarms = Table("Alarms", notes=report.alarms or ("None.",))
        latest = Table(f"Report {self.steps + 1}, {report.at}", notes=(found,))
        return markdown([alarms, latest, *drift_tables(report)], level=3)


def _metrics(report: DriftReport) -> dict[str, float | None]:
    scores = [v.score for v in report.verdicts if v.score is not None]
    return {
        **agreement_metrics("labelled", report.agreement),
        "labelled/mean_score": sum(scores) / len(scores) if scores else None,
        "alarms": len(report.alarms),
        "flips": len(report.flips) if report.changes else None,
        "unlabelled/faithful_share": report.prevalence.share.powered.value if report.prevalence else None,
        **cost_metrics(report.usage + report.replayed, len(report.verdicts)),
        **{f"shift/labelled_since_{c.since}": c.distance for c in report.changes},
    }
