"""What MLflow's page of runs shows of a study: figures by name, and saved views that put those that matter first."""

from __future__ import annotations

import base64
import json
import time
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faith_dspy.schema import Usage
    from faith_dspy.scoring.agreement import Agreement

NOTE = "mlflow.note.content"
MAIN = ("balanced_accuracy", "auroc", "cohen_kappa")
MORE = ("mcc", "f1_unfaithful", "recall_unfaithful", "recall_faithful", "ece", "brier")
_ABOUT = (
    "Faithfulness judges tuned on human labels. A run is a study, the runs under it are its variants; *Views* shows "
    "either. `dev_*` is what variants are chosen by; only a study's `test_*` is agreement with people. A study's run "
    "tells in words what won, and holds the judge, the page of what it learned, and traces of the test."
)
_COSTS = ("computed_tokens_per_answer", "output_tokens_per_answer", "seconds_per_answer", "dollars_per_1000_answers")
_DEV = ("dev_balanced_accuracy", "dev_auroc", "dev_coverage")
_TEST = ("test_champion_balanced_accuracy", "test_baseline_balanced_accuracy")
_ASKED = ("granularity", "optimizer", "instruction", "lm")
_RUN_NAME = "attributes.`Run Name`"
_WIDE = {
    _RUN_NAME: 270,
    "tags.`study`": 220,
    "tags.`champion`": 150,
    "tags.`vs_baseline`": 150,
    "params.`lm`": 220,
}


def agreement(prefix: str, a: Agreement | None, names: Sequence[str] = MAIN) -> dict[str, float | None]:
    """Figures of an agreement, balanced accuracy with its interval."""
    if a is None:
        return {}
    out = {f"{prefix}_{name}": getattr(a, name).value for name in names}
    e = a.balanced_accuracy
    return out | {
        f"{prefix}_balanced_accuracy_low": e.low,
        f"{prefix}_balanced_accuracy_high": e.high,
        f"{prefix}_coverage": a.coverage,
    }


def usage(found: Usage, name: str, per: int) -> dict[str, float | None]:
    """Figures of a usage by ``per`` answers; nothing by none. Prompt tokens are the computed and the cached ones."""
    if not per:
        return {}
    fields = ("calls", "cached_tokens", "computed_tokens", "output_tokens", "seconds")
    return {name.format(field): getattr(found, field) / per for field in fields}


def dollars(found: Usage, answers: int) -> dict[str, float | None]:
    """The price of a thousand answers, where it is known: that of one would be all zeros."""
    known = answers and found.dollars is not None
    return {_COSTS[-1]: 1000 * (found.dollars or 0.0) / answers} if known else {}


def furnish(client: Any, experiment_id: str, there: Mapping[str, str]) -> None:
    """Description and saved views of the experiment's page; what a user has changed stays."""
    costs, dev, test = (_metrics(names) for names in (_COSTS, _DEV, _TEST))
    asked = [f"params.`{p}`" for p in _ASKED]
    variants = ["tags.`study`", *dev, "metrics.`dev_cohen_kappa`", *costs, *asked]
    studies = [dev[0], *test, "tags.`vs_baseline`", *costs, *dev[1:], "tags.`champion`", "attributes.`Models`"]
    tags = {
        "mlflow.experimentKind": "custom_model_development",
        NOTE: _ABOUT,
        "mlflow.sharedViewState.variants": _view(
            "Variants", variants, "metrics.`dev_selection`", "tags.faith_dspy.kind != 'study'"
        ),
        "mlflow.sharedViewState.studies": _view("Studies", studies, "attributes.start_time", ""),
    }
    for key, value in tags.items():
        if key not in there:
            client.set_experiment_tag(experiment_id, key, value)


def _metrics(names: Sequence[str]) -> list[str]:
    return [f"metrics.`{name}`" for name in names]


def _view(name: str, columns: Sequence[str], order_by: str, search: str) -> str:
    """A saved view, as the *Views* menu of MLflow 3.17 stores it. Columns are as wide as their names."""
    named = {c: max(110, 7 * len(c.split("`")[1]) + 26) for c in columns}
    state = {
        "searchFilter": search,
        "orderByKey": order_by,
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(columns),
        "columnOrder": [_RUN_NAME, *columns],  # only of columns in it are the widths used
        "columnWidths": named | _WIDE,
    }
    now = int(time.time() * 1000)
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    return json.dumps({"name": name, "createdAt": now, "updatedAt": now, "state": f"deflate;{packed}"})
