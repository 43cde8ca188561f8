"""Finished studies, read again from ``study.json`` files, from runs in MLflow, and from exported judges."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from faith_dspy.artifact import load_judge
from faith_dspy.errors import FaithDspyError, InputError
from faith_dspy.optimize.results import PredictionRow, StudyResult
from faith_dspy.optimize.tracking.store import connect, existing_client, mlflow_errors, redacted, resolve_uri
from faith_dspy.schema import Usage
from faith_dspy.scoring.agreement import Agreement

if TYPE_CHECKING:
    from collections.abc import Sequence

STUDY_FILE = "study.json"
_MOST = 200  # studies of a store that are looked through, the newest first


class StudyRecord(BaseModel):
    """What comparing studies needs of one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    """As the user named it: folder, file, run or study id."""
    study_id: str
    labels_file: str
    label_set_hash: str
    lm: str
    champion: str
    agreement: Agreement
    """The champion's, on the testset."""
    untuned: Agreement | None = None
    baseline: Agreement | None = None
    """The lexical baseline's."""
    ceiling: Agreement | None = None
    """One annotator against the others."""
    verdict: str | None = None
    """How the champion compares with the untuned judge."""
    finished: bool = True
    budget: str | None = None
    seed: int | None = None
    tokens: float | None = None
    """Computed tokens per answer, for the champion."""
    minutes: float | None = None
    rows: tuple[PredictionRow, ...] = ()
    """The champion's test predictions; empty where only an exported judge is left."""


def read_study(source: str, tracking_uri: str | None = None) -> StudyResult:
    """A finished study, without the texts that were judged.

    Args:
        source: a ``study.json``; or a study id or run id in MLflow, or the first six or more characters of one.
        tracking_uri: default MLFLOW_TRACKING_URI, else ``mlflow.db`` in the working folder.

    Raises:
        InputError: there is no such study; the message names those there are. Or it is not finished.
        FaithDspyError: the store does not answer.
    """
    path = Path(source)
    if path.is_file():
        return _parse(path.read_text(encoding="utf-8"), source)
    uri = resolve_uri(tracking_uri)
    with mlflow_errors(uri):
        client = existing_client(uri)
        runs = _study_runs(client, [e.experiment_id for e in client.search_experiments()]) if client else []
        run = _find(runs, source.removeprefix("runs:/"))
        if run is not None:
            return read_result(client, run.info.run_id)
    names = [f"{r.info.run_id[:8]} ({r.data.params.get('labels_file', '?')})" for r in runs[:5]]
    there = f"There: {', '.join(names) or 'no study at all'}." if client else "That store does not exist."
    raise InputError(
        f"{source}: neither a folder of an exported judge, a {STUDY_FILE}, nor a study in {redacted(uri)}. {there}"
    )


def read_result(client: Any, run_id: str) -> StudyResult:
    """The `StudyResult` that a study's run in MLflow holds; `InputError` where it holds none."""
    where = f"MLflow run {run_id[:8]}"
    try:
        text = Path(client.download_artifacts(run_id, STUDY_FILE)).read_text(encoding="utf-8")
    except Exception as exc:
        raise InputError(f"{where}: has no {STUDY_FILE}; the study was not finished. Run it again to go on.") from exc
    return _parse(text, where)


def read_record(source: str, tracking_uri: str | None = None) -> StudyRecord:
    """A study's `StudyRecord`. ``source`` may also be the folder of an exported judge.

    Of a folder, the test predictions are taken from MLflow if its study is there.
    """
    if not Path(source).is_dir():
        return record(read_study(source, tracking_uri), source)
    exported = _exported_record(Path(source))
    try:
        found = record(read_study(exported.study_id, tracking_uri), source)
    except FaithDspyError:
        return exported
    return found if found.agreement == exported.agreement else exported


def last_studies(experiment: str, tracking_uri: str | None = None, n: int = 10) -> list[StudyRecord]:
    """The last ``n`` finished studies of an MLflow experiment, the newest first; `InputError` if fewer than two."""
    uri = resolve_uri(tracking_uri)
    with mlflow_errors(uri):
        if existing_client(uri) is None:
            raise InputError(f"there is no MLflow store at {redacted(uri)}; name it with --tracking-uri.")
        store = connect(uri, experiment, create=False)
        runs = [r for r in _study_runs(store.client, [store.experiment_id]) if "champion" in r.data.tags][:n]
        if len(runs) < 2:
            raise InputError(f"experiment {experiment!r} has {len(runs)} finished studies, expected at least two.")
        return [record(read_result(store.client, r.info.run_id), r.info.run_id[:8]) for r in runs]


def record(result: StudyResult, source: str) -> StudyRecord:
    """What comparing studies needs of a result."""
    agreement = {t.name: t.agreement for t in result.test}
    champion, comparison = result.tested("champion"), result.comparisons.get("untuned")
    return StudyRecord(
        source=source,
        **result.model_dump(include={"study_id", "labels_file", "label_set_hash", "champion", "finished", "budget"}),
        seed=result.seed,
        lm=str(result.lm.get("name")),
        agreement=champion.agreement,
        untuned=agreement.get("untuned"),
        baseline=agreement.get("lexical-baseline"),
        ceiling=result.ceiling,
        verdict=comparison.verdict if comparison else None,
        tokens=champion.usage.computed_tokens / max(1, champion.agreement.n),
        minutes=result.seconds / 60,
        rows=tuple(champion.predictions),
    )


def _exported_record(folder: Path) -> StudyRecord:
    manifest = load_judge(folder).manifest
    fields = ("study_id", "labels_file", "label_set_hash", "agreement", "finished", "budget", "seed")
    try:
        return StudyRecord(
            source=str(folder),
            **{k: manifest[k] for k in fields if k in manifest},
            lm=manifest["lm"]["model"],
            champion=manifest["variant"],
            untuned=manifest.get("untuned_agreement"),
            baseline=manifest.get("lexical_baseline_agreement"),
            verdict=manifest.get("comparison", {}).get("untuned", {}).get("verdict"),
            minutes=manifest["seconds"] / 60 if "seconds" in manifest else None,
            tokens=Usage.model_validate(manifest["usage"]).computed_tokens / manifest["agreement"]["n"]
            if "usage" in manifest
            else None,
        )
    except (KeyError, TypeError, ValidationError) as exc:
        raise InputError(
            f"{folder}: this judge holds no study ({type(exc).__name__}: {str(exc).splitlines()[0]}); it was not made "
            "by `faith-dspy tune`, or by another version. Tune again, or name the study's run in MLflow."
        ) from exc


def _parse(text: str, where: str) -> StudyResult:
    try:
        result = StudyResult.model_validate(json.loads(text))
    except ValueError as exc:
        raise InputError(
            f"{where}: not a {STUDY_FILE} that this version reads ({str(exc).splitlines()[0]}). Expected the artifact "
            "of that name of a study's run in MLflow; `faith-dspy tune` writes it anew without asking the LM again."
        ) from exc
    if not result.test:
        raise InputError(f"{where}: this study has no test result; it was not finished. Run it again to go on.")
    return result


def _study_runs(client: Any, experiment_ids: Sequence[str]) -> list[Any]:
    query = "tags.`faith_dspy.kind` = 'study'"
    return list(client.search_runs(experiment_ids, query, order_by=["attributes.start_time DESC"], max_results=_MOST))


def _find(runs: Sequence[Any], key: str) -> Any | None:
    """The run with this run id or study id, or the only one with an id that begins with it."""
    ids = {r.info.run_id: (r, str(r.data.tags.get("faith_dspy.study_id", ""))) for r in runs}
    exact = [r for run_id, (r, study_id) in ids.items() if key in (run_id, study_id)]
    if exact or not re.fullmatch(r"[0-9a-f]{6,32}", key):
        return exact[0] if exact else None
    begins = [r for run_id, (r, study_id) in ids.items() if run_id.startswith(key) or study_id.startswith(key)]
    return begins[0] if len(begins) == 1 else None
