"""A judge in use, in MLflow: a run for each judge and set of labels, and each time it is measured a step."""

from __future__ import annotations

from faith_dspy.optimize.pass_rate import FaithfulShare
from faith_dspy.optimize.results import Comparison
from faith_dspy.optimize.tracking.metrics import (
    agreement_metrics,
    cost_metrics,
    with_ends,
)
from faith_dspy.optimize.tracking.store import Store, log_batch, mlflow_errors
from faith_dspy.schema import Usage, digest
from faith_dspy.scoring.agreement import JudgeAgreement

_KEY = "faith_dspy.monitor"


class MonitorRun:
    """The run of one judge and one set of labels.

    ``judge``: its name – a folder, an address in the registry, an LM – which stays when a new version takes its place.
    Other labels, or another name, are another run. `FaithDspyError` when the store fails.
    """

    def __init__(
        self, store: Store, judge: str, labels_file: str, label_set_hash: str
    ) -> None:
        self._store = store
        key = digest([judge, label_set_hash])
        tags = {
            _KEY: key,
            "faith_dspy.kind": "monitor",
            "judge": judge,
            "labels_file": labels_file,
            "label_set_hash": label_set_hash,
            "mlflow.source.name": "faith-dspy agree --track",
        }
        client = store.client
        with mlflow_errors(store.uri, "give the run"):
            runs = client.search_runs(
                [store.experiment_id], f"tags.`{_KEY}` = '{key}'", max_results=1
            )
            if not runs:
                name = f"{judge} on {labels_file}"
                runs = [client.create_run(store.experiment_id, None, tags, name)]
            self.run_id = str(runs[0].info.run_id)
            self.step = len(client.get_metric_history(self.run_id, "labelled/coverage"))

    def log(
        self,
        agreement: JudgeAgreement,
        usage: Usage,
        answers: int,
        share: FaithfulShare | None,
        pair: Comparison | None = None,
    ) -> None:
        """Log agreement, what judging the labelled ``answers`` took, the share of faithful answers in the traffic, and
        the difference to the first of several judges, as the next step; `FaithDspyError` when the store does not take
        them."""
        metrics = agreement_metrics("labelled", agreement)
        metrics |= cost_metrics(usage, answers)
        if share is not None:
            metrics |= with_ends("unlabelled/faithful_share", share.powered)
        if pair is not None:
            metrics |= with_ends("difference/balanced_accuracy", pair.balanced_accuracy)
        with mlflow_errors(self._store.uri, "take these figures"):
            log_batch(self._store.client, self.run_id, metrics, step=self.step)
            self._store.client.set_terminated(self.run_id, "FINISHED")
