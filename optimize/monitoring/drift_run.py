"""Where looks at a judge in use are kept: one MLflow run for each judge and anchor set.

Each look is a step of the run's metrics, which its page shows as lines, and a file ``history/000012.json`` among its
artifacts, which the next look is compared with.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from faith_dspy.errors import FaithDspyError
from faith_dspy.optimize.monitoring.drift import History, Look, Watched, sentences
from faith_dspy.optimize.reporting.wording import figure
from faith_dspy.optimize.tracking.store import DESCRIPTION as NOTE
from faith_dspy.optimize.tracking.store import quiet, reason, redacted
from faith_dspy.schema import digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faith_dspy.optimize.tracking.store import Store

_KEY = "faith_dspy.watch"


class WatchRun:
    """The run in MLflow that holds the looks at one judge on one anchor set.

    ``judge``: the judge's name, its place or its LM, which stays when a new version takes its place. Other labels, or
    another name, are another run. Raises `FaithDspyError` when the run cannot be read.
    """

    def __init__(self, store: Store, judge: str, labels: str, label_set_hash: str) -> None:
        self._store, self._client = store, store.client
        self._title = f"watch · {judge} · {labels}"
        self._tags = {_KEY: digest([judge, label_set_hash]), "faith_dspy.kind": "watch", "judge": judge,
                      "labels_file": labels, "label_set_hash": label_set_hash}  # fmt: skip
        self.run_id = ""
        self.before = History()
        try:
            with quiet():
                self._open()
        except ValidationError as exc:
            raise FaithDspyError(
                f"the last look in MLflow run {self.run_id} is not one that this version reads "
                f"({str(exc).splitlines()[0]}). Delete the run to begin anew."
            ) from exc
        except Exception as exc:
            raise FaithDspyError(f"MLflow at {redacted(store.uri)} cannot give the run: {reason(exc)}.") from exc

    def _open(self) -> None:
        query = f"tags.`{_KEY}` = '{self._tags[_KEY]}'"
        found = self._client.search_runs([self._store.experiment_id], query, max_results=1)
        if not found:
            tags = {**self._tags, "mlflow.source.name": "faith-dspy agree --track", "mlflow.source.type": "LOCAL"}
            found = [self._client.create_run(self._store.experiment_id, None, tags, self._title)]
        self.run_id = str(found[0].info.run_id)
        files = sorted(f.path for f in self._client.list_artifacts(self.run_id, "history"))
        if files:
            self.before = History(len(files), *(self._read(f) for f in (files[0], files[-1])))

    def _read(self, path: str) -> Look:
        text = Path(self._client.download_artifacts(self.run_id, path)).read_text(encoding="utf-8")
        return Look.model_validate_json(text)

    def add(self, found: Watched, more: Mapping[str, float | None]) -> None:
        """Record a look, with other figures of it; `FaithDspyError` when the store does not take it."""
        try:
            with quiet():
                self._add(found, more)
        except Exception as exc:
            raise FaithDspyError(
                f"MLflow at {redacted(self._store.uri)} did not take this look: {reason(exc)}. The next one will be "
                "compared with the one before."
            ) from exc

    def _add(self, found: Watched, more: Mapping[str, float | None]) -> None:
        from mlflow.entities import Metric, RunTag

        self._client.log_text(self.run_id, json.dumps(flips_table(found), ensure_ascii=False), "flips.json")
        now = int(time.time() * 1000)
        metrics = {**_metrics(found), **more}
        tags = {
            NOTE: note(found),
            "alarms": "; ".join(found.alarms) or "none",
            "mlflow.loggedArtifacts": json.dumps([{"path": "flips.json", "type": "table"}]),
        }
        self._client.log_batch(
            self.run_id,
            [Metric(k, round(float(v), 4), now, found.step) for k, v in metrics.items() if v is not None],
            [],
            [RunTag(k, v[:5000]) for k, v in tags.items()],
        )
        # Last: a look that is only half recorded is no step.
        self._client.log_text(self.run_id, found.now.model_dump_json(), f"history/{found.step:06d}.json")
        self._client.set_terminated(self.run_id, "FINISHED")


def _metrics(found: Watched) -> dict[str, float | None]:
    a = found.now.agreement
    out: dict[str, float | None] = {"coverage": a.coverage, "alarms": len(found.alarms)}
    for name in ("balanced_accuracy", "auroc", "cohen_kappa"):
        e = getattr(a, name)
        out |= {name: e.value, f"{name}_low": e.low, f"{name}_high": e.high}
    scores = [v.score for v in found.now.verdicts if v.score is not None]
    out["mean_score"] = sum(scores) / len(scores) if scores else None
    out["flips"] = len(found.flips) if found.step else None
    return out | {f"drift_of_{d.of}_since_{d.since}": d.distance for d in found.drifts}


def flips_table(found: Watched) -> dict[str, Any]:
    """The flips as MLflow's page shows tables."""
    columns = ("right now", "people", "before", "now", "answer", "id")
    words = {True: "faithful", False: "unfaithful", None: "unscored"}
    rows = [
        ["yes" if f.now == f.label else "NO", words[f.label], words[f.before], words[f.now], f.answer, f.id]
        for f in found.flips
    ]
    return {"columns": columns, "data": rows}


def note(found: Watched) -> str:
    """The look in Markdown: alarms first."""
    a = found.now.agreement
    lines = [*(f"- **Alarm:** {alarm}" for alarm in found.alarms)] or ["No alarm."]
    lines += ["", f"{found.now.at}, look {found.step + 1}: balanced accuracy {estimate(a.balanced_accuracy)} on {a.n} "
                  f"answers, {a.coverage:.0%} scored."]  # fmt: skip
    lines += [f"- {sentence}" for sentence in sentences(found)]
    return "\n".join([*lines, "", "What flipped: `flips.json` under *Artifacts*."])
